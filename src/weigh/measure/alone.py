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
from weigh.units import MIB, Bytes, Seconds

_MATERIAL = 0.01  # what a peak must be passed by, or a sum change by, to matter
_MATERIAL_FLOOR = MIB  # a job of 2 MiB passes 1 % by jitter
_MUCH = 0.25  # a change that is looked into even on credit
_WORTH_COUNTING = 0.02  # overlap of files that makes pagemap worth reading
_LOOK_SHARE = 0.003  # of the job's time; regular samples may take another 0.7 %
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

    def at_least(self, other: "_Parts") -> "_Parts":
        """Give the larger of each."""
        return _Parts(max(self.most, other.most), max(self.least, other.least))

    def mixed(self, private_share: float) -> Bytes:
        """Give the size when *private_share* of what may be shared is not."""
        return self.least + round((self.most - self.least) * private_share)

    def private_share(self, size: Bytes) -> float:
        """Give the share that makes *size*: the inverse of :meth:`mixed`."""
        slack = self.most - self.least
        return min(1.0, max(0.0, (size - self.least) / slack)) if slack else 1.0


class _Look(msgspec.Struct, frozen=True, gc=False):
    """What a close look was made of, to tell later what changed since."""

    processes: int = 0
    most: Bytes = 0
    forks: tuple[int, ...] = ()  # processes that are forks of one another
    faults: int = 0


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

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> Holding:
        """Add the processes up; look closely where they may pass *best*."""
        if len(readings) == 1:
            one = readings[0]
            return Holding(
                one.anonymous, one.shared, one.file, one.resident, one.resident
            )
        most = sum(reading.resident for reading in readings)
        if most <= best * (1 + _MATERIAL) + _MATERIAL_FLOOR:
            return self._assume(readings, changed=0)
        # copying a shared page leaves the sum as it is, but it takes a fault
        copied = (self._faults(self._last.forks) - self._last.faults) * PAGE
        changed = max(abs(most - self._last.most), copied)
        if not self._may_look(len(readings), changed, best):
            return self._assume(readings, changed)
        before = self._clock()
        held = self._look(readings, most)
        self.spent += self._clock() - before
        return held

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
        private = _private_anonymous(families)
        before = _parts(readings)
        overlap = sum(kind.most - kind.least for kind in before[1:])
        needed = overlap > most * _WORTH_COUNTING
        counted = _count_files(readings) if needed else None
        again = [now for p in readings if (now := self._tree.reading(p.pid))]
        if len(again) < len(readings):
            # shares of one that ended fell to the others: some were counted twice
            return self._assume(readings, most)
        # whoever grew while the pages were counted is not to look less shared for it
        anonymous, shared, file = map(_Parts.at_least, before, _parts(again))
        if private is not None:
            self._anonymous = anonymous.private_share(private)
        if counted is not None:
            self._file = file.private_share(counted[0])
            self._shared = shared.private_share(counted[1])
        forks = tuple(
            reading.pid for family in families if len(family) > 1 for reading in family
        )
        self._last = _Look(len(readings), most, forks, self._faults(forks))
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

    def _faults(self, pids: Sequence[int]) -> int:
        times = map(self._tree.times, pids)
        return sum(each.minor_faults for each in times if each is not None)


def _private_anonymous(families: Sequence[Sequence[ProcessReading]]) -> Bytes | None:
    """Add anonymous memory up by shares within families; None where one refuses."""
    from weigh.probe.sharing import read_pss_anon  # noqa: PLC0415 - start-up time

    total = 0
    for family in families:
        for reading in family:
            alone = len(family) == 1
            share = reading.anonymous if alone else read_pss_anon(reading.pid)
            if share is None:
                return None
            total += share
    return total


def _count_files(readings: Sequence[ProcessReading]) -> tuple[Bytes, Bytes] | None:
    """Count distinct (file, shared memory) bytes; None where one process refuses."""
    from weigh.probe.sharing import FilePages  # noqa: PLC0415 - start-up time

    pages = FilePages()
    complete = all(pages.add(reading.pid) for reading in readings)
    return pages.sizes() if complete else None


def _parts(readings: Sequence[ProcessReading]) -> tuple[_Parts, _Parts, _Parts]:
    """Split what the processes hold into (anonymous, shared, file)."""
    columns = (
        [reading.anonymous for reading in readings],
        [reading.shared for reading in readings],
        [reading.file for reading in readings],
    )
    anonymous, shared, file = (_Parts(sum(c), max(c, default=0)) for c in columns)
    return anonymous, shared, file
