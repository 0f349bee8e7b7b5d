"""What jobs run, and how it stands: the scheduler's states joined with their files.

A job has the tasks of a plan (`PlanWork`), or a script of the user's own
(`ScriptWork`). What differs between them is here: how their state is read, which line
a task runs, and how a script is sent again.
"""

import os
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from weigh.errors import WeighError
from weigh.flow.follow.task_history import JobHistory, history_of, tail_of
from weigh.flow.follow.tasks import goes_on, judge_by_log, read_tasks
from weigh.flow.here import Here
from weigh.flow.plan.directory import plan_in_folder_of, planned_in, replaced_since
from weigh.flow.site import schedulers
from weigh.lazy_modules import lazy_module
from weigh.model.job import (
    STUCK,
    ElementState,
    JobRequest,
    OwnScript,
    SubmittedJob,
    TaskState,
)
from weigh.model.plan import Plan
from weigh.schedulers import KINDS, find_kind
from weigh.schedulers.kind import Argv, SchedulerUserScripts
from weigh.schedulers.reachable import JobSnapshot, Scheduler, indices_of
from weigh.schedulers.words import format_ranges
from weigh.why_run_ended import out_of_memory

if TYPE_CHECKING:
    from weigh.flow.check import script as check_script
    from weigh.flow.submit import own_script, submit_script
else:  # each is imported when it is first used
    check_script = lazy_module("weigh.flow.check.script")
    submit_script = lazy_module("weigh.flow.submit.submit_script")
    own_script = lazy_module("weigh.flow.submit.own_script")

SETTLING = 60.0  # seconds within which a scheduler lists a new job
_GONE = "the scheduler no longer knows it"


class JobView(msgspec.Struct, frozen=True):
    """A job, its scheduler, and the states of its elements and tasks."""

    job: SubmittedJob
    scheduler: Scheduler
    elements: tuple[ElementState, ...]
    tasks: tuple[TaskState, ...]
    snapshot: JobSnapshot
    work: "JobWork"
    logs: tuple[tuple[str, ...], ...] = ()
    """The log files of each element of a user's own script that exist."""

    @property
    def history(self) -> JobHistory:
        """Return what happened to the tasks, as of this view."""
        return self.work.history


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
                yield work_of(job).view(scheduler, snapshot, others_run=others_run)


def latest_task_states(views: Iterable[JobView]) -> dict[int, TaskState]:
    """Return the tasks of a plan by number, each from the last job that has it."""
    # views are in the order of submission: a later round replaces the state
    return {task.task: task for view in views for task in view.tasks}


# stored as the reason of a job that sends such tasks
NOT_SENT = "was not submitted"


def never_sent(views: Sequence[JobView]) -> Iterator[TaskState]:
    """Yield the tasks of the elements of a plan that were not submitted.

    A part of a long array was refused: they were left.
    """
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
                    state="INTERRUPTED",
                    reason=NOT_SENT,
                )


def with_unsent(views: Sequence[JobView]) -> list[JobView]:
    """Return the views of a plan's jobs, the first one also with tasks never sent."""
    first = views[0]
    return [replace(first, tasks=(*first.tasks, *never_sent(views))), *views[1:]]


def is_unsent(task_state: TaskState) -> bool:
    """Return whether a task was not submitted yet."""
    return task_state.reason == NOT_SENT


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


class SubmittedWork:
    """What a job runs: it has a plan, or none."""

    def __init__(self, submitted_job: SubmittedJob) -> None:
        self.job = submitted_job
        self.history = history_of(submitted_job)

    @cached_property
    def known_plan(self) -> Plan | None:
        """Return the plan; None if it was deleted."""
        try:
            return self.plan
        except WeighError:
            return None

    @cached_property
    def plan(self) -> Plan:
        """Return the plan.

        Raises:
            UsageError, FormatError, StoreError: it cannot be read.
        """
        return plan_in_folder_of(self.job)

    @property
    def together(self) -> int:
        """Return how many tasks an element runs at once."""
        return 1 if self.known_plan is None else self.known_plan.together


