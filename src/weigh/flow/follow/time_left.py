"""Estimate when jobs end: from their tasks' progress and the times of done tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from weigh.flow.follow.task_history import JobHistory, JoblogHistory, history_of
from weigh.model.plan import Plan
from weigh.model.record import ReportedProgress
from weigh.progress.eta import TaskDurations, TimeSpan, still_to_run, until_done
from weigh.render.progress_lines import ExpectedEnd, TaskEnd
from weigh.runner.events import TaskHeadway, read_progress
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.follow.view import JobView

_MOST_READ = 500  # joblogs that are read for the times of tasks
_SPREAD = 3.29  # standard deviations between the ends of a 90 % interval
_MANY = 10**6  # sample size at which the mean counts as exact


def ends_of(views: "Sequence[JobView]", current_time: Seconds) -> ExpectedEnd | None:
    """Return when the jobs of *views* will be done; None if it cannot be estimated.

    *current_time* is in seconds since the epoch.
    """
    found = [end for view in views if (end := _job_end(view, current_time)) is not None]
    if not found:
        return None
    # the job that ends last: its limit is the one that matters
    last = max(found, key=lambda end: end.value)
    return replace(
        last,
        low=max(end.low for end in found),  # all must end
        high=max(end.high for end in found),
        late=sum(end.late for end in found),
        near=sum(end.near for end in found),
        tasks=tuple(task for end in found for task in end.tasks),
    )


def _job_end(job_view: "JobView", current_time: Seconds) -> ExpectedEnd | None:
    plan = job_view.work.known_plan
    if plan is None:
        return None
    job, states = job_view.job, job_view.elements
    history = history_of(job)
    waiting = Counter(
        task.element for task in job_view.tasks if task.state == "PENDING"
    )
    running = {
        number: _RunningElement(history.element(number), waiting[number], current_time)
        for number, state in enumerate(states)
        if state.state == "RUNNING"
    }
    tasks = [task for one in running.values() for task in one.tasks]
    times = tuple(_times_of_done_tasks(history, len(states)))
    # no task is done: use the expected times of running ones
    times = times or tuple(one.elapsed + one.left.value for one in tasks if one.left)
    known = TaskDurations(times, len(times))
    # how long tasks without progress have run already is known too
    begun = tuple(one.elapsed for one in tasks if one.left is None)
    spans = {n: one.span(replace(known, begun=begun)) for n, one in running.items()}
    left = [span for span in spans.values() if span is not None]
    # an element without an estimate may be the last to end
    if not left or len(left) < len(spans):
        return None
    waits = [waiting[n] for n, state in enumerate(states) if state.state == "PENDING"]
    # elements that wait will have as many slots as those that run
    lanes = max(one.lanes for one in running.values())
    # without a throttle as many as run now: what the queue grants is not known
    at_a_time = min(job.request.throttle or len(running), len(running) + len(waits))
    each = _as_durations(max(waits, default=0), known, lanes)
    end = until_done(left, len(waits), each, lanes=at_a_time)
    if end is None:
        return None
    limit = job.request.time_limit
    pairs: list[tuple[TimeSpan | None, Seconds | None]] = []
    for number, span in spans.items():
        started = states[number].started
        is_known = limit is not None and started is not None
        remaining = (started or 0.0) + (limit or 0) - current_time
        pairs.append((span, remaining if is_known else None))
    # those that wait have all of their time limit; of them, the longest one
    whole = until_done([], max(waits), known, lanes=lanes) if waits else None
    pairs += [(whole, limit)] * len(waits)
    late, near = _against_limit(pairs)
    reported = _reported_tasks(plan, job.first, running, known)
    return ExpectedEnd(
        value=end.value,
        low=end.low,
        high=end.high,
        at_a_time=at_a_time if waits else None,
        late=late,
        near=near,
        time_limit=limit,
        tasks=tuple(sorted(reported, key=lambda task: -(task.remaining or 0.0))),
    )


class _RunningTask(NamedTuple):
    """A task that runs: its time so far, what it reported, and what that leaves."""

    seq: int
    elapsed: Seconds
    headway: ReportedProgress | None
    left: TimeSpan | None


class _RunningElement:
    """A running element: its tasks that run, and how many wait for its slots."""

    def __init__(
        self, history: JoblogHistory, waiting: int, current_time: Seconds
    ) -> None:
        progress = read_progress(history.joblog)
        reported = {one.seq: one for one in progress.tasks} if progress else {}
        self.tasks: list[_RunningTask] = []
        for seq, start in history.in_flight.items():
            headway = _headway(reported.get(seq), start.attempt)
            # clocks of nodes differ: a start may lie in the future
            elapsed = max(0.0, current_time - start.time)
            left = _span_of_progress(headway, elapsed)
            self.tasks.append(_RunningTask(seq, elapsed, headway, left))
        self.lanes = progress.slots if progress else max(1, len(self.tasks))
        self._waiting = waiting

    def span(self, task_durations: TaskDurations) -> TimeSpan | None:
        """Return when the tasks will be done, by the times of the job's tasks."""
        going = [one.left or one.elapsed for one in self.tasks]
        return until_done(going, self._waiting, task_durations, lanes=self.lanes)


