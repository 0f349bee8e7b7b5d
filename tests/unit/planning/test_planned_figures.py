"""Figures of plans and of second tries, worked out by hand."""

from pathlib import Path

from sessions import check_session
from some_requests import some_plan

from weigh.model.plan import (
    Plan,
    PlannedElement,
    PlannedQueue,
    PlanRequest,
    TargetGpu,
    TaskKind,
    TaskNeed,
)
from weigh.planning.make_plan import plan_for_target
from weigh.planning.needs import TaskNeeds
from weigh.planning.options import PlanOptions, PlanTarget


def a_plan() -> Plan:
    kind = TaskKind(
        item=TaskNeed(time=60), used=TaskNeed(time=60.0), tasks=1, example=""
    )
    queue = PlannedQueue(folder="q", tasks=(1,), kinds=(0,), slots=2)
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
    found = TaskNeeds(kinds, tuple(map(unlike.index, needs)), None)
    return plan_for_target(options, found, PlanTarget(gpu), 0.2)


def test_worked_examples_of_plans_and_second_tries() -> None:
    path = Path(__file__).with_name("planned_figures.session")
    check_session(path, {"a_plan": a_plan, "planned": planned})


def test_worked_examples_of_what_runs_again() -> None:
    check_session(Path(__file__).with_name("resume_choice.session"), {})
