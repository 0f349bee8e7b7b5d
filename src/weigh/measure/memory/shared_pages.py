"""Measure several processes without the kernel's account: shared pages count once.

Between two counts the families of forks and the last known overlap of files and shared
memory carry on. A count is made where a new peak is possible and the bounds are wide,
for well under 1 % of the job's time. How far what was assumed was off at the counts is
how far it is taken to be off after them.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from weigh.measure.memory.families import (
    FileCount,
    ForkFamily,
    MemberReading,
    count_family,
    count_files,
    processes_to_count,
)
from weigh.measure.memory.holding import (
    COUNT_ERROR,
    MemoryHolding,
    PageEstimate,
    material_change,
    nearest_within,
)
from weigh.probe.pages import ProcessPages, own_mounts, tmpfs_devices
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import MIB, Bytes, Seconds

_COUNT_SHARE = 0.002  # of a core; looks have a share of their own
# CPU seconds of counting before any are earned; a short job is not to feel them
_FIRST_CREDIT, _MOST_CREDIT = 0.008, 0.03
_CREDIT_SHARE = 0.05  # of the job's own CPU time
_CLOSE_INTERVAL = 0.5  # seconds between reads of faults where no new peak is possible
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 4.0  # seconds after a count without a peak
_LATE_FAULTS = MIB // 4  # unexplained: worth a second look at the size
_MOST_MAPPED = 16  # pages of a file that one fault maps (fault_around_bytes)
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
        self._started = self._count_at = self._close_at = clock()
        self._pause = _SHORTEST_PAUSE
        self._off: float | None = None  # at the last counts, relative to the total
        self._error = 0.0  # of the last one itself
        # by the identity that forks share, see `_advance`
        self._families: dict[Hashable, ForkFamily] = {}
        self._files, self._shmem = PageOverlap(), PageOverlap()
        self._seen: dict[int, MemberReading] = {}  # at the look before
        self._family_of: dict[int, tuple[bytes, Hashable]] = {}
        # bytes by process id, at the last count
        self._at_count: Mapping[int, Bytes] = {}
        self._tmpfs: frozenset[bytes] | None = None
        self._refused: set[int] = set()
        self._has_opened = False  # the pages of a process at least once

    @property
    def is_refused(self) -> bool:
        """Whether no process has let weigh read its pages."""
        return bool(self._refused) and not self._has_opened

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> MemoryHolding:
        """Add the processes up; count shared pages where they may exceed *best*.

        Where they cannot, their faults are only read now and then. The account of who
        holds what is the same at every look.
        """
        # as if nothing were shared: the most that they can hold
        most = sum(reading.resident + reading.kernel for reading in readings)
        is_close = most > best or self._clock() >= self._close_at
        if is_close:
            self._close_at = self._clock() + _CLOSE_INTERVAL
        kept = self._advance(readings, is_close=is_close)
        held = self._add_up(kept)
        if not self._is_worth_counting(held, best):
            return self._as_far_as_trusted(held)
        with self.charged():
            is_counted = self._count(kept)
        if is_counted:
            self._at_count = self._sizes_and_faults()
            held = self._learned(held, self._add_up(kept))
        else:
            held = self._as_far_as_trusted(held)
        found_peak = is_counted and held.total > best + material_change(best)
        # a peak that still grows is counted often, a level memory less and less often
        pause = _SHORTEST_PAUSE if found_peak else 2 * self._pause
        self._pause = min(pause, _LONGEST_PAUSE)
        self._count_at = self._clock() + self._pause
        return held

    def files(self, readings: Sequence[ProcessReading], best: Bytes) -> Bytes:
        """Return the files that the processes map; count them if it matters.

        It adds to the kernel's account, which has all else.
        """
        sizes = [reading.file for reading in readings]
        estimate = self._files.estimate(sizes)
        doubt = estimate.high - estimate.low
        mapped = {reading.pid: reading.file for reading in readings}
        if (
            doubt > material_change(2 * best)
            and self._clock() >= self._count_at
            and not self.is_refused
            and mapped != self._at_count
            and self.may_spend()
        ):
            self._count_at = self._clock() + _LONGEST_PAUSE
            self._at_count = mapped
            with self.charged(), ExitStack() as stack:
                files = self._counted_files(stack, {}, mapped)
            if files is not None:
                self._files.correct(sizes, files.file)
        return self._files.estimate(sizes).value

    def may_spend(self) -> bool:
        """Return whether the budget allows a count."""
        credit = min(_FIRST_CREDIT + _CREDIT_SHARE * self.used, _MOST_CREDIT)
        return self.spent <= credit + (self._clock() - self._started) * _COUNT_SHARE

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Add the CPU time of the block to what was spent."""
        before = time.thread_time()
        try:
            yield
        finally:
            self.spent += time.thread_time() - before

    def _advance(
        self, readings: Sequence[ProcessReading], *, is_close: bool
    ) -> list[ProcessReading]:
        """Follow the families; leave out the processes that have ended.

        Unless *is_close*, of a known process nothing more is read: it has faulted as it
        grew. One that has forked is read: its faults of before copied nothing that the
        fork shares.
        """
        kept: list[ProcessReading] = []
        seen: dict[int, MemberReading] = {}
        images = {reading.pid: reading.image for reading in readings}
        families: dict[int, tuple[bytes, Hashable]] = {}
        met = {pid: self._tree.times(pid) for pid in images if pid not in self._seen}
        forked = {times.parent for times in met.values() if times is not None}
        for reading in readings:
            pid, image = reading.pid, reading.image
            before = self._seen.get(pid)
            is_read = is_close or pid in forked
            if not is_read and before is not None and self._family_of[pid][0] == image:
                families[pid] = self._family_of[pid]
                seen[pid] = before.grown_to(reading)
                kept.append(reading)
                continue
            times = met[pid] if pid in met else self._tree.times(pid)
            if times is None or times.has_ended:
                continue
            family: Hashable = (times.code_start, times.stack_start)
            if not times.stack_start:
                # the kernel hides it: it may be a fork of its parent, and began as one
                family = image
                for other in (pid, times.parent):
                    known = families.get(other) or self._family_of.get(other)
                    if known is not None and known[0] == image == images.get(other):
                        family = known[1]
                        break
            families[pid] = image, family
            kept.append(reading)
            member = MemberReading(
                pid=pid,
                parent=times.parent,
                family=family,
                anonymous=reading.anonymous,
                mapped=reading.file + reading.shared,
                faulted=times.faulted,
            )
            if before is None or member.faults_since(before) > _LATE_FAULTS:
                member = self._without_late_faults(member)
            seen[pid] = member
        self._family_of, self._seen = families, seen
        # only forks share anonymous pages, so each group of them is counted by itself
        groups: dict[Hashable, list[MemberReading]] = {}
        for one in seen.values():
            groups.setdefault(one.family, []).append(one)
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
        grown = self._anonymous_now(member.pid) - member.anonymous
        return msgspec.structs.replace(
            member, faulted=max(0, member.faulted - max(0, grown))
        )

    def _add_up(self, kept: Sequence[ProcessReading]) -> MemoryHolding:
        """Return what is known, with bounds that assume nothing of what is not."""
        kernel = sum(reading.kernel for reading in kept)
        file = self._files.estimate([reading.file for reading in kept])
        shared = self._shmem.estimate([reading.shared for reading in kept])
        families = [family.estimate() for family in self._families.values()]
        parts = [*families, shared, file]
        return MemoryHolding(
            sum(one.value for one in families),
            shared.value,
            file.value,
            kernel + sum(one.low for one in parts),
            kernel + sum(one.high for one in parts),
            kernel,
            guess=sum(family.guess for family in self._families.values()),
            shared_doubt=shared.high - shared.value,
        )

    def _as_far_as_trusted(self, held: MemoryHolding) -> MemoryHolding:
        """Return a holding that was not counted, as sure as the counts have shown."""
        low, high, total = held.low, held.high, held.total
        if self._off is not None:
            # no wider than the model was off at the last counts; copies that were
            # guessed since may be none
            error = round(total * (self._error + self._off))
            low = max(low, total - error - held.guess)
            high = min(high, total + error)
        is_guess = high - low > 2 * _GUESSED * total + MIB
        return msgspec.structs.replace(
            held, low=low, high=high, certainty="guessed" if is_guess else "counted"
        )

    def _learned(self, before: MemoryHolding, now: MemoryHolding) -> MemoryHolding:
        """Return the holding after a count, having learned from the one *before* it."""
        off = abs(now.total - before.total) / max(1, now.total)
        error = max(COUNT_ERROR, (now.high - now.low) / 2 / max(1, now.total))
        if self._off is not None:  # what was known before is evidence too
            known = self._error + self._off
            error = max(COUNT_ERROR, error * known / math.hypot(error, known))
        self._error, self._off = error, max(off, (self._off or 0.0) / 2)
        margin = round(now.total * error)
        confirmed = 1.0
        if before.guess:
            # by which part of the guess the count came out lower
            confirmed = max(0.0, 1 + (now.total - before.total) / before.guess)
        return msgspec.structs.replace(
            now,
            low=now.total - margin,
            high=now.total + margin,
            certainty="guessed" if self._error > _GUESSED else "counted",
            guess=0,
            confirmed=min(1.0, confirmed),
        )

    def _is_worth_counting(self, held: MemoryHolding, best: Bytes) -> bool:
        """Return whether a count would show a peak, or correct the curve below it."""
        may_be_peak = held.high > best + material_change(best)
        scale = max(best, held.total) if may_be_peak else held.total
        doubt = held.high - held.low
        if self.is_refused or doubt <= material_change(2 * scale):
            return False
        is_new = held.total > best + material_change(2 * best)
        if not is_new and self._clock() < self._count_at:
            return False
        if not self._have_moved():
            return False
        return self.may_spend()

    def _have_moved(self) -> bool:
        """Return whether a count could find anything else than the last one."""
        before, now = self._at_count, self._sizes_and_faults()
        if before.keys() != now.keys():
            return True
        changes = sum(abs(size - before[pid]) for pid, size in now.items())
        return changes > MIB

    def _sizes_and_faults(self) -> dict[int, Bytes]:
        return {
            pid: one.anonymous + one.mapped + _MOST_MAPPED * one.faulted
            for pid, one in self._seen.items()
        }

    def _count(self, kept: Sequence[ProcessReading]) -> bool:
        """Count what is shared, and correct the guesses; False if nothing was read."""
        mapped = {reading.pid: reading.file + reading.shared for reading in kept}
        counts, own, files = {}, dict[int, Bytes](), None
        with ExitStack() as stack:
            opened: dict[int, ProcessPages] = {}
            for name, family in self._families.items():
                sizes = family.sizes()
                own |= {pid: family.own_of(pid) for pid in sizes}
                pages = self._open(stack, opened, sizes) if len(sizes) > 1 else {}
                if len(pages) < 2:  # noqa: PLR2004 - one alone shares nothing
                    continue
                found = count_family(pages, sizes, self._anonymous_now)
                if found is not None:
                    counts[name] = found
            # of one process, or of small files, nothing is shared that matters
            if sum(mapped.values()) - max(mapped.values()) > MIB:
                files = self._counted_files(stack, opened, mapped)
            if any(self._has_let_go(one, own) for one in kept if one.pid in opened):
                return False
        for name, found in counts.items():
            self._families[name].correct(found)
        if files is not None:
            self._files.correct([reading.file for reading in kept], files.file)
            self._shmem.correct([reading.shared for reading in kept], files.shared)
        return bool(counts) or files is not None

    def _anonymous_now(self, pid: int) -> Bytes:
        reading = self._tree.reading(pid)
        return 0 if reading is None else reading.anonymous

    def _has_let_go(self, old: ProcessReading, own: Mapping[int, Bytes]) -> bool:
        """Return whether a process gave back shared memory between reading and count.

        What it shared then seems to be the others' alone, and would count twice. What
        it frees is its *own* first.
        """
        now = self._tree.reading(old.pid)
        material = material_change(old.resident)
        return now is None or any(
            before - after > material
            for before, after in (
                (old.anonymous - own.get(old.pid, 0), now.anonymous),
                (old.shared, now.shared),
                (old.file, now.file),
            )
        )

    def _counted_files(
        self,
        stack: ExitStack,
        opened: dict[int, ProcessPages],
        sizes: Mapping[int, Bytes],
    ) -> FileCount | None:
        """Count files and shared memory; None if they were not all readable."""
        pages = self._open(stack, opened, sizes)
        if len(pages) < 2:  # noqa: PLR2004 - of one alone, all seems its own
            return None
        return count_files(pages, len(sizes), sum(sizes.values()))

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


