"""Estimate when jobs end: from their tasks' progress and the times of done tasks."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.tasks import LOGS, lines_of
from weigh.flow.plan.directory import plan_of
from weigh.model.plan import Element
from weigh.model.record import Headway
from weigh.progress.eta import Durations, Span, still_to_run, until_done
from weigh.render.progress_lines import Ends, TaskEnd
from weigh.runner import events
from weigh.runner.progress_file import TaskHeadway, read_progress
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.follow.view import View

_MOST_READ = 500  # joblogs that are read for the times of tasks
_SPREAD = 3.29  # standard deviations between the ends of a 90 % interval
_MANY = 10**6  # sample size at which the mean counts as exact
_FIELDS = 8
_WALL_TIME, _EXIT_CODE, _SIGNAL = 3, 6, 7


def ends_of(views: "Sequence[View]", now: Seconds) -> Ends | None:
    """Return when the jobs of *views* will be done; None if it cannot be estimated.

    *now* is in seconds since the epoch.
    """
    found = [end for view in views if (end := _job_end(view, now)) is not None]
    if not found:
        return None
    last = max(found, key=lambda end: end.value)
    return Ends(
        value=last.value,
        low=max(end.low for end in found),
        high=max(end.high for end in found),
        at_a_time=last.at_a_time,
        late=sum(end.late for end in found),
        near=sum(end.near for end in found),
        time_limit=last.time_limit,
        tasks=tuple(task for end in found for task in end.tasks),
    )


def _job_end(view: "View", now: Seconds) -> Ends | None:
    try:
        plan = plan_of(view.job)
    except WeighError:
        return None
    job = view.job
    elements = plan.elements[job.first : job.first + job.elements]
    if plan.queue is not None:
        shared = plan.queue.tasks
        elements = tuple(msgspec.structs.replace(one, tasks=shared) for one in elements)
    waiting = Counter(task.element for task in view.tasks if task.state == "PENDING")
    known = _durations(job.folder, elements)
    running = _running(view, elements, known, now)
    if not known.times:  # no task is done: use the expected times of running ones
        totals = tuple(total for one in running for total in one.totals)
        known = Durations(totals, len(totals))
        running = _running(view, elements, known, now)
    spans = [one.span for one in running if one.span is not None]
    if not spans or len(spans) < len(running):
        return None
    waits = [
        waiting[number]
        for number in range(len(elements))
        if view.elements[number].state == "PENDING"
    ]
    lanes = max(one.lanes for one in running)
    whole = until_done([], max(waits), known, lanes=lanes) if waits else None
    at_a_time = min(job.request.throttle or len(running), len(running) + len(waits))
    each = _as_durations(max(waits, default=0), known, lanes)
    left = until_done(spans, len(waits), each, lanes=at_a_time)
    if left is None:
        return None
    late, near = _against_limit(job.request.time_limit, running, whole, len(waits))
    tasks = [task for one in running for task in one.tasks]
    return Ends(
        value=left.value,
        low=left.low,
        high=left.high,
        at_a_time=at_a_time if waits else None,
        late=late,
        near=near,
        time_limit=job.request.time_limit,
        tasks=tuple(sorted(tasks, key=lambda task: -(task.remaining or 0.0))),
    )


def _running(
    view: "View", elements: Sequence[Element], known: Durations, now: Seconds
) -> "list[_Running]":
    found = [
        _Running(view, number, element, known=known, now=now)
        for number, element in enumerate(elements)
        if view.elements[number].state == "RUNNING"
    ]
    silent = tuple(elapsed for one in found for elapsed in one.silent)
    known = msgspec.structs.replace(known, begun=silent)
    for one in found:
        one.estimate_end(known)
    return found


class _Running:
    """A running element: when its tasks will be done, and its time to the limit."""

    def __init__(
        self,
        view: "View",
        number: int,
        element: Element,
        *,
        known: Durations,
        now: Seconds,
    ) -> None:
        state, limit = view.elements[number], view.job.request.time_limit
        name = element.file.removesuffix(".txt")
        joblog = os.path.join(view.job.folder, LOGS, f"{name}.joblog")
        progress = read_progress(joblog)
        reported = {one.seq: one for one in progress.tasks} if progress else {}
        begun = events.read_past(lines_of(joblog + events.SUFFIX), lambda _: False)
        self._there: list[Span | Seconds] = []
        self.silent: list[Seconds] = []
        self.tasks: list[TaskEnd] = []
        self.totals: list[Seconds] = []
        for seq, start in begun.in_flight.items():
            headway = _headway(reported.get(seq), start.attempt)
            elapsed = max(0.0, now - start.time)
            span = _span(headway, elapsed)
            if span is None:
                self.silent.append(elapsed)
            else:
                self.totals.append(elapsed + span.value)
            self._there.append(elapsed if span is None else span)
            span = span or still_to_run(elapsed, known)
            if headway is not None and 0 < seq <= len(element.tasks):
                self.tasks.append(_task_end(element.tasks[seq - 1], headway, span))
        self.lanes = progress.slots if progress else max(1, len(self._there))
        self._waiting = sum(
            task.state == "PENDING" for task in view.tasks if task.element == number
        )
        self.span: Span | None = None
        self.time_left = None
        if limit is not None and state.started is not None:
            self.time_left = state.started + limit - now

    def estimate_end(self, known: Durations) -> None:
        """Estimate when the tasks will be done, from the times of the job's tasks."""
        self.span = until_done(self._there, self._waiting, known, lanes=self.lanes)


