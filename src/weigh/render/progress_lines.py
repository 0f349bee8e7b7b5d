"""Progress and remaining time in words: of a run, a job, a task."""

from collections.abc import Iterator

import msgspec

from weigh.model.record import ReportedProgress
from weigh.render.printable import shortened_text
from weigh.units import Seconds, count_with_noun, format_brief, format_duration

_MOST_TASKS = 3  # of the tasks that end last


def live_line(
    forecast: ReportedProgress | None, current_time: Seconds, width: int
) -> str:
    """Return the line that is redrawn while a run goes on, shorter than *width*."""
    if forecast is None:
        words = "no progress in its output yet"
    else:
        left = time_left_text(forecast, current_time)
        words = _steps_done(forecast) + ("" if left is None else f", left {left}")
        words = words.replace("(between ", "(").replace(" and ", " to ")  # 80 columns
    return shortened_text(f"weigh  {format_duration(current_time)}: {words}", width - 1)


def end_forecast_text(forecast: ReportedProgress, current_time: Seconds) -> str | None:
    """Describe when a run ends, *current_time* seconds after its start.

    None if unknown.
    """
    left = time_left_text(forecast, current_time)
    return None if left is None else f"ends in {left}; {steps_done_by_source(forecast)}"


def time_left_text(forecast: ReportedProgress, current_time: Seconds) -> str | None:
    """Describe the remaining time, *current_time* seconds after the start.

    None if unknown.
    """
    if forecast.remaining is None:
        return None
    # the forecast is older than this moment
    passed = current_time - forecast.time
    left = max(0.0, forecast.remaining - passed)
    return _remaining_time_text(left, forecast, passed)


def steps_done_by_source(forecast: ReportedProgress) -> str:
    """Describe how many steps are done, and the source of the count."""
    return f"{_steps_done(forecast)}, by {forecast.source}"


def _steps_done(forecast: ReportedProgress) -> str:
    done = _step_count_text(forecast.done)
    if forecast.total is None:
        return f"{done} steps"
    share = f" ({forecast.done / forecast.total:.0%})" if forecast.total else ""
    return f"{done} of {_step_count_text(forecast.total)} steps{share}"


def steps_and_speed_text(headway: ReportedProgress) -> str:
    """Describe how many steps a run did, and how long a recent step took."""
    if not headway.step_time:
        return steps_done_by_source(headway)
    return (
        f"{steps_done_by_source(headway)}, {format_brief(headway.step_time)} per step"
    )


def time_range_suffix(low: Seconds, high: Seconds) -> str:
    """Describe a range of times; return nothing if both read the same."""
    words = [format_duration(low), format_duration(high)]
    return "" if words[0] == words[1] else f" (between {words[0]} and {words[1]})"


def _remaining_time_text(
    left: Seconds, forecast: ReportedProgress, passed: Seconds
) -> str:
    if forecast.low is None or forecast.high is None:
        return format_duration(left)
    low, high = (max(0.0, end - passed) for end in (forecast.low, forecast.high))
    return format_duration(left) + time_range_suffix(low, high)


def _step_count_text(step_count: float) -> str:
    return (
        str(int(step_count)) if step_count == int(step_count) else f"{step_count:.1f}"
    )


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a running task, and its remaining seconds."""

    task: int  # number in the task file
    done: float  # steps
    total: float | None  # steps; None: unknown
    source: str  # where the count was found
    remaining: Seconds | None = None
    low: Seconds | None = None  # seconds; None: no interval
    high: Seconds | None = None


class ExpectedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """When a job is done: in ``value`` seconds, between ``low`` and ``high``.

    This assumes that ``at_a_time`` elements run at a time. ``late`` elements will not
    end before their ``time_limit``, and ``near`` elements may not.
    """

    value: Seconds
    low: Seconds
    high: Seconds
    at_a_time: int | None = None
    late: int = 0  # elements
    near: int = 0  # elements
    time_limit: int | None = None  # seconds; None: no limit
    tasks: tuple[TaskEnd, ...] = ()


def ends_lines(expected_end: ExpectedEnd, width: int) -> Iterator[str]:
    """Describe when a job is done, whether in time, and which tasks end last."""
    interval = time_range_suffix(expected_end.low, expected_end.high)
    when = f"done in {format_duration(expected_end.value)}{interval}"
    if expected_end.at_a_time is not None:
        assumed = count_with_noun(expected_end.at_a_time, "element")
        when += f", {assumed} at a time"
    yield shortened_text(when, width)
    yield from _limit_warnings(expected_end)
    for task in expected_end.tasks[:_MOST_TASKS]:
        yield _task_progress_line(task)


def _limit_warnings(expected_end: ExpectedEnd) -> Iterator[str]:
    late, near = expected_end.late, expected_end.near
    if late or near:
        how = "will" if late else "may"
        elements = count_with_noun(late or near, "element")
        yield f"{elements} {how} not end before the time limit"


def _task_progress_line(task_end: TaskEnd) -> str:
    done = _step_count_text(task_end.done)
    # without a total there is no share
    share = (
        f"{task_end.done / task_end.total:.0%}" if task_end.total else f"{done} steps"
    )
    if task_end.remaining is None:
        return f"task {task_end.task}  {share} by {task_end.source}"
    left = format_duration(task_end.remaining)
    low, high = task_end.low, task_end.high
    within = "" if low is None or high is None else time_range_suffix(low, high)
    return f"task {task_end.task}  {share} by {task_end.source}, {left} to go{within}"
