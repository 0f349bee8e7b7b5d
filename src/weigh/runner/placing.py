"""Which task is started next, and in which slot."""

from collections.abc import Callable, Collection

from weigh.runner.attempt import Attempt
from weigh.runner.memory_watch import MemoryWatch
from weigh.runner.queue import Queue, Turn
from weigh.runner.share import NO_SHARE, Share
from weigh.runner.slots import FreeSlots, Slot


class Placing:
    """Brings turns and free slots together, where there is memory for them."""

    def __init__(
        self,
        queue: Queue,
        free: FreeSlots,
        memory: MemoryWatch,
        plan_of: Callable[[int], Share],
    ) -> None:
        """Place the turns of *queue*; *plan_of* returns a task's planned need."""
        self._queue = queue
        self._plan_of = plan_of
        self._free = free
        self._memory = memory

    def next(self, running: Collection[Attempt]) -> tuple[Turn, Slot] | None:
        """Return what to start now beside those *running*; None for nothing."""
        large = self._queue.large
        if large is not None:
            slot = self._slot(running, large.share)
            if slot is not None:
                return self._queue.take_large(), slot
        seq = self._queue.peek(len(running))
        if seq is None:
            return None
        slot = self._slot(running, NO_SHARE, self._plan_of(seq))
        if slot is None:
            return None
        turn = self._queue.take(len(running))
        if turn is None:
            self._free.give_back(slot)
            return None
        return turn, slot

    def _slot(
        self, running: Collection[Attempt], share: Share, plan: Share = NO_SHARE
    ) -> Slot | None:
        fits = self._memory.fits
        return self._free.take_where(lambda slot: fits(slot, running, share, plan))
