"""Measure several processes without the kernel's account: shared pages count once.

Between two counts the families of forks and the last known overlap of files and shared
memory carry on. A count is made where a new peak is possible and the bounds are wide,
for well under 1 % of the job's time.
"""

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec

from weigh.measure.memory.counts import (
    COUNT_ERROR,
    PageCount,
    count_by_shares,
    count_family,
    count_files,
    processes_to_count,
)
from weigh.measure.memory.families import (
    FILES_PER_FAULT,
    ForkFamily,
    MemberReading,
    PageOverlap,
)
from weigh.measure.memory.holding import MemoryHolding, material_change
from weigh.probe.pages import ProcessPages, own_mounts, tmpfs_devices
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.probe.tmpfs import machine_shared_memory
from weigh.units import MIB, Bytes, Seconds

_COUNT_SHARE = 0.002  # of a core; looks have a share of their own
# CPU seconds of counting before any are earned; a short job is not to feel them
_FIRST_CREDIT, _MOST_CREDIT = 0.008, 0.03
_CREDIT_SHARE = 0.05  # of the job's own CPU time
# CPU seconds, about one count: forks that take memory anew until the budget is spent,
# and then hold still, are counted then, and the budget is paid back later
_REST_CREDIT = 0.01
_LATE_FAULTS = MIB // 4  # unexplained: worth a second look at the size
# the kernel's shares take .1 us for each page, and hold the lock of the memory map
_LARGEST = 96 * MIB  # of a process: 3 ms
_LARGEST_SUM = 384 * MIB  # of a family: 10 ms, as long as a count of pages takes
_GUESSED = 0.1  # a figure that may be off by more is no count