class PlanWork(SubmittedWork):
    """The tasks of a plan, which weigh runs in the elements of a job."""

    def lines(self, opened: ExitStack) -> Callable[[int], bytes]:
        """Return a function for the line of a task; *opened* closes the task files."""
        folder = submit_script.folder_of_tasks(self.job, self.plan)
        return submit_script.planned_lines(self.plan, folder, opened)

    def view(
        self, scheduler: Scheduler, snapshot: JobSnapshot, *, others_run: bool
    ) -> JobView:
        """Return how the job stands; *others_run*: another job has the same queue."""
        job = self.job
        elements = tuple(
            _element_state(self.history, number, scheduler, snapshot)
            for number in range(job.elements)
        )
        elements = _with_why(elements, job, scheduler)
        if self.known_plan is None:  # the elements are all that is known
            tasks = tuple(_bare(job, elements))
        else:
            read = read_tasks(
                self.history,
                self.known_plan,
                scheduler,
                elements,
                others_run=others_run,
            )
            tasks = tuple(read)
        return JobView(job, scheduler, elements, tasks, snapshot, self)

    def changes(self, here: Here, first: SubmittedJob) -> list[str]:
        """Return which task file was edited: the tasks run as they were submitted."""
        del here
        plan = PlanWork(first).known_plan
        # a plan that was written again is shown by `replaced_since`
        if plan is None or replaced_since(first) is not None:
            return []
        folder = submit_script.folder_of_tasks(self.job, plan)
        cwd, since = planned_in(first.folder) or first.cwd, first.submitted
        words = f"job {first.id}, whose tasks run"
        found = [*submit_script.note_on_edited_tasks(plan, folder, cwd, since, words)]
        for element in plan.elements:
            path = os.path.join(first.folder, element.file)
            with suppress(OSError):
                if os.stat(path).st_mtime > since and not found:
                    way_out = "change your own task file, then weigh plan it --replace"
                    found = [
                        f"{path} was changed since {words} as they were ({way_out})"
                    ]
        return found


