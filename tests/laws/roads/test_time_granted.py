"""What an element is granted is enough: each task of a plan may start, as it pulls.

The plan, the job script and the queue are weigh's; the clock and the file system are
not real, so that days pass in no time.
"""

import heapq
import itertools
import os
import re
from typing import Any, NamedTuple

from hypothesis import assume, example, given
from hypothesis import strategies as st
from pulling_runs import FilesInMemory, PretendedRun, claims_in_memory
from some_requests import some_job_script

from weigh.errors import UsageError
from weigh.model.element_time import reserved_time
from weigh.model.job import JobRequest
from weigh.model.plan import Plan, PlannedQueue, TaskKind, TaskNeed
from weigh.model.staging import StagingPlan
from weigh.planning.make_plan import plan_for_target
from weigh.planning.needs import TaskNeeds
from weigh.planning.options import PlanOptions, PlanTarget
from weigh.planning.queue_order import (
    enough_time,
    least_limit,
    planned_limit,
    time_to_start,
    units_of,
)
from weigh.runner.shared_queue import PulledTasks, SharedQueue
from weigh.runner.slots import RunSlot
from weigh.schedulers.job_script import tasks_command
from weigh.schedulers.slurm.scheduler import COMMANDS

MOST_TASKS = 2000 if os.environ.get("WEIGH_FUZZ") == "long" else 300
MOST_ELEMENTS = 200  # of which each looks at all tasks: more take too long
SLOT = RunSlot(1)
STARTS_WITHIN = 10  # seconds from the start of an element to that of its first task


def kinds_of(times: list[float], headroom: float) -> list[TaskKind]:
    """Return the kinds of tasks that take these *times*, as records or options do."""
    kinds = []
    for time in dict.fromkeys(times):
        bound = time * (1 + headroom)
        item = TaskNeed(memory=100, time=bound)
        used = TaskNeed(memory=80, time=time)
        count = times.count(time)
        kinds.append(TaskKind(item=item, used=used, tasks=count, example="x"))
    return kinds


def plan_of(times: list[float], headroom: float = 0.2, **options: Any) -> Plan:
    kinds = kinds_of(times, headroom)
    place_of = {kind.used.time: place for place, kind in enumerate(kinds)}
    needs = TaskNeeds(tuple(kinds), tuple(place_of[time] for time in times), None)
    chosen = PlanOptions(task_file="tasks.txt", **options)
    return plan_for_target(chosen, needs, PlanTarget(None), headroom)


def time_of_exec(plan: Plan, staging: StagingPlan | None, *, requeue: bool) -> float:
    """Return after what time weigh exec stops its tasks, as the job script says."""
    limit = planned_limit(plan, reserved_time(staging, requeue=requeue))
    assert limit is not None
    script = some_job_script(
        elements=len(plan.elements),
        together=plan.together,
        request=JobRequest(cpus=1, time_limit=limit),
        staging=staging,
        requeue=requeue,
    )
    line = tasks_command(script, COMMANDS.RULES)
    until = re.search(r"--time \"\$\(\((\d+) - SECONDS", line)
    grace = re.search(r"--grace (\d+)", line)
    assert until is not None
    assert grace is not None
    return int(until[1]) - int(grace[1])


class TimedWork(PulledTasks):
    """The queue of a plan, by the times of its tasks alone."""

    def __init__(self, plan: Plan, queue: PlannedQueue) -> None:
        units = [unit.tasks for unit in units_of(queue, plan.kinds)]
        super().__init__(units, len(plan.elements))
        self._kinds = queue.kinds
        self._times = [time_to_start(kind) for kind in plan.kinds]

    def kind_of(self, task_number: int) -> int:
        return self._kinds[task_number - 1]

    def time_to_start(self, task_number: int) -> float | None:
        return self._times[self.kind_of(task_number)]