def _against_limit(
    limit: int | None, running: Iterable[_Running], whole: Span | None, waits: int
) -> tuple[int, int]:
    """Return how many elements will exceed their limit, and how many more may."""
    late = near = 0
    pairs: list[tuple[Span | None, Seconds | None, int]] = [
        (one.span, one.time_left, 1) for one in running
    ]
    pairs.append((whole, None if limit is None else float(limit), waits))
    for span, left, count in pairs:
        if span is None or left is None:
            continue
        late += count if span.low > left else 0
        near += count if span.low <= left < span.high else 0
    return late, near


def _as_durations(tasks: int, known: Durations, lanes: int) -> Durations:
    """Return the durations of elements with this number of tasks."""
    if tasks <= 1:
        return known
    sure = Durations(known.times, _MANY)
    whole = until_done([], tasks, sure, lanes=lanes)
    if whole is None:
        return Durations((), 0)
    half = (whole.high - whole.low) / _SPREAD
    return Durations((max(0.0, whole.value - half), whole.value + half), known.count)


def _headway(reported: TaskHeadway | None, attempt: int) -> Headway | None:
    is_current = reported is not None and reported.attempt == attempt
    return reported.headway if reported is not None and is_current else None


def _span(headway: Headway | None, elapsed: Seconds) -> Span | None:
    if headway is None or headway.remaining is None:
        return None
    passed = elapsed - headway.time
    value, low, high = (
        max(0.0, (headway.remaining if end is None else end) - passed)
        for end in (headway.remaining, headway.low, headway.high)
    )
    return Span(value, low, high)


def _task_end(task: int, headway: Headway, span: Span | None) -> TaskEnd:
    return TaskEnd(
        task=task,
        done=headway.done,
        total=headway.total,
        source=headway.source,
        remaining=None if span is None else span.value,
        low=None if span is None else span.low,
        high=None if span is None else span.high,
    )


def _durations(folder: str, elements: Sequence[Element]) -> Durations:
    """Return the times of done tasks, from the newest joblogs."""
    names = [element.file.removesuffix(".txt") for element in elements]
    times: list[Seconds] = []
    for name in names[-_MOST_READ:]:
        times += _wall_times(os.path.join(folder, LOGS, f"{name}.joblog"))
    return Durations(tuple(times), len(times))


def _wall_times(joblog: str) -> Iterator[Seconds]:
    """Yield the wall times of tasks that succeeded."""
    for line in lines_of(joblog):
        fields = line.split(b"\t", _FIELDS)
        try:
            if int(fields[_EXIT_CODE]) == int(fields[_SIGNAL]) == 0:
                yield float(fields[_WALL_TIME])
        except (IndexError, ValueError):
            continue
