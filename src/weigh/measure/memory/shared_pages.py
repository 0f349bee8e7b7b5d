"""Measure several processes without the kernel's account: count shared pages once.

Counts are made where a new peak is possible and the bounds are wide, and are charged by
the CPU time that they take. Between two counts the model of the forks and
the last known overlap of files and shared memory carry on.
"""

import os
import time
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager

import msgspec

from weigh.measure.memory.count import FileCount, chosen, count_family, count_files
from weigh.measure.memory.gauge import Holding
from weigh.measure.memory.model import Estimate, ForkModel, Seen
from weigh.probe.pages import ProcessPages, tmpfs_devices
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import MIB, Bytes, Seconds

_MATERIAL = 0.01  # relative change of a peak that matters
_MATERIAL_FLOOR = MIB  # 1 % of a job of 2 MiB is jitter
_COUNT_SHARE = 0.002  # of a core; looks have a share of their own
_CURVE_PART = 0.5  # of what is earned, for counts of what is below the peak
_CREDIT = 0.03  # CPU seconds of counting before any are earned
_MUCH = 1.25  # of the best: worth counting on further credit
_STEP = 0.02  # growth of the peak from one count to the next
_CLOSE_INTERVAL = 0.5  # seconds between reads of faults where no new peak is possible
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 4.0  # seconds after a count without a peak
_MOST_MAPPED = 16  # pages of a file that one fault maps (fault_around_bytes)
_HUGE_FAULT = 8  # where a fault may bring a huge page, its bytes count so often
# until then, a write to a shared huge page copied all of it (mm/huge_memory.c)
_SPLITS_HUGE_PAGES = (5, 8)
_NOTHING: Mapping[int, Bytes] = {}
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


