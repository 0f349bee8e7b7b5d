"""What to run next: tasks in order, those to try again, those to run alone."""

from collections import deque
from collections.abc import Iterator

import msgspec


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A task's turn; ``alone``: with nothing beside it."""

    seq: int
    alone: bool = False


class Queue:
    """Turns to come. Those that have to be alone come when all others have ended."""

    def __init__(self, order: Iterator[int]) -> None:
        self._order = order
        self._again: deque[int] = deque()
        self._alone: deque[int] = deque()
        self._next: int | None = next(order, None)

    def again(self, seq: int) -> None:
        """Let a task have another turn."""
        self._again.append(seq)

    def alone(self, seq: int) -> None:
        """Let a task have another turn, alone."""
        self._alone.append(seq)

    def is_empty(self) -> bool:
        """Tell whether nothing is left to run."""
        return self._next is None and not self._again and not self._alone

    def take(self, running: int) -> Turn | None:
        """Give the next turn, for *running* tasks at work; None to wait for those."""
        if self._again:
            return Turn(self._again.popleft())
        if self._next is not None:
            seq, self._next = self._next, next(self._order, None)
            return Turn(seq)
        if self._alone and not running:
            return Turn(self._alone.popleft(), alone=True)
        return None