def started_by(plan: Plan, available: float, starts: float, seed: int) -> list[int]:
    """Return the tasks that the elements of *plan* start, each *starts* after t = 0."""
    queue = plan.queue
    assert queue is not None
    files, now = FilesInMemory(), starts
    runs = [PretendedRun(at, seed=seed + at) for at in range(len(plan.elements))]

    def pulling(number: int) -> SharedQueue:
        claims = claims_in_memory(files, number)
        return SharedQueue(claims, TimedWork(plan, queue), runs[number])

    started: dict[int, bool] = {}  # in their order
    ends: list[tuple[float, int, int]] = []
    running = [0] * len(plan.elements)
    order = itertools.count()
    queues = [pulling(number) for number in range(len(plan.elements))]

    def fill(number: int) -> None:
        runs[number].limit, runs[number].ended = available - now, started
        while running[number] < queue.slots and len(started) < len(queue.tasks):
            found = queues[number].take_where(running[number], lambda _: SLOT)
            if found is None:
                return
            seq = found[0].seq
            assert seq not in started
            started[seq] = True
            running[number] += 1
            time = plan.kinds[queue.kinds[seq - 1]].used.time or 0.0
            heapq.heappush(ends, (now + time, next(order), number))

    for number in range(len(plan.elements)):
        fill(number)
    while ends:
        now, _, number = heapq.heappop(ends)
        running[number] -= 1
        fill(number)
    return list(started)


@st.composite
def drawn_times(draw: st.DrawFn) -> list[float]:
    """Draw the times of up to 2,000 tasks: equal, mixed, or one long one."""
    count = draw(st.sampled_from([1, 2, 10, 11, 12, 40]) | st.integers(1, MOST_TASKS))
    base = draw(st.sampled_from([0.1, 1.0, 5.0, 149.9, 1799.0]) | st.floats(0.1, 36000))
    shape = draw(st.sampled_from(["equal", "mixed", "one long"]))
    if shape == "equal":
        return [base] * count
    if shape == "one long":
        return [*[base] * (count - 1), base * draw(st.floats(1, 100))]
    few = draw(st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
    return [base * few[at % len(few)] for at in range(count)]


class DrawnPlan(NamedTuple):
    """The tasks of a plan, the options, and how its elements are started."""

    times: list[float]
    headroom: float = 0.2
    hours: str | None = None
    cpus: int | None = None
    staging: StagingPlan | None = None
    requeue: bool = False
    starts: float = STARTS_WITHIN
    seed: int = 1


@given(
    st.builds(
        DrawnPlan,
        times=drawn_times(),
        headroom=st.sampled_from([0.0, 0.05, 0.2, 1.0]),
        hours=st.sampled_from([None, None, "0", "10m", "1", "4", "24"]),
        cpus=st.sampled_from([None, 2, 4, 8]),
        staging=st.sampled_from([None, StagingPlan()]),
        requeue=st.booleans(),
        starts=st.floats(0, STARTS_WITHIN),
        seed=st.integers(0, 9),
    )
)
@example(DrawnPlan([1.0] * 12))  # a minimum of five minutes
@example(DrawnPlan([5.0] * 1000))
@example(DrawnPlan([295.0], headroom=0.0))  # the grace of a request without headroom
@example(DrawnPlan([564.0], headroom=0.0, staging=StagingPlan()))
# twelve more than slots: a short one behind may be taken before the last long one
@example(DrawnPlan([[113.0, 113.0, 56.5][at % 3] for at in range(92)], 0.0, cpus=8))
@example(DrawnPlan([[1500.0, 450.0][at % 2] for at in range(228)], cpus=16, seed=2))
def test_each_task_starts_in_the_time_that_is_granted(drawn: DrawnPlan) -> None:
    try:
        plan = plan_of(
            drawn.times,
            drawn.headroom,
            hours=drawn.hours,
            node_cpus=drawn.cpus,
        )
    except UsageError:  # a task is longer than --hours
        assert drawn.hours is not None
        return
    available = time_of_exec(plan, drawn.staging, requeue=drawn.requeue)
    if plan.queue is None:  # each element starts its tasks at once
        assert drawn.starts + max(drawn.times) <= available
        return
    assume(len(plan.elements) <= MOST_ELEMENTS)
    started = started_by(plan, available, drawn.starts, drawn.seed)
    assert sorted(started) == [*range(1, len(drawn.times) + 1)]


@given(time=st.floats(0.1, 36000), limit=st.integers(1, 100_000))
@example(time=300.0, limit=90)
def test_a_time_limit_that_is_too_short_becomes_the_least_that_is_not(
    time: float, limit: int
) -> None:
    plan = plan_of([time] * 30, hours="100")
    least = least_limit(plan)
    assert least is not None
    granted, note = enough_time(plan, limit)
    assert granted == max(limit, least)
    assert note is not None or limit >= least
