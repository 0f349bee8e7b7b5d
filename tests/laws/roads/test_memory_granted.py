"""What an element is granted holds what its tasks need together, and what runs them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weigh.model.plan import TaskKind, TaskNeed
from weigh.planning.make_plan import plan_for_target
from weigh.planning.needs import TaskNeeds
from weigh.planning.options import PlanOptions, PlanTarget
from weigh.request import (
    LEAST_MEMORY,
    RUNNER_MEMORY,
    need_without_runner,
    round_memory,
)
from weigh.units import GIB, MIB


def kind_of(used: int, tasks: int, headroom: float) -> TaskKind:
    """Return a kind of tasks that was measured: with what one job would request."""
    need = max(LEAST_MEMORY, round_memory(used * (1 + headroom)))
    item = TaskNeed(memory=need, time=300.0)
    measured = TaskNeed(memory=used, time=1.0)
    return TaskKind(item=item, used=measured, tasks=tasks, example="x")


@given(
    used=st.lists(st.integers(MIB, 3 * GIB), min_size=1, max_size=4),
    tasks=st.integers(1, 40),
    headroom=st.sampled_from([0.0, 0.2, 1.0]),
    cpus=st.sampled_from([None, 1, 3, 8]),
    hours=st.sampled_from([None, "0", "1"]),
)
@example(used=[30 * MIB], tasks=3, headroom=0.2, cpus=3, hours="0")
def test_all_tasks_of_an_element_and_their_runner_fit_in_its_request(
    used: list[int], tasks: int, headroom: float, cpus: int | None, hours: str | None
) -> None:
    kinds = tuple(kind_of(size, tasks, headroom) for size in used)
    places = tuple(place for place in range(len(kinds)) for _ in range(tasks))
    options = PlanOptions(task_file="tasks.txt", node_cpus=cpus, hours=hours)
    needs = TaskNeeds(kinds, places, None)
    plan = plan_for_target(options, needs, PlanTarget(None), headroom)
    granted = plan.request.memory
    assert granted is not None
    # what the guard of a run counts for each task
    own = [need_without_runner(kind, headroom) for kind in plan.kinds]
    if plan.queue is None:
        together = max(sum(own[k] for k in one.kinds) for one in plan.elements)
    else:
        together = max(own)  # each waits until it fits beside others
    assert together + RUNNER_MEMORY <= granted
    for kind in plan.kinds:  # with the headroom that was asked for
        need = need_without_runner(kind, headroom)
        assert need >= min(LEAST_MEMORY, kind.used.memory * (1 + headroom) - 1)


@pytest.mark.parametrize(
    ("used", "granted"),
    [
        (100, 380),  # 3 x 120, and 20 for what runs them
        (40, 170),  # 3 x 48 and 20 are 164, in steps of 10
        (30, 150),  # 3 x 36 and 20 are less than 3 times the least
    ],
)
def test_three_tasks_on_a_node(used: int, granted: int) -> None:
    kind = kind_of(used * MIB, 3, 0.2)
    options = PlanOptions(task_file="tasks.txt", node_cpus=3, hours="0")
    plan = plan_for_target(
        options, TaskNeeds((kind,), (0, 0, 0), None), PlanTarget(None), 0.2
    )
    assert len(plan.elements) == 1
    assert plan.request.memory == granted * MIB