class ScriptWork(SubmittedWork):
    """A script of the user's own: each element of its job is one task."""

    def __init__(self, submitted_job: SubmittedJob) -> None:
        super().__init__(submitted_job)
        self._own = submitted_job.own or OwnScript()

    def lines(self, opened: ExitStack) -> Callable[[int], bytes]:
        """Return a function for what a task runs: all of the script.

        Raises:
            UsageError: it is gone.
        """
        del opened  # it is read here
        text = check_script.read_script_file(self.job.script, self.job.script)
        return lambda _: text.encode(errors="surrogateescape")

    def view(
        self, scheduler: Scheduler, snapshot: JobSnapshot, *, others_run: bool
    ) -> JobView:
        """Return how the job stands.

        A task has the number that the scheduler gives to its element, 1 in a plain job.
        Its output is the log, or if it failed what it wrote to its error file.
        """
        del others_run  # it shares no queue
        job, own = self.job, self._own
        indices = indices_of(job) if own.indices else (None,)
        states = [snapshot.of(job, place) for place in range(len(indices))]
        nodes = [state.node for state in states]
        outputs = list(self._logs(scheduler, own, indices, nodes))
        errors: list[str | None] = [None] * len(indices)
        if own.error:
            # the same search for another pattern
            apart = replace(own, output=own.error, logs={})
            errors = list(self._logs(scheduler, apart, indices, nodes))
        elements = tuple(
            _judged_by_logs(state, job, snapshot, out, error)
            for state, out, error in zip(states, outputs, errors, strict=True)
        )
        elements = _with_why(elements, job, scheduler)
        logs = tuple(
            tuple(path for path in pair if path is not None and _has_text(path, pair))
            for pair in zip(outputs, errors, strict=True)
        )
        tasks = tuple(
            TaskState(
                task=1 if index is None else index,
                job=job.id,
                element=place,
                seq=1,
                state=state.state,
                reason=state.reason,
                exit_code=state.exit_code,
                signal=state.signal,
                # the error file is last in the pair
                output=next(
                    iter(found[:: 1 if state.state == "COMPLETED" else -1]), None
                ),
            )
            for place, (index, state, found) in enumerate(
                zip(indices, elements, logs, strict=True)
            )
        )
        return JobView(job, scheduler, elements, tasks, snapshot, self, logs)

    def _logs(
        self,
        scheduler: Scheduler,
        own: OwnScript,
        indices: Sequence[int | None],
        nodes: Sequence[str | None],
    ) -> Iterator[str | None]:
        """Yield the path of each element's log; search those that have no name."""
        job = replace(self.job, own=own)
        kind = find_kind(job.scheduler)
        if kind is None:
            yield from (None for _ in indices)
            return
        # Slurm's %j is an id of each element that only accounting shows
        if raw := scheduler.ask(kind.user_scripts.raw_logs(job)):
            named = replace(own, logs={**raw, **own.logs})
            job = replace(job, own=named)
        home = os.path.expanduser("~")
        for index, node in zip(indices, nodes, strict=True):
            path = kind.user_scripts.log(job, index, node)
            name = kind.user_scripts.default_log(job.name, job.id, index)
            if path is None:
                # without -cwd Grid Engine runs a job, and writes its log, in the home
                # directory
                places = (os.path.join(folder, name) for folder in (job.cwd, home))
                yield next(filter(os.path.exists, places), None)
            else:
                # Grid Engine's -o may name a directory
                yield os.path.join(path, name) if os.path.isdir(path) else path

    def draft(self, here: Here, more: Argv) -> "own_script.ScriptDraft":
        """Return the script with *more* flags, to be submitted again."""
        options = own_script.ScriptOptions(
            script=self.job.script,
            flags=(*self._own.flags, *more),
            arguments=self._own.arguments,
            measure=self._own.measured,
        )
        there = here.in_folder(self.job.cwd)
        return own_script.draft_of(there, options, self.job.scheduler)

    def flags_again(
        self, indices: Sequence[int], job_request: JobRequest
    ) -> list[Argv]:
        """Return the flags of each job that runs *indices* with this *job_request*."""
        had, scripts = self.job.request, self._scripts
        # the script's own directives request the rest as before
        names = ("time_limit", "queue", "exclude")
        changed = [n for n in names if getattr(job_request, n) != getattr(had, n)]
        # which of the two is limited depends on the scheduler: one flag stands for both
        if (job_request.memory, job_request.virtual_memory) != (
            had.memory,
            had.virtual_memory,
        ):
            changed.append("memory")
        more = scripts.raised(job_request, changed)
        # Grid Engine takes one range with one step: then it is several jobs
        is_array = bool(self._own.indices)
        parts = scripts.only(indices, job_request.throttle) if is_array else [()]
        return [(*more, *part) for part in parts]

    def changes(self, here: Here, first: SubmittedJob) -> list[str]:
        """Return what differs from the *first* time, in words."""
        job, found = self.job, []
        if own_script.changed_since(job):
            found.append(f"{job.script} was changed since job {job.id}")
        if first.own is not None and first.own.indices:
            name = self.draft(here, ()).whole_array_variable()
            if name is not None:
                found.append(
                    f"the script reads {name}: it differs in a part of the array"
                )
        return found

    def by_hand(self, failed: Sequence[int]) -> str:
        """Return how to submit the *failed* indices if weigh did not submit the job."""
        if not failed:
            return f"nothing to resume of job {self.job.id}"
        command = self.command_again(failed)
        if command is None:
            what = f"indices {format_ranges(failed)}" if self._own.indices else "it"
            parts = filter(None, map(shlex.join, self._flags_of_parts(failed)))
            flags = " and with ".join(parts)
            command = f"submit its script again for {what}"
            command += f" with {flags}" if flags else ""
        return f"weigh did not submit job {self.job.id}: {command}"

    def command_again(self, failed: Sequence[int]) -> str | None:
        """Return the line that submits these indices again; None without the script.

        It has all that was typed, quoted for the shell; a comment names what lacks.
        """
        own = self._own
        if not (self.job.script and failed):
            return None
        arguments = ("--", *own.arguments) if own.arguments else ()
        line = " && ".join(
            shlex.join(("weigh", "submit", self.job.script, *flags, *arguments))
            for flags in self._flags_of_parts(failed)
        )
        return (
            line if own.is_line_known else f"{line}  # and the other options you typed"
        )

    def _flags_of_parts(self, failed: Sequence[int]) -> list[Argv]:
        """Return the flags of each job that runs the *failed* indices.

        They are those that were typed, or what the scheduler knows of them.
        """
        request, own, scripts = self.job.request, self._own, self._scripts
        # without the array, which only the failed part replaces
        flags = scripts.flags_to_repeat(own.flags)
        # what was typed is lost: the request as the scheduler recorded it
        if not own.is_line_known:
            flags = scripts.raised(request, ("memory", "time_limit", "queue"))
        # Grid Engine takes one range with one step: then it is several jobs
        parts = [*scripts.only(failed, request.throttle)] if own.indices else []
        return [(*flags, *part) for part in parts or [()]]

    @property
    def _scripts(self) -> SchedulerUserScripts:
        return KINDS[self.job.scheduler].user_scripts