class SharedPages:
    """Turns readings of several processes into their :class:`MemoryHolding`.

    ``spent`` is the CPU time used for counting, ``used`` that of the job so far.
    """

    def __init__(self, tree: ProcTree, clock: Callable[[], Seconds]) -> None:
        self.spent: Seconds = 0.0
        # until it is set, the job's CPU time limits no credit
        self.used: Seconds = math.inf
        self._tree = tree
        self._clock = clock
        self._started = clock()
        self._counted: dict[int, MemberReading] = {}  # at the last count
        self._width: Bytes = 0  # of the bounds, after it
        # by the identity that forks share, see `_family_name`
        self._families: dict[Hashable, ForkFamily] = {}
        self._files, self._shmem = PageOverlap(), PageOverlap()
        self._level: Bytes | None = None  # the machine's shared memory at the count
        self._seen: dict[int, MemberReading] = {}  # at the look before
        self._pages = ReadablePages(tree)

    @property
    def is_refused(self) -> bool:
        """Whether no process has let weigh read its pages."""
        return self._pages.is_refused

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> MemoryHolding:
        """Add the processes up; count shared pages where they may exceed *best*."""
        before = self._seen
        kept = self._advance(readings)
        held = self._add_up(kept)
        # processes that have done nothing since the last count are not counted again
        if self.is_refused or self._seen == self._counted:
            return held
        may_be_peak = held.high > best + material_change(best)
        matters = material_change(
            2 * (max(best, held.total) if may_be_peak else held.total)
        )
        width = held.high - held.low
        if width <= matters:
            return held
        is_wider = width > self._width + matters
        rests = self._seen == before
        if not self.may_spend(is_wider=is_wider, at_rest=rests):
            return msgspec.structs.replace(held, is_open=is_wider and not rests)
        began = time.thread_time()
        is_counted = self._count(kept)
        self.spent += time.thread_time() - began
        # too much has changed meanwhile: the next look shows what it is by then
        if not is_counted:
            return held
        held = confirmed_by(self._add_up(kept), held)
        self._counted, self._width = self._seen, held.high - held.low
        return held

    def may_spend(self, *, is_wider: bool = True, at_rest: bool = False) -> bool:
        """Return whether the budget allows a count.

        A half of it is kept for bounds that are wider than the last count left them.
        """
        credit = min(_FIRST_CREDIT + _CREDIT_SHARE * self.used, _MOST_CREDIT)
        earned = credit + (self._clock() - self._started) * _COUNT_SHARE
        if not is_wider:
            return self.spent <= earned / 2
        return self.spent <= earned + (_REST_CREDIT if at_rest else 0.0)

    def _advance(self, readings: Sequence[ProcessReading]) -> list[ProcessReading]:
        """Follow the families; leave out the processes that have ended."""
        kept: list[ProcessReading] = []
        images = {reading.pid: reading.image for reading in readings}
        # only forks share anonymous pages, so each group of them is counted by itself
        groups: dict[Hashable, list[MemberReading]] = {}
        before, self._seen = self._seen, {}
        for first_reading in readings:
            pid, reading = first_reading.pid, first_reading
            times = self._tree.times(pid)
            if times is None or times.has_ended:
                continue
            family: Hashable = (times.code_start, times.stack_start)
            if not times.stack_start:
                # the kernel hides it: it may be a fork of its parent, and began as one
                family = reading.image
                for other in (pid, times.parent):
                    known = self._seen.get(other) or before.get(other)
                    is_same = known is not None and known.image == reading.image
                    if known and is_same and images.get(other) == reading.image:
                        family = known.family
                        break
            seen = before.get(pid)
            if seen is None or seen.family != family:
                # it may have executed a program after its sizes were read
                reading = self._tree.reading(pid) or reading
            member = MemberReading(
                pid=pid,
                parent=times.parent,
                family=family,
                anonymous=reading.anonymous,
                mapped=reading.file // FILES_PER_FAULT + reading.shared,
                faulted=times.faulted,
                faulted_by_reaped=times.faulted_by_reaped,
                resident=reading.resident,
                peak=reading.peak,
                image=reading.image,
            )
            if seen is not None and member.faults_since(seen) > _LATE_FAULTS:
                member = self._without_late_faults(member)
            kept.append(reading)
            self._seen[pid] = member
            groups.setdefault(family, []).append(member)
        self._families = {
            name: self._families.get(name) or ForkFamily() for name in groups
        }
        for name, group in groups.items():
            self._families[name].advance(group)
        return kept

    def _without_late_faults(self, member: MemberReading) -> MemberReading:
        """Return a process without the faults by which it has grown since it was read.

        On a busy machine that is a while, and they would pass for copies.
        """
        now = self._tree.reading(member.pid)
        grown = 0 if now is None else max(0, now.anonymous - member.anonymous)
        return msgspec.structs.replace(member, faulted=max(0, member.faulted - grown))

    def _add_up(self, kept: Sequence[ProcessReading]) -> MemoryHolding:
        """Return what is known, with its bounds."""
        kernel = sum(reading.kernel for reading in kept)
        file = self._files.estimate([reading.file for reading in kept])
        sizes = [reading.shared for reading in kept]
        shared = self._shmem.estimate(sizes, self._new_shared(sizes))
        families = [family.estimate() for family in self._families.values()]
        parts = [*families, shared, file]
        low, value, high = (
            kernel + sum(getattr(part, name) for part in parts)
            for name in ("low", "value", "high")
        )
        # they are read one after the other, and none is counted whole
        error = round(2 * COUNT_ERROR * value)
        low, high = min(low, value - error), max(high, value + error)
        is_guess = high - low > 2 * _GUESSED * value + MIB
        return MemoryHolding(
            sum(family.value for family in families),
            shared.value,
            file.value,
            low,
            high,
            kernel,
            certainty="guessed" if is_guess else "counted",
            guess=sum(family.guess for family in self._families.values()),
            passed=sum(family.passed for family in self._families.values()),
        )

    def _count(self, kept: Sequence[ProcessReading]) -> bool:
        """Count what is shared, and correct the account; False if nothing was read."""
        try:
            of_families = {
                name: count
                for name, family in self._families.items()
                if (count := self._count_family(kept, family)) is not None
            }
            of_files = self._count_files(kept)
        finally:
            opened = self._pages.close()
        # the shares of a fork that was born during the count are missing in it
        for pid in self._tree.find_new():
            times = self._tree.times(pid)
            parent = None if times is None else self._seen.get(times.parent)
            if parent is not None:
                of_families.pop(parent.family, None)
        counted = opened.union(*(count.own for count in of_families.values()))
        grown = self._grown_since([one for one in kept if one.pid in counted])
        if grown is None or not (of_families or of_files):
            return False
        for name, count in of_families.items():
            self._families[name].correct(count, grown)
        for is_shared, overlap in ((False, self._files), (True, self._shmem)):
            if is_shared in of_files:
                sizes = [one.shared if is_shared else one.file for one in kept]
                new = self._new_shared(sizes) if is_shared else 0
                overlap.correct(sizes, of_files[is_shared], new)
        self._level = machine_shared_memory() if True in of_files else self._level
        return True

    def _new_shared(self, sizes: Sequence[Bytes]) -> Bytes:
        """Return by how much the machine's shared memory has grown since the count.

        A process that only maps what another one wrote does not add to it.
        """
        if self._level is None or self._shmem.came(sizes) < MIB:
            return 0
        return max(0, (machine_shared_memory() or 0) - self._level)

    def _count_family(
        self, kept: Sequence[ProcessReading], family: ForkFamily
    ) -> PageCount | None:
        """Count forks; None for one alone, which shares nothing, or if one ended."""
        sizes = family.sizes()
        residents = [one.resident for one in kept if one.pid in sizes]
        if len(residents) < 2:  # noqa: PLR2004
            return None
        if max(residents) <= _LARGEST and sum(residents) <= _LARGEST_SUM:
            count = count_by_shares({pid: self._tree.folder(pid) for pid in sizes})
            if count is not None:
                return count
        pages = self._pages.of_some(sizes)
        return count_family(pages, sizes) if len(pages) > 1 else None

    def _count_files(self, kept: Sequence[ProcessReading]) -> Mapping[bool, PageCount]:
        mapped = {reading.pid: reading.file + reading.shared for reading in kept}
        pages = self._pages.of_some(mapped)
        return (
            count_files(pages, len(mapped), sum(mapped.values()))
            if len(pages) > 1
            else {}
        )

    def _grown_since(
        self, counted: Sequence[ProcessReading]
    ) -> dict[int, Bytes] | None:
        """Return by how much processes have grown between their reading and a count.

        None if one gave back memory that it may have shared: that seems to be the
        others' alone then, and would count twice. What it frees is its own first.
        """
        grown: dict[int, Bytes] = {}
        for old in counted:
            pid = old.pid
            now = self._tree.reading(pid)
            if now is None:
                return None
            grown[pid] = now.anonymous - old.anonymous
            own = self._families[self._seen[pid].family].members[pid].own
            given_back = max(
                -grown[pid] - own, old.shared - now.shared, old.file - now.file
            )
            if given_back > material_change(old.resident):
                return None
        return grown


