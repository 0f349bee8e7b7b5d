"""What to run next: tasks in order, retries, and tasks that need much memory."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import MemoryGuard
from weigh.runner.slots import NO_RESERVATION, FreeSlots, RunSlot, TaskReservation

if TYPE_CHECKING:
    from weigh.runner.run_context import RunContext


# starts that may pass a task which waits for memory: then it has to be next, or tasks
# that need less would take what becomes free forever
MOST_PASSING = 16


class TaskTurn(msgspec.Struct, frozen=True, gc=False):
    """A task to run: ``alone`` with no other task, or once ``reservation`` is free."""

    seq: int  # number of the task in its file, from 1
    alone: bool = False
    reservation: TaskReservation = NO_RESERVATION


class TurnQueue:
    """The turns to come. Those that run alone come after all others have ended."""

    def __init__(self, order: Iterator[int]) -> None:
        # not a list: there may be hundreds of thousands
        self._order = order
        self._again: deque[TaskTurn] = deque()  # as soon as a slot is free
        self._large: deque[TaskTurn] = deque()  # when their memory is free
        self._alone: deque[TaskTurn] = deque()  # after all others
        self._next: int | None = next(order, None)

    def retry(self, task_number: int) -> None:
        """Queue another attempt at a task."""
        self._again.append(TaskTurn(task_number))

    def retry_with(self, task_number: int, reservation: TaskReservation) -> None:
        """Queue another attempt at a task, once so much memory is free for it."""
        self._large.append(TaskTurn(task_number, reservation=reservation))

    def retry_alone(self, task_number: int) -> None:
        """Queue another attempt at a task, with no other task running."""
        self._alone.append(TaskTurn(task_number, alone=True))

    def put_back(self, task_turn: TaskTurn) -> None:
        """Queue a turn again that could not be started."""
        if task_turn.alone:
            self._alone.appendleft(task_turn)
        elif task_turn.reservation != NO_RESERVATION:
            self._large.appendleft(task_turn)
        else:
            self._again.append(task_turn)

    def is_empty(self) -> bool:
        """Return whether no task is left to run."""
        return self._next is None and not (self._again or self._large or self._alone)

    @property
    def large(self) -> TaskTurn | None:
        """Return the next turn that needs much memory, which has priority."""
        return self._large[0] if self._large else None

    def take_large(self) -> TaskTurn:
        """Take the turn that :attr:`large` returns."""
        return self._large.popleft()

    def peek(self, running: int) -> int | None:
        """Return the number of the task that :meth:`take` would return, or None."""
        if self._again:
            return self._again[0].seq
        if self._next is not None:
            return self._next
        # a turn that needs much memory comes first, and neither runs next to it
        if self._alone and not self._large and not running:
            return self._alone[0].seq
        return None

    def take_where(
        self,
        running: int,
        place_task: Callable[[int], RunSlot | None],
        give_back: Callable[[RunSlot], None],
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Take the next turn if *place_task* finds a slot for its task.

        *give_back* returns a slot that *place_task* took.
        """
        seq = self.peek(running)
        slot = None if seq is None else place_task(seq)
        if slot is None:
            return None
        turn = self.take(running)
        if turn is None:
            give_back(slot)
            return None
        return turn, slot

    def take(self, running: int) -> TaskTurn | None:
        """Take the next turn while *running* tasks run; None to wait for those."""
        if self._again:
            return self._again.popleft()
        if self._next is not None:
            seq, self._next = self._next, next(self._order, None)
            return TaskTurn(seq)
        if self._alone and not self._large and not running:
            return self._alone.popleft()
        return None


class TurnPlacer:
    """Assigns turns to free slots, as far as memory allows."""

    def __init__(
        self,
        queue: TurnQueue,
        free: FreeSlots,
        memory: MemoryGuard,
        context: "RunContext",
    ) -> None:
        self._queue = queue
        # what the plan has for all tasks that run at once
        self._room = context.shared.room if context.shared else NO_RESERVATION
        self._plan_of = context.plan_of
        self._free = free
        self._memory = memory
        self._passed = 0  # starts since the large turn that is next has waited

    def next(self, running: Collection[TaskAttempt]) -> tuple[TaskTurn, RunSlot] | None:
        """Return what to start now, given the *running* attempts; None for nothing."""
        large = self._queue.large
        # first, or a smaller task would take the memory that has just become free
        if large is not None:
            slot = self._slot(running, large.reservation)
            if slot is not None:
                self._passed = 0
                return self._queue.take_large(), slot
            if self._passed >= MOST_PASSING:
                return None

        def place(task_number: int) -> RunSlot | None:
            return self._slot(running, NO_RESERVATION, self._plan_of(task_number))

        found = self._queue.take_where(len(running), place, self._free.give_back)
        self._passed += found is not None and large is not None
        return found

    def _slot(
        self,
        running: Collection[TaskAttempt],
        reserved: TaskReservation,
        plan: TaskReservation = NO_RESERVATION,
    ) -> RunSlot | None:
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
    room: TaskReservation,
    run_slot: RunSlot,
    running: Collection[TaskAttempt],
    plan: TaskReservation,
) -> bool:
    """Return whether a task fits next to those running, each at its planned need.

    What a task holds beyond its plan counts too. GPU memory is that of the slot's GPU.
    """
    # with nothing next to it a task may try, however much it needs
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
    # only tasks on the same GPU share its memory
    there = [one for one in running if one.slot.gpu == run_slot.gpu]
    held = sum(max(one.plan.gpu_memory, one.gpu.now) for one in there)
    return not there or held + plan.gpu_memory <= room.gpu_memory
