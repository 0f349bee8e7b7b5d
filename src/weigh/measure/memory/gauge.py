"""Measure what a process tree holds, with shared pages counted once.

The kernel's account of a control group knows it, where the job has one of its own. One
process's status has the exact figure too. For several, the sum of their resident sets
counts shared pages repeatedly: they are counted at points of their memory, near a new
peak and for well under 1 % of the job's time, and a model follows them in between.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.measure.memory.holding import MemoryHolding, PageEstimate, material_change
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import KIB, MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.memory import shared_pages
    from weigh.measure.memory.ledger import MemoryLedger
    from weigh.measure.memory.shared_pages import SharedPages
    from weigh.probe import pages, tmpfs
    from weigh.probe.tmpfs import JobFiles
else:  # each is imported when it is first used
    pages = lazy_module("weigh.probe.pages")
    shared_pages = lazy_module("weigh.measure.memory.shared_pages")
    tmpfs = lazy_module("weigh.probe.tmpfs")

_ZOMBIE = 10 * KIB  # of the kernel's, until it is reaped
_STRANGERS_INTERVAL = 1.0  # seconds between checks of who is in the group
_PAGES = "pages: shared ones count once, pipes and sockets do not"
_STATUS = "status: shared pages estimated, for pagemap is not readable"


class ForkFilter:
    """Inspects each new process of a tree once."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._residents: dict[int, Bytes] = {}  # bytes, at the last sample

    def sift(
        self, readings: Sequence[ProcessReading]
    ) -> tuple[Sequence[ProcessReading], Mapping[int, Bytes]]:
        """Drop vfork children; return the rest, and what each new fork inherited."""
        inherited: dict[int, Bytes] = {}
        residents = {reading.pid: reading.resident for reading in readings}
        kept = []
        for reading in readings:
            pid = reading.pid
            # only new processes have their parent read
            is_new = pid not in self._residents and len(readings) > 1
            times = self._tree.times(pid) if is_new else None
            if times is None or times.parent not in residents:
                kept.append(reading)
                continue
            # a vfork child runs in its parent's memory, which counts once, until it
            # execs
            if pages.share_memory_map(times.parent, pid):
                continue
            # read again: until a moment ago it may have been a vfork child
            times = self._tree.times(pid) or times
            parent = self._tree.times(times.parent)
            # the parent may have changed since the fork: at most what it held at either
            # look
            if parent is not None and times.is_fork_of(parent):
                before = self._residents.get(times.parent, 0)
                inherited[pid] = max(before, residents[times.parent])
            kept.append(self._tree.reading(pid) or reading)
        self._residents = {reading.pid: reading.resident for reading in kept}
        return kept, inherited


# CPU seconds of searches at once, and then of a core. Counts have a budget of their
# own, or other users' files on tmpfs would leave no time for them
_SEARCH_CREDIT, _SEARCH_SHARE = 0.06, 0.002
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds after a search that found nothing


class UnmappedMemory:
    """What a job holds in tmpfs and memfd files that none of its processes maps.

    Without the kernel's account, a change of the machine's shared memory shows that
    there may be some. Only then are the files looked for. What no process of the job
    has mapped, opened or can have written is another's.
    """

    def __init__(
        self,
        clock: Callable[[], Seconds],
        level: Callable[[], Bytes | None] | None = None,
        files: "JobFiles | None" = None,
    ) -> None:
        """Start; *level* returns the machine's shared memory, if it is known."""
        self.spent: Seconds = 0.0  # of CPU time, on searches
        self._clock = clock
        self._level = level or tmpfs.machine_shared_memory
        self._files = files or tmpfs.JobFiles()
        self._found: Bytes = 0  # at the last search
        self._sure: Bytes = 0  # of it
        self._checked = self._level()  # without what was mapped, at the search
        self._mapped: Bytes = 0  # at the search
        self._started = self._search_at = clock()
        self._pause = _SHORTEST_PAUSE

    def beyond(
        self, mapped: Bytes, folders: Sequence[str], given_back: Callable[[], Bytes]
    ) -> PageEstimate:
        """Return what the job holds beyond the *mapped* bytes.

        *folders* are those of its processes in /proc; *given_back* returns how much
        less of it they map by then.
        """
        level = self._level()
        if level is None or self._checked is None:
            return PageEstimate(0, 0, 0)
        outside = level - mapped
        has_news = abs(outside - self._checked) > material_change(2 * mapped)
        now = self._clock()
        earned = _SEARCH_CREDIT + _SEARCH_SHARE * (now - self._started)
        # what went may be others', and then the job's files are still there
        is_due = now >= self._search_at or (self._found and outside < self._checked)
        if has_news and is_due and self.spent <= earned:
            began = time.thread_time()
            found = self._files.search(folders)
            # a file that was mapped at the look, and no more at the search, would be
            # in both
            less = given_back()
            if less <= material_change(2 * mapped):
                # what is mapped need not have been touched; and what a process has
                # mapped since the look is in the file, but not in the look
                unmapped = found.own - min(mapped - less, found.mapped)
                is_same = abs(unmapped + found.closed - self._found) <= MIB
                pause = 2 * self._pause if is_same else _SHORTEST_PAUSE
                self._pause = min(pause, _LONGEST_PAUSE)
                self._search_at = now + self._pause
                self._found, self._sure = unmapped + found.closed, unmapped
                self._checked = outside
                self._mapped = mapped
                has_news = False
            self.spent += time.thread_time() - began
        # what has gone since was a file, or a file that is mapped now
        gone = max(0, self._checked - outside)
        if has_news:
            # others may have written as much as the job has mapped since
            gone = max(gone, mapped - self._mapped)
        return PageEstimate(
            max(0, self._found - gone), max(0, self._sure - gone), self._found
        )


