"""Read a control group: its memory, its peak and its out-of-memory kills.

The path comes from /proc/self/cgroup, never from a job id: the names differ by site.
Both versions of the interface are read. What the out-of-memory killer weighs against
the limit, without the page cache that the kernel drops first, is

    version 1  total_rss + total_shmem + memory.kmem.usage_in_bytes
    version 2  anon + shmem + kernel - slab_reclaimable + sock

Before Linux 5.18, ``kernel`` of version 2 is kernel_stack + pagetables + percpu + slab
(Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel).
"""

import os
from contextlib import suppress

import msgspec

from weigh.regular_file import file_head
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


def parse_groups(cgroup_text: str) -> dict[str, str]:
    """Read /proc/self/cgroup: the path of our group by controller of version 1.

    The line of version 2 names no controller: its path is that of "".
    """
    groups: dict[str, str] = {}
    for line in cgroup_text.splitlines():
        controllers, colon, path = line.partition(":")[2].partition(":")
        if colon:
            groups.update(dict.fromkeys(controllers.split(","), path.rstrip("/")))
    return groups


def memory_folder(
    cgroup_text: str, root: str = "/sys/fs/cgroup", controller: str = "memory"
) -> tuple[str, int]:
    """Find a controller's folder and version from the text of /proc/self/cgroup."""
    groups = parse_groups(cgroup_text)
    if controller in groups:
        return f"{root}/{controller}{groups[controller]}", 1
    return f"{root}{groups.get('', '')}", 2


