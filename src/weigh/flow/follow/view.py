"""The current state of jobs: the scheduler's states joined with the tasks' files."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.task_history import joblog_of_element, log_of_element, tail_of
from weigh.flow.follow.tasks import goes_on, judge_by_log, read_tasks
from weigh.flow.here import Here
from weigh.flow.plan.directory import plan_in_folder_of
from weigh.flow.site import schedulers
from weigh.model.job import STUCK, ElementState, OwnScript, SubmittedJob, TaskState
from weigh.outcome import out_of_memory
from weigh.runner import events
from weigh.schedulers import find_kind
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.elements import indices_of
from weigh.schedulers.protocol import JobSnapshot
from weigh.units import Seconds

_SETTLING = 60.0  # seconds within which a scheduler lists a new job


class JobView(msgspec.Struct, frozen=True):
    """A job, its scheduler, and the states of its elements and tasks.

    ``logs`` are the log files of each element of a user's own script that exist.
    """

    job: SubmittedJob
    scheduler: Scheduler
    elements: tuple[ElementState, ...]
    tasks: tuple[TaskState, ...]
    snapshot: JobSnapshot
    logs: tuple[tuple[str, ...], ...] = ()


def look(
    here: Here,
    submitted_jobs: Sequence[SubmittedJob],
    known_jobs: Sequence[SubmittedJob],
    *,
    fresh: bool = False,
) -> Iterator[JobView]:
    """Yield a view of each job.

    Each scheduler is queried once for all *known_jobs* jobs.

    With *fresh* the answer of an earlier query is not reused.
    """
    for name in dict.fromkeys(job.scheduler for job in submitted_jobs):
        scheduler = schedulers.reach(here, name)
        ours = [job for job in known_jobs if job.scheduler == name]
        # one query for all, so that all views show the same moment
        snapshot = scheduler.states(ours, fresh=fresh)
        for job in submitted_jobs:
            if job.scheduler == name:
                others_run = _others_run(job, ours, snapshot)
                yield _view(job, scheduler, snapshot, others_run=others_run)


def latest_task_states(views: Iterable[JobView]) -> dict[int, TaskState]:
    """Return the tasks of a plan by number, each from the last job that has it."""
    # views are in the order of submission: a later round replaces the state
    return {task.task: task for view in views for task in view.tasks}


def _others_run(
    submitted_job: SubmittedJob,
    known_jobs: Sequence[SubmittedJob],
    snapshot: JobSnapshot,
) -> bool:
    """Return whether elements of another job of the same plan go on."""
    return any(
        goes_on(snapshot.of(one, number))
        for one in known_jobs
        # later rounds have directories, and queues, of their own
        if one.folder == submitted_job.folder and one.id != submitted_job.id
        for number in range(one.elements)
    )


def _view(
    submitted_job: SubmittedJob,
    scheduler: Scheduler,
    snapshot: JobSnapshot,
    *,
    others_run: bool,
) -> JobView:
    if submitted_job.own is not None:
        return _view_of_own(submitted_job, scheduler, snapshot)
    elements = tuple(
        _element_state(submitted_job, number, scheduler, snapshot)
        for number in range(submitted_job.elements)
    )
    if any(state.reason == STUCK for state in elements):
        elements = _with_why(
            elements, scheduler.ask(scheduler.questions.why(submitted_job.id))
        )
    try:
        plan = plan_in_folder_of(submitted_job)
    except WeighError:  # the plan was deleted: the elements are all that is known
        return JobView(
            submitted_job,
            scheduler,
            elements,
            tuple(_bare(submitted_job, elements)),
            snapshot,
        )
    tasks = tuple(
        read_tasks(submitted_job, plan, scheduler, elements, others_run=others_run)
    )
    return JobView(submitted_job, scheduler, elements, tasks, snapshot)


def _view_of_own(
    submitted_job: SubmittedJob, scheduler: Scheduler, snapshot: JobSnapshot
) -> JobView:
    """Return the view of a job with the user's own script: one task per element.

    A task has the number that the scheduler gives to its element, 1 in a plain job. Its
    output is the log, or if it failed what it wrote to its error file.
    """
    own = submitted_job.own or OwnScript()
    indices = indices_of(submitted_job) if own.indices else (None,)
    states = [snapshot.of(submitted_job, place) for place in range(len(indices))]
    nodes = [state.node for state in states]
    outputs = list(_logs_of_own(submitted_job, scheduler, indices, nodes))
    errors: list[str | None] = [None] * len(indices)
    if own.error:
        # the same search for another pattern
        apart = msgspec.structs.replace(own, output=own.error, logs={})
        other = msgspec.structs.replace(submitted_job, own=apart)
        errors = list(_logs_of_own(other, scheduler, indices, nodes))
    elements = tuple(
        _judged_by_logs(state, submitted_job, snapshot, out, error)
        for state, out, error in zip(states, outputs, errors, strict=True)
    )
    if any(state.reason == STUCK for state in elements):
        elements = _with_why(
            elements, scheduler.ask(scheduler.questions.why(submitted_job.id))
        )
    logs = tuple(
        tuple(path for path in pair if path is not None and _has_text(path, pair))
        for pair in zip(outputs, errors, strict=True)
    )
    tasks = tuple(
        TaskState(
            task=1 if index is None else index,
            job=submitted_job.id,
            element=place,
            seq=1,
            state=state.state,
            reason=state.reason,
            exit_code=state.exit_code,
            signal=state.signal,
            # the error file is last in the pair
            output=next(iter(found[:: 1 if state.state == "COMPLETED" else -1]), None),
        )
        for place, (index, state, found) in enumerate(
            zip(indices, elements, logs, strict=True)
        )
    )
    return JobView(submitted_job, scheduler, elements, tasks, snapshot, logs)


def _has_text(path: str, pair: tuple[str | None, ...]) -> bool:
    """Return whether a log exists; an error file has to have text."""
    try:
        # an empty error file is usual; an empty log shows that nothing was printed
        return os.stat(path).st_size > 0 or path == pair[0]
    except OSError:
        return False


def _judged_by_logs(
    element_state: ElementState,
    submitted_job: SubmittedJob,
    snapshot: JobSnapshot,
    *logs: str | None,
) -> ElementState:
    """Return the state of an element, made more precise by what its logs show."""
    for log in logs:
        # a surer state is not overruled by what a program printed
        if log is not None and element_state.state in {"UNKNOWN", "FAILED"}:
            element_state = judge_by_log(element_state, log)
    if element_state.state == "FAILED":
        element_state = _short_by_own_words(element_state, logs)
    is_late = snapshot.asked > submitted_job.submitted + _SETTLING
    if (
        element_state.state != "UNKNOWN"
        or snapshot.trouble
        or element_state.reason
        or not is_late
    ):
        return element_state
    return msgspec.structs.replace(
        element_state, reason="the scheduler no longer knows it"
    )


def _short_by_own_words(
    element_state: ElementState, logs: Iterable[str | None]
) -> ElementState:
    """Return the state of a failed element: for lack of memory, if its logs say so."""
    by_kill = element_state.signal in {
        None,
        signal.SIGKILL,
    }  # nobody counts the kills of a job
    for log in logs:
        lacked = out_of_memory(tail_of(log), by_kill=by_kill) if log else None
        if lacked is not None:
            whose = "GPU memory" if lacked.on_gpu else "memory"
            reason = f"ran out of {whose}"
            return msgspec.structs.replace(
                element_state, state="OUT_OF_MEMORY", reason=reason
            )
    return element_state


def _logs_of_own(
    submitted_job: SubmittedJob,
    scheduler: Scheduler,
    indices: Sequence[int | None],
    nodes: Sequence[str | None],
) -> Iterator[str | None]:
    """Yield the path of each element's log; without a name, search where it may be."""
    kind, own = find_kind(submitted_job.scheduler), submitted_job.own or OwnScript()
    # Slurm's %j is an id of each element that only accounting shows
    raw = (
        {} if kind is None else scheduler.ask(kind.user_scripts.raw_logs(submitted_job))
    )
    if raw:
        logs = msgspec.structs.replace(own, logs={**raw, **own.logs})
        submitted_job = msgspec.structs.replace(submitted_job, own=logs)
    home = os.path.expanduser("~")
    for index, node in zip(indices, nodes, strict=True):
        if kind is None:
            yield None
            continue
        path = kind.user_scripts.log(submitted_job, index, node)
        name = kind.user_scripts.default_log(submitted_job, index)
        if path is None:
            # without -cwd Grid Engine runs a job, and writes its log, in the home
            # directory
            places = (
                os.path.join(folder, name) for folder in (submitted_job.cwd, home)
            )
            yield next(filter(os.path.exists, places), None)
        else:
            # Grid Engine's -o may name a directory
            yield os.path.join(path, name) if os.path.isdir(path) else path