class ReadablePages:
    """Opens the pages of processes, until they are closed; remembers who refused."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._tmpfs: frozenset[bytes] | None = None
        self._opened: dict[int, ProcessPages] = {}
        self._refused: set[int] = set()
        self._has_opened = False  # the pages of a process at least once

    @property
    def is_refused(self) -> bool:
        """Whether no process has let weigh read its pages."""
        return bool(self._refused) and not self._has_opened

    def of_some(self, sizes: Mapping[int, Bytes]) -> dict[int, ProcessPages]:
        """Open the pages of some processes, those that refuse left out.

        None of them if one has ended: what it held is not like what the others hold.
        """
        if self._tmpfs is None:
            self._tmpfs = tmpfs_devices(own_mounts())
        pids = processes_to_count(sizes)
        for pid in set(pids) - self._refused - set(self._opened):
            try:
                self._opened[pid] = ProcessPages(self._tree.folder(pid), self._tmpfs)
            except PermissionError:  # not dumpable, or hardened
                self._refused.add(pid)
            except (FileNotFoundError, ProcessLookupError):
                return {}
            except (OSError, ValueError):
                continue
            else:
                self._has_opened = True
        # in their order
        return {pid: self._opened[pid] for pid in pids if pid in self._opened}

    def close(self) -> set[int]:
        """Close them; return whose they were."""
        pids = set(self._opened)
        while self._opened:
            self._opened.popitem()[1].close()
        return pids


def confirmed_by(counted: MemoryHolding, before: MemoryHolding) -> MemoryHolding:
    """Return a counted holding, with the part that was right of the guess *before*.

    What was not counted, because a process ended in the middle, stays a guess.
    """
    if counted.guess:
        return counted
    # by which part of the guess the count came out lower; of files and shared memory
    # the same count may have found more
    more = counted.anonymous - before.anonymous
    confirmed = 1 + more / before.guess if before.guess else 1.0
    return msgspec.structs.replace(counted, confirmed=min(1.0, max(0.0, confirmed)))