class PageOverlap:
    """Estimates the union of the files, or the shared memory, that processes map.

    By how much they overlap, only a count shows. Until then, all are assumed to map the
    same; what came since the last one are assumed to be pages that others map already.
    """

    def __init__(self) -> None:
        self._sum = self._union = 0  # at the count

    def correct(self, sizes: Sequence[Bytes], distinct: float | None) -> None:
        """Note a count: *distinct* is the part of the sum that remains."""
        if distinct is not None:
            self._sum = sum(sizes)
            self._union = nearest_within(
                distinct * self._sum, max(sizes, default=0), self._sum
            )

    def estimate(self, sizes: Sequence[Bytes]) -> PageEstimate:
        """Return the union now, from each process's own bytes."""
        most, least = sum(sizes), max(sizes, default=0)
        # of one process, or before a count, all are taken to map the same
        if not self._sum or most == least:
            return PageEstimate(least, least, most)
        # shrunk since the count: the overlap shrinks in proportion
        if most < self._sum:
            shrunk = nearest_within(self._union * most / self._sum, least, most)
            return PageEstimate(shrunk, least, most)
        # grown since the count: new pages are taken to be mapped already
        value = nearest_within(self._union, least, most)
        return PageEstimate(value, value, min(most, value + most - self._sum))