def _bare(
    submitted_job: SubmittedJob, element_states: Sequence[ElementState]
) -> Iterator[TaskState]:
    """Yield one task per element, for a job whose plan was deleted."""
    for number, state in enumerate(element_states):
        yield TaskState(
            task=submitted_job.first + number + 1,  # tasks count from 1
            job=submitted_job.id,
            element=number,
            seq=1,
            state=state.state,
            reason=state.reason,
        )


def _with_why(
    elements: tuple[ElementState, ...], why: str | None
) -> tuple[ElementState, ...]:
    """Return the elements; those that are stuck get the reason, if known."""
    return tuple(
        msgspec.structs.replace(state, reason=why)
        if why and state.reason == STUCK
        else state
        for state in elements
    )


def _has_begun_since(submitted_job: SubmittedJob, number: int, asked: Seconds) -> bool:
    """Return whether an element has written events since the scheduler was asked.

    The scheduler's answer is up to half a minute old, and the tasks' files are not.
    """
    path = joblog_of_element(submitted_job, number) + events.SUFFIX
    try:
        return os.stat(path).st_mtime > asked
    except OSError:
        return False


def _element_state(
    submitted_job: SubmittedJob,
    number: int,
    scheduler: Scheduler,
    snapshot: JobSnapshot,
) -> ElementState:
    """Return the scheduler's state of an element, or else the state by its log."""
    state = snapshot.of(submitted_job, number)
    if state.state == "PENDING" and _has_begun_since(
        submitted_job, number, snapshot.asked
    ):
        return msgspec.structs.replace(state, state="RUNNING", reason=None)
    if state.state != "UNKNOWN":
        return state
    # queue and accounting have forgotten it, while its log stays
    judged = judge_by_log(state, log_of_element(submitted_job, scheduler, number))
    is_late = snapshot.asked > submitted_job.submitted + _SETTLING
    # only an answer without the job, long enough after its submission, means that it is
    # gone
    if judged.is_final or snapshot.trouble or state.reason or not is_late:
        return judged
    return ElementState(state="INTERRUPTED", reason="the scheduler no longer knows it")
