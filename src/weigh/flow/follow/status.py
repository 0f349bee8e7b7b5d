"""``weigh status``: the state of submitted jobs and their tasks."""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from weigh.errors import SubmissionUnknownError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.task_history import JoblogHistory, history_of, tail_of
from weigh.flow.follow.tasks import goes_on, last_lines_of_output
from weigh.flow.follow.view import (
    JobView,
    is_unsent,
    latest_task_states,
    look,
    with_unsent,
)
from weigh.flow.here import Here
from weigh.flow.submit.rounds import SubmissionRounds, rounds_of_plan, settle_all
from weigh.lazy_modules import lazy_module
from weigh.model.element_time import NOT_STARTED
from weigh.model.job import CANCELLING, FAILED_STATES, ON_HOLD, SubmittedJob, TaskState
from weigh.model.record import ReportedProgress
from weigh.progress.eta import TaskDurations, TimeSpan, time_left_of, until_done
from weigh.render.printable import last_line_of
from weigh.render.progress_lines import ExpectedEnd, TaskEnd
from weigh.render.status_lines import (
    HealingRound,
    HealingState,
    JobStanding,
    TaskFailure,
    WaitingElements,
)
from weigh.schedulers import find_kind
from weigh.schedulers.job_script import ENDED
from weigh.schedulers.reachable import Scheduler
from weigh.store import jobs as jobs_file
from weigh.units import Seconds
from weigh.why_run_ended import error_at_end

if TYPE_CHECKING:
    from weigh.flow.follow import dependency, resume
else:  # each is imported when it is first used: not for a list
    dependency = lazy_module("weigh.flow.follow.dependency")
    resume = lazy_module("weigh.flow.follow.resume")

# outputs that are read: each is a file on a network disk
_MOST_WORDS = 10
# jobs in a list
_RECENT = 10


def standings_of_jobs(here: Here, names: Sequence[str]) -> tuple[JobStanding, ...]:
    """Return the state of the jobs called *names*, or of the latest jobs.

    The outcome of submissions that had no answer is a note.

    Raises:
        UsageError: there is no such job.
        StoreError: the jobs cannot be read.
        SubmissionUnknownError: whether the only job was accepted is not known.
    """
    still = settle_all(here)
    known = jobs_file.read_jobs(here.root)
    sent = len(known)
    # an empty list would look as if nothing had been submitted
    if still and not known and not names:
        raise SubmissionUnknownError(still[0])
    for line in still:
        here.notify(line)
    if names:
        # the last round stands for its plan: its chain leads to the others
        found = [named_jobs(here, known, name)[-1] for name in names]
        known = with_foreign(known, found)
        chains = [
            # a part of an array was named: its other rounds are of no interest
            [job] if job.is_part else jobs_file.chain_of(known, job)
            for job in found
        ]
    else:
        chains = _recent(known) if known else [jobs_file.find_jobs(known, "last")]
    jobs = [job for chain in chains for job in chain]
    healings = {
        chain[0].folder: rounds_of_plan(here, chain[0].folder)
        for chain in chains
        # healers are not recorded as jobs: the plan's folder names them
        if chain[-1].heal is not None
    }
    # asked with the jobs, in the same query
    last = [one.healers()[-1:] for one in healings.values()]
    asked = [*known, *(healer for some in last for healer in some)]
    views = {
        (view.job.scheduler, view.job.id): view for view in look(here, jobs, asked)
    }
    standings = tuple(
        _job_standing(
            [views[job.scheduler, job.id] for job in chain],
            healings.get(chain[0].folder),
        )
        for chain in chains
    )
    if len(jobs_file.read_jobs(here.root)) > sent:  # a healer sent a round meanwhile
        return standings_of_jobs(here, names)
    if not names:  # a list: each scheduler is asked once, and no more
        return standings
    return tuple(
        with_way_out(
            here,
            one,
            [views[job.scheduler, job.id] for job in chain],
            known,
        )
        for one, chain in zip(standings, chains, strict=True)
    )


def _recent(known_jobs: Sequence[SubmittedJob]) -> list[list[SubmittedJob]]:
    """Return the latest jobs, each with the jobs that it resumed, newest first."""
    chains: list[list[SubmittedJob]] = []
    seen: set[tuple[str, str]] = set()
    for job in reversed(known_jobs):
        # a job of a chain that is listed already
        if (job.scheduler, job.id) not in seen:
            chain = jobs_file.chain_of(known_jobs, job)
            seen |= {(one.scheduler, one.id) for one in chain}
            chains.append(chain)
        if len(chains) == _RECENT:
            break
    return chains


