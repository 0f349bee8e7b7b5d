"""A task that needs much memory starts, however many small ones there are."""

import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pulling_runs import FilesInMemory, PretendedRun, claims_in_memory

from weigh.planning.queue_order import MOST_UNITS, _queue_units, units_looked_ahead
from weigh.runner.memory_guard import TurnPlacer
from weigh.runner.shared_queue import PulledTasks, SharedQueue
from weigh.runner.slots import (
    MOST_PASSING,
    FreeSlots,
    RunSlot,
    TaskPlan,
    TaskReservation,
    TaskTurn,
    TurnQueue,
    lay_out,
)

if TYPE_CHECKING:
    from weigh.runner.attempt import TaskAttempt
    from weigh.runner.memory_guard import MemoryGuard

ROOM = 100  # of memory, for all tasks that run at once
SLOTS = 6


class Clock:
    """Runs what starts; each task holds memory for a drawn time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ends: list[tuple[float, int, int]] = []
        self.now = 0.0
        self.held = 0
        self._order = itertools.count()

    def begin(self, need: int) -> None:
        """Have a task hold *need* until it ends."""
        self.held += need
        end = self.now + self.rng.random()
        heapq.heappush(self.ends, (end, next(self._order), need))

    def fits(self, need: int) -> bool:
        """Return whether a task of this need fits next to those that run."""
        return not self.ends or self.held + need <= ROOM

    def run(self, start_one: Callable[[], bool]) -> None:
        """Start what may start, then let one task end, until nothing runs."""
        while True:
            while len(self.ends) < SLOTS and start_one():
                pass
            if not self.ends:
                return
            self.now, _, need = heapq.heappop(self.ends)
            self.held -= need


@settings(deadline=None, max_examples=15)
@given(large=st.integers(50, 100), most=st.integers(1, 40), seed=st.integers(0, 999))
def test_small_tasks_pass_one_that_waits_for_memory_a_few_times_only(
    large: int, most: int, seed: int
) -> None:
    clock = Clock(seed)
    needs = [clock.rng.randint(1, most) for _ in range(200)]
    started: list[int] = []

    class Guard:
        def fits(
            self, _slot: object, _running: object, reserved: TaskReservation, _: object
        ) -> bool:
            return clock.fits(reserved.memory or needs[len(started)])

    slots = FreeSlots(lay_out(SLOTS, cpu_count=SLOTS).slots)
    queue = TurnQueue(iter(range(1, 201)))
    context: Any = SimpleNamespace(plan=TaskPlan())
    placer = TurnPlacer(queue, slots, cast("MemoryGuard", Guard()), context)

    def start_one() -> bool:
        if len(started) == 10:
            queue.put(TaskTurn(1000, reservation=TaskReservation(large)))
            started.append(0)
        running = [cast("TaskAttempt", None)] * len(clock.ends)
        found = placer.next(running)
        if found is None:
            return False
        slots.give_back(found[1])
        is_large = bool(found[0].reservation.memory)
        clock.begin(large if is_large else needs[min(found[0].seq, 200) - 1])
        started.append(found[0].seq)
        return True

    needs += [1] * 10
    clock.run(start_one)
    assert started.count(1000) == 1
    assert started.index(1000) - started.index(0) - 1 <= MOST_PASSING


@settings(deadline=None, max_examples=2)
@given(seed=st.integers(0, 999), elements=st.integers(1, 12))
@example(seed=357, elements=1)
def test_above_4096_tasks_each_starts_once_the_longest_first(
    seed: int, elements: int
) -> None:
    """Also where needs differ, and a unit has tasks that do not fit together."""
    rng = random.Random(seed)
    count = MOST_UNITS + rng.randint(1, 500)
    times = [float(rng.randint(1, 50)) for _ in range(count)]
    needs = [rng.choice([1, 5, 20, 60, 95]) for _ in range(count)]
    units = [unit.tasks for unit in _queue_units(times)]
    clock, started = Clock(seed), list[int]()
    claims = claims_in_memory(FilesInMemory())

    class UnlikeWork(PulledTasks):
        def kind_of(self, task_number: int) -> int:
            return needs[task_number - 1]

    run = PretendedRun(seed=seed)
    run.ended = ended = dict[int, bool]()
    queue = SharedQueue(
        claims,
        UnlikeWork(units, elements, room=TaskReservation(ROOM)),
        run,
    )
    place_of = {seq: at for at, unit in enumerate(units) for seq in unit}
    waiting = set(range(len(units)))
    last_wait: dict[int, int] = {}
    # how many claimed tasks are before each, when its unit is claimed
    ahead: dict[int, int] = {}

    def place(task_number: int) -> RunSlot | None:
        return RunSlot(1) if clock.fits(needs[task_number - 1]) else None

    def start_one() -> bool:
        before = set(queue._ours)
        found = queue.take_where(len(clock.ends), place)
        if found is None:
            return False
        seq = found[0].seq
        # at most so many units before it were still free
        free = sorted(waiting)[: units_looked_ahead(elements)]
        assert place_of[seq] not in waiting or place_of[seq] in free
        waiting.discard(place_of[seq])
        for other in before - {seq}:
            last_wait[other] = last_wait.get(other, 0) + 1
        for position, other in enumerate(queue._ours):
            ahead.setdefault(other, position)
        clock.begin(needs[seq - 1])
        started.append(seq)
        ended[seq] = True
        return True

    clock.run(start_one)
    assert sorted(started) == list(range(1, count + 1))
    # a claimed task is passed while it is the first, and while those before it wait
    for seq, times_passed in last_wait.items():
        assert times_passed <= (MOST_PASSING + 1) * (ahead[seq] + 1)
