"""What a resumed job asks for: as much as before, and more of what lacked."""

from collections.abc import Sequence

import msgspec
import pytest
from some_requests import a_submitted_job, some_plan

from weigh.flow.follow.resume import ResumeRound
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.here import here_of
from weigh.model.job import ElementState, JobRequest, SubmittedJob, TaskState
from weigh.model.plan import Plan, PlannedElement
from weigh.model.record import State
from weigh.planning.resume_policy import (
    Chosen,
    ResumeChoice,
    ResumeOptions,
    group_by_request,
)
from weigh.schedulers.reachable import JobSnapshot
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store.identity import this_machine
from weigh.units import GIB, MIB

LOCAL = LocalScheduler(env={}, root="", machine=this_machine())


def view(number: str, wanted: JobRequest, *states: State, first: int = 1) -> JobView:
    """Return a job with one task per element, in these states."""
    job = a_submitted_job(
        scheduler="gridengine",
        id=number,
        folder=f"/plan/{number}",
        script="job.sh",
        elements=len(states),
        tasks=len(states),
        request=wanted,
    )
    tasks = tuple(
        TaskState(task=first + at, job=number, element=at, seq=1, state=state)
        for at, state in enumerate(states)
    )
    elements = tuple(ElementState(state=state) for state in states)
    return JobView(job, LOCAL, elements, tasks, JobSnapshot({}, 0.0), work_of(job))


def chosen(
    views: Sequence[JobView], memory: str | None = None, time: str | None = None
) -> list[Chosen]:
    options = ResumeOptions(memory=memory, time=time)
    one = ResumeRound(here_of("/nowhere", {}, print), "p", options)
    one.views = views
    return list(one._unfinished())


WHOLE = JobRequest(memory=GIB, throttle=3)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (JobRequest(memory=8 * GIB), [[1], [2]]),
        # the parts of one array
        (msgspec.structs.replace(WHOLE, after=("1",), throttle=2), [[1, 2]]),
    ],
)
def test_tasks_of_jobs_that_requested_different_things_are_kept_apart(
    other: JobRequest, expected: list[list[int]]
) -> None:
    views = view("1", WHOLE, "FAILED"), view("2", other, "CANCELLED", first=2)
    requests = {one.job.id: one.job.request for one in views}
    found = group_by_request(chosen(views), requests, ResumeOptions())
    assert [[task.task for task, _ in group] for group in found] == expected


def test_tasks_whose_needs_round_to_one_request_go_into_one_array() -> None:
    ends: list[State] = ["OUT_OF_MEMORY"] * 3
    before = view("1", JobRequest(memory=200 * MIB), *ends)
    needs = (244 * MIB, 310 * MIB, 250 * MIB)
    choices = [
        (task, ResumeChoice(run=True, reason="", memory=2, need=need))
        for task, need in zip(before.tasks, needs, strict=True)
    ]
    found = group_by_request(choices, {"1": before.job.request}, ResumeOptions())
    assert [[(task.task, one.need) for task, one in group] for group in found] == [
        [(1, 250 * MIB), (3, 250 * MIB)],
        [(2, 310 * MIB)],
    ]


@pytest.mark.parametrize(
    ("state", "option"), [("OUT_OF_MEMORY", "--memory"), ("TIMEOUT", "--time")]
)
def test_twice_of_what_nobody_knows_is_not_run_again(state: State, option: str) -> None:
    views = [view("1", JobRequest(), state)]

    [(_, choice)] = chosen(views)
    [(_, said)] = chosen(views, memory="8G", time="2h")

    assert not choice.run
    assert option in choice.reason
    assert said.run


def test_the_plan_of_a_job_is_read_once_however_many_tasks_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[str]()
    ends: list[State] = ["FAILED"] * 5

    def plan_of(job: SubmittedJob) -> Plan:
        read.append(job.id)
        element = PlannedElement("tasks_0.txt", (1, 2, 3, 4, 5), 0, 0, 1)
        return some_plan(tasks=5, elements=(element,))

    monkeypatch.setattr("weigh.flow.follow.view.plan_in_folder_of", plan_of)

    chosen([view("1", JobRequest(), *ends)])

    assert read == ["1"]


def test_a_healer_waits_for_accounting_only_within_its_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = view("1", JobRequest(), "UNKNOWN")
    here, options = here_of("/nowhere", {}, print), ResumeOptions(heal=True)
    round_ = ResumeRound(here, "p", options, until=0.0)
    monkeypatch.setattr(round_, "_chain", lambda: [silent.job])
    monkeypatch.setattr("weigh.flow.follow.resume.look", lambda *_, **__: [silent])
    # a wait would be one call of this
    monkeypatch.setattr("weigh.flow.follow.resume.time.sleep", pytest.fail)

    assert round_._ended_views([]) == [silent]