def _reported_tasks(
    plan: Plan,
    first: int,
    running: dict[int, _RunningElement],
    task_durations: TaskDurations,
) -> Iterator[TaskEnd]:
    """Yield when each task that reports its progress will be done."""
    for number, element in running.items():
        # each element of a queue may run any task, and its joblog numbers all of them
        numbers = plan.elements[first + number].tasks
        numbers = numbers if plan.queue is None else plan.queue.tasks
        for one in element.tasks:
            if one.headway is None or not 0 < one.seq <= len(numbers):
                continue
            span = one.left or still_to_run(one.elapsed, task_durations)
            yield TaskEnd(
                task=numbers[one.seq - 1],
                done=one.headway.done,
                total=one.headway.total,
                source=one.headway.source,
                remaining=None if span is None else span.value,
                low=None if span is None else span.low,
                high=None if span is None else span.high,
            )


def _against_limit(
    ends: Sequence[tuple[TimeSpan | None, Seconds | None]],
) -> tuple[int, int]:
    """Return how many elements will exceed their limit, and how many more may.

    *ends* are when each ends, and how much time its limit leaves.
    """
    late = near = 0
    for span, left in ends:
        if span is not None and left is not None:
            late += span.low > left
            near += span.low <= left < span.high
    return late, near


def _as_durations(
    tasks: int, task_durations: TaskDurations, lanes: int
) -> TaskDurations:
    """Return the durations of elements with this number of tasks."""
    if tasks <= 1:
        return task_durations
    # the uncertain mean is the same error for all elements: it is added once, by the
    # count below
    sure = TaskDurations(task_durations.times, _MANY)
    whole = until_done([], tasks, sure, lanes=lanes)
    if whole is None:
        return TaskDurations((), 0)
    half = (whole.high - whole.low) / _SPREAD
    # two values with this mean and spread stand for all
    return TaskDurations(
        (max(0.0, whole.value - half), whole.value + half), task_durations.count
    )


def _headway(reported: TaskHeadway | None, attempt: int) -> ReportedProgress | None:
    # progress of an earlier attempt means nothing for this one
    is_current = reported is not None and reported.attempt == attempt
    return reported.headway if reported is not None and is_current else None


def _span_of_progress(
    headway: ReportedProgress | None, elapsed: Seconds
) -> TimeSpan | None:
    if headway is None or headway.remaining is None:
        return None
    # the estimate is as old as the last report
    passed = elapsed - headway.time
    value, low, high = (
        max(0.0, (headway.remaining if end is None else end) - passed)
        for end in (headway.remaining, headway.low, headway.high)
    )
    return TimeSpan(value, low, high)


def _times_of_done_tasks(history: JobHistory, elements: int) -> Iterator[Seconds]:
    # an array may have thousands; the newest are most like those to come
    for number in range(max(0, elements - _MOST_READ), elements):
        for entry in history.element(number).entries.values():
            if entry.succeeded:
                yield entry.wall_time
