"""Read which machine this is, and which of its CPUs and memory are usable."""

import os
from collections.abc import Mapping

from weigh.model.record import Host
from weigh.units import Bytes


def read_host(proc: str = "/proc", etc: str = "/etc") -> Host:
    """Read the machine's name, kernel, identity, usable CPUs and memory."""
    name, system, kernel = _names()
    return Host(
        name=name,
        system=system,
        kernel=kernel,
        machine_id=_first_line(f"{etc}/machine-id"),
        boot_id=_first_line(f"{proc}/sys/kernel/random/boot_id"),
        cpus=_usable_cpus(),
        memory=_total_memory(_first_line(f"{proc}/meminfo")),
    )


def _names() -> tuple[str, str, str | None]:
    """Return (host name, system, kernel); Windows has no uname."""
    if not hasattr(os, "uname"):
        return os.environ.get("COMPUTERNAME", "localhost"), "Windows", None
    uname = os.uname()
    return uname.nodename, uname.sysname, uname.release


def is_login_node(env: Mapping[str, str]) -> bool:
    """Return whether a scheduler's commands exist, outside of any of its jobs."""
    if "SLURM_JOB_ID" in env or "SGE_TASK_ID" in env:
        return False
    return any(
        os.access(os.path.join(folder, command), os.X_OK)
        for folder in env.get("PATH", "").split(os.pathsep)
        for command in ("sbatch", "qsub")
    )


def _usable_cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _total_memory(meminfo: str | None) -> Bytes | None:
    """Read ``MemTotal:  16384 kB``, meminfo's first line."""
    words = (meminfo or "").split()
    if words[:1] != ["MemTotal:"] or words[2:] != ["kB"] or not words[1].isdecimal():
        return None
    return int(words[1]) * 1024


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None
