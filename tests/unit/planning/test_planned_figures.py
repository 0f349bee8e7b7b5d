"""Figures of plans and of second tries, worked out by hand."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from some_requests import some_plan

from weigh.errors import UsageError
from weigh.model.job import HealLimits, JobRequest, TaskState
from weigh.model.plan import (
    Plan,
    PlannedElement,
    PlannedQueue,
    PlanRequest,
    TargetGpu,
    TaskKind,
    TaskNeed,
)
from weigh.planning.make_plan import plan_for_target, tasks_too_big_message
from weigh.planning.needs import TaskNeeds
from weigh.planning.options import PlanOptions, PlanTarget, plan_targets
from weigh.planning.queue_order import enough_time, least_element_time
from weigh.planning.resume_policy import (
    EarlierRounds,
    PreviousPlace,
    ResumeChoice,
    ResumeOptions,
    choices_kept_together,
    enlarged_request,
    healer_stop_reason,
    narrowed_request,
    plan_of_round,
    previous_task_place,
    request_change_text,
)
from weigh.units import GIB, HOUR, MIB

TWO_SLOTS = TaskNeed(cpus=4, memory=10, gpu_memory=10)


@pytest.mark.parametrize(
    ("need", "seconds"),
    [
        (TaskNeed(cpus=1, memory=2, gpu_memory=2), 100.0),  # only slots are scarce
        (TaskNeed(cpus=4, memory=2, gpu_memory=2), 200.0),
        (TaskNeed(cpus=1, memory=10, gpu_memory=2), 200.0),
        (TaskNeed(cpus=1, memory=2, gpu_memory=10), 200.0),
        (TaskNeed(cpus=1, memory=2, gpu_memory=0), 100.0),
    ],
)
def test_what_is_scarcest_states_how_long_two_tasks_of_100_s_take(
    need: TaskNeed, seconds: float
) -> None:
    assert least_element_time([need] * 2, [100.0] * 2, TWO_SLOTS, 2) == seconds


def a_plan(expected: float | None = None) -> Plan:
    kind = TaskKind(
        item=TaskNeed(time=60), used=TaskNeed(time=60.0), tasks=1, example=""
    )
    queue = PlannedQueue(folder="q", tasks=(1,), kinds=(0,), slots=2, expected=expected)
    element = PlannedElement(file="", tasks=(), gpu_memory=0, memory=20, cpus=2)
    request = PlanRequest(cpus=2)
    return some_plan(request=request, kinds=(kind,), elements=(element,), queue=queue)


def planned(
    options: PlanOptions,
    *needs: TaskNeed,
    gpu: TargetGpu | None = None,
    busy: float | None = None,
) -> Plan:
    """Return the plan of a task for each of *needs*; equal ones are one kind."""
    unlike = [*dict.fromkeys(needs)]
    kinds = tuple(
        TaskKind(item=one, used=one, tasks=needs.count(one), example="x", busy=busy)
        for one in unlike
    )
    places = tuple(map(unlike.index, needs))
    found = TaskNeeds(kinds, places, None)
    return plan_for_target(options, found, PlanTarget(gpu), 0.2)


@given(st.integers(10, 90))
def test_the_note_on_a_short_limit_states_the_share_of_the_tasks(per_cent: int) -> None:
    plan = a_plan(expected=HOUR * 100.0 / per_cent)
    limit, note = enough_time(plan, HOUR)
    assert limit == HOUR
    (share,) = re.findall(r"about (\d+)% of the tasks", note or "")
    assert int(share) == pytest.approx(per_cent, abs=2)


@pytest.mark.parametrize(
    ("cpus_of_kinds", "most", "cpus"),
    [
        ((1,), 4, 4),  # two slots in place of four
        ((2, 2), 4, 4),
        ((1, 2), 4, 8),  # which of them run together is not known
        ((1,), 3, 6),  # 5.3, a whole number of CPUs
        ((1,), 2, 8),
    ],
)
def test_where_fewer_tasks_run_at_once_the_job_requests_as_many_cpus_fewer(
    cpus_of_kinds: tuple[int, ...], most: int, cpus: int
) -> None:
    plan = a_plan()
    (kind,) = plan.kinds
    kinds = tuple(
        replace(kind, item=replace(kind.item, cpus=each)) for each in cpus_of_kinds
    )
    plan = replace(plan, kinds=kinds)
    assert narrowed_request(JobRequest(cpus=8), plan, most).cpus == cpus


@pytest.mark.parametrize(
    ("memory", "factor", "expected"),
    [
        # the address space grows by the factor of the memory, also where it is alone
        (2, 2, (4 * GIB, 12 * GIB)),
        (None, 2, (None, 12 * GIB)),
        # what was mapped besides memory stays, whatever memory is requested
        (2, 1, (2 * GIB, 6 * GIB)),
    ],
)
def test_address_space_follows_memory(
    memory: int | None, factor: int, expected: tuple[int | None, int]
) -> None:
    had = JobRequest(memory=memory and memory * GIB, virtual_memory=6 * GIB)
    choice = ResumeChoice(run=True, reason="", memory=factor)
    asked = enlarged_request(had, [choice], ResumeOptions())
    assert (asked.memory, asked.virtual_memory) == expected
    typed = enlarged_request(had, [choice], ResumeOptions(memory="3GiB", time="90m"))
    assert typed.time_limit == 90 * 60
    assert memory is None or typed.virtual_memory == 7 * GIB


@pytest.mark.parametrize(
    ("factor", "limit", "most", "expected"),
    [
        (1, 3601, None, 3601),
        (2, 3600, None, 7200),
        (2, 2000, None, 4500),  # 67 minutes, in quarters of an hour
        (2, 3600, 5400, 5400),  # a healer's limit
        (2, 3600, 1800, 3600),  # never less than before
        (2, None, None, None),
    ],
)
def test_a_time_limit_grows_by_its_factor_and_memory_stays(
    factor: int, limit: int | None, most: int | None, expected: int | None
) -> None:
    choice = ResumeChoice(run=True, reason="", time=factor)
    limits = None if most is None else HealLimits(max_time=most)
    # more than round figures: nothing is rounded without a need
    had = JobRequest(memory=1001 * MIB, time_limit=limit)
    grown = enlarged_request(had, [choice], ResumeOptions(limits=limits))
    assert (grown.time_limit, grown.memory) == (expected, had.memory)


@pytest.mark.parametrize(
    ("kinds", "need", "keeps", "parts"),
    [
        (1, None, False, [(1, 3)]),
        (1, None, True, [(1,), (3,)]),  # what they left on their nodes is copied back
        (2, None, False, [(1,), (3,)]),  # packed to fit together
        (2, GIB, False, [(1, 3)]),
        (2, GIB, True, [(1,), (3,)]),
    ],
)
def test_elements_of_a_round_are_filled_unless_their_tasks_belong_together(
    kinds: int, need: int | None, *, keeps: bool, parts: list[tuple[int, ...]]
) -> None:
    plan = a_plan()
    elements = tuple(
        PlannedElement(f"tasks_{n}.txt", tasks, 0, 0, 1)
        for n, tasks in enumerate([(1, 2), (3, 4)])
    )
    plan = replace(plan, elements=elements, kinds=plan.kinds * kinds, queue=None)
    places = {1: PreviousPlace(plan, 0, 0), 3: PreviousPlace(plan, 1, 0)}
    choice = ResumeChoice(run=True, reason="", need=need)
    again = plan_of_round(plan, places, choice, 2, keeps=keeps)
    assert [element.tasks for element in again.elements] == parts


@pytest.mark.parametrize(("number", "kind"), [(0, None), (1, 4), (3, 6), (4, None)])
def test_a_task_of_an_element_is_known_by_its_place(
    number: int, kind: int | None
) -> None:
    element = PlannedElement(
        file="", tasks=(7, 8, 9), gpu_memory=0, memory=0, cpus=1, kinds=(4, 5, 6)
    )
    plan = replace(a_plan(), elements=(element,), queue=None)
    assert previous_task_place(plan, 0, number).kind == kind


@pytest.mark.parametrize(
    ("gpus_of_task", "node_gpus", "cpus", "memory"),
    [
        (0, None, 16, 64),  # without a GPU an element has the node
        (1, 1, 16, 64),
        (1, 4, 4, 16),  # with one of 4, a quarter of it
        (2, 4, 8, 32),
    ],
)
def test_an_element_has_its_gpus_share_of_the_node(
    gpus_of_task: int, node_gpus: int | None, cpus: int, memory: int
) -> None:
    node = PlanOptions(
        task_file="t", node_cpus=16, node_memory="64GiB", node_gpus=node_gpus
    )
    capacity = planned(node, TaskNeed(memory=GIB, gpus=gpus_of_task)).capacity
    assert (capacity.cpus, capacity.memory) == (cpus, memory * GIB)


@pytest.mark.parametrize(
    ("busy", "typed", "words"),
    [
        (0.3, None, "the time is enough if they take turns"),
        (None, None, "the time is that of a task alone"),
        (0.3, "5m", "the time is taken from --time"),
    ],
)
def test_a_plan_that_shares_a_gpu_states_what_its_time_assumes(
    busy: float | None, typed: str | None, words: str
) -> None:
    need = TaskNeed(memory=GIB, cpus=1, gpu_memory=4 * GIB, time=60.0)
    options = PlanOptions(task_file="t", time=typed)
    plan = planned(options, need, need, gpu=TargetGpu("V100", 16 * GIB), busy=busy)
    assert sum(words in note for note in plan.notes) == 1


def test_tasks_that_fit_into_no_node_are_named_by_their_numbers_from_1() -> None:
    small, large = TaskNeed(memory=GIB, cpus=1), TaskNeed(memory=GIB, cpus=9)
    plan = planned(PlanOptions(task_file="t", node_cpus=8), small, large, large)
    assert [(short.task, short.need) for short in plan.left_out] == [(2, 9), (3, 9)]
    words = "tasks 2, 3: 9 CPUs as measured, and the node has 8; --cpus 8 if fewer are"
    assert tasks_too_big_message(plan).startswith(words)


@pytest.mark.parametrize(
    ("hours", "has_queue"), [("1", True), ("0", False), (None, False)]
)
def test_two_long_tasks_are_pulled_only_where_hours_are_typed(
    hours: str | None, *, has_queue: bool
) -> None:
    need = TaskNeed(memory=GIB, cpus=1, time=1200.0)
    plan = planned(PlanOptions(task_file="t", hours=hours), need, need)
    assert (plan.queue is not None) == has_queue


@pytest.mark.parametrize(("minutes", "has_queue"), [(29, True), (30, False)])
def test_many_short_tasks_are_pulled_unless_one_among_them_is_long(
    minutes: int, *, has_queue: bool
) -> None:
    short = TaskNeed(memory=GIB, cpus=1, time=60.0)
    needs = (replace(short, time=60.0 * minutes), *[short] * 99)
    plan = planned(PlanOptions(task_file="t"), *needs)
    assert (plan.queue is not None) == has_queue


@pytest.mark.parametrize(
    ("names", "need", "expected"),
    [
        (None, TaskNeed(), PlanTarget(None)),
        (None, TaskNeed(gpus=2), PlanTarget(None)),  # whole ones of any type
        (None, TaskNeed(gpu_memory=GIB), "which GPU"),
        ("p100=12GiB", TaskNeed(), "how much GPU memory does a task use"),
        (
            "p100=12GiB",
            TaskNeed(gpu_memory=GIB),
            PlanTarget(TargetGpu("p100", 12 * GIB), "p100"),
        ),
    ],
)
def test_the_gpu_of_a_plan_is_the_one_that_is_named_or_measured(
    names: str | None, need: TaskNeed, expected: PlanTarget | str
) -> None:
    kind = TaskKind(item=need, used=need, tasks=1, example="x")
    needs = TaskNeeds((kind,), (0,), None)
    if isinstance(expected, PlanTarget):
        assert plan_targets(names, needs, {}) == [expected]
    else:
        with pytest.raises(UsageError, match=expected):
            plan_targets(names, needs, {})


AGAIN = ResumeChoice(run=True, reason="")
MORE = ResumeChoice(run=True, reason="", memory=2)
BUG = ResumeChoice(run=False, reason="a bug: KeyError: 1")
FULL = ResumeChoice(run=False, reason="ran out of memory: --max-memory is 1.00 GiB")
BUDGET = HealLimits(max_rounds=3, max_hours=10.0)


@pytest.mark.parametrize(
    ("choices", "before", "hours", "words"),
    [
        ([AGAIN], (2, 1, 6.0), 4.0, None),
        ([AGAIN], (2, 1, 6.0), 4.1, "10.1 CPU hours"),
        ([AGAIN], (2, 1, None), 4.0, "no time limit"),
        ([AGAIN], (2, 1, 6.0), None, "no time limit"),
        ([AGAIN], (3, 1, 1.0), 1.0, "3 rounds, as"),
        ([AGAIN], (2, 0, 1.0), 1.0, "no progress in"),
        ([AGAIN], (1, 0, 1.0), 1.0, None),
        ([MORE], (2, 0, 1.0), 1.0, None),
        ([], (1, 1, 1.0), None, "all tasks are done"),
        ([BUG, FULL], (1, 1, 1.0), None, "nothing left that a retry could fix"),
    ],
)
def test_a_healer_stops_at_its_limits_and_where_no_retry_helps(
    choices: list[ResumeChoice],
    before: tuple[int, int, float | None],
    hours: float | None,
    words: str | None,
) -> None:
    rounds, finished, spent = before
    earlier = EarlierRounds(rounds=rounds, finished=finished, hours=spent)
    reason = healer_stop_reason(choices, earlier, hours, BUDGET)
    assert (reason is None) == (words is None)
    assert (words or "") in (reason or "")


@pytest.mark.parametrize(
    ("kinds", "memory", "expected"),
    [
        ((0, 0), 1, (0, 0)),
        ((0, None), 1, ()),  # one of them is not known
        ((0, 0), 2, ()),  # they need more than their kinds state
    ],
)
def test_a_round_states_the_kinds_of_tasks_whose_needs_are_as_planned(
    kinds: tuple[int | None, ...], memory: int, expected: tuple[int, ...]
) -> None:
    element = PlannedElement(
        file="tasks_0.txt", tasks=(1, 2), gpu_memory=0, memory=0, cpus=1, kinds=(0, 0)
    )
    plan = replace(a_plan(), elements=(element,), queue=None)
    tasks = {n: PreviousPlace(plan, 0, kind) for n, kind in enumerate(kinds, start=1)}
    choice = ResumeChoice(run=True, reason="", memory=memory)
    (made,) = plan_of_round(plan, tasks, choice, 2, keeps=False).elements
    assert (made.tasks, made.kinds) == ((1, 2), expected)


def test_tasks_of_one_element_get_the_largest_factors_among_them() -> None:
    def task(number: int, element: int) -> TaskState:
        return TaskState(
            task=number, job="7", element=element, seq=number, state="TIMEOUT"
        )

    def choice(memory: int, time: int) -> ResumeChoice:
        return ResumeChoice(run=True, reason="", memory=memory, time=time)

    chosen = [
        (task(1, 0), choice(2, 1)),
        (task(2, 0), choice(1, 4)),
        (task(3, 1), choice(1, 2)),
    ]
    kept = [(one.memory, one.time) for _, one in choices_kept_together(chosen)]
    assert kept == [(2, 4), (2, 4), (1, 2)]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (JobRequest(cpus=4, memory=GIB, time_limit=HOUR), ""),
        (JobRequest(cpus=4, memory=2 * GIB, time_limit=HOUR), "1.00 GiB -> 2.00 GiB"),
        (JobRequest(cpus=2, memory=GIB, time_limit=HOUR), "2 instead of 4 CPUs"),
        (JobRequest(cpus=4, memory=GIB, time_limit=90 * 60), "01:00:00 -> 01:30:00"),
        (
            JobRequest(cpus=4, memory=GIB, time_limit=HOUR, exclude=("n7", "n8")),
            "not on n7, n8",
        ),
        (
            JobRequest(cpus=4, memory=2 * GIB, time_limit=HOUR, exclude=("n7",)),
            "1.00 GiB -> 2.00 GiB, not on n7",
        ),
    ],
)
def test_what_a_second_try_requests_otherwise_is_in_its_line(
    after: JobRequest, words: str
) -> None:
    before = JobRequest(cpus=4, memory=GIB, time_limit=HOUR)
    assert request_change_text(before, after) == words
