"""Estimate when jobs end: from their tasks' progress and the times of done tasks."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.tasks import LOGS, lines_of_file
from weigh.flow.plan.directory import plan_in_folder_of
from weigh.model.plan import PlannedElement
from weigh.model.record import ReportedProgress
from weigh.progress.eta import TaskDurations, TimeSpan, still_to_run, until_done
from weigh.render.progress_lines import ExpectedEnd, TaskEnd
from weigh.runner import events
from weigh.runner.progress_file import TaskHeadway, read_progress
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.follow.view import JobView

_MOST_READ = 500  # joblogs that are read for the times of tasks
_SPREAD = 3.29  # standard deviations between the ends of a 90 % interval
_MANY = 10**6  # sample size at which the mean counts as exact
# columns of GNU parallel's joblog before the command, which may hold tabs
_FIELDS = 8
_WALL_TIME, _EXIT_CODE, _SIGNAL = 3, 6, 7


def ends_of(views: "Sequence[JobView]", current_time: Seconds) -> ExpectedEnd | None:
    """Return when the jobs of *views* will be done; None if it cannot be estimated.

    *current_time* is in seconds since the epoch.
    """
    found = [end for view in views if (end := _job_end(view, current_time)) is not None]
    if not found:
        return None
    # the job that ends last: its limit is the one that matters
    last = max(found, key=lambda end: end.value)
    return ExpectedEnd(
        value=last.value,
        low=max(end.low for end in found),  # all must end
        high=max(end.high for end in found),
        at_a_time=last.at_a_time,
        late=sum(end.late for end in found),
        near=sum(end.near for end in found),
        time_limit=last.time_limit,
        tasks=tuple(task for end in found for task in end.tasks),
    )


def _job_end(job_view: "JobView", current_time: Seconds) -> ExpectedEnd | None:
    try:
        plan = plan_in_folder_of(job_view.job)
    except WeighError:
        return None
    job = job_view.job
    elements = plan.elements[job.first : job.first + job.elements]
    if plan.queue is not None:
        # each element may run any task, and its joblog numbers all of them
        shared = plan.queue.tasks
        elements = tuple(msgspec.structs.replace(one, tasks=shared) for one in elements)
    waiting = Counter(
        task.element for task in job_view.tasks if task.state == "PENDING"
    )
    known = _durations(job.folder, elements)
    running = _running_elements(job_view, elements, known, current_time)
    if not known.times:  # no task is done: use the expected times of running ones
        totals = tuple(total for one in running for total in one.totals)
        known = TaskDurations(totals, len(totals))
        running = _running_elements(job_view, elements, known, current_time)
    spans = [one.span for one in running if one.span is not None]
    # an element without an estimate may be the last to end
    if not spans or len(spans) < len(running):
        return None
    waits = [
        waiting[number]
        for number in range(len(elements))
        if job_view.elements[number].state == "PENDING"
    ]
    # elements that wait will have as many slots as those that run
    lanes = max(one.lanes for one in running)
    # of an element that waits, the longest one
    whole = until_done([], max(waits), known, lanes=lanes) if waits else None
    # without a throttle as many as run now: what the queue grants is not known
    at_a_time = min(job.request.throttle or len(running), len(running) + len(waits))
    each = _as_durations(max(waits, default=0), known, lanes)
    left = until_done(spans, len(waits), each, lanes=at_a_time)
    if left is None:
        return None
    late, near = _against_limit(job.request.time_limit, running, whole, len(waits))
    tasks = [task for one in running for task in one.tasks]
    return ExpectedEnd(
        value=left.value,
        low=left.low,
        high=left.high,
        at_a_time=at_a_time if waits else None,
        late=late,
        near=near,
        time_limit=job.request.time_limit,
        tasks=tuple(sorted(tasks, key=lambda task: -(task.remaining or 0.0))),
    )


def _running_elements(
    job_view: "JobView",
    elements: Sequence[PlannedElement],
    task_durations: TaskDurations,
    current_time: Seconds,
) -> "list[_RunningElement]":
    found = [
        _RunningElement(
            job_view,
            number,
            element,
            task_durations=task_durations,
            current_time=current_time,
        )
        for number, element in enumerate(elements)
        if job_view.elements[number].state == "RUNNING"
    ]
    # how long tasks without progress have run already is known for all elements only
    # now
    silent = tuple(elapsed for one in found for elapsed in one.silent)
    task_durations = msgspec.structs.replace(task_durations, begun=silent)
    for one in found:
        one.estimate_end(task_durations)
    return found


class _RunningElement:
    """A running element: when its tasks will be done, and its time to the limit."""

    def __init__(
        self,
        job_view: "JobView",
        number: int,
        element: PlannedElement,
        *,
        task_durations: TaskDurations,
        current_time: Seconds,
    ) -> None:
        state, limit = job_view.elements[number], job_view.job.request.time_limit
        name = element.file.removesuffix(".txt")
        joblog = os.path.join(job_view.job.folder, LOGS, f"{name}.joblog")
        progress = read_progress(joblog)
        reported = {one.seq: one for one in progress.tasks} if progress else {}
        begun = events.read_past_events(
            lines_of_file(joblog + events.SUFFIX), lambda _: False
        )
        # per running task: its remaining time, or its seconds so far
        self._there: list[TimeSpan | Seconds] = []
        self.silent: list[Seconds] = []
        self.tasks: list[TaskEnd] = []
        self.totals: list[Seconds] = []
        for seq, start in begun.in_flight.items():
            headway = _headway(reported.get(seq), start.attempt)
            # clocks of nodes differ: a start may lie in the future
            elapsed = max(0.0, current_time - start.time)
            span = _span_of_progress(headway, elapsed)
            if span is None:
                self.silent.append(elapsed)
            else:
                self.totals.append(elapsed + span.value)
            self._there.append(elapsed if span is None else span)
            span = span or still_to_run(elapsed, task_durations)
            if headway is not None and 0 < seq <= len(element.tasks):
                self.tasks.append(_task_end(element.tasks[seq - 1], headway, span))
        self.lanes = progress.slots if progress else max(1, len(self._there))
        self._waiting = sum(
            task.state == "PENDING" for task in job_view.tasks if task.element == number
        )
        self.span: TimeSpan | None = None
        self.time_left = None  # None: no limit, or no start known
        if limit is not None and state.started is not None:
            self.time_left = state.started + limit - current_time

    def estimate_end(self, task_durations: TaskDurations) -> None:
        """Estimate when the tasks will be done, from the times of the job's tasks."""
        self.span = until_done(
            self._there, self._waiting, task_durations, lanes=self.lanes
        )


