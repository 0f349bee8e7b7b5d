"""What a process tree would hold if it ran alone: shared pages once.

One process's status says it exactly. For several, the sum of their resident sets counts
shared pages again and again, and the reads that tell (smaps_rollup, pagemap) stall the
process they look at. So they are made only where a new peak may be, and only as often
as keeps them well under 1 % of the job's time; in between, the sharing last seen is
assumed to go on.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import GIB, MIB, Bytes, Seconds

_MATERIAL = 0.01  # what a peak must be passed by, or a sum change by, to matter
_MATERIAL_FLOOR = MIB  # a job of 2 MiB passes 1 % by jitter
_MUCH = 0.25  # a change that is looked into even on credit
_WORTH_COUNTING = 0.02  # overlap of files that makes pagemap worth reading
_LOOK_SHARE = 0.003  # of the job's time; regular samples may take another 0.7 %
_FASTEST_COPY = 4 * GIB  # bytes a CPU second, page faults included
_CREDIT = 0.1  # seconds of looking allowed before any are earned


class Holding(msgspec.Struct, frozen=True, gc=False):
    """Memory of a tree at one moment; ``low`` and ``high`` hold the truth."""

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
    """One kind of memory over the tree: if nothing is shared, and if all is."""

    most: Bytes
    least: Bytes

    def mixed(self, private_share: float) -> Bytes:
        """Give the size when *private_share* of what may be shared is not."""
        return self.least + round((self.most - self.least) * private_share)

    def private_share(self, size: Bytes, known: float) -> float:
        """Give the share that makes *size*, or *known* where any would.

        The inverse of :meth:`mixed`.
        """
        slack = self.most - self.least
        return min(1.0, max(0.0, (size - self.least) / slack)) if slack else known


class _Look(msgspec.Struct, frozen=True, gc=False):
    """What a close look was made of, to tell later what changed since."""

    processes: int = 0
    most: Bytes = 0
    overlap: Bytes = 0  # of anonymous memory: counted more than once in the sum
    forks: tuple[int, ...] = ()  # processes that are forks of one another
    faulted: Bytes = 0
    cpu_time: Seconds | None = None


class SharingGauge:
    """Turns readings of the processes into the tree's :class:`Holding`.

    ``spent`` is the time that looking closely has taken.
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
        """Add the processes up; look closely where they may pass *best*.

        *cpu_time* is what the tree has used so far: an idle one copies no pages.
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
        """Bound what forks got as their own since the last close look.

        Copying a shared page leaves the sum as it is, but it takes a fault.
        """
        return self._faulted(self._last.forks) - self._last.faulted

    def _is_idle(self, cpu_time: Seconds | None, best: Bytes) -> bool:
        """Tell whether too little CPU was used for any copying that matters."""
        if cpu_time is None or self._last.cpu_time is None:
            return False
        used = cpu_time - self._last.cpu_time
        return used * _FASTEST_COPY < best * _MATERIAL

    def _may_look(self, processes: int, changed: Bytes, best: Bytes) -> bool:
        """Keep looks under their share; much change may borrow ahead."""
        earned = (self._clock() - self._started) * _LOOK_SHARE
        if self.spent > earned + _CREDIT:
            return False
        needed = _MATERIAL if self.spent <= earned else _MUCH
        return processes != self._last.processes or changed > best * needed

    def _assume(self, readings: Sequence[ProcessReading], changed: Bytes) -> Holding:
        """Take the sharing last seen for granted, but for what changed since."""
        anonymous, shared, file = _parts(readings)
        kept = anonymous.mixed(self._anonymous)
        if len(readings) == self._last.processes:
            # only a fork shares anonymous memory: what came since is private
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
            # shares of one that ended fell to the others: some were counted twice
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
        """Put processes together that are forks of one another.

        Those that have execed share no anonymous memory, so only families have to be
        looked into. Where the kernel hides the stack, a process is its own family.
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
    """Give how private anonymous memory is; None where a process refuses to tell."""
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
    """Give how private (mapped files, shared memory) are; None where refused.

    All is judged by the pages counted: the processes may grow meanwhile. A kind of
    which at most one process has any stays as *known*.
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
