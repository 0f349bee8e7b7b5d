"""What to run next: tasks in order, retries, and tasks that need much memory."""

from collections import deque
from collections.abc import Callable, Collection, Iterator

import msgspec

from weigh.runner.attempt import Attempt
from weigh.runner.memory_guard import MemoryGuard
from weigh.runner.slots import NO_RESERVATION, FreeSlots, Reservation, Slot


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A task to run: ``alone`` with no other task, or once ``reservation`` is free."""

    seq: int
    alone: bool = False
    reservation: Reservation = NO_RESERVATION


class Queue:
    """The turns to come. Those that run alone come after all others have ended."""

    def __init__(self, order: Iterator[int]) -> None:
        self._order = order
        self._again: deque[Turn] = deque()
        self._large: deque[Turn] = deque()
        self._alone: deque[Turn] = deque()
        self._next: int | None = next(order, None)

    def retry(self, seq: int) -> None:
        """Queue another attempt at a task."""
        self._again.append(Turn(seq))

    def retry_with(self, seq: int, reservation: Reservation) -> None:
        """Queue another attempt at a task, once so much memory is free for it."""
        self._large.append(Turn(seq, reservation=reservation))

    def retry_alone(self, seq: int) -> None:
        """Queue another attempt at a task, with no other task running."""
        self._alone.append(Turn(seq, alone=True))

    def put_back(self, turn: Turn) -> None:
        """Queue a turn again that could not be started."""
        if turn.alone:
            self._alone.appendleft(turn)
        elif turn.reservation != NO_RESERVATION:
            self._large.appendleft(turn)
        else:
            self._again.append(turn)

    def is_empty(self) -> bool:
        """Return whether no task is left to run."""
        return self._next is None and not (self._again or self._large or self._alone)

    @property
    def large(self) -> Turn | None:
        """Return the next turn that needs much memory, which has priority."""
        return self._large[0] if self._large else None

    def take_large(self) -> Turn:
        """Take the turn that :attr:`large` returns."""
        return self._large.popleft()

    def peek(self, running: int) -> int | None:
        """Return the number of the task that :meth:`take` would return, or None."""
        if self._again:
            return self._again[0].seq
        if self._next is not None:
            return self._next
        if self._alone and not self._large and not running:
            return self._alone[0].seq
        return None

    def take_where(
        self,
        running: int,
        place: Callable[[int], Slot | None],
        give_back: Callable[[Slot], None],
    ) -> tuple[Turn, Slot] | None:
        """Take the next turn if *place* finds a slot for its task.

        *give_back* returns a slot that *place* took.
        """
        seq = self.peek(running)
        slot = None if seq is None else place(seq)
        if slot is None:
            return None
        turn = self.take(running)
        if turn is None:
            give_back(slot)
            return None
        return turn, slot

    def take(self, running: int) -> Turn | None:
        """Take the next turn while *running* tasks run; None to wait for those."""
        if self._again:
            return self._again.popleft()
        if self._next is not None:
            seq, self._next = self._next, next(self._order, None)
            return Turn(seq)
        if self._alone and not self._large and not running:
            return self._alone.popleft()
        return None


class Placer:
    """Assigns turns to free slots, as far as memory allows."""

    def __init__(
        self,
        queue: Queue,
        free: FreeSlots,
        memory: MemoryGuard,
        plan_of: Callable[[int], Reservation],
        room: Reservation = NO_RESERVATION,
    ) -> None:
        """Place the turns of *queue*; *plan_of* returns a task's planned need.

        *room* is what the plan has for all tasks that run at once; 0: no limit.
        """
        self._queue = queue
        self._room = room
        self._plan_of = plan_of
        self._free = free
        self._memory = memory

    def next(self, running: Collection[Attempt]) -> tuple[Turn, Slot] | None:
        """Return what to start now, given the *running* attempts; None for nothing."""
        large = self._queue.large
        if large is not None:
            slot = self._slot(running, large.reservation)
            if slot is not None:
                return self._queue.take_large(), slot

        def place(seq: int) -> Slot | None:
            return self._slot(running, NO_RESERVATION, self._plan_of(seq))

        return self._queue.take_where(len(running), place, self._free.give_back)

    def _slot(
        self,
        running: Collection[Attempt],
        reserved: Reservation,
        plan: Reservation = NO_RESERVATION,
    ) -> Slot | None:
        fits = self._memory.fits
        if self._room == NO_RESERVATION:
            return self._free.take_where(
                lambda slot: fits(slot, running, reserved, plan)
            )
        return self._free.take_where(
            lambda slot: (
                fits_by_plan(self._room, slot, running, plan)
                and fits(slot, running, reserved, plan)
            )
        )


def fits_by_plan(
    room: Reservation, slot: Slot, running: Collection[Attempt], plan: Reservation
) -> bool:
    """Return whether a task fits next to those running, each at its planned need.

    What a task holds beyond its plan counts too. GPU memory is that of the slot's GPU.
    """
    if not running:
        return True
    memory = sum(max(one.plan.memory, one.host.now) for one in running)
    if room.memory and plan.memory and memory + plan.memory > room.memory:
        return False
    cpus = sum(one.plan.cpus for one in running)
    if room.cpus and cpus + plan.cpus > room.cpus:
        return False
    if not (room.gpu_memory and plan.gpu_memory):
        return True
    there = [one for one in running if one.slot.gpu == slot.gpu]
    held = sum(max(one.plan.gpu_memory, one.gpu.now) for one in there)
    return not there or held + plan.gpu_memory <= room.gpu_memory
