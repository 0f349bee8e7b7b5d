"""Read the job's own control group: its peak and its out-of-memory kills.

The path comes from /proc/self/cgroup, never from a job id: the names differ by site.
Both versions of the interface are read.
"""

import os

import msgspec

from weigh.units import Bytes

_VOID = 1 << 60  # version 1's value for no limit


class CgroupReading(msgspec.Struct, frozen=True):
    """``peak`` counts page cache too; ``oom_kills`` since the group was made."""

    peak: Bytes | None = None
    oom_kills: int | None = None

    def kills_since(self, before: "CgroupReading") -> int | None:
        """Return the out-of-memory kills since *before*; None if unknown."""
        if before.oom_kills is None or self.oom_kills is None:
            return None
        return self.oom_kills - before.oom_kills


def memory_folder(cgroup_text: str, root: str = "/sys/fs/cgroup") -> tuple[str, int]:
    """Find the memory group's folder and version from the text of /proc/self/cgroup.

    Raises:
        ValueError: a line has another form.
    """
    unified = ""
    for line in cgroup_text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return f"{root}/memory{path.rstrip('/')}", 1
        if not controllers:
            unified = path.rstrip("/")
    return f"{root}{unified}", 2


def read_cgroup(proc: str = "/proc", root: str = "/sys/fs/cgroup") -> CgroupReading:
    """Read this process's memory group; unknown fields are None."""
    text = _read(f"{proc}/self/cgroup")
    if text is None:
        return CgroupReading()
    try:
        folder, version = memory_folder(text, root)
    except ValueError:
        return CgroupReading()
    if version == 1:
        peak = _read(f"{folder}/memory.max_usage_in_bytes")
        events = _read(f"{folder}/memory.oom_control")
    else:
        folder = _accounted(folder, root)
        peak = _read(f"{folder}/memory.peak")
        events = _read(f"{folder}/memory.events")
    return CgroupReading(_number(peak), _oom_kills(events or ""))


def limited_groups(
    proc: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[dict[str, Bytes], int]:
    """Return our memory group and those above it that have a limit, and the version.

    Keys are folders, values bytes; none where the groups cannot be read.
    """
    try:
        folder, version = memory_folder(_read(f"{proc}/self/cgroup") or "", root)
    except ValueError:
        return {}, 2
    top = f"{root}/memory" if version == 1 else root
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    groups = {}
    while len(folder) >= len(top):
        limit = _number(_read(f"{folder}/{name}"))
        if limit is not None and limit < _VOID:
            groups[folder] = limit
        folder = folder.rpartition("/")[0]
    return groups, version


def read_memory_limit() -> Bytes | None:
    """Return the tightest memory limit of our control groups; None without one."""
    return min(limited_groups()[0].values(), default=None)


def _accounted(folder: str, root: str) -> str:
    """Return the nearest group, upwards, whose memory is counted."""
    while len(folder) > len(root) and not os.path.exists(f"{folder}/memory.events"):
        folder = folder.rpartition("/")[0]
    return folder


def _oom_kills(events: str) -> int | None:
    for line in events.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return _number(count)
    return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