class SharedPages:
    """Turns readings of several processes into their :class:`Holding`.

    ``spent`` is the CPU time used for counting, ``is_refused`` whether the kernel does
    not let weigh read the pages of some of them.
    """

    def __init__(self, tree: ProcTree, clock: Callable[[], Seconds]) -> None:
        self.spent: Seconds = 0.0
        self.is_refused = False
        self._tree = tree
        self._clock = clock
        self._started = clock()
        self._huge_pages = may_use_huge_pages()
        copies = self._huge_pages and kernel_version() < _SPLITS_HUGE_PAGES
        self._model = ForkModel(huge_copies=copies)
        self._files, self._shmem = Overlap(), Overlap()
        self._faults: dict[int, tuple[Bytes, Bytes]] = {}
        self._pause = _SHORTEST_PAUSE
        self._count_at = clock()
        self._tmpfs: frozenset[bytes] | None = None
        self._family_of: dict[int, tuple[bytes, Hashable]] = {}
        self._seen: dict[int, Seen] = {}  # at the look before
        self._close_at = clock()
        self._refused: set[int] = set()
        self._has_opened = False
        self._at_count: Sequence[Seen] = ()  # the processes at the last whole count
        self._files_at_count: Mapping[int, Bytes] = {}

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> Holding:
        """Add the processes up; count shared pages where they may exceed *best*.

        Where they cannot, their faults are only read now and then. The account of who
        holds what is the same at every look.
        """
        most = sum(reading.resident + reading.kernel for reading in readings)
        is_close = most > best or self._clock() >= self._close_at
        if is_close:
            self._close_at = self._clock() + _CLOSE_INTERVAL
        kept, seen = self._see(readings, is_close=is_close)
        faulted = self._faulted(seen) if is_close else _NOTHING
        estimate = self._model.advance(seen)
        held = self._holding(kept, estimate, faulted)
        if self._is_worth_counting(held, best) and has_moved(self._at_count, seen):
            with self.charged():
                counted = self._count(kept)
            if counted:
                self._at_count = seen
                held = self._holding(kept, self._model.estimate(), faulted)
                self._rest(found_peak=held.total > best * (1 + _MATERIAL))
                return msgspec.structs.replace(held, is_counted=True)
            self._rest(found_peak=False)
        return held

    def files(
        self, readings: Sequence[ProcessReading], best: Bytes
    ) -> tuple[Bytes, Bytes]:
        """Return the files that the processes map, and at most; count if it matters."""
        sizes = [reading.file for reading in readings]
        estimate = self._files.estimate(sizes)
        slack = estimate.high - estimate.low
        mapped = {reading.pid: reading.file for reading in readings}
        if (
            slack > 2 * _MATERIAL * best + _MATERIAL_FLOOR
            and self._clock() >= self._count_at
            and not self._gives_up()
            and have_changed(self._files_at_count, mapped)
            and self.may_spend()
        ):
            with self.charged(), ExitStack() as stack:
                opened: dict[int, ProcessPages] = {}
                files = self._counted_files(stack, opened, readings)
                if files is not None and not self._has_shrunk(readings, opened):
                    self._correct_files(readings, files)
                    self._files_at_count = mapped
            estimate = self._files.estimate(sizes)
            self._rest(found_peak=False)
        return estimate.value, estimate.high

    def may_spend(self, *, much: bool = False) -> bool:
        """Return whether the budget allows a count."""
        return self.spent <= self._earned() + (2 * _CREDIT if much else _CREDIT)

    def _earned(self) -> Seconds:
        return (self._clock() - self._started) * _COUNT_SHARE

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Add the CPU time of the block to what was spent."""
        before = time.thread_time()
        try:
            yield
        finally:
            self.spent += time.thread_time() - before

    def _see(
        self, readings: Sequence[ProcessReading], *, is_close: bool
    ) -> tuple[list[ProcessReading], list[Seen]]:
        """Read whose forks the processes are; leave out those that have ended.

        Unless *is_close*, of a known process nothing more is read: it has faulted in
        what it has grown by.
        """
        kept, seen = [], []
        images = {reading.pid: reading.image for reading in readings}
        families: dict[int, tuple[bytes, Hashable]] = {}
        for reading in readings:
            pid, image = reading.pid, reading.image
            before = self._seen.get(pid)
            if not is_close and before is not None:
                met_as = self._family_of[pid]
                if met_as[0] == image:
                    families[pid] = met_as
                    kept.append(reading)
                    seen.append(before.grown_to(reading))
                    continue
            times = self._tree.times(pid)
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
            seen.append(
                Seen(
                    pid=pid,
                    parent=times.parent,
                    family=family,
                    anonymous=reading.anonymous,
                    mapped=reading.file + reading.shared,
                    faulted=times.faulted,
                )
            )
        self._family_of = families
        self._seen = {one.pid: one for one in seen}
        return kept, seen

    def _faulted(self, seen: Sequence[Seen]) -> dict[int, Bytes]:
        """Return an upper bound of what each has faulted in since the look before."""
        faulted = {}
        for one in seen:
            before = self._faults.get(one.pid)
            if before is None:
                continue
            since = max(0, one.faulted - before[0])
            if self._huge_pages:
                since = since * _HUGE_FAULT + (2 * MIB if since else 0)
            if one.anonymous - before[1] <= since:
                faulted[one.pid] = since
        self._faults = {one.pid: (one.faulted, one.anonymous) for one in seen}
        return faulted

    def _holding(
        self,
        kept: Sequence[ProcessReading],
        anonymous: Estimate,
        faulted: Mapping[int, Bytes],
    ) -> Holding:
        kernel = sum(reading.kernel for reading in kept)
        file = self._files.estimate([reading.file for reading in kept])
        shared = self._shmem.estimate([reading.shared for reading in kept])
        return Holding(
            anonymous.value,
            shared.value,
            file.value,
            anonymous.low + shared.low + file.low + kernel,
            anonymous.high + shared.high + file.high + kernel,
            kernel,
            faulted=faulted,
            private=self._model.private(),
        )

    def _is_worth_counting(self, held: Holding, best: Bytes) -> bool:
        """Return whether a count would show a peak, or correct the curve below it."""
        may_be_peak = held.high > best * (1 + _MATERIAL) + _MATERIAL_FLOOR
        scale = max(best, held.total) if may_be_peak else held.total
        doubt = held.high - held.low
        if self._gives_up() or doubt <= 2 * _MATERIAL * scale + _MATERIAL_FLOOR:
            return False
        is_new = held.total > best * (1 + _STEP) + _MATERIAL_FLOOR
        if not is_new and self._clock() < self._count_at:
            return False
        if not may_be_peak:
            return self.spent <= self._earned() * _CURVE_PART
        return self.may_spend(much=held.total > best * _MUCH)

    def _gives_up(self) -> bool:
        """Return whether no process has let weigh read its pages."""
        return self.is_refused and not self._has_opened

    def _rest(self, *, found_peak: bool) -> None:
        """Wait longer and longer for the next count while none finds a peak."""
        if found_peak:
            self._pause = _SHORTEST_PAUSE
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._count_at = self._clock() + self._pause

    def _count(self, kept: Sequence[ProcessReading]) -> bool:
        """Count what is shared, and correct the model; False if nothing was read."""
        families = self._model.families()
        with ExitStack() as stack:
            opened: dict[int, ProcessPages] = {}
            counts = {}
            for family, sizes in families.items():
                pages = self._open(stack, opened, chosen(sizes))
                found = count_family(pages, sizes) if len(pages) > 1 else None
                if found is not None:
                    counts[family] = found
            has_files = _overlaps(kept)
            files = self._counted_files(stack, opened, kept) if has_files else None
            if self._has_shrunk(kept, opened):
                return False
        for family, found in counts.items():
            self._model.correct(family, found)
        if files is not None:
            self._correct_files(kept, files)
        return bool(counts) or files is not None

    def _has_shrunk(
        self, kept: Sequence[ProcessReading], pids: Collection[int]
    ) -> bool:
        """Return whether a process gave memory back between its reading and a count.

        What it shared then seems to be the others' alone, and would count twice.
        """
        before = {reading.pid: reading for reading in kept}
        for pid in pids:
            now = self._tree.reading(pid)
            if now is None:
                return True
            material = _MATERIAL * before[pid].resident + _MATERIAL_FLOOR
            for old, new in (
                (before[pid].anonymous, now.anonymous),
                (before[pid].shared, now.shared),
                (before[pid].file, now.file),
            ):
                if old - new > material:
                    return True
        return False

    def _counted_files(
        self,
        stack: ExitStack,
        opened: dict[int, ProcessPages],
        kept: Sequence[ProcessReading],
    ) -> FileCount | None:
        """Count files and shared memory; None if they were not all readable."""
        sizes = {reading.pid: reading.file + reading.shared for reading in kept}
        pages = self._open(stack, opened, chosen(sizes))
        if len(pages) < min(2, len(sizes)):  # of one alone, all seems its own
            return None
        return count_files(pages, len(sizes), sum(sizes.values()))

    def _correct_files(self, kept: Sequence[ProcessReading], files: FileCount) -> None:
        self._files.correct([reading.file for reading in kept], files.file)
        self._shmem.correct([reading.shared for reading in kept], files.shared)

    def _open(
        self, stack: ExitStack, opened: dict[int, ProcessPages], pids: Sequence[int]
    ) -> dict[int, ProcessPages]:
        """Open the pages of some processes, those that end or refuse left out."""
        if self._tmpfs is None:
            self._tmpfs = tmpfs_devices()
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
        is_open = any(pid in opened for pid in pids)
        self.is_refused = not is_open and any(pid in self._refused for pid in pids)
        return {pid: opened[pid] for pid in pids if pid in opened}  # in their order


def _overlaps(kept: Sequence[ProcessReading]) -> bool:
    """Return whether files or shared memory overlap enough to matter."""
    most = sum(reading.resident for reading in kept)
    kinds = ([r.file for r in kept], [r.shared for r in kept])
    return any(sum(sizes) - max(sizes) > 2 * _MATERIAL * most for sizes in kinds)


def has_moved(before: Sequence[Seen], now: Sequence[Seen]) -> bool:
    """Return whether a count could find anything else than the one *before*."""
    return have_changed(*map(_sizes, (before, now))) or have_changed(
        *map(_mapped_by_faults, (before, now))
    )


def _sizes(processes: Sequence[Seen]) -> dict[int, Bytes]:
    return {one.pid: one.anonymous + one.mapped for one in processes}


def _mapped_by_faults(processes: Sequence[Seen]) -> dict[int, Bytes]:
    return {one.pid: _MOST_MAPPED * one.faulted for one in processes}


def have_changed(before: Mapping[int, Bytes], now: Mapping[int, Bytes]) -> bool:
    """Return whether processes came or went, or their sizes differ enough to matter."""
    if before.keys() != now.keys():
        return True
    changes = sum(abs(size - before[pid]) for pid, size in now.items())
    return changes > _MATERIAL_FLOOR


def may_use_huge_pages(path: str = _THP) -> bool:
    """Return whether one page fault may bring more than one page."""
    try:
        with open(path, "rb", buffering=0) as file:
            return b"[never]" not in file.read(os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return False


def kernel_version() -> tuple[int, int]:
    """Return the kernel's version, such as (6, 1); (0, 0) if it has another form."""
    words = os.uname().release.split(".")[:2]
    numbers = [word.partition("-")[0] for word in words]
    if len(numbers) < 2 or not all(map(str.isdecimal, numbers)):  # noqa: PLR2004
        return 0, 0
    return int(numbers[0]), int(numbers[1])


