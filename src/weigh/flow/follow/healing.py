"""What healing did to the jobs of a plan and does next, and what waits for it."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from weigh.flow.follow.task_history import log_of_element, tail_of
from weigh.flow.follow.tasks import goes_on
from weigh.flow.follow.view import JobView, latest_task_states
from weigh.flow.submit.rounds import SubmissionRounds
from weigh.model.job import SubmittedJob, TaskState
from weigh.render.printable import last_line_of
from weigh.render.status_lines import HealingRound, HealingState
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.job_script import ENDED


def healing_of(views: Sequence[JobView], sendings: SubmissionRounds) -> HealingState:
    """Return the rounds so far, and who sends the next one, if anybody does."""
    ids = {view.job.id for view in views}
    healers = [one for one in sendings.healers()[-1:] if one.id not in ids]
    snapshot = views[-1].snapshot
    waits = (one for one in healers if not snapshot.of(one, 0).is_final)
    healer = next(waits, healers[-1] if healers else None)
    number = max(view.job.round for view in views)
    stopped = sendings.stopped()
    # a note of an earlier round is out of date: jobs were sent since
    over = stopped is not None and stopped.round == number
    state = None if healer is None else snapshot.of(healer, 0).state
    return HealingState(
        rounds=tuple(rounds_of(views)),
        healer=None if healer is None else healer.id,
        state=state,
        stopped=stopped.why if stopped is not None and over else None,
        left=stopped.left if stopped is not None and over else {},
        goes_on=any(goes_on(state) for view in views for state in view.elements),
        words=None
        if healer is None
        else _last_healer_line(healer, views[-1].scheduler),
    )


def _last_healer_line(healer: SubmittedJob, scheduler: Scheduler) -> str | None:
    """Return the last line that a healer printed, e.g. why it could not submit."""
    lines = tail_of(log_of_element(healer, scheduler, 0)).splitlines()
    # without the line that the job script adds at its end
    said = "\n".join(line for line in lines if not line.startswith(ENDED))
    return last_line_of(said).removeprefix("weigh: ") or None


def rounds_of(views: Sequence[JobView]) -> Iterator[HealingRound]:
    """Yield the jobs after the first round; parts of one array count once."""
    found: dict[tuple[int, str | None, str], list[SubmittedJob]] = {}
    for view in views:
        if view.job.round > 1:
            # parts of an array have these in common, jobs of one round with other
            # requests do not
            key = view.job.round, view.job.reason, view.job.folder
            found.setdefault(key, []).append(view.job)
    for (number, reason, _), jobs in found.items():
        ids = tuple(job.id for job in jobs)
        tasks = sum(job.tasks for job in jobs)
        yield HealingRound(number, tasks, reason or "", ids)


# stored as the reason of a job that sends such tasks
NOT_SENT = "was not submitted"


def never_sent(views: Sequence[JobView]) -> Iterator[TaskState]:
    """Yield the tasks of the elements of a plan that were not submitted."""
    first, plan = views[0].job, views[0].work.known_plan
    # the record of the first job, or its plan, is gone: what it was to send is unknown
    if first.resumes is not None or plan is None:
        return
    there = latest_task_states(views)
    for number, element in enumerate(plan.elements):
        for seq, task in enumerate(element.tasks, start=1):
            if task not in there:
                yield TaskState(
                    task=task,
                    job=first.id,
                    element=number - first.first,  # it counts from the job's first one
                    seq=seq,
                    state="UNKNOWN",
                )


def with_unsent(views: Sequence[JobView]) -> list[JobView]:
    """Return the views of a plan's jobs, the first one also with tasks never submitted.

    A part of a long array was refused: they were left.
    """
    unsent = [
        replace(task, state="INTERRUPTED", reason=NOT_SENT)
        for task in never_sent(views)
    ]
    return [replace(views[0], tasks=(*views[0].tasks, *unsent)), *views[1:]]


def is_unsent(task_state: TaskState) -> bool:
    """Return whether a task was not submitted yet."""
    return task_state.reason == NOT_SENT