def group_folders(
    controller: str, proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[list[str], int]:
    """Return our group of a controller and all above it, and the version.

    What limits a group holds in those below it too. None where they are not readable.
    """
    text = _read_cgroup_file(f"{proc_folder}/self/cgroup")
    folder, version = memory_folder(text, root, controller)
    top = f"{root}/{controller}" if version == 1 else root
    folders = []
    while len(folder) >= len(top):
        folders.append(folder)
        folder = folder.rpartition("/")[0]
    return folders, version


def read_cgroup(
    proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> CgroupReading:
    """Read this process's memory group; unknown fields are None."""
    folder, version = _counted_group(proc_folder, root)
    peak = _read_cgroup_file(f"{folder}/{_PEAK[version]}")
    events = _read_cgroup_file(f"{folder}/{_EVENTS[version]}")
    return CgroupReading(_cgroup_number(peak), _oom_kills(events))


def _counted_group(
    proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[str, int]:
    """Return the folder of the group that counts this process's memory, its version.

    The folder is one without files where the group is not known.
    """
    folders, version = group_folders("memory", proc_folder, root)
    # a group without the controller of its own is counted in the one above
    counted = (one for one in folders if os.path.exists(f"{one}/{_EVENTS[version]}"))
    return next(counted, os.devnull), version


def read_oom_kills_of_group(folder: str) -> int | None:
    """Read the out-of-memory kills in a group of version 1; None if unknown."""
    return _oom_kills(_read_cgroup_file(f"{folder}/{_EVENTS[1]}"))


class OomKillCount:
    """The out-of-memory kills in our group, from a file that stays open.

    ``weigh exec`` reads it at both ends of each task, which opening it makes 0.4 ms.
    """

    def __init__(self) -> None:
        self._fd = -1  # unknown
        with suppress(OSError):
            folder, version = _counted_group()
            self._fd = os.open(f"{folder}/{_EVENTS[version]}", _READ_ONLY)

    def read(self) -> int | None:
        """Return the kills since the group was made; None if unknown."""
        try:
            text = os.pread(self._fd, _STAT_BYTES, 0)
        except OSError:  # no group, or it is gone
            return None
        return _oom_kills(text.decode("ascii", "replace"))


def limited_groups(
    proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[dict[str, Bytes], int]:
    """Return our memory group and those above it that have a limit, and the version.

    Keys are folders, values bytes; none where the groups cannot be read.
    """
    folders, version = group_folders("memory", proc_folder, root)
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    groups = {}
    for folder in folders:
        limit = _cgroup_number(_read_cgroup_file(f"{folder}/{name}"))
        if limit is not None and limit < _VOID:
            groups[folder] = limit
    return groups, version


def read_memory_limit() -> Bytes | None:
    """Return the tightest memory limit of our control groups; None without one."""
    return min(limited_groups()[0].values(), default=None)


def _oom_kills(events: str) -> int | None:
    for line in events.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return _cgroup_number(count)
    return None


def _cgroup_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _read_cgroup_file(path: str) -> str:
    """Read a file; empty where it is not readable."""
    return file_head(path).decode(errors="replace")


_STAT_BYTES = 16384  # bytes of memory.stat
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_EVENTS = {1: "memory.oom_control", 2: "memory.events"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_KERNEL_MEMORY = "memory.kmem.usage_in_bytes"
_IN_STAT = {
    1: (b"total_rss", b"total_shmem", b"total_cache"),
    2: (b"anon", b"shmem", b"file"),
}
_OF_KERNEL = (b"kernel_stack", b"pagetables", b"percpu", b"slab_unreclaimable")
_READ_ONLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class GroupMemory(msgspec.Struct, frozen=True, gc=False):
    """Bytes charged to a group, and all below it.

    ``cache`` is page cache without shared memory, ``reclaimable`` other memory that
    the kernel drops first. ``usage`` is everything now, and ``peak`` was everything at
    most; None where the kernel keeps no peak.
    """

    anonymous: Bytes
    shared: Bytes
    kernel: Bytes
    cache: Bytes
    reclaimable: Bytes
    usage: Bytes
    peak: Bytes | None


def parse_memory_stat(
    version: int,
    stat: bytes,
    *,
    usage: Bytes,
    peak: Bytes | None = None,
    kernel: Bytes | None = None,
) -> GroupMemory:
    """Read memory.stat of a control group of *version* 1 or 2.

    *usage*, *peak* and, of version 1, *kernel* are from files of their own.

    Raises:
        ValueError: a figure is missing or has another form.
    """
    words = stat.split()
    figures = dict(zip(words[::2], map(int, words[1::2]), strict=False))
    try:
        anonymous, shared, cached = (figures[name] for name in _IN_STAT[version])
    except KeyError as error:
        raise ValueError(f"memory.stat has no {error}") from error
    # of version 1 the kernel's is not in this file
    reclaimable = figures.get(b"slab_reclaimable", 0) if version > 1 else 0
    if kernel is None and b"kernel" in figures:
        kernel = max(0, figures[b"kernel"] - reclaimable)
    elif kernel is None:
        kernel = sum(figures.get(name, 0) for name in _OF_KERNEL)
    return GroupMemory(
        anonymous=anonymous,
        shared=shared,
        kernel=kernel + figures.get(b"sock", 0),
        cache=max(0, cached - shared),
        reclaimable=reclaimable,
        usage=usage,
        peak=peak,
    )


class GroupGauge:
    """Reads one group, of ``version`` 1 or 2, again and again."""

    def __init__(self, folder: str, version: int) -> None:
        """Open the group's files.

        Raises:
            OSError: they are missing or not readable.
        """
        self.folder = folder
        self.version = version
        self._fds: dict[str, int] = {}
        needed = ("memory.stat", _USAGE[version])
        # memory.peak came with Linux 5.19, the last one is of version 1
        for name in (*needed, _PEAK[version], _KERNEL_MEMORY):
            try:
                self._fds[name] = os.open(f"{folder}/{name}", _READ_ONLY)
            except OSError:
                if name in needed:
                    self.close()
                    raise

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}

    def read(self) -> GroupMemory:
        """Read the figures.

        Raises:
            OSError: the group is gone.
            ValueError: a figure is missing or has another form.
        """
        # the peak first: what comes after it belongs to the next reading
        peak = self._figure(_PEAK[self.version])
        usage = self._figure(_USAGE[self.version])
        return parse_memory_stat(
            self.version,
            os.pread(self._fds["memory.stat"], _STAT_BYTES, 0),
            usage=usage or 0,
            peak=peak,
            kernel=self._figure(_KERNEL_MEMORY),
        )

    def members(self) -> set[int] | None:
        """Return the process ids in the group itself; None if it is not readable.

        0 stands for processes of other pid namespaces.
        """
        try:
            with open(f"{self.folder}/cgroup.procs", "rb") as procs:
                return {int(line) for line in procs}
        except (OSError, ValueError):
            return None

    def _figure(self, name: str) -> Bytes | None:
        fd = self._fds.get(name)
        return None if fd is None else int(os.pread(fd, _STAT_BYTES, 0))