_COUNT_ERROR = 0.015  # of a count
_SAME_SUM = 0.01  # relative growth of the sum that needs no new count


class Overlap:
    """Estimates the union of the files, or the shared memory, that processes map.

    Each process's resident bytes are known, and that pages overlap; by how much, only a
    count shows. Until then, all are assumed to map the same.
    """

    def __init__(self) -> None:
        self._counted: tuple[Bytes, Bytes] | None = None  # (sum, union)

    def correct(self, sizes: Sequence[Bytes], distinct: float | None) -> None:
        """Note a count: *distinct* is the part of the sum that remains."""
        most, least = sum(sizes), max(sizes, default=0)
        if distinct is not None:
            self._counted = (most, min(most, max(least, round(distinct * most))))

    def estimate(self, sizes: Sequence[Bytes]) -> Estimate:
        """Return the union now, from each process's own bytes."""
        most, least = sum(sizes), max(sizes, default=0)
        if self._counted is None or most == least:
            return Estimate(least, least, most)
        before, union = self._counted
        if most < before:
            shrunk = max(least, min(most, round(union * most / before)))
            return Estimate(shrunk, least, most)
        # what came since may be new pages, or those that others map already
        value = min(most, max(least, union))
        grown = most - before
        sure = grown <= _SAME_SUM * before
        low = round(value * (1 - _COUNT_ERROR)) if sure else least
        high = min(most, round(value * (1 + _COUNT_ERROR)) + grown)
        return Estimate(value, min(value, max(least, low)), max(value, high))
