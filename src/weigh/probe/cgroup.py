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


def memory_folder(
    cgroup_text: str, root: str = "/sys/fs/cgroup", controller: str = "memory"
) -> tuple[str, int]:
    """Find a controller's folder and version from the text of /proc/self/cgroup.

    Raises:
        ValueError: a line has another form.
    """
    unified = ""
    for line in cgroup_text.splitlines():
        # version 1 has hierarchies of their own, and memory is one
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return f"{root}/{controller}{path.rstrip('/')}", 1
        # the line of version 2 names no controller
        if not controllers:
            unified = path.rstrip("/")
    return f"{root}{unified}", 2


def group_folders(
    controller: str, proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[list[str], int]:
    """Return our group of a controller and all above it, and the version.

    What limits a group holds in those below it too. None where they are not readable.
    """
    text = _read_cgroup_file(f"{proc_folder}/self/cgroup")
    try:
        folder, version = memory_folder(text, root, controller)
    except ValueError:
        return [], 2
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
    try:
        folder, version = _counted_group(proc_folder, root)
    except ValueError:
        return CgroupReading()
    peak = _read_cgroup_file(f"{folder}/{_PEAK[version]}")
    events = _read_cgroup_file(f"{folder}/{_EVENTS[version]}")
    return CgroupReading(_cgroup_number(peak), _oom_kills(events))


def _counted_group(
    proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> tuple[str, int]:
    """Return the folder of the group that counts this process's memory, its version.

    Raises:
        ValueError: the group is not known.
    """
    text = _read_cgroup_file(f"{proc_folder}/self/cgroup")
    if not text:
        raise ValueError("no control group")
    folder, version = memory_folder(text, root)
    # a group without the controller of its own is counted in the one above
    while version != 1 and len(folder) > len(root):
        if os.path.exists(f"{folder}/memory.events"):
            break
        folder = folder.rpartition("/")[0]
    return folder, version


def read_oom_kills_of_group(folder: str) -> int | None:
    """Read the out-of-memory kills in a group of version 1; None if unknown."""
    return _oom_kills(_read_cgroup_file(f"{folder}/{_EVENTS[1]}"))


class OomKillCount:
    """The out-of-memory kills in our group, from a file that stays open.

    ``weigh exec`` reads it at both ends of each task, which opening it makes 0.4 ms.
    """

    def __init__(self) -> None:
        self._fd = -1  # unknown
        with suppress(ValueError, OSError):
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
_FIGURE_BYTES = 64  # bytes of a file with one number
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_EVENTS = {1: "memory.oom_control", 2: "memory.events"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_KERNEL_MEMORY = "memory.kmem.usage_in_bytes"
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
        if version == 1:
            shared = figures[b"total_shmem"]
            return GroupMemory(
                anonymous=figures[b"total_rss"],
                shared=shared,
                kernel=kernel or 0,
                cache=max(0, figures[b"total_cache"] - shared),
                reclaimable=0,
                usage=usage,
                peak=peak,
            )
        shared = figures[b"shmem"]
        reclaimable = figures.get(b"slab_reclaimable", 0)
        if b"kernel" in figures:
            own = figures[b"kernel"] - reclaimable
        else:
            own = sum(figures.get(name, 0) for name in _OF_KERNEL)
        return GroupMemory(
            anonymous=figures[b"anon"],
            shared=shared,
            kernel=max(0, own) + figures.get(b"sock", 0),
            cache=max(0, figures[b"file"] - shared),
            reclaimable=reclaimable,
            usage=usage,
            peak=peak,
        )
    except KeyError as error:
        raise ValueError(f"memory.stat has no {error}") from error


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
        try:
            for name in ("memory.stat", _USAGE[version]):
                self._fds[name] = os.open(f"{folder}/{name}", _READ_ONLY)
        except OSError:
            self.close()
            raise
        # memory.peak came with Linux 5.19, the other file is of version 1
        for name in (_PEAK[version], _KERNEL_MEMORY):
            try:
                self._fds[name] = os.open(f"{folder}/{name}", _READ_ONLY)
            except OSError:
                continue

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
        return None if fd is None else int(os.pread(fd, _FIGURE_BYTES, 0))
