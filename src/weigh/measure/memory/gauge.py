"""Measure what a process tree holds, with shared pages counted once.

The kernel's account of a control group knows it, where the job has one of its own. One
process's status has the exact figure too. For several, the sum of their resident sets
counts shared pages repeatedly: they are counted at points of their memory, near a new
peak and for well under 1 % of the job's time, and a model follows them in between.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import KIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.memory.ledger import Ledger
    from weigh.measure.memory.shared_pages import SharedPages
    from weigh.measure.memory.unmapped import Unmapped

_NOTHING: Mapping[int, Bytes] = {}


class Holding(msgspec.Struct, frozen=True, gc=False):
    """Memory of a tree at one moment; ``low`` and ``high`` bound the true total.

    ``kernel`` are page tables, stacks and the like, which count for the job too.
    ``faulted`` are the bytes that each process faulted in since the look before, and
    ``private`` those that it alone maps, where that is known.

    From the kernel's own account (``is_account``), ``spike`` is by how much the tree
    exceeded the total between the looks, and ``room`` by how much it may have exceeded
    ``high``; None if the account keeps no peak. ``is_counted``: shared pages were
    counted just now. ``unmapped`` is the part of ``shared`` in files that no process
    maps.
    """

    anonymous: Bytes
    shared: Bytes
    file: Bytes
    low: Bytes
    high: Bytes
    kernel: Bytes = 0
    faulted: Mapping[int, Bytes] = _NOTHING
    private: Mapping[int, Bytes] = _NOTHING
    is_account: bool = False
    spike: Bytes = 0
    room: Bytes | None = None
    is_counted: bool = False
    unmapped: Bytes = 0

    @property
    def total(self) -> Bytes:
        """Everything that is resident, mapped files included."""
        return self.anonymous + self.shared + self.file + self.kernel


def nearest(size: Bytes, held: Holding, before: Holding | None) -> Holding:
    """Return the look of two whose kinds of memory describe a peak between them best.

    The peak may have been over by the second, as when the job ended.
    """
    if before is None or not held.total < before.total <= size:
        return held
    return before


_ZOMBIE = 10 * KIB  # of the kernel's, until it is reaped
_STRANGERS_INTERVAL = 1.0  # seconds between checks of who is in the group
_PAGES = "pages: shared ones count once, pipes and sockets do not"
_STATUS = "status: shared pages estimated, for pagemap is not readable"


class MemoryGauge:
    """Turns readings of the processes into the tree's :class:`Holding`."""

    def __init__(
        self,
        tree: ProcTree,
        clock: Callable[[], Seconds] = time.monotonic,
        ledger: "Ledger | None" = None,
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
        self._files: tuple[Bytes, Bytes] = (0, 0)  # mapped at the look before
        self._unmapped: Unmapped | None = None
        if is_alone and (ledger is None or not ledger.is_own):
            from weigh.measure.memory import unmapped  # noqa: PLC0415 - as needed

            self._unmapped = unmapped.Unmapped(clock)

    @property
    def spent(self) -> Seconds:
        """The CPU time used for counting shared pages, in seconds."""
        return 0.0 if self._pages is None else self._pages.spent

    @property
    def source(self) -> str:
        """Where the figures are from, in words."""
        if self._ledger is not None:
            return self._ledger.source
        return _STATUS if self._pages is not None and self._pages.is_refused else _PAGES

    def hold(self, readings: Sequence[ProcessReading], best: Bytes) -> Holding:
        """Return what the processes hold; count pages where it may exceed *best*."""
        held = self._by_account(readings, best)
        if held is not None:
            return held
        rise = None if self._unmapped is None else self._unmapped.rise()
        if len(readings) == 1:
            held = _alone(readings[0])
        else:
            held = self._shared_pages().hold(readings, best)
        if self._tree.zombies:
            held = _with_zombies(held, self._tree.zombies)
        if rise is None or self._unmapped is None:
            return held
        if not self._unmapped.may_hold(held.shared, rise):
            return held
        pages = self._shared_pages()
        folders = [self._tree.folder(reading.pid) for reading in readings]
        with pages.charged():
            beyond = self._unmapped.beyond(
                held.shared, rise, folders, may_look=pages.may_spend()
            )
        self.has_found_files = self.has_found_files or beyond > 0
        return msgspec.structs.replace(
            held,
            shared=held.shared + beyond,
            high=held.high + beyond,
            unmapped=beyond,
        )

    def finish(self) -> Holding | None:
        """Return the account of the time since the last look; None without one."""
        return self._by_account((), 0)

    def _by_account(
        self, readings: Sequence[ProcessReading], best: Bytes
    ) -> Holding | None:
        """Return the group's account; None once others are in the group."""
        if self._ledger is None:
            return None
        try:
            held = self._ledger.read()
        except (OSError, ValueError):
            self._ledger = None
            return None
        now = self._clock()
        if held.total + held.spike > best or now >= self._check_at:
            self._check_at = now + _STRANGERS_INTERVAL
            known = {*self._tree.pids(), *self._tree.excluded}
            anonymous = sum(reading.anonymous for reading in readings)
            if self._ledger.strangers(known, anonymous):
                self._ledger = None
                return None
        # the kernel can drop the pages of files: they are in no group's figures
        files = [reading.file for reading in readings]
        if len(files) > 1:
            file, most = self._shared_pages().files(readings, best)
        else:
            file = most = sum(files)
        low = held.low + file
        before, self._files = self._files, (file, most)
        if held.spike:  # then, those of the look before may still have been mapped
            file, most = max(file, before[0]), max(most, before[1])
        return msgspec.structs.replace(
            held, file=file, low=low, high=held.high + max(file, most)
        )

    def _shared_pages(self) -> "SharedPages":
        if self._pages is None:
            from weigh.measure.memory.shared_pages import SharedPages  # noqa: PLC0415 - as needed

            self._pages = SharedPages(self._tree, self._clock)
        return self._pages


def _alone(one: ProcessReading) -> Holding:
    size = one.resident + one.kernel
    return Holding(one.anonymous, one.shared, one.file, size, size, kernel=one.kernel)


def _with_zombies(held: Holding, zombies: int) -> Holding:
    more = zombies * _ZOMBIE
    return msgspec.structs.replace(
        held, kernel=held.kernel + more, low=held.low + more, high=held.high + more
    )
