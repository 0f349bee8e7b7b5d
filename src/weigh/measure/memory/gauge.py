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
from weigh.measure.memory.holding import MemoryHolding, material_change
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import KIB, MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.memory.ledger import MemoryLedger
    from weigh.measure.memory.shared_pages import SharedPages
    from weigh.probe import pages, tmpfs
    from weigh.probe.tmpfs import JobFiles, MachineSharedMemory, TmpfsFiles
else:  # each is imported when it is first used
    pages = lazy_module("weigh.probe.pages")
    tmpfs = lazy_module("weigh.probe.tmpfs")

_FILE_ERROR = 0.05  # of files that nobody maps, by which they may have grown since
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
        if len(readings) > 1 and any(r.pid not in self._residents for r in readings):
            readings = self._meet(readings, inherited)
        self._residents = {reading.pid: reading.resident for reading in readings}
        return readings, inherited

    def _meet(
        self, readings: Sequence[ProcessReading], inherited: dict[int, Bytes]
    ) -> list[ProcessReading]:
        residents = {reading.pid: reading.resident for reading in readings}
        kept = []
        # only new processes have their parent read
        for reading in readings:
            pid = reading.pid
            times = None if pid in self._residents else self._tree.times(pid)
            if times is None or times.parent not in residents:
                kept.append(reading)
                continue
            # a vfork child runs in its parent's memory, which counts once, until it
            # execs
            if pages.share_memory_map(times.parent, pid):
                continue
            # read again: until a moment ago it may have been a vfork child
            times, parent = (
                self._tree.times(pid) or times,
                self._tree.times(times.parent),
            )
            # the parent may have changed since the fork: at most what it held at either
            # look
            if parent is not None and times.is_fork_of(parent):
                before = self._residents.get(times.parent, 0)
                inherited[pid] = max(before, residents[times.parent])
            # it may have been a vfork child still when it was read
            kept.append(self._tree.reading(pid) or reading)
        return kept


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
        shmem: "MachineSharedMemory | None" = None,
        find: "Callable[[Sequence[str], float, JobFiles], TmpfsFiles] | None" = None,
    ) -> None:
        self._clock = clock
        self._shmem = shmem or tmpfs.MachineSharedMemory()
        self._find = find or tmpfs.find_files
        self._files = tmpfs.JobFiles()
        self._found = tmpfs.TmpfsFiles(0)
        self._checked = self._shmem.level or 0  # without what was mapped, at the search
        self.spent: Seconds = 0.0  # of CPU time, on searches
        self._started = self._search_at = clock()
        self._pause = _SHORTEST_PAUSE
        self._mapped: Bytes = 0  # at the last search
        self._is_doubtful = self._is_settled = False

    def rise(self) -> Bytes | None:
        """Return how far the machine's shared memory has risen; None if unknown."""
        return self._shmem.rise()

    def may_hold(self, mapped: Bytes, rise: Bytes) -> bool:
        """Return whether the job may hold more than the *mapped* bytes."""
        # a rise beyond what the job maps may be its files, or another user's
        is_beyond = rise - mapped > material_change(2 * mapped)
        return is_beyond or self._own > 0 or self._has_news(mapped)

    def beyond(self, mapped: Bytes, rise: Bytes, folders: Sequence[str]) -> Bytes:
        """Return what the job holds beyond the *mapped* bytes.

        *folders* are those of its processes in /proc.
        """
        now = self._clock()
        earned = _SEARCH_CREDIT + _SEARCH_SHARE * (now - self._started)
        if self._has_news(mapped) and now >= self._search_at and self.spent <= earned:
            self._search(mapped, folders)
        found = self._found
        # what has gone since was a file, or a file that is mapped now
        gone = max(0, self._checked - self._outside(mapped))
        held = max(0, self._own - gone) + max(0, mapped - found.mapped)
        # A file that was mapped at the look, and no more at the search, is in both:
        # the next search shows it. Or others have given memory back
        limit = max(mapped, rise)
        is_beyond = held > limit + material_change(2 * mapped)
        self._is_doubtful = is_beyond and not self._is_settled
        if self._is_doubtful:
            held = limit
        return max(0, held - mapped)

    @property
    def _own(self) -> Bytes:
        return self._found.own + self._found.closed

    def _search(self, mapped: Bytes, folders: Sequence[str]) -> None:
        began, before = time.thread_time(), self._own
        self._found = self._find(folders, self._shmem.started, self._files)
        self._checked = self._outside(mapped)
        # two searches that agree settle a doubt
        is_same = abs(self._own - before) <= MIB
        moved = abs(mapped - self._mapped)
        self._is_settled = is_same and moved <= material_change(2 * mapped)
        self._mapped = mapped
        if not is_same:
            self._pause = _SHORTEST_PAUSE
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self.spent += time.thread_time() - began
        self._search_at = self._clock() + self._pause

    def _outside(self, mapped: Bytes) -> Bytes:
        return (self._shmem.level or 0) - mapped

    def _has_news(self, mapped: Bytes) -> bool:
        """Return whether shared memory outside the job's mappings has changed."""
        changed = abs(self._outside(mapped) - self._checked)
        return self._is_doubtful or changed > material_change(2 * mapped)


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
        searched = 0.0 if self._unmapped is None else self._unmapped.spent
        return searched + (0.0 if self._pages is None else self._pages.spent)

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
        if self._pages is not None:
            self._pages.used = used
        held = self._by_account(readings, best)
        if held is not None:
            return held
        rise = None if self._unmapped is None else self._unmapped.rise()
        if len(readings) == 1:
            held = _held_by_one(readings[0])
        else:
            held = self._shared_pages().hold(readings, best)
        zombies = self._tree.zombies * _ZOMBIE
        beyond = 0 if rise is None else self._beyond(readings, held.shared, rise)
        if not zombies and not beyond:
            return held
        # what they may map more than was taken is among the files that nobody maps
        doubt = min(held.shared_doubt, held.high - held.total)
        above = max(0, round(beyond * (1 + _FILE_ERROR)) - doubt)
        return msgspec.structs.replace(
            held,
            shared=held.shared + beyond,
            kernel=held.kernel + zombies,
            low=held.low + zombies,
            high=held.high + zombies + above,
            unmapped=beyond,
            certainty="counted"
            if beyond and held.certainty == "exact"
            else held.certainty,
        )

    def _beyond(
        self, readings: Sequence[ProcessReading], mapped: Bytes, rise: Bytes
    ) -> Bytes:
        """Return what the job holds in files on tmpfs that nobody maps.

        *rise* is how far the machine's shared memory had risen before it was counted.
        """
        if self._unmapped is None or not self._unmapped.may_hold(mapped, rise):
            return 0
        folders = [self._tree.folder(reading.pid) for reading in readings]
        beyond = self._unmapped.beyond(mapped, rise, folders)
        self.has_found_files = self.has_found_files or beyond > 0
        return beyond

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
            file = self._shared_pages().files(readings, best)
        before, self._file_before = self._file_before, file
        # at a spike, those of the look before may still have been mapped
        most = max(file, before) if held.spike else file
        return msgspec.structs.replace(
            held, file=most, low=held.low + file, high=held.high + most
        )

    def _shared_pages(self) -> "SharedPages":
        if self._pages is None:
            from weigh.measure.memory.shared_pages import SharedPages  # noqa: PLC0415 - as needed

            self._pages = SharedPages(self._tree, self._clock)
            self._pages.used = self._used
        return self._pages


def _held_by_one(one: ProcessReading) -> MemoryHolding:
    size = one.resident + one.kernel
    return MemoryHolding(
        one.anonymous, one.shared, one.file, size, size, kernel=one.kernel
    )
