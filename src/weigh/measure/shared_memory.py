"""The memory of a process tree with shared pages counted once.

For one process, its status has the exact figure. For several, the sum of their resident
sets counts shared pages repeatedly, and the files that show the sharing (smaps_rollup,
pagemap) stall the process while they are read. They are therefore read only near a new
peak and for well under 1 % of the job's time; in between, the last known sharing is
assumed.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import GIB, MIB, Bytes, Seconds

_MATERIAL = 0.01  # relative change of a peak or sum that matters
_MATERIAL_FLOOR = MIB  # 1 % of a job of 2 MiB is jitter
_MUCH = 0.25  # a change that is worth spending CPU time in advance
_WORTH_COUNTING = 0.02  # overlap of files that makes pagemap worth reading
_LOOK_SHARE = 0.003  # of the job's time; regular samples may take another 0.7 %
_FASTEST_COPY = 4 * GIB  # bytes a CPU second, page faults included
_CREDIT = 0.1  # seconds that may be spent before any are earned


class Holding(msgspec.Struct, frozen=True, gc=False):
    """Memory of a tree at one moment; ``low`` and ``high`` bound the true total."""

    anonymous: Bytes
    shared: Bytes
    file: Bytes
    low: Bytes
    high: Bytes

    @property
    def total(self) -> Bytes:
        """Everything that is resident, mapped files included."""
        return self.anonymous + self.shared + self.file


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """One kind of memory of the tree: the sum if nothing is shared, and if all is."""

    most: Bytes
    least: Bytes

    def mixed(self, private_share: float) -> Bytes:
        """Return the size if *private_share* of the shareable part is private."""
        return self.least + round((self.most - self.least) * private_share)

    def private_share(self, size: Bytes, known: float) -> float:
        """Return the private share that results in *size*, or *known* if any does.

        The inverse of :meth:`mixed`.
        """
        slack = self.most - self.least
        return min(1.0, max(0.0, (size - self.least) / slack)) if slack else known


class _Look(msgspec.Struct, frozen=True, gc=False):
    """The state at the last count of shared pages, to detect later changes."""

    processes: int = 0
    most: Bytes = 0
    overlap: Bytes = 0  # of anonymous memory: counted more than once in the sum
    forks: tuple[int, ...] = ()  # processes that are forks of one another
    faulted: Bytes = 0
    cpu_time: Seconds | None = None


class SharingGauge:
    """Turns readings of the processes into the tree's :class:`Holding`.

    ``spent`` is the time used for counting shared pages.
    """

    def __init__(
        self, tree: ProcTree, clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self.spent: Seconds = 0.0
        self._tree = tree
        self._clock = clock
        self._started = clock()
        self._last = _Look()
        # how private each kind is: before anything is known, libraries are shared
        self._anonymous, self._shared, self._file = 1.0, 0.0, 0.0

    def hold(
        self,
        readings: Sequence[ProcessReading],
        best: Bytes,
        cpu_time: Seconds | None = None,
    ) -> Holding:
        """Add up the processes; count shared pages where they may exceed *best*.

        *cpu_time* is the tree's CPU time so far: an idle tree copies no pages.
        """
        if len(readings) == 1:
            one = readings[0]
            return Holding(
                one.anonymous, one.shared, one.file, one.resident, one.resident
            )
        most = sum(reading.resident for reading in readings)
        if most <= best * (1 + _MATERIAL) + _MATERIAL_FLOOR:
            return self._assume(readings, changed=0)
        copied = 0 if self._is_idle(cpu_time, best) else self._copied()
        changed = max(abs(most - self._last.most), copied)
        if not self._may_look(len(readings), changed, best):
            return self._assume(readings, changed)
        before = self._clock()
        held = self._look(readings, most)
        self._last = msgspec.structs.replace(self._last, cpu_time=cpu_time)
        self.spent += self._clock() - before
        return held

    def _copied(self) -> Bytes:
        """Bound the pages that forks have copied since the last count.

        Copying a shared page does not change the sum, but it causes a fault.
        """
        return self._faulted(self._last.forks) - self._last.faulted

    def _is_idle(self, cpu_time: Seconds | None, best: Bytes) -> bool:
        """Return whether too little CPU was used for any copying that matters."""
        if cpu_time is None or self._last.cpu_time is None:
            return False
        used = cpu_time - self._last.cpu_time
        return used * _FASTEST_COPY < best * _MATERIAL

    def _may_look(self, processes: int, changed: Bytes, best: Bytes) -> bool:
        """Return whether the budget allows a count; a large change may overdraw it."""
        earned = (self._clock() - self._started) * _LOOK_SHARE
        if self.spent > earned + _CREDIT:
            return False
        needed = _MATERIAL if self.spent <= earned else _MUCH
        return processes != self._last.processes or changed > best * needed

    def _assume(self, readings: Sequence[ProcessReading], changed: Bytes) -> Holding:
        """Assume the last known sharing, widened by the changes since."""
        anonymous, shared, file = _parts(readings)
        kept = anonymous.mixed(self._anonymous)
        if len(readings) == self._last.processes:
            # only a fork shares anonymous memory: later growth is private
            kept = max(anonymous.least, anonymous.most - self._last.overlap)
        held = Holding(
            kept,
            shared.mixed(self._shared),
            file.mixed(self._file),
            low=anonymous.least + shared.least + file.least,
            high=anonymous.most + shared.most + file.most,
        )
        if len(readings) != self._last.processes:
            return held
        return msgspec.structs.replace(held, high=min(held.high, held.total + changed))

    def _look(self, readings: Sequence[ProcessReading], most: Bytes) -> Holding:
        families = self._families(readings)
        anonymous, shared, file = _parts(readings)
        overlap = sum(kind.most - kind.least for kind in (shared, file))
        private = _private_share(families)
        needed = overlap > most * _WORTH_COUNTING
        known = self._file, self._shared
        counted = _count_files(readings, known) if needed else None
        if any(self._tree.reading(reading.pid) is None for reading in readings):
            # the shares of an ended process went to the others: some counted twice
            return self._assume(readings, most)
        if private is not None:
            self._anonymous = private
        if counted is not None:
            self._file, self._shared = counted
        forks = tuple(r.pid for family in families if len(family) > 1 for r in family)
        self._last = _Look(
            len(readings),
            most,
            overlap=anonymous.most - anonymous.mixed(self._anonymous),
            forks=forks,
            faulted=self._faulted(forks),
        )
        held = self._assume(readings, changed=0)
        refused = private is None or (needed and counted is None)
        return msgspec.structs.replace(
            held,
            low=held.low if refused else held.total,
            high=held.total + (overlap if counted is None else 0),
        )

    def _families(
        self, readings: Sequence[ProcessReading]
    ) -> list[list[ProcessReading]]:
        """Group processes that are forks of one another.

        After exec a process shares no anonymous memory, so only families need a count.
        Where the kernel hides the stack, each process is its own family.
        """
        families: dict[tuple[int, int], list[ProcessReading]] = {}
        for reading in readings:
            times = self._tree.times(reading.pid)
            if times is None or not times.stack_start:
                families[reading.pid, 0] = [reading]
            else:
                key = (times.code_start, times.stack_start)
                families.setdefault(key, []).append(reading)
        return list(families.values())

    def _faulted(self, pids: Sequence[int]) -> Bytes:
        times = map(self._tree.times, pids)
        return sum(each.faulted for each in times if each is not None)


def _private_share(families: Sequence[Sequence[ProcessReading]]) -> float | None:
    """Return the private share of anonymous memory; None if it is not readable."""
    from weigh.probe.sharing import read_anonymous  # noqa: PLC0415 - start-up time

    sizes, total = [], 0
    for family in families:
        for reading in family:
            size = share = reading.anonymous
            if len(family) > 1:
                pages = read_anonymous(reading.pid)
                if pages is None:
                    return None
                size, share = pages.size, pages.share
            sizes.append(size)
            total += share
    return _parts_of(sizes).private_share(total, known=1.0)


def _count_files(
    readings: Sequence[ProcessReading], known: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the private shares of (mapped files, shared memory); None if refused.

    Only the counted pages matter, because the processes may grow meanwhile. A kind that
    at most one process has stays as *known*.
    """
    from weigh.probe.sharing import FilePages  # noqa: PLC0415 - start-up time

    pages, own = FilePages(), []
    for reading in readings:
        sizes = pages.add(reading.pid)
        if sizes is None:
            return None
        own.append(sizes)
    kinds = zip(zip(*own, strict=True), pages.sizes(), known, strict=True)
    file, shared = (_parts_of(k).private_share(union, old) for k, union, old in kinds)
    return file, shared


def _parts(readings: Sequence[ProcessReading]) -> tuple[_Parts, _Parts, _Parts]:
    """Split what the processes hold into (anonymous, shared, file)."""
    return (
        _parts_of([reading.anonymous for reading in readings]),
        _parts_of([reading.shared for reading in readings]),
        _parts_of([reading.file for reading in readings]),
    )


def _parts_of(sizes: Sequence[Bytes]) -> _Parts:
    return _Parts(sum(sizes), max(sizes, default=0))
