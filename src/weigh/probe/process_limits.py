"""Read the resource limits of this process, as ulimit shows them."""

import os

from weigh.model.doctor import Limits

_FAST_NETWORK = "/sys/class/infiniband"
_CORE_PATTERN = "/proc/sys/kernel/core_pattern"


def read_limits(root: str = "") -> Limits | None:
    """Read the soft limits of this process; None where the system has none."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None

    def soft(name: str) -> int | None:
        number = getattr(resource, name, None)
        if number is None:
            return None
        limit = resource.getrlimit(number)[0]
        return None if limit == resource.RLIM_INFINITY else limit

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Limits(
        open_files=soft("RLIMIT_NOFILE"),
        most_open_files=None if hard == resource.RLIM_INFINITY else hard,
        processes=soft("RLIMIT_NPROC"),
        locked_memory=soft("RLIMIT_MEMLOCK"),
        core=soft("RLIMIT_CORE"),
        core_is_piped=_first_byte(root + _CORE_PATTERN) == b"|",
        address_space=soft("RLIMIT_AS"),
        cpu_time=soft("RLIMIT_CPU"),
        file_size=soft("RLIMIT_FSIZE"),
        has_fast_network=os.path.isdir(root + _FAST_NETWORK),
    )


def _first_byte(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1)
    except OSError:
        return b""
