"""Memory that still rises when a run ends: detection and extrapolation.

Two views of a run are tested. The *tops*, the peak up to each moment, are flat for
batches of equal size, a garbage collector's saw-tooth and a release at the end. The
*level*, the median of each stretch, hides less behind noise or one high peak in the
middle. A view grows if its stretches rise as only one flat series in a hundred does
(Mann-Kendall), *and* it rises within the last two quarters, *and* the rise does not
die out in the last one. The first quarter does not count: a model may peak while it
loads. A run of half a minute is never called growing: imports, a GPU's
context and the first batch rise as a leak does, for ten seconds and more where files
are slow. Its rise is extrapolated for a user who states the length of the job, unless
it came in steps.

The extrapolation is by time, or by the steps that a run did (`progress_of`).

Pure Python, some milliseconds: ``weigh run`` calls it after the job.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import linear_regression

import msgspec

from weigh.model.progress import (
    MemoryExtrapolation,
    MemoryGrowth,
    MemoryTrend,
    StepProgress,
)
from weigh.model.record import BatchTimes, ProgramEvent, Record, ReportedProgress
from weigh.robust import median_of, rise_score, slope_interval
from weigh.units import MIB, Bytes, Seconds

FEWEST = 20  # samples; a trend of fewer is a guess
SHORTEST = 1.0  # seconds; a shorter run is all start-up
# seconds, in which memory may rise to a level that it keeps: more than the 30 s of a
# try of weigh check, which may be all start-up
START_UP = 35.0

_SETTLED = 0.25  # of the run: loading may peak higher than all that follows
_STRETCHES = 8  # in each of the three quarters after that
_SCORE = 2.33  # one flat series in a hundred reaches it
_MATERIAL = 0.05  # of the peak, in another run as long: at 2 %, flat curves rise, too
_LEAST = MIB  # over the whole run: an interpreter's memory is never quite steady
_STEP = 4.0  # times the mean rise: start-up rises so, in a stretch of the last half
_DYING = 0.55  # of the earlier rate, left in the last quarter
_RELEASE = 0.05  # of the run, at its end, in which a program may release its memory
_KEPT = 0.8  # share of the recent memory below which it has released
_HELD = 0.98  # of the peak: a run that holds as much has levelled out


class _MemoryStretch(msgspec.Struct, frozen=True):
    """Memory around ``time``: the median, the peak, and the peak up to its end."""

    time: Seconds
    end: Seconds
    level: float
    most: Bytes
    top: Bytes


def growth_of(times: Sequence[Seconds], memory: Sequence[Bytes]) -> MemoryGrowth | None:
    """Return how memory changed towards the end of a run; None without samples.

    *times*, in seconds, rise; there is one of *memory*, in bytes, for each.
    """
    if not times:
        return None
    peak, end = max(memory), times[-1]
    if len(times) < FEWEST or end - times[0] < SHORTEST:
        return MemoryGrowth(growing=None, peak=peak, end=end)
    duration = _before_release(times, memory) - times[0]
    stretches = list(_memory_stretches(times, memory, times[0] + duration))
    trend = _rising_trend(stretches, _least_rise(times, memory, duration))
    # a smaller rise is kept as the trend, but not called growth
    is_material = trend is not None and trend.rate * duration >= _MATERIAL * peak
    is_growing: bool | None = is_material
    if is_material and end - times[0] < START_UP:
        is_growing = None
        trend = None if _rises_in_steps(stretches) else trend
    since = None
    if is_growing is False:
        # the first moment at which the run held nearly its peak
        since = next(
            time
            for time, size in zip(times, memory, strict=True)
            if size >= _HELD * peak
        )
    return MemoryGrowth(
        growing=is_growing, peak=peak, end=end, trend=trend, since=since
    )


def is_memory_growing(times: Sequence[Seconds], memory: Sequence[Bytes]) -> bool | None:
    """Return whether memory still rose when a run ended; None if it was too short.

    A rise counts if another run of the same length would add 5 % of the peak and 1 MiB.
    """
    growth = growth_of(times, memory)
    return None if growth is None else growth.growing


def extrapolate(growth: MemoryGrowth, time: Seconds) -> MemoryExtrapolation:
    """Extrapolate memory to a run of *time* seconds; never below the measured peak.

    The line holds while the job continues as before: a buffer that fills levels off.
    """
    factor = time / growth.end if growth.end > 0 else 1.0
    trend, peak = growth.trend, growth.peak
    if trend is None or time <= growth.end:
        return MemoryExtrapolation(peak, peak, peak, time, factor)
    ahead = time - trend.time
    middle, low, high = (
        trend.level + rate * ahead for rate in (trend.rate, trend.low, trend.high)
    )
    # the line is a median: the highest samples lie above it by the scatter
    value = max(peak, round(middle + trend.scatter))
    return MemoryExtrapolation(
        value,
        low=min(max(peak, round(low - trend.scatter)), value),
        high=max(value, round(max(high + trend.scatter, high * trend.surge))),
        time=time,
        factor=factor,
    )


def _memory_stretches(
    times: Sequence[Seconds], memory: Sequence[Bytes], end: Seconds
) -> Iterator[_MemoryStretch]:
    """Yield equal stretches of the settled part of a run, as many in each quarter."""
    begin = times[0] + _SETTLED * (end - times[0])
    samples = bisect_right(times, end) - bisect_left(times, begin)
    # two samples or more for each stretch
    count = 3 * max(2, min(_STRETCHES, samples // 6))
    top = 0
    for turn in range(count):
        left, right = (
            begin + (end - begin) * edge / count for edge in (turn, turn + 1)
        )
        low, high = bisect_right(times, left), bisect_right(times, right)
        # memory stays as it is between samples
        within = memory[low:high] or [memory[max(low - 1, 0)]]
        top = max(top, *within)
        yield _MemoryStretch(
            (left + right) / 2, right, median_of(within), max(within), top
        )


def _least_rise(
    times: Sequence[Seconds], memory: Sequence[Bytes], duration: Seconds
) -> float:
    """Return the lowest rate that counts as a rise, in bytes/s.

    Samples that drift relative to batches see the tops climb, but by less than memory
    changes between two samples.
    """
    first = bisect_left(times, times[0] + _SETTLED * duration)
    jump = median_of(
        [abs(after - before) for before, after in pairwise(memory[first:])]
    )
    return max(_LEAST, jump / (1 - _SETTLED)) / duration


def _rising_trend(
    stretches: Sequence[_MemoryStretch], least: float
) -> MemoryTrend | None:
    """Return the trend of the view that rises more surely; None if neither rises."""
    # the second half of the run
    late = stretches[len(stretches) // 3 :]
    tops = [(stretch.end, float(stretch.top)) for stretch in late]
    levels = [(stretch.time, stretch.level) for stretch in late]
    trends = []
    for heights, points in (
        ([float(stretch.most) for stretch in stretches], tops),
        ([stretch.level for stretch in stretches], levels),
    ):
        half = len(points) // 2
        # a straight line uses all of a quarter's points: noise hides least of its rate
        third, last = (
            linear_regression(*zip(*part, strict=True)).slope
            for part in (points[:half], points[half:])
        )
        is_lasting = min(third, last) > least and last >= _DYING * third
        if is_lasting and rise_score(heights) >= _SCORE:
            trends.append(_line_through_stretches(late, points, last))
    rising = [trend for trend in trends if trend.rate > least]
    # of two rising views, the one whose slope is known best
    return min(rising, key=lambda t: (t.high - t.low) / t.rate, default=None)


def _rises_in_steps(stretches: Sequence[_MemoryStretch]) -> bool:
    """Return whether one stretch of the last half rose by a large part of it all."""
    tops = [stretch.top for stretch in stretches[len(stretches) // 3 :]]
    rises = [after - before for before, after in pairwise(tops)]
    return max(rises) * len(rises) > _STEP * sum(rises)


def _line_through_stretches(
    stretches: Sequence[_MemoryStretch],
    points: Sequence[tuple[Seconds, float]],
    recent: float,
) -> MemoryTrend:
    """Fit a line to *points*; a *recent* rate outside its interval takes precedence."""
    times, values = zip(*points, strict=True)
    rate, low, high = slope_interval(times, values)
    # the last quarter shows the rate that continues
    if not low <= recent <= high:
        rate, low, high = recent, min(low, recent), max(high, recent)
    middle = times[len(times) // 2]
    level = median_of([value - rate * (time - middle) for time, value in points])
    above = [(s.most, level + rate * (s.end - middle)) for s in stretches]
    return MemoryTrend(
        time=middle,
        level=level,
        rate=rate,
        low=max(0.0, low),
        high=high,
        scatter=max(0.0, *(most - line for most, line in above)),
        surge=max(1.0, *(most / line for most, line in above if line > 0)),
    )


def _before_release(times: Sequence[Seconds], memory: Sequence[Bytes]) -> Seconds:
    """Return the end of the run, or the moment when it began to release memory."""
    duration = times[-1] - times[0]
    enough = _KEPT * median_of(memory[bisect_left(times, times[-1] - duration / 4) :])
    last = len(times) - 1
    # a low end that lasts for more than _RELEASE of the run is not a release
    while memory[last] < enough and times[-1] - times[last] <= _RELEASE * duration:
        last -= 1
    return times[last] if memory[last] >= enough else times[-1]


_STEP_NAMES = frozenset(
    f"{prefix}{name}"
    for name in ("step", "steps", "iteration", "iterations", "iters", "timesteps")
    for prefix in ("", "max_", "num_", "n_", "global_", "total_", "train_")
)


TIMED_LOOP = "by the timed loop"


def progress_of(
    record: Record, *, total: float | None = None, done: float | None = None
) -> StepProgress | None:
    """Return how many steps *record*'s run did; None if nothing counted its steps.

    The first known source counts: *done* from the user, the timed loop, events with
    the name of a step, printed progress, a parameter with the name of a step. *total*
    overrides the total of the loop or of the printed progress.
    """
    found = next(_step_counts(record, done), None)
    if found is None:
        return None
    count, step_time, source = found
    if total is None and done is None:
        if record.batches is not None:
            total = record.batches.total
        elif record.progress is not None and source == _printed(record.progress):
            total = record.progress.total
    return StepProgress(count, total, step_time, source)


def time_needed(record: Record, progress: StepProgress) -> Seconds:
    """Return the wall time of the whole job if all its steps take as long."""
    wall = record.usage.wall_time if record.usage else 0.0
    ahead = max(0.0, (progress.total or 0.0) - progress.done)
    return wall + ahead * progress.step_time


def _step_counts(
    record: Record, done: float | None
) -> Iterator[tuple[float, Seconds, str]]:
    wall = record.usage.wall_time if record.usage else 0.0
    timed = _steps_of_loop(record.batches)
    events = _steps_of_events(record.events)
    if done:
        # a loop or events with the same count time a step without the start-up
        paces = [pace for count, pace, _ in (*timed, *events) if count == done]
        yield done, paces[0] if paces else wall / done, "as given"
    yield from timed
    yield from events
    printed = record.progress
    if printed is not None and printed.done > 0 and printed.step_time:
        yield printed.done, printed.step_time, _printed(printed)
    for name, value in record.parameters.items():
        if name.lower() in _STEP_NAMES and not isinstance(value, str) and value > 0:
            yield value, wall / value, f"by the parameter {name}"


def _printed(progress: ReportedProgress) -> str:
    return f"as printed ({progress.source})"


def _steps_of_loop(loop: BatchTimes | None) -> list[tuple[float, Seconds, str]]:
    if loop is None or not loop.count or loop.time_mean is None:
        return []
    return [(loop.count, loop.time_mean, TIMED_LOOP)]


def _steps_of_events(
    events: tuple[ProgramEvent, ...],
) -> list[tuple[float, Seconds, str]]:
    """Return the last step among *events* and the mean time per step."""
    steps = [
        (event.time, float(event.value), event.name)
        for event in events
        if event.name.lower() in _STEP_NAMES and isinstance(event.value, (int, float))
    ]
    if not steps:
        return []
    # the time before the first step is start-up: the rate is from first to last
    (begin, first, _), (end, last, name) = steps[0], steps[-1]
    if last <= first or end <= begin:
        return []
    return [(last, (end - begin) / (last - first), f"by the events {name!r}")]
