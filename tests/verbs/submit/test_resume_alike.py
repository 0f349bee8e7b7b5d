"""What a resumed job asks for: as much as before, and more of what lacked."""

from collections.abc import Sequence
from pathlib import Path

from sessions import check_session
from some_requests import a_submitted_job

from weigh.flow.follow.resume import ResumeRound
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.here import here_of
from weigh.model.job import ElementState, JobRequest, TaskState
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