def _job_standing(
    views: Sequence[JobView], sendings: SubmissionRounds | None = None
) -> JobStanding:
    last = views[-1]
    healing = None if sendings is None else healing_of(views, sendings)
    tasks = latest_task_states(with_unsent(views))
    states = Counter(task.state for task in tasks.values())
    failed = [
        task
        for task in tasks.values()
        # a task that was left because time was short needs an explanation too
        if task.state in FAILED_STATES or NOT_STARTED in (task.reason or "")
    ]
    return JobStanding(
        job=last.job,
        jobs=tuple(view.job.id for view in views),
        tasks=states,
        elements=Counter(state.state for view in views for state in view.elements),
        total=len(tasks),
        failures=tuple(_task_failures(failed)),
        waiting=_with_like_reasons_as_one(views, _waiting_elements),
        ends=ends_of(views, time.time()),
        asked=last.snapshot.asked,
        trouble=last.snapshot.trouble,
        accounting=last.snapshot.accounting,
        unknown=_with_like_reasons_as_one(views, _elements_in_unknown_state),
        cancelling=sum(
            state.reason == CANCELLING for view in views for state in view.elements
        ),
        healing=healing,
        unsent=sum(map(is_unsent, tasks.values())),
        doubt=_doubtful_done_task(views, tasks),
    )


def healing_of(views: Sequence[JobView], sendings: SubmissionRounds) -> HealingState:
    """Return the rounds so far, and who sends the next one, if anybody does."""
    ids = {view.job.id for view in views}
    healers = (one for one in sendings.healers()[-1:] if one.id not in ids)
    healer, snapshot = next(healers, None), views[-1].snapshot
    number = max(view.job.round for view in views)
    stopped = sendings.stopped()
    # a note of an earlier round is out of date: jobs were sent since
    if stopped is not None and stopped.round != number:
        stopped = None
    states = [state for view in views for state in view.elements]
    return HealingState(
        rounds=tuple(rounds_of(views)),
        healer=None if healer is None else healer.id,
        state=None if healer is None else snapshot.of(healer, 0).state,
        stopped=None if stopped is None else stopped.why,
        left=stopped.left if stopped else {},
        goes_on=any(map(goes_on, states)),
        words=_last_healer_line(healer, views[-1].scheduler),
    )


def _last_healer_line(healer: SubmittedJob | None, scheduler: Scheduler) -> str | None:
    """Return the last line that a healer printed, e.g. why it could not submit."""
    if healer is None:
        return None
    lines = tail_of(history_of(healer).log(scheduler, 0)).splitlines()
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


def _doubtful_done_task(
    views: Sequence[JobView], tasks: Mapping[int, TaskState]
) -> str | None:
    """Return which task counts as done though its output ends in an error, if any."""
    views_by_job = {view.job.id: view for view in views}
    done = (task for task in tasks.values() if task.state == "COMPLETED")
    for task in islice(done, _MOST_WORDS):
        path, view = task.output, views_by_job.get(task.job)
        # the state of a done task names no output: its place follows from the joblog
        if view is not None and not view.job.is_script:
            outputs = view.history.element(task.element).outputs(task.task)
            path = outputs[-1] if outputs else None
        error = error_at_end(tail_of(path)) if path else None
        if error is not None:
            return f"{task.task} ended with 0, yet its output ends in: {error}"
    return None


def _task_failures(failed: Sequence[TaskState]) -> Iterator[TaskFailure]:
    for place, task in enumerate(sorted(failed, key=lambda task: task.task)):
        output = task.output
        lines = last_lines_of_output(output) if output and place < _MOST_WORDS else ()
        words = lines[0] if lines else None
        reason = task.reason
        if task.state == "FAILED" and task.exit_code and not reason:
            reason = f"exit code {task.exit_code}"
        yield TaskFailure(
            task=task.task,
            state=task.state,
            reason=reason,
            words=words if words != task.reason else None,  # not twice
            more=lines[1:],
            output=None if output is None else _shortened_path(output),
        )


def _shortened_path(path: str) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path


