"""What a Java virtual machine reports of its heap, from its hsperfdata file.

HotSpot maps /tmp/hsperfdata_USER/PID, with counters in a format that has not changed
since Java 1.4 (jdk.internal.perf, ``perfMemory.hpp``). It unlinks the file when it
exits, but a mapping that was made before shows the final counters.
"""

import os
import pwd
import struct
from collections.abc import Mapping, Sequence

from weigh.model.record import JvmHeap
from weigh.probe.proc import ProcessReading

_MAGIC = b"\xca\xfe\xc0\xc0"
_HEADER, _ENTRY = 32, 20  # bytes
_LARGEST = 1 << 20  # bytes of a file; HotSpot's have 32 KiB
_MOST = 16  # virtual machines followed
_TRIES = 6  # looks at a new process until it is taken for another program
_OLD = "sun.gc.generation.1"  # the counters of the old generation
_HEAP_FLAGS = (
    "-Xmx",
    "-XX:MaxHeapSize=",
    "-XX:MaxRAMPercentage=",
    "-XX:MaxRAMFraction=",
    "-XX:MaxRAM=",
)
# variables from which HotSpot takes options
_VARIABLES = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

Counters = Mapping[str, int | str]


def parse_perfdata(data: bytes) -> dict[str, int | str]:
    """Read the counters: numbers, and texts; empty if *data* is something else."""
    if data[:4] != _MAGIC or len(data) < _HEADER:
        return {}
    # byte order 0 is big-endian
    order = ">" if data[4] == 0 else "<"
    at, count = struct.unpack_from(f"{order}ii", data, 24)
    counters: dict[str, int | str] = {}
    for _ in range(count):
        # a damaged entry ends the list
        if at < _HEADER or at + _ENTRY > len(data):
            break
        length, name_at, size = struct.unpack_from(f"{order}iii", data, at)
        value_at: int = struct.unpack_from(f"{order}i", data, at + 16)[0]
        kind = data[at + 12 : at + 13]
        if length < _ENTRY or not _ENTRY <= name_at < length:
            break
        name = data[at + name_at : at + length].partition(b"\0")[0].decode("latin-1")
        start = at + value_at
        # J is a long, B a text of bytes
        if kind == b"J" and 0 <= start <= len(data) - 8:
            counters[name] = struct.unpack_from(f"{order}q", data, start)[0]
        elif kind == b"B" and start >= 0 and size > 0:
            text = data[start : start + size].partition(b"\0")[0]
            counters[name] = text.decode("utf-8", "replace")
        at += length
    return counters


def jvm_of(counters: Counters, options: Sequence[str] = ()) -> JvmHeap | None:
    """Return what the counters of one virtual machine mean; None without a heap.

    *options* are those that it got from variables of its environment.
    """
    flags = [*str(counters.get("java.rt.vmArgs", "")).split(), *options]
    collectors = range(4)
    collections = sum(
        _jvm_counter(counters, f"sun.gc.collector.{n}.invocations") for n in collectors
    )
    limit = _jvm_counter(counters, f"{_OLD}.maxCapacity")
    name = str(counters.get("sun.gc.policy.name", ""))
    if not limit:
        return None
    if "Copy" in name or "Par" in name or "MarkSweep" in name:
        # the old generation alone; G1 has the whole heap in each
        limit += _jvm_counter(counters, "sun.gc.generation.0.maxCapacity")
    stopped = _jvm_counter(counters, "sun.rt.safepointTime")
    went = _jvm_counter(counters, "sun.rt.applicationTime")
    # before the first collection, what is used includes garbage
    used = _jvm_counter(counters, f"{_OLD}.space.0.used")
    return JvmHeap(
        heap_limit=limit,
        live=used if collections and used else None,
        collections=collections,
        paused=stopped / (stopped + went) if stopped + went > 0 else None,
        flags=tuple(flag for flag in flags if flag.startswith(_HEAP_FLAGS)),
        metaspace=_jvm_counter(counters, "sun.gc.metaspace.used") or None,
    )


def _jvm_counter(counters: Counters, name: str) -> int:
    value = counters.get(name, 0)
    return value if isinstance(value, int) else 0


class JvmWatch:
    """Keeps the counters of the virtual machines in a tree."""

    def __init__(self, *, proc_folder: str = "/proc", folder: str = "/tmp") -> None:  # noqa: S108 - HotSpot ignores TMPDIR
        self._proc = proc_folder
        self._folder = folder
        self._users: dict[int, str | None] = {}
        self._tries: dict[int, int] = {}
        self._found: dict[int, tuple[memoryview, tuple[str, ...]]] = {}
        self._sizes: dict[int, int] = {}  # bytes

    def look(self, readings: Sequence[ProcessReading]) -> None:
        """Map the counters of each new virtual machine."""
        for reading in readings:
            pid = reading.pid
            if pid in self._found:
                self._sizes[pid] = max(self._sizes.get(pid, 0), reading.peak)
                continue
            tries = self._tries.get(pid, 0)
            # not every process is a virtual machine, and its file comes a little later
            if tries >= _TRIES or len(self._found) >= _MOST:
                continue
            self._tries[pid] = tries + 1
            data = self._map(pid)
            if data is not None:
                self._found[pid] = data, self._options(pid)
                self._sizes[pid] = reading.peak

    def largest(self) -> JvmHeap | None:
        """Return the virtual machine with the largest peak memory; None without any."""
        for pid in sorted(self._found, key=lambda pid: -self._sizes[pid]):
            view, options = self._found[pid]
            jvm = jvm_of(parse_perfdata(bytes(view)), options)
            if jvm is not None:
                return jvm
        return None

    def _map(self, pid: int) -> memoryview | None:
        name = self._user(pid)
        if name is None:
            return None
        path = f"{self._folder}/hsperfdata_{name}/{pid}"
        # in a container, /tmp is another folder
        for root in ("", f"{self._proc}/{pid}/root"):
            # a symbolic link there may be another user's
            try:
                fd = os.open(root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                import mmap  # noqa: PLC0415 - only with Java

                size = os.fstat(fd).st_size
                if 0 < size <= _LARGEST:
                    return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
            except (OSError, ValueError):
                continue
            finally:
                os.close(fd)
        return None

    def _user(self, pid: int) -> str | None:
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:  # then there is no such file either
                self._users[uid] = None
        return self._users[uid]

    def _options(self, pid: int) -> tuple[str, ...]:
        """Return the heap's options from variables, which are not among vmArgs."""
        try:
            with open(f"{self._proc}/{pid}/environ", "rb", buffering=0) as file:
                text = file.readall()
        except OSError:
            return ()
        found = []
        for word in (text or b"").split(b"\0"):
            name, _, value = os.fsdecode(word).partition("=")
            if name in _VARIABLES:
                found += [w for w in value.split() if w.startswith(_HEAP_FLAGS)]
        return tuple(found)
