"""Measure several processes without the kernel's account: shared pages count once.

Between two counts the families of forks and the last known overlap of files and shared
memory carry on. A count is made where a new peak is possible and the bounds are wide,
for well under 1 % of the job's time.
"""

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from weigh.measure.memory.counts import (
    COUNT_ERROR,
    PageCount,
    count_family,
    count_files,
    processes_to_count,
)
from weigh.measure.memory.families import ForkFamily, MemberReading, PageOverlap
from weigh.measure.memory.holding import MemoryHolding, material_change
from weigh.probe.pages import ProcessPages, own_mounts, tmpfs_devices
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import MIB, Bytes, Seconds

_COUNT_SHARE = 0.002  # of a core; looks have a share of their own
# CPU seconds of counting before any are earned; a short job is not to feel them
_FIRST_CREDIT, _MOST_CREDIT = 0.008, 0.03
_CREDIT_SHARE = 0.05  # of the job's own CPU time
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 4.0  # seconds after a count without a peak
_LATE_FAULTS = MIB // 4  # unexplained: worth a second look at the size
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
        # a first count may be made at once
        self._started = self._count_at = clock()
        self._pause = _SHORTEST_PAUSE
        # by the identity that forks share, see `_family_name`
        self._families: dict[Hashable, ForkFamily] = {}
        self._files, self._shmem = PageOverlap(), PageOverlap()
        self._seen: dict[int, MemberReading] = {}  # at the look before
        self._tmpfs: frozenset[bytes] | None = None
        self._refused: set[int] = set()
        self._has_opened = False  # the pages of a process at least once

    @property
    def is_refused(self) -> bool:
        """Whether no process has let weigh read its pages."""
        return bool(self._refused) and not self._has_opened

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> MemoryHolding:
        """Add the processes up; count shared pages where they may exceed *best*."""
        kept = self._advance(readings)
        held = self._add_up(kept)
        if not self._is_worth_counting(held, best):
            return held
        before = time.thread_time()
        is_counted = self._count(kept)
        self.spent += time.thread_time() - before
        if is_counted:
            held = confirmed_by(self._add_up(kept), held)
        found_peak = is_counted and held.total > best + material_change(best)
        # a peak that still grows is counted often, a level memory less and less often
        pause = _SHORTEST_PAUSE if found_peak else 2 * self._pause
        self._pause = min(pause, _LONGEST_PAUSE)
        self._count_at = self._clock() + self._pause
        return held

    def may_spend(self) -> bool:
        """Return whether the budget allows a count."""
        credit = min(_FIRST_CREDIT + _CREDIT_SHARE * self.used, _MOST_CREDIT)
        return self.spent <= credit + (self._clock() - self._started) * _COUNT_SHARE

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
                mapped=reading.file + reading.shared,
                faulted=times.faulted,
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
        shared = self._shmem.estimate([reading.shared for reading in kept])
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
        )

    def _is_worth_counting(self, held: MemoryHolding, best: Bytes) -> bool:
        """Return whether a count would show a peak, or correct the curve below it."""
        may_be_peak = held.high > best + material_change(best)
        scale = max(best, held.total) if may_be_peak else held.total
        if self.is_refused or held.high - held.low <= material_change(2 * scale):
            return False
        is_new = held.total > best + material_change(2 * best)
        return (is_new or self._clock() >= self._count_at) and self.may_spend()

    def _count(self, kept: Sequence[ProcessReading]) -> bool:
        """Count what is shared, and correct the account; False if nothing was read."""
        mapped = {reading.pid: reading.file + reading.shared for reading in kept}
        counts: dict[Hashable, PageCount] = {}
        of_files: Mapping[bool, PageCount] = {}
        with ExitStack() as stack:
            opened: dict[int, ProcessPages] = {}
            for name, family in self._families.items():
                sizes = family.sizes()
                pages = self._open(stack, opened, sizes) if len(sizes) > 1 else {}
                # one alone shares nothing
                found = count_family(pages, sizes) if len(pages) > 1 else None
                if found is not None:
                    counts[name] = found
            # of one process, or of small files, nothing is shared that matters
            if sum(mapped.values()) - max(mapped.values()) > MIB:
                pages = self._open(stack, opened, mapped)
                if len(pages) > 1:
                    of_files = count_files(pages, len(mapped), sum(mapped.values()))
            grown = self._grown_since([one for one in kept if one.pid in opened])
        if grown is None or not (counts or of_files):
            return False
        for name, count in counts.items():
            family = self._families[name]
            family.correct(count, {pid: grown.get(pid, 0) for pid in family.members})
        if False in of_files:
            self._files.correct([one.file for one in kept], of_files[False])
        if True in of_files:
            self._shmem.correct([one.shared for one in kept], of_files[True])
        return True

    def _grown_since(
        self, counted: Sequence[ProcessReading]
    ) -> dict[int, Bytes] | None:
        """Return by how much processes have grown between their reading and a count.

        None if one gave back memory that it may have shared: that seems to be the
        others' alone then, and would count twice. What it frees is its own first.
        """
        own = {
            pid: member.own
            for family in self._families.values()
            for pid, member in family.members.items()
        }
        grown = {}
        for old in counted:
            now = self._tree.reading(old.pid)
            if now is None:
                return None
            grown[old.pid] = now.anonymous - old.anonymous
            given_back = max(
                -grown[old.pid] - own[old.pid],
                old.shared - now.shared,
                old.file - now.file,
            )
            if given_back > material_change(old.resident):
                return None
        return grown

    def _open(
        self,
        stack: ExitStack,
        opened: dict[int, ProcessPages],
        sizes: Mapping[int, Bytes],
    ) -> dict[int, ProcessPages]:
        """Open the pages of some processes, those that end or refuse left out."""
        if self._tmpfs is None:
            self._tmpfs = tmpfs_devices(own_mounts())
        pids = processes_to_count(sizes)
        for pid in set(pids) - self._refused - set(opened):
            try:
                pages = ProcessPages(self._tree.folder(pid), self._tmpfs)
            except PermissionError:  # not dumpable, or hardened
                self._refused.add(pid)
                continue
            except (OSError, ValueError):
                continue
            stack.callback(pages.close)
            opened[pid] = pages
            self._has_opened = True
        return {pid: opened[pid] for pid in pids if pid in opened}  # in their order


def confirmed_by(counted: MemoryHolding, before: MemoryHolding) -> MemoryHolding:
    """Return a counted holding, with the part that was right of the guess *before*.

    What was not counted, because a process ended in the middle, stays a guess.
    """
    if counted.guess:
        return counted
    # by which part of the guess the count came out lower
    wrong = (before.total - counted.total) / max(1, before.guess)
    confirmed = min(1.0, max(0.0, 1 - wrong)) if before.guess else 1.0
    return msgspec.structs.replace(counted, confirmed=confirmed)