def _with_like_reasons_as_one(
    views: Sequence[JobView], read: Callable[[JobView], Iterator[WaitingElements]]
) -> tuple[WaitingElements, ...]:
    """Return what *read* finds in all jobs of a plan, each reason once."""
    found: dict[tuple[str, bool], WaitingElements] = {}
    for one in (one for view in views for one in read(view)):
        like = found.setdefault((one.reason, one.hopeless), one)
        if like is not one:
            starts = [at for at in (like.expected, one.expected) if at is not None]
            found[one.reason, one.hopeless] = replace(
                like,  # the first job was submitted first
                elements=like.elements + one.elements,
                expected=min(starts, default=None),
            )
    return tuple(found.values())


def _elements_in_unknown_state(job_view: JobView) -> Iterator[WaitingElements]:
    """Yield the numbers of elements in unknown state, by reason."""
    reasons = Counter(
        state.reason
        for state in job_view.elements
        if state.state == "UNKNOWN" and state.reason
    )
    for reason, elements in reasons.most_common():
        yield WaitingElements(elements, reason or "")


def _waiting_elements(job_view: JobView) -> Iterator[WaitingElements]:
    """Yield the numbers of waiting elements, by reason."""
    # elements may have started or ended since the scheduler was queried
    waits = {task.element for task in job_view.tasks if task.state == "PENDING"}
    reasons = Counter(
        state.reason
        for number, state in enumerate(job_view.elements)
        if state.state == "PENDING" and number in waits
    )
    for reason, elements in reasons.most_common():
        words, is_hopeless = _words_of_wait(job_view.job, reason)
        starts = (
            state.expected
            for state in job_view.elements
            if state.reason == reason and state.expected is not None
        )
        yield WaitingElements(
            elements,
            words,
            is_hopeless,
            since=job_view.job.submitted,
            expected=min(starts, default=None),
        )


def _words_of_wait(submitted_job: SubmittedJob, reason: str | None) -> tuple[str, bool]:
    """Return why an element waits, and whether it will never start."""
    kind, request = find_kind(submitted_job.scheduler), submitted_job.request
    if reason is None or kind is None:
        # just submitted: the scheduler has not looked at it
        return reason or "no reason reported yet", False
    words = kind.backend.in_words(reason, request.throttle)
    if request.after and reason == ON_HOLD:
        # Grid Engine calls both held: by a person, or by -hold_jid
        words = "a job that it depends on has not ended"
    return words, kind.backend.is_hopeless(reason)


def with_way_out(
    here: Here,
    job_standing: JobStanding,
    views: Sequence[JobView],
    known_jobs: Sequence[SubmittedJob],
) -> JobStanding:
    """Return a standing with the jobs that it needs, and what runs what is left."""
    if job_standing.is_done:
        return job_standing
    needs = [
        dependency.needed(here, need, known_jobs) for need in job_standing.job.needs
    ]
    job_standing = replace(
        job_standing, needs=tuple(need for need in needs if not need.is_done)
    )
    blocked = next((need for need in needs if need.is_blocked), None)
    if blocked is not None:
        return replace(
            job_standing, way_out=resume.command_for_need(here, blocked.job, known_jobs)
        )
    if (
        needs and not job_standing.needs and job_standing.is_stuck
    ):  # an element failed, and no task
        return replace(job_standing, way_out=f"weigh resume {needs[0].job}")
    # the scheduler keeps it until somebody does this
    if job_standing.is_stuck and not job_standing.needs:
        return replace(job_standing, way_out=f"weigh cancel {job_standing.job.id}")
    if not job_standing.is_over:
        return job_standing
    return replace(job_standing, way_out=resume.command_for_rest(here, views))


_MOST_READ = 500  # joblogs that are read for the times of tasks


