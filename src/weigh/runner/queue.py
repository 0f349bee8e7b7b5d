"""What to run next: tasks in order, those to try again, those that need much room."""

from collections import deque
from collections.abc import Callable, Collection, Iterator

import msgspec

from weigh.runner.attempt import Attempt
from weigh.runner.memory_guard import MemoryWatch
from weigh.runner.slots import NO_SHARE, FreeSlots, Share, Slot


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A task's turn: ``alone`` with nothing beside it, or once ``share`` is free."""

    seq: int
    alone: bool = False
    share: Share = NO_SHARE


class Queue:
    """Turns to come. Those that have to be alone come when all others have ended."""

    def __init__(self, order: Iterator[int]) -> None:
        self._order = order
        self._again: deque[Turn] = deque()
        self._large: deque[Turn] = deque()
        self._alone: deque[Turn] = deque()
        self._next: int | None = next(order, None)

    def again(self, seq: int) -> None:
        """Let a task have another turn."""
        self._again.append(Turn(seq))

    def with_share(self, seq: int, share: Share) -> None:
        """Let a task have another turn, once there is so much room for it."""
        self._large.append(Turn(seq, share=share))

    def alone(self, seq: int) -> None:
        """Let a task have another turn, alone."""
        self._alone.append(Turn(seq, alone=True))

    def put_back(self, turn: Turn) -> None:
        """Let a turn that came to nothing come again."""
        if turn.alone:
            self._alone.appendleft(turn)
        elif turn.share != NO_SHARE:
            self._large.appendleft(turn)
        else:
            self._again.append(turn)

    def is_empty(self) -> bool:
        """Tell whether nothing is left to run."""
        return self._next is None and not (self._again or self._large or self._alone)

    @property
    def large(self) -> Turn | None:
        """Give the next turn that needs much room; it goes first where there is any."""
        return self._large[0] if self._large else None

    def take_large(self) -> Turn:
        """Take that turn."""
        return self._large.popleft()

    def peek(self, running: int) -> int | None:
        """Return the number of the task that :meth:`take` would give; None for none."""
        if self._again:
            return self._again[0].seq
        if self._next is not None:
            return self._next
        if self._alone and not self._large and not running:
            return self._alone[0].seq
        return None

    def take(self, running: int) -> Turn | None:
        """Give the next turn, for *running* tasks at work; None to wait for those."""
        if self._again:
            return self._again.popleft()
        if self._next is not None:
            seq, self._next = self._next, next(self._order, None)
            return Turn(seq)
        if self._alone and not self._large and not running:
            return self._alone.popleft()
        return None


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
