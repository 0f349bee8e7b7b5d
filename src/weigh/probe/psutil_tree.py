"""Read a process tree through psutil, where there is no /proc: macOS and Windows.

The systems differ. Windows knows every process's own peak; macOS does not,
nor the pages a process shares, nor its disk traffic; neither knows the CPU time of
children that have ended. Unknown figures are None.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import msgspec

from weigh.units import MIB, Bytes, Seconds

Number = TypeVar("Number", int, float)

_MATERIAL = 1.01  # of the largest sum so far, to be worth reading what is shared


class MemoryInfo(Protocol):
    """The figures of every system; Windows adds ``peak_wset``."""

    rss: Bytes
    vms: Bytes


class CpuTimes(Protocol):
    """A process's own CPU time."""

    user: Seconds
    system: Seconds


class PsutilThread(Protocol):
    """A thread's id."""

    id: int


class PsutilProcess(Protocol):
    """The part of ``psutil.Process`` used here; equal when pid and start are."""

    pid: int

    def __hash__(self) -> int: ...
    def children(self, *, recursive: bool) -> "list[PsutilProcess]": ...  # noqa: D102
    def is_running(self) -> bool: ...  # noqa: D102
    def status(self) -> str: ...  # noqa: D102
    def oneshot(self) -> AbstractContextManager[None]: ...  # noqa: D102
    def memory_info(self) -> MemoryInfo: ...  # noqa: D102
    def threads(self) -> list[PsutilThread]: ...  # noqa: D102
    def cpu_times(self) -> CpuTimes: ...  # noqa: D102
    def send_signal(self, number: int) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102


class PsutilModule(Protocol):
    """The part of the psutil module used here."""

    STATUS_ZOMBIE: str
    Error: type[Exception]
    NoSuchProcess: type[Exception]
    ZombieProcess: type[Exception]

    def Process(self, pid: int) -> PsutilProcess: ...  # noqa: N802, D102 - psutil's name


class TreeReading(msgspec.Struct, frozen=True):
    """One look at a process tree.

    ``memory`` adds up resident sets, with a peak in place of one where it is known to
    have risen since the look before; shared pages count in each process.
    ``memory_high`` adds up the most each process is known to have held, with those
    that ended since. ``largest_process`` is the most one process ever held;
    ``unshared`` what no two processes share, looked at only near a new peak.
    ``virtual_memory`` and ``cpu_time`` are of the live processes; ``unread`` is how
    many of them may not be read.
    """

    memory: Bytes
    memory_high: Bytes
    largest_process: Bytes
    virtual_memory: Bytes | None
    cpu_time: Seconds | None
    processes: int
    unshared: Bytes | None = None
    unread: int = 0


class ProcessTotals(msgspec.Struct, frozen=True):
    """What processes were last seen to have used, those that ended included."""

    user_time: Seconds | None = None
    system_time: Seconds | None = None
    read_bytes: Bytes | None = None
    write_bytes: Bytes | None = None

    def __add__(self, other: "ProcessTotals") -> "ProcessTotals":
        return ProcessTotals(
            _sum_of_known((self.user_time, other.user_time)),
            _sum_of_known((self.system_time, other.system_time)),
            _sum_of_known((self.read_bytes, other.read_bytes)),
            _sum_of_known((self.write_bytes, other.write_bytes)),
        )


class _SeenPsutilProcess:
    """What is known of one process."""

    __slots__ = (
        *("detached", "live", "peak", "process", "rss", "totals", "vms"),
        "thread",
    )

    def __init__(self, process: PsutilProcess) -> None:
        self.process = process
        self.thread: PsutilProcess | None = (
            None  # one that lives, where the first has ended
        )
        self.live = True
        self.detached = False  # its parent ended first: nobody of the tree waits for it
        self.rss: Bytes | None = None
        self.vms: Bytes | None = None
        self.peak: Bytes = 0
        self.totals = ProcessTotals()


