"""``weigh logs``: find the files with the output of a job or a task."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.follow.named import named_jobs, narrowed_to, with_foreign
from weigh.flow.follow.status import FAILED
from weigh.flow.follow.task_history import (
    latest_output_of_task,
    log_of_element,
    tail_of,
)
from weigh.flow.follow.view import JobView, latest_task_states, look
from weigh.flow.here import Here
from weigh.model.job import FINAL, OwnScript, SubmittedJob, TaskState
from weigh.schedulers.job_script import ENDED
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
    if chain[-1].is_script:
        if task is not None:
            chain = [narrowed_to(chain[-1], task)]
        views = list(look(here, chain, known))
        return tuple(_of_own(here, views, known, failed=failed))
    views = list(look(here, chain, known))
    tasks = latest_task_states(views)
    if task is not None:
        if task not in tasks:  # it may be in another job of the plan
            chain = jobs_file.chain_of(known, chain[-1])
            views = list(look(here, chain, known))
            tasks = latest_task_states(views)
        if task not in tasks:
            raise UsageError(f"no such task: {task} (tasks are 1 to {max(tasks)})")
        found = [_log_file_of_task(views, tasks[task])]
    elif failed:
        bad = [task for task in tasks.values() if task.state in FAILED]
        if not bad:
            raise UsageError(f"no task of {name} has failed (weigh status {name})")
        found = [_log_file_of_task(views, task) for task in bad]
    else:
        found = _of_all_tasks(views, tasks)
    # of a job that goes on the file is waited for
    if not any(os.path.exists(one.to_show()) for one in found):
        _refuse_if_ended(views)
    return tuple(found)


def _of_all_tasks(
    views: Sequence[JobView], tasks: Mapping[int, TaskState]
) -> list[LogFile]:
    """Return the output of all tasks; if none printed anything, the elements' logs."""
    ordered = [tasks[number] for number in sorted(tasks)]
    found = [_log_file_of_task(views, task) for task in ordered]
    # a single task that printed nothing: its element's log says why
    if len(found) == 1:
        return found
    # the element's log would appear once for each of its tasks
    printed = [
        replace(one, instead=None)
        for one, task in zip(found, ordered, strict=True)
        if task.state not in FINAL or os.path.exists(one.path)
    ]
    paths = dict.fromkeys(one.until for one in found)
    return printed or [LogFile("job", path, path) for path in paths]


def _refuse_if_ended(views: Sequence[JobView]) -> None:
    """Refuse to wait for the logs of jobs that have ended.

    Raises:
        UsageError: all have ended; names the reason.
    """
    states = [state for view in views for state in view.elements]
    if states and all(state.state in FINAL for state in states):
        reasons = (state.reason for state in states if state.reason)
        why = next(reasons, "it was not started").removeprefix("weigh: ")
        raise UsageError(f"job {views[-1].job.id} has ended and left no log: {why}")


def _of_own(
    here: Here,
    views: Sequence[JobView],
    known_jobs: Sequence[SubmittedJob],
    *,
    failed: bool,
) -> Iterator[LogFile]:
    """Yield the logs of jobs with the user's own script, and their error files.

    Raises:
        UsageError: a job has ended, and its log is not found.
    """
    for view in views:
        own, job = view.job.own or OwnScript(), view.job

        # a default binds this job: the loop goes on before the file is shown
        def has_ended(submitted_job: SubmittedJob = job) -> bool:
            now = next(look(here, [submitted_job], known_jobs, fresh=True))
            return all(state.is_final for state in now.elements)

        for task in view.tasks:
            if failed and task.state not in FAILED:
                continue
            named = f"{job.id} element {task.task}" if own.indices else job.id
            for path in view.logs[task.element]:
                yield LogFile(named, path, path, has_ended=has_ended)
    if not failed and not any(found for view in views for found in view.logs):
        states = {state.state for view in views for state in view.elements}
        if states and all(state in FINAL for state in states):
            job = views[-1].job
            own = job.own or OwnScript()
            where = next(iter(own.logs.values()), own.output) or "it is not known where"
            raise UsageError(f"job {job.id} has ended and left no log: {where}")


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


def _log_file_of_task(views: Sequence[JobView], task_state: TaskState) -> LogFile:
    view = next(view for view in views if view.job.id == task_state.job)
    log = log_of_element(view.job, view.scheduler, task_state.element)
    output = task_state.output or latest_output_of_task(
        view.job, task_state.element, task_state.task
    )
    return LogFile(f"task {task_state.task}", output, log, instead=log)
