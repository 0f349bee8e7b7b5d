"""``weigh logs``: find the files with the output of a job or a task."""

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.status import FAILED
from weigh.flow.follow.task_history import (
    latest_output_of_task,
    log_of_element,
    tail_of,
)
from weigh.flow.follow.view import JobView, latest_task_states, look
from weigh.flow.here import Here
from weigh.model.job import FINAL, SubmittedJob, TaskState
from weigh.schedulers.job_script import ENDED
from weigh.schedulers.words import format_ranges
from weigh.store import jobs as jobs_file


class LogFile(msgspec.Struct, frozen=True):
    """A file to show; ``until`` is its element's log, which shows when it ended.

    ``instead`` is shown where ``path`` does not exist. The log of a user's own script
    does not show an end: ``has_ended`` asks the scheduler.
    """

    title: str
    path: str  # of the output
    until: str
    instead: str | None = None
    has_ended: Callable[[], bool] | None = None

    def to_show(self) -> str:
        """Return the path of the file that there is to show."""
        if self.instead is None or os.path.exists(self.path):
            return self.path
        return self.instead

    def is_over(self) -> bool:
        """Return whether nothing more will be written."""
        if self.has_ended is not None:
            return self.has_ended()
        return f"{ENDED} " in tail_of(self.until)


def log_files_of_job(
    here: Here, name: str, task: int | None = None, *, failed: bool = False
) -> tuple[LogFile, ...]:
    """Return the output of a job's tasks, or of one: of *task*, or as ``JOB_TASK``.

    With *failed*, return the output of the failed tasks. Of a user's own script it is
    the logs of its elements.

    Raises:
        UsageError: there is no such job or task, no failed one, or it left no log.
    """
    known = jobs_file.read_jobs(here.root)
    # a name may end in _58 itself: then it is not divided
    plans = {job.id for job in known if not job.is_script}
    whole = plans | {job.name for job in known}
    if task is None:
        name, task = _split(name, whole, plans)
    chain = named_jobs(here, known, name)
    known = with_foreign(known, chain)
    views = list(look(here, chain, known))
    if task is not None and task not in latest_task_states(views):
        # it may be in another job of the plan
        views = list(look(here, jobs_file.chain_of(known, chain[-1]), known))
    tasks, unit = latest_task_states(views), chain[-1].unit
    chosen = [tasks[number] for number in sorted(tasks) if task in {None, number}]
    if not chosen:
        numbers = format_ranges(sorted(tasks))
        raise UsageError(f"no such {unit}: {task} ({unit}s are {numbers})")
    if failed:
        chosen = [one for one in chosen if one.state in FAILED]
    if not chosen:
        raise UsageError(f"no {unit} of {name} has failed (weigh status {name})")
    found = [one for task in chosen for one in _logs_of_task(here, views, task, known)]
    if task is None and not failed and len(chosen) > 1:
        found = _without_repeated_logs(found, chosen)
    # of a job that goes on the file is waited for
    if not any(os.path.exists(one.to_show()) for one in found):
        _refuse_if_ended(views)
    return tuple(found)


def _without_repeated_logs(
    found: Sequence[LogFile], task_states: Sequence[TaskState]
) -> list[LogFile]:
    """Return the output of all tasks; if none printed anything, the elements' logs."""
    over = {f"task {one.task}" for one in task_states if one.state in FINAL}
    # the element's log would appear once for each of its tasks; one that has ended
    # shows it only if it is all there is
    printed = [
        replace(one, instead=None)
        for one in found
        if one.title not in over or os.path.exists(one.path)
    ]
    paths = dict.fromkeys(one.until for one in found)
    return printed or [LogFile("job", path, path) for path in paths]


def _refuse_if_ended(views: Sequence[JobView]) -> None:
    """Refuse to wait for the logs of jobs that have ended.

    Raises:
        UsageError: all have ended; names the reason.
    """
    job = views[-1].job
    states = [state for view in views for state in view.elements]
    if states and all(state.state in FINAL for state in states):
        reasons = (state.reason for state in states if state.reason)
        why = next(reasons, "it was not started").removeprefix("weigh: ")
        if job.own is not None:
            where = next(iter(job.own.logs.values()), job.own.output)
            why = where or "it is not known where"
        raise UsageError(f"job {job.id} has ended and left no log: {why}")


def _split(name: str, known: set[str], plans: set[str]) -> tuple[str, int | None]:
    """Split ``481516_58`` into job and task, unless a job has that very name.

    Only plans have tasks: of another job it is an element, see `named_jobs`.
    """
    job, line, task = name.rpartition("_")
    if name in known or not line or not task.isdecimal():
        return name, None
    if job.isdecimal() and job not in plans:
        return name, None
    return job, int(task)


def _logs_of_task(
    here: Here,
    views: Sequence[JobView],
    task_state: TaskState,
    known_jobs: Sequence[SubmittedJob],
) -> Iterator[LogFile]:
    """Yield the output of a task; of an element of a script its logs that exist."""
    view = next(view for view in views if view.job.id == task_state.job)
    job = view.job
    if not job.is_script:
        log = log_of_element(job, view.scheduler, task_state.element)
        output = task_state.output or latest_output_of_task(
            job, task_state.element, task_state.task
        )
        yield LogFile(f"task {task_state.task}", output, log, instead=log)
        return

    def has_ended() -> bool:
        now = next(look(here, [job], known_jobs, fresh=True))
        return all(state.is_final for state in now.elements)

    is_array = job.own is not None and job.own.indices
    title = f"{job.id} element {task_state.task}" if is_array else job.id
    for path in view.logs[task_state.element]:
        yield LogFile(title, path, path, has_ended=has_ended)