class TreeMemoryGauge:
    """Turns readings of the processes into the tree's :class:`MemoryHolding`."""

    def __init__(
        self,
        tree: ProcTree,
        clock: Callable[[], Seconds] = time.monotonic,
        ledger: "MemoryLedger | None" = None,
        *,
        is_alone: bool = True,
    ) -> None:
        """Start; without *is_alone* other jobs of weigh write to tmpfs too."""
        self.has_found_files = False  # that nobody maps
        self._tree = tree
        self._clock = clock
        self._ledger = ledger
        self._check_at = clock()
        self._pages: SharedPages | None = None
        self._used: Seconds = math.inf
        self._file_before: Bytes = 0  # mapped at the look before
        self._unmapped: UnmappedMemory | None = None
        # a group of the job's own counts files that nobody maps as well
        if is_alone and (ledger is None or not ledger.is_own):
            self._unmapped = UnmappedMemory(clock)

    @property
    def spent(self) -> Seconds:
        """The CPU time used for counts and searches, in seconds."""
        return sum(
            one.spent for one in (self._unmapped, self._pages) if one is not None
        )

    @property
    def source(self) -> str:
        """Where the figures are from, in words."""
        if self._ledger is not None:
            return self._ledger.source
        return _STATUS if self._pages is not None and self._pages.is_refused else _PAGES

    def hold(
        self, readings: Sequence[ProcessReading], best: Bytes, used: Seconds = math.inf
    ) -> MemoryHolding:
        """Return what the processes hold; count pages where it may exceed *best*.

        *used* is the CPU time that they have used so far.
        """
        self._used = used
        held = self._by_account(readings, best)
        if held is not None:
            return held
        if len(readings) == 1:
            held = _held_by_one(readings[0])
        else:
            held = self._held_by_several(readings, best)
        zombies = self._tree.zombies * _ZOMBIE
        beyond = PageEstimate(0, 0, 0)
        if self._unmapped is not None:
            folders = [self._tree.folder(reading.pid) for reading in readings]
            beyond = self._unmapped.beyond(
                held.shared, folders, lambda: self._shared_given_back(readings)
            )
        if not zombies and not beyond.high:
            return held
        self.has_found_files = self.has_found_files or beyond.value > 0
        is_counted = held.certainty == "exact" and beyond.high > 0
        return msgspec.structs.replace(
            held,
            shared=held.shared + beyond.value,
            kernel=held.kernel + zombies,
            low=held.low + zombies + beyond.low,
            high=held.high + zombies + beyond.high,
            unmapped=beyond.value,
            certainty="counted" if is_counted else held.certainty,
        )

    def _shared_given_back(self, readings: Sequence[ProcessReading]) -> Bytes:
        now = [self._tree.reading(reading.pid) for reading in readings]
        before = sum(reading.shared for reading in readings)
        return before - sum(one.shared for one in now if one is not None)

    def finish(self) -> MemoryHolding | None:
        """Return the account of the time since the last look; None without one."""
        return self._by_account((), 0)

    def _by_account(
        self, readings: Sequence[ProcessReading], best: Bytes
    ) -> MemoryHolding | None:
        """Return the group's account; None once others are in the group."""
        if self._ledger is None:
            return None
        try:
            held = self._ledger.read()
        except (OSError, ValueError):
            self._ledger = None
            return None
        now = self._clock()
        # only where it matters: listing the group's members costs a look at each
        if held.total + held.spike > best or now >= self._check_at:
            self._check_at = now + _STRANGERS_INTERVAL
            known = {*self._tree.pids(), *self._tree.excluded}
            anonymous = sum(reading.anonymous for reading in readings)
            if self._ledger.strangers(known, anonymous):
                self._ledger = None
                return None
        # the kernel can drop the pages of files: they are in no group's figures
        files = [reading.file for reading in readings]
        file = max(files, default=0)
        if sum(files) - file > material_change(2 * best):
            file = self._held_by_several(readings, best).file
        before, self._file_before = self._file_before, file
        # at a spike, those of the look before may still have been mapped
        most = max(file, before) if held.spike else file
        return msgspec.structs.replace(
            held, file=most, low=held.low + file, high=held.high + most
        )

    def _held_by_several(
        self, readings: Sequence[ProcessReading], best: Bytes
    ) -> MemoryHolding:
        if self._pages is None:
            self._pages = shared_pages.SharedPages(self._tree, self._clock)
        self._pages.used = self._used
        return self._pages.hold(readings, best)


def _held_by_one(one: ProcessReading) -> MemoryHolding:
    size = one.resident + one.kernel
    return MemoryHolding(
        one.anonymous, one.shared, one.file, size, size, kernel=one.kernel
    )