def _against_limit(
    limit: int | None,
    running: Iterable[_RunningElement],
    whole: TimeSpan | None,
    waits: int,
) -> tuple[int, int]:
    """Return how many elements will exceed their limit, and how many more may."""
    late = near = 0
    pairs: list[tuple[TimeSpan | None, Seconds | None, int]] = [
        (one.span, one.time_left, 1) for one in running
    ]
    # those that wait have all of their time limit
    pairs.append((whole, None if limit is None else float(limit), waits))
    for span, left, count in pairs:
        if span is None or left is None:
            continue
        late += count if span.low > left else 0
        near += count if span.low <= left < span.high else 0
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


def _task_end(
    task: int, headway: ReportedProgress, time_span: TimeSpan | None
) -> TaskEnd:
    return TaskEnd(
        task=task,
        done=headway.done,
        total=headway.total,
        source=headway.source,
        remaining=None if time_span is None else time_span.value,
        low=None if time_span is None else time_span.low,
        high=None if time_span is None else time_span.high,
    )


def _durations(folder: str, elements: Sequence[PlannedElement]) -> TaskDurations:
    """Return the times of done tasks, from the newest joblogs."""
    names = [element.file.removesuffix(".txt") for element in elements]
    times: list[Seconds] = []
    # an array may have thousands; the newest are most like those to come
    for name in names[-_MOST_READ:]:
        times += _wall_times(os.path.join(folder, LOGS, f"{name}.joblog"))
    return TaskDurations(tuple(times), len(times))


def _wall_times(joblog_path: str) -> Iterator[Seconds]:
    """Yield the wall times of tasks that succeeded."""
    for line in lines_of_file(joblog_path):
        fields = line.split(b"\t", _FIELDS)
        try:
            if int(fields[_EXIT_CODE]) == int(fields[_SIGNAL]) == 0:
                yield float(fields[_WALL_TIME])
        # the header, or a line that is being written
        except (IndexError, ValueError):
            continue
