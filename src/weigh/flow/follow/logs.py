"""``weigh logs``: find the files with the output of a job or a task."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.task_history import tail_of
from weigh.flow.follow.view import JobView, latest_task_states, look
from weigh.flow.here import Here
from weigh.model.job import FAILED_STATES, FINAL, SubmittedJob, TaskState
from weigh.schedulers.job_script import ENDED
from weigh.schedulers.words import format_ranges
from weigh.store import jobs as jobs_file


class LogFile(msgspec.Struct, frozen=True):
    """A file to show; ``until`` is its element's log.

    ``instead`` is shown where ``path`` does not exist.
    """

    title: str
    path: str  # of the output
    until: str
    instead: str | None = None
    is_over: bool = False
    """Nothing more will be written."""
    earlier: tuple[str, ...] = ()
    """The outputs of the attempts before."""

    def to_show(self) -> str:
        """Return the path of the file that there is to show."""
        if self.instead is None or os.path.exists(self.path):
            return self.path
        return self.instead


class LogListing(msgspec.Struct, frozen=True):
    """The files with a job's output at one moment, and whether all is written."""

    files: tuple[LogFile, ...]
    is_over: bool


class JobOutputFinder:
    """Finds the output of a job's tasks, or of one: of *task*, or as ``JOB_TASK``.

    With *failed*, of the failed tasks. Of a user's own script the output is the logs of
    its elements. Each look lists the files again: which element runs a task of a shared
    queue is known only when it has begun, and an attempt has a file of its own.
    """

    def __init__(
        self, here: Here, name: str, task: int | None = None, *, failed: bool = False
    ) -> None:
        self._here, self._name, self._task, self._failed = here, name, task, failed
        # what the name meant at the first look: another job may be the last one later
        self._jobs: list[SubmittedJob] = []
        self._known_at_first: frozenset[tuple[str, str]] = frozenset()
        self._chosen: set[int] = set()
        # the scheduler's last answer is older than an element's end
        self._is_stale = False

    def look(self) -> LogListing:
        """Return the files of this moment.

        Raises:
            UsageError: there is no such job or task, no failed one, or it left no log.
        """
        views = self._views()
        task = self._task
        tasks, unit = latest_task_states(views), views[-1].job.unit
        chosen = [tasks[number] for number in sorted(tasks) if task in {None, number}]
        if not chosen:
            numbers = format_ranges(sorted(tasks))
            raise UsageError(f"no such {unit}: {task} ({unit}s are {numbers})")
        if self._failed:
            # one that is run again stays: its output goes on
            self._chosen |= {one.task for one in chosen if one.state in FAILED_STATES}
            chosen = [one for one in chosen if one.task in self._chosen]
        if not chosen:
            raise UsageError(
                f"no {unit} of {self._name} has failed (weigh status {self._name})"
            )
        # many tasks share the log of their element: it is read once per look
        has_end = cache(_has_end)
        found = [
            one for state in chosen for one in _logs_of_task(views, state, has_end)
        ]
        is_over = all(one.is_over for one in found) and all(
            state.state in FINAL for state in chosen
        )
        self._is_stale = any(view.job.is_script for view in views) or any(
            not one.is_over and has_end(one.until) for one in found
        )
        if task is None and not self._failed and len(chosen) > 1:
            found = _without_repeated_logs(found, chosen)
        # of a job that goes on the file is waited for
        if not any(os.path.exists(one.to_show()) for one in found):
            _refuse_if_ended(views)
        return LogListing(tuple(found), is_over)

    def _views(self) -> list[JobView]:
        """Return how the jobs stand, with those that have resumed them since."""
        known = jobs_file.read_jobs(self._here.root)
        if not self._jobs:
            return self._first_views(known)
        ids = {job.id for job in self._jobs}
        for job in jobs_file.chain_of(known, self._jobs[-1]):
            is_new = (job.scheduler, job.id) not in self._known_at_first
            if is_new and job.id not in ids and job.resumes in ids:
                self._jobs.append(job)
                ids.add(job.id)
        known = with_foreign(known, self._jobs)
        return list(look(self._here, self._jobs, known, fresh=self._is_stale))

    def _first_views(self, known: list[SubmittedJob]) -> list[JobView]:
        self._known_at_first = frozenset((job.scheduler, job.id) for job in known)
        # a name may end in _58 itself: then it is not divided
        plans = {job.id for job in known if not job.is_script}
        whole = plans | {job.name for job in known}
        name = self._name
        if self._task is None:
            name, self._task = _split(name, whole, plans)
        self._jobs = named_jobs(self._here, known, name)
        known = with_foreign(known, self._jobs)
        views = list(look(self._here, self._jobs, known))
        if self._task is not None and self._task not in latest_task_states(views):
            # it may be in another job of the plan
            self._jobs = jobs_file.chain_of(known, self._jobs[-1])
            views = list(look(self._here, self._jobs, known))
        return views


def output_paths_of_tasks(views: Sequence[JobView]) -> dict[int, list[str]]:
    """Return where each task of the jobs prints, or printed at its last attempt."""
    return {
        task: [one.path for one in _logs_of_task(views, state, lambda _: True)]
        for task, state in latest_task_states(views).items()
    }


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
    views: Sequence[JobView], task_state: TaskState, has_end: Callable[[str], bool]
) -> Iterator[LogFile]:
    """Yield the output of a task; of an element of a script its logs that exist."""
    view = next(view for view in views if view.job.id == task_state.job)
    job = view.job
    if not job.is_script:
        yield _log_of_planned_task(view, task_state, has_end)
        return
    is_array = job.own is not None and job.own.indices
    title = f"{job.id} element {task_state.task}" if is_array else job.id
    is_over = task_state.state in FINAL
    for path in view.logs[task_state.element]:
        yield LogFile(title, path, path, is_over=is_over)


def _log_of_planned_task(
    view: JobView, task_state: TaskState, has_end: Callable[[str], bool]
) -> LogFile:
    element, task = task_state.element, task_state.task
    log, run = view.history.log(view.scheduler, element), view.history.element(element)
    # where none is there yet it will be that of the first attempt
    *earlier, latest = run.outputs(task) or [run.output_path(task, 1)]
    output = task_state.output or latest
    is_over = task_state.state in FINAL
    # one that failed may be tried again, and one that printed nothing shows its
    # element's log: both are over with the element
    if task_state.state != "COMPLETED" or not os.path.exists(output):
        is_over &= view.elements[element].is_final or has_end(log)
    return LogFile(
        f"task {task_state.task}",
        output,
        log,
        instead=log,
        is_over=is_over,
        earlier=tuple(earlier),
    )


def _has_end(log: str) -> bool:
    """Return whether the last line of an element's log is there."""
    return f"{ENDED} " in tail_of(log)