def ends_of(views: Sequence[JobView], current_time: Seconds) -> ExpectedEnd | None:
    """Return when the jobs of *views* will be done; None if it cannot be estimated.

    *current_time* is in seconds since the epoch.
    """
    running, times = list[_RunningElement](), list[Seconds]()
    for view in views:
        if view.work.known_plan is not None:
            times += _times_of_done_tasks(view)
            running += _running_elements(view, current_time)
    tasks = [task for one in running for task in one.tasks]
    # no task is done: use the expected times of running ones
    times = times or [one.elapsed + one.left.value for one in tasks if one.left]
    # how long tasks without progress have run already is known too
    begun = tuple(one.elapsed for one in tasks if one.left is None)
    known = TaskDurations(tuple(times), len(times), begun)
    spans = [one.span(known) for one in running]
    left = [span for span in spans if span is not None]
    # an element without an estimate may be the last to end
    if not left or len(left) < len(spans):
        return None
    elements = [state.state for view in views for state in view.elements]
    waits = elements.count("PENDING")
    request = views[-1].job.request
    # without a throttle as many as run now: what the queue grants is not known
    at_a_time = min(request.throttle or len(running), len(running) + waits)
    # one list of all tasks; an element with a long list of its own may end later
    whole = until_done(
        [one.left or one.elapsed for one in tasks],
        sum(task.state == "PENDING" for view in views for task in view.tasks),
        known,
        # elements that wait will have as many slots as those that run
        lanes=at_a_time * max(one.lanes for one in running),
    )
    end = max([*left, *filter(None, [whole])], key=lambda span: span.value)
    limits = [(span, one.time_left) for span, one in zip(left, running, strict=True)]
    reported = (task for one in running for task in one.reported_tasks(known))
    return ExpectedEnd(
        value=end.value,
        low=end.low,
        high=end.high,
        at_a_time=at_a_time if waits else None,
        late=sum(span.low > limit for span, limit in limits),
        near=sum(span.low <= limit < span.high for span, limit in limits),
        time_limit=request.time_limit,
        tasks=tuple(sorted(reported, key=lambda task: -(task.remaining or 0.0))),
    )


class _RunningTask(NamedTuple):
    """A task that runs: its time so far, what it reported, and what that leaves."""

    number: int  # in the plan
    elapsed: Seconds
    headway: ReportedProgress | None
    left: TimeSpan | None


def _running_elements(
    job_view: JobView, current_time: Seconds
) -> Iterator["_RunningElement"]:
    waiting = Counter(
        task.element for task in job_view.tasks if task.state == "PENDING"
    )
    numbers: dict[int, dict[int, int]] = {}
    for task in job_view.tasks:
        numbers.setdefault(task.element, {})[task.seq] = task.task
    limit = job_view.job.request.time_limit
    for element, state in enumerate(job_view.elements):
        if state.state == "RUNNING":
            is_limited = limit is not None and state.started is not None
            ends = (state.started or 0.0) + (limit or 0)
            yield _RunningElement(
                job_view.history.element(element),
                numbers.get(element, {}),
                waiting[element],
                current_time,
                time_left=ends - current_time if is_limited else math.inf,
            )


class _RunningElement:
    """A running element: its tasks that run, and how many wait for its slots."""

    def __init__(
        self,
        history: JoblogHistory,
        numbers: Mapping[int, int],  # of its tasks in the plan, by those in the element
        waiting: int,
        current_time: Seconds,
        *,
        time_left: Seconds,
    ) -> None:
        progress = history.progress
        reported = {one.seq: one for one in progress.tasks} if progress else {}
        self.tasks: list[_RunningTask] = []
        for seq, start in history.in_flight.items():
            found = reported.get(seq)
            # progress of an earlier attempt means nothing for this one
            is_current = found is not None and found.attempt == start.attempt
            headway = found.headway if found is not None and is_current else None
            # clocks of nodes differ: a start may lie in the future
            elapsed = max(0.0, current_time - start.time)
            left = time_left_of(headway, elapsed)
            number = numbers.get(seq, seq)
            self.tasks.append(_RunningTask(number, elapsed, headway, left))
        self.lanes = progress.slots if progress else max(1, len(self.tasks))
        self.time_left = time_left
        self._waiting = waiting

    def span(self, task_durations: TaskDurations) -> TimeSpan | None:
        """Return when the tasks will be done, by the times of the job's tasks."""
        going = [one.left or one.elapsed for one in self.tasks]
        return until_done(going, self._waiting, task_durations, lanes=self.lanes)

    def reported_tasks(self, task_durations: TaskDurations) -> Iterator[TaskEnd]:
        """Yield when each task that reports its progress will be done."""
        for one in self.tasks:
            if one.headway is not None:
                span = one.left or until_done([one.elapsed], 0, task_durations, lanes=1)
                yield TaskEnd(
                    task=one.number,
                    done=one.headway.done,
                    total=one.headway.total,
                    source=one.headway.source,
                    remaining=None if span is None else span.value,
                    low=None if span is None else span.low,
                    high=None if span is None else span.high,
                )


def _times_of_done_tasks(job_view: JobView) -> Iterator[Seconds]:
    elements = len(job_view.elements)
    # an array may have thousands; the newest are most like those to come
    for number in range(max(0, elements - _MOST_READ), elements):
        for entry in job_view.history.element(number).entries.values():
            if entry.succeeded:
                yield entry.wall_time
