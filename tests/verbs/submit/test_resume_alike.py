"""What a resumed job asks for: as much as before, and more of what lacked."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sessions import check_session
from some_requests import a_submitted_job, some_plan

from weigh.flow.follow.resume import ResumeRound
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.here import here_of
from weigh.model.job import ElementState, JobRequest, SubmittedJob, TaskState
from weigh.model.plan import Plan, PlannedElement
from weigh.model.record import State
from weigh.planning.resume_policy import Chosen, ResumeOptions
from weigh.schedulers.reachable import JobSnapshot
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store.identity import this_machine

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


def test_worked_examples_of_resumed_tasks() -> None:
    names = {"view": view, "chosen": chosen}
    check_session(Path(__file__).with_name("resume_alike.session"), names)


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
