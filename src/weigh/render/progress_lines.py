"""Progress and remaining time in words: of a run, a job, a task."""

from collections.abc import Iterator

import msgspec

from weigh.model.progress import Forecast
from weigh.model.record import Headway
from weigh.render.printable import shortened
from weigh.units import Seconds, format_brief, format_duration

_MOST_TASKS = 3


def live_line(forecast: Forecast | Headway | None, now: Seconds, width: int) -> str:
    """Return the line that is redrawn while a run goes on, shorter than *width*."""
    if forecast is None:
        words = "no progress in its output yet"
    else:
        left = time_left(forecast, now)
        words = _steps_done(forecast) + ("" if left is None else f", left {left}")
        words = words.replace("(between ", "(").replace(" and ", " to ")  # 80 columns
    return shortened(f"weigh  {format_duration(now)}: {words}", width - 1)


def ends_in(forecast: Forecast | Headway, now: Seconds) -> str | None:
    """Describe when a run ends, *now* seconds after its start; None if unknown."""
    left = time_left(forecast, now)
    return None if left is None else f"ends in {left}; {how_far(forecast)}"


def time_left(forecast: Forecast | Headway, now: Seconds) -> str | None:
    """Describe the remaining time, *now* seconds after the start; None if unknown."""
    if forecast.remaining is None:
        return None
    passed = now - forecast.time
    left = max(0.0, forecast.remaining - passed)
    return _span(left, forecast, passed)


def how_far(forecast: Forecast | Headway) -> str:
    """Describe how many steps are done, and the source of the count."""
    return f"{_steps_done(forecast)}, by {forecast.source}"


def _steps_done(forecast: Forecast | Headway) -> str:
    done = _number(forecast.done)
    if forecast.total is None:
        return f"{done} steps"
    share = f" ({forecast.done / forecast.total:.0%})" if forecast.total else ""
    return f"{done} of {_number(forecast.total)} steps{share}"


def how_fast(headway: Headway) -> str:
    """Describe how many steps a run did, and how long a recent step took."""
    if not headway.step_time:
        return how_far(headway)
    return f"{how_far(headway)}, {format_brief(headway.step_time)} per step"


def between(low: Seconds, high: Seconds) -> str:
    """Describe a range of times; return nothing if both read the same."""
    words = [format_duration(low), format_duration(high)]
    return "" if words[0] == words[1] else f" (between {words[0]} and {words[1]})"


def _span(left: Seconds, forecast: Forecast | Headway, passed: Seconds) -> str:
    if forecast.low is None or forecast.high is None:
        return format_duration(left)
    low, high = (max(0.0, end - passed) for end in (forecast.low, forecast.high))
    return format_duration(left) + between(low, high)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.1f}"


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a running task, and its remaining seconds."""

    task: int
    done: float
    total: float | None
    source: str
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """When a job is done: in ``value`` seconds, between ``low`` and ``high``.

    This assumes that ``at_a_time`` elements run at a time. ``late`` elements will not
    end before their ``time_limit``, and ``near`` elements may not.
    """

    value: Seconds
    low: Seconds
    high: Seconds
    at_a_time: int | None = None
    late: int = 0
    near: int = 0
    time_limit: int | None = None
    tasks: tuple[TaskEnd, ...] = ()


def ends_lines(ends: Ends, width: int) -> Iterator[str]:
    """Describe when a job is done, whether in time, and which tasks end last."""
    when = f"done in {format_duration(ends.value)}{between(ends.low, ends.high)}"
    limit = _limit_words(ends)
    if limit and len(when) + len(limit) + 3 <= width:
        yield f"{when}   {limit}"
    else:
        yield when
        if limit:
            yield limit
    if ends.at_a_time is not None:
        noun = "element runs" if ends.at_a_time == 1 else "elements run"
        yield f"if {ends.at_a_time} {noun} at a time"
    for task in ends.tasks[:_MOST_TASKS]:
        yield _task_line(task)


def _limit_words(ends: Ends) -> str:
    if ends.time_limit is None:
        return ""
    if ends.late:
        noun = "element" if ends.late == 1 else "elements"
        return f"{ends.late} {noun} will not end before the time limit"
    if ends.near:
        noun = "element" if ends.near == 1 else "elements"
        return f"{ends.near} {noun} may not end before the time limit"
    return "no element near its limit"


def _task_line(task: TaskEnd) -> str:
    done = _number(task.done)
    share = f"{task.done / task.total:.0%}" if task.total else f"{done} steps"
    if task.remaining is None:
        return f"task {task.task}  {share} by {task.source}"
    left = format_duration(task.remaining)
    low, high = task.low, task.high
    within = "" if low is None or high is None else between(low, high)
    return f"task {task.task}  {share} by {task.source}, {left} to go{within}"
