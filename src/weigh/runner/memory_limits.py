"""Memory limits and their usage: how much is left before the kernel kills a process.

A control group's usage counts without inactive page cache, which the kernel frees
first. Every group up to the root may have a limit; the one with least left counts.
"""

import os

import msgspec

from weigh.probe.cgroup import limited_groups
from weigh.units import KIB, Bytes, Seconds

_STAT_BYTES = 16384  # read of a file, at most


class MemoryRoom(msgspec.Struct, frozen=True):
    """A memory limit, and how much of it is used."""

    used: Bytes
    limit: Bytes

    @property
    def free(self) -> Bytes:
        """Return how much is left."""
        return self.limit - self.used


class GpuRoom(msgspec.Struct, frozen=True):
    """A GPU's memory *at* a time on the monotonic clock; ``label`` names the GPU."""

    room: MemoryRoom
    at: Seconds
    label: str


class MachineMemoryGauge:
    """Reads the limits of this machine; *limit* applies to the tasks' own memory."""

    def __init__(
        self,
        limit: Bytes | None = None,
        *,
        proc_folder: str = "/proc",
        root: str = "/sys/fs/cgroup",
    ) -> None:
        self._limit = limit
        self._proc = proc_folder
        self._groups, self._version = limited_groups(proc_folder, root)
        self.is_grouped = bool(self._groups)
        self.is_limited = self.is_grouped or limit is not None  # to less than all

    def tightest(self, tasks: Bytes) -> MemoryRoom | None:
        """Return the limit with least left; the tasks together hold *tasks* bytes."""
        rooms = [self._read(folder, limit) for folder, limit in self._groups.items()]
        # without a group, or within its limit, the machine may run out first
        rooms.append(self._machine())
        if self._limit is not None:
            rooms.append(MemoryRoom(tasks, self._limit))
        known = [room for room in rooms if room is not None]
        return min(known, key=lambda room: room.free, default=None)

    def _read(self, folder: str, limit: Bytes) -> MemoryRoom | None:
        names = {1: ("memory.usage_in_bytes", b"total_inactive_file")}
        name, key = names.get(self._version, ("memory.current", b"inactive_file"))
        used = _decimal_or_none(_cgroup_file_bytes(f"{folder}/{name}"))
        if used is None:
            return None
        # so that a key matches only where a line begins
        stat = b"\n" + _cgroup_file_bytes(f"{folder}/memory.stat")
        _, _, rest = stat.partition(b"\n" + key + b" ")
        cache = _decimal_or_none(rest.partition(b"\n")[0]) or 0
        return MemoryRoom(max(0, used - cache), limit)

    def _machine(self) -> MemoryRoom | None:
        """Read the whole machine: MemTotal and MemAvailable."""
        # MemTotal, MemFree, MemAvailable: three lines of three words
        words = _cgroup_file_bytes(f"{self._proc}/meminfo").split(None, 9)
        if words[0:1] != [b"MemTotal:"] or words[6:7] != [b"MemAvailable:"]:
            return None
        total, available = _decimal_or_none(words[1]), _decimal_or_none(words[7])
        if total is None or available is None:
            return None
        return MemoryRoom((total - available) * KIB, total * KIB)


def _decimal_or_none(file_content: bytes) -> int | None:
    digits = file_content.strip()
    return int(digits) if digits.isdigit() else None


def _cgroup_file_bytes(file_path: str) -> bytes:
    try:
        fd = os.open(file_path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _STAT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