JobWork: TypeAlias = PlanWork | ScriptWork


def work_of(submitted_job: SubmittedJob) -> JobWork:
    """Return what a job runs."""
    if submitted_job.own is None:
        return PlanWork(submitted_job)
    return ScriptWork(submitted_job)


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
    is_late = snapshot.asked > submitted_job.submitted + SETTLING
    if (
        element_state.state != "UNKNOWN"
        or snapshot.trouble
        or element_state.reason
        or not is_late
    ):
        return element_state
    return replace(element_state, reason=_GONE)


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
            return replace(element_state, state="OUT_OF_MEMORY", reason=reason)
    return element_state


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


def can_never_start(element_state: ElementState, submitted_job: SubmittedJob) -> bool:
    """Return whether an element waits for what cannot come, such as a failed job."""
    kind, reason = find_kind(submitted_job.scheduler), element_state.reason
    if kind is None or reason is None or element_state.state != "PENDING":
        return False
    return kind.backend.is_hopeless(reason)


def _with_why(
    elements: tuple[ElementState, ...],
    submitted_job: SubmittedJob,
    scheduler: Scheduler,
) -> tuple[ElementState, ...]:
    """Return the elements; those that are stuck get the reason, if known."""
    if all(state.reason != STUCK for state in elements):
        return elements
    why = scheduler.ask(scheduler.questions.why(submitted_job.id))
    return tuple(
        replace(state, reason=why) if why and state.reason == STUCK else state
        for state in elements
    )


def _element_state(
    history: JobHistory,
    number: int,
    scheduler: Scheduler,
    snapshot: JobSnapshot,
) -> ElementState:
    """Return the scheduler's state of an element, or else the state by its log."""
    state = snapshot.of(history.job, number)
    # the answer is up to half a minute old, and the tasks' files are not
    is_newer = history.element(number).has_events_since
    if state.state == "PENDING" and is_newer(snapshot.asked):
        return replace(state, state="RUNNING", reason=None)
    if state.state != "UNKNOWN":
        return state
    # queue and accounting have forgotten it, while its log stays
    judged = judge_by_log(state, history.log(scheduler, number))
    is_late = snapshot.asked > history.job.submitted + SETTLING
    # only an answer without the job, long enough after its submission, means that it is
    # gone
    if judged.is_final or snapshot.trouble or state.reason or not is_late:
        return judged
    return ElementState(state="INTERRUPTED", reason=_GONE)