class PsutilTree:
    """The processes started from *root_pid*, kept in sight once they were seen.

    ``processes`` counts those seen so far. A process that cannot be read is skipped.
    """

    def __init__(self, root_pid: int, psutil: PsutilModule) -> None:
        self.processes = 0
        self._psutil = psutil
        self._skip = (psutil.Error, OSError)
        self._seen: dict[PsutilProcess, _SeenPsutilProcess] = {}
        # not read again, while they are not reaped
        self._zombies: set[PsutilProcess] = set()
        self._ended = {
            False: ProcessTotals(),
            True: ProcessTotals(),
        }  # by whether detached
        self._largest: Bytes = 0  # bytes; of one process, ever
        self._best: Bytes = 0  # bytes; the largest sum so far
        self._has_unshared = True  # whether the system shows what is unshared
        self._root: PsutilProcess | None = None
        try:
            self._root = psutil.Process(root_pid)
        except self._skip:
            return
        self._add([self._root])

    def sample(self) -> TreeReading:
        """Look for new processes, and read all."""
        self.walk()
        return self.read()

    def walk(self) -> None:
        """Look for new processes. It costs a look at every process of the machine."""
        found = set(self._below(self._root)) if self._root is not None else set()
        # zombies that were reaped are forgotten
        self._zombies &= found
        self._add(found)
        for seen in list(self._seen.values()):
            process = seen.process
            if process in found or process == self._root or not self._runs(process):
                continue
            # it runs, but is no longer below the root: its parent has ended
            seen.detached = True
            below = self._below(process)
            found.update(below)
            self._add(below, detached=True)

    def read(self) -> TreeReading:
        """Read the processes known by now."""
        memory = high = 0
        for seen in list(self._seen.values()):
            before, was_live = seen.peak, seen.live
            self._refresh(seen)
            if seen.live:
                # a peak that rose since the last look lay between the two, and counts
                memory += seen.peak if _rose(seen, before) else seen.rss or 0
            if was_live:
                high += seen.peak
            self._largest = max(self._largest, seen.peak)
        live = [seen for seen in self._seen.values() if seen.live]
        return TreeReading(
            memory=memory,
            memory_high=max(memory, high),
            largest_process=self._largest,
            virtual_memory=_sum_of_known(seen.vms for seen in live),
            cpu_time=_sum_of_known(_cpu_time(seen.totals) for seen in live),
            processes=len(live),
            unshared=self._unshared(live, memory),
            unread=sum(seen.rss is None for seen in live),
        )

    def totals(self, *, detached_only: bool = False) -> ProcessTotals:
        """Add up what the processes used by their last reading.

        With *detached_only*, of those alone whose parent ended before them: no wait
        will ever account for these.
        """
        total = self._ended[True]
        if not detached_only:
            total += self._ended[False]
        for seen in self._seen.values():
            if seen.detached or not detached_only:
                total += seen.totals
        return total

    def is_alive(self) -> bool:
        """Return whether the last reading found a process that has not ended."""
        return any(seen.live for seen in self._seen.values())

    def send_signal(self, number: int) -> None:
        """Signal every process that has not ended."""
        for seen in self._seen.values():
            try:
                seen.process.send_signal(number)
            except self._skip:
                continue

    def kill(self) -> None:
        """End every process at once."""
        for seen in self._seen.values():
            try:
                seen.process.kill()
            except self._skip:
                continue

    def _add(
        self, processes: Iterable[PsutilProcess], *, detached: bool = False
    ) -> None:
        for process in processes:
            if process in self._zombies:
                continue
            if process not in self._seen:
                self._seen[process] = _SeenPsutilProcess(process)
                self.processes += 1
            if detached:
                self._seen[process].detached = True

    def _below(self, process: PsutilProcess) -> list[PsutilProcess]:
        try:
            return process.children(recursive=True)
        except self._skip:
            return []

    def _runs(self, process: PsutilProcess) -> bool:
        try:
            return process.is_running()
        except self._skip:
            return False

    def _refresh(self, seen_psutil_process: _SeenPsutilProcess) -> None:
        """Read one process; forget it when it is gone."""
        process = seen_psutil_process.process
        # also asks whether the pid has passed to a stranger
        if not self._runs(process):
            self._forget(seen_psutil_process)
            return
        try:
            with process.oneshot():
                self._read_memory(seen_psutil_process)
                seen_psutil_process.totals = self._read_totals(seen_psutil_process)
        except self._psutil.ZombieProcess:
            seen_psutil_process.live, seen_psutil_process.rss = False, 0
        except self._psutil.NoSuchProcess:
            self._forget(seen_psutil_process)
        except self._skip:
            return
        if (
            not seen_psutil_process.live and process != self._root
        ):  # for good: reading it costs time
            self._zombies.add(process)
            self._forget(seen_psutil_process)

    def _read_memory(self, seen_psutil_process: _SeenPsutilProcess) -> None:
        now = self._memory_info(seen_psutil_process)
        seen_psutil_process.rss, seen_psutil_process.vms = now.rss, now.vms
        seen_psutil_process.peak = max(
            seen_psutil_process.peak, now.rss, getattr(now, "peak_wset", 0)
        )
        # Linux reads a zombie like any process, and finds nothing
        seen_psutil_process.live = now.rss > 0 or not self._is_zombie(
            seen_psutil_process.process
        )

    def _memory_info(self, seen_psutil_process: _SeenPsutilProcess) -> MemoryInfo:
        """Read a process, or one of its threads where the first has ended."""
        if seen_psutil_process.thread is not None:
            try:
                return seen_psutil_process.thread.memory_info()
            except self._skip:
                seen_psutil_process.thread = None
        now = seen_psutil_process.process.memory_info()
        # on Linux, the memory stays with the threads that outlive the first one
        if now.rss == 0 and self._is_zombie(seen_psutil_process.process):
            for (
                thread
            ) in seen_psutil_process.process.threads():  # Linux alone lists them
                if thread.id == seen_psutil_process.process.pid:
                    continue
                other = self._psutil.Process(thread.id)
                found = other.memory_info()
                if found.rss:
                    seen_psutil_process.thread = other
                    return found
        return now

    def _is_zombie(self, process: PsutilProcess) -> bool:
        return process.status() == self._psutil.STATUS_ZOMBIE

    def _read_totals(self, seen_psutil_process: _SeenPsutilProcess) -> ProcessTotals:
        """Read what it used so far; a source that refuses leaves what it last said."""
        known = seen_psutil_process.totals
        try:
            times = seen_psutil_process.process.cpu_times()
        except self._skip:
            return known
        known = ProcessTotals(
            times.user, times.system, known.read_bytes, known.write_bytes
        )
        # macOS has no such method
        io_counters = getattr(seen_psutil_process.process, "io_counters", None)
        if io_counters is None:
            return known
        try:
            io = io_counters()
        except (*self._skip, NotImplementedError):
            return known
        return ProcessTotals(times.user, times.system, io.read_bytes, io.write_bytes)

    def _forget(self, seen_psutil_process: _SeenPsutilProcess) -> None:
        seen_psutil_process.live = False
        self._seen.pop(seen_psutil_process.process, None)
        # for the totals, which include those that have ended
        self._ended[seen_psutil_process.detached] += seen_psutil_process.totals

    def _unshared(self, live: list[_SeenPsutilProcess], memory: Bytes) -> Bytes | None:
        """Add up the pages that are one process's alone.

        Read near a new peak only: the system walks all pages for it.
        """
        if len(live) <= 1 or memory <= self._best * _MATERIAL + MIB:
            return None
        # remembered even without an answer, as asking again would cost as much
        self._best = memory
        if not self._has_unshared:
            return None
        unshared = _sum_of_known(self._unshared_of(seen.process) for seen in live)
        # macOS keeps this to root: asking once is enough
        self._has_unshared = unshared is not None
        return unshared

    def _unshared_of(self, process: PsutilProcess) -> Bytes | None:
        read = getattr(process, "memory_full_info", None)
        try:
            size: Bytes | None = getattr(read(), "uss", None) if read else None
        except self._skip:
            return None
        return size


def _rose(seen_psutil_process: _SeenPsutilProcess, before: Bytes) -> bool:
    """Return whether the system reports a new peak, above what is held now."""
    return seen_psutil_process.peak > before and seen_psutil_process.peak > (
        seen_psutil_process.rss or 0
    )


def _cpu_time(totals: ProcessTotals) -> Seconds | None:
    return _sum_of_known((totals.user_time, totals.system_time))


def _sum_of_known(values: Iterable[Number | None]) -> Number | None:
    """Add up what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
