"""Memory that still rises when a run ends: detection and extrapolation.

Three views of a run are tested. The *tops*, the peak up to each moment, are flat for
batches of equal size, a garbage collector's saw-tooth and a release at the end. The
*level*, the median of each stretch, hides less behind noise or one high peak in the
middle. A view grows if its stretches rise as only one flat series in a hundred does
(Mann-Kendall), *and* it rises through the last half, *and* the rise does not die out in
the last quarter. The first quarter does not count: a model may peak while it loads.
The *teeth* of a saw-tooth that leaks rise at both ends, though each falls again: they
grow if their crests and their troughs do.

The extrapolation is by time, or by the steps that a run did (`progress_of`).

Pure Python, about ten milliseconds: ``weigh run`` calls it after the job.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from weigh.model.growth import (
    MemoryExtrapolation,
    MemoryGrowth,
    MemoryTrend,
    StepProgress,
)
from weigh.model.record import BatchTimes, ProgramEvent, Record, ReportedProgress
from weigh.robust import (
    lower_median,
    median_of,
    pair_slopes,
    rise_score,
    slope_interval,
)
from weigh.units import MIB, Bytes, Seconds

_FEWEST = 3  # stairs; a rhythm of fewer is a guess
_LATE = 1.5  # times the longest gap: then no further stair is expected
_UNEVEN = 2.0  # longest gap over the shortest; the same for heights


def still_stepping(
    times: Sequence[Seconds], tops: Sequence[Bytes], end: Seconds, least: float
) -> bool:
    """Return whether the peak rose in even stairs and the next one is due.

    *tops* never fall; a stair is at least *least* bytes high. Stairs that come further
    and further apart do not count: that is how a program warms up.
    """
    # rises within a twentieth of the run are one stair: allocations come in bursts
    stairs = _stairs(times, tops, least, (end - times[0]) / 20)
    if len(stairs) < _FEWEST:
        return False
    gaps = [after - before for (before, _), (after, _) in pairwise(stairs)]
    heights = [height for _, height in stairs]
    if max(gaps) > _UNEVEN * min(gaps) or max(heights) > _UNEVEN * min(heights):
        return False
    return end - stairs[-1][0] <= _LATE * max(gaps)


def _stairs(
    times: Sequence[Seconds], tops: Sequence[Bytes], least: float, width: Seconds
) -> list[tuple[Seconds, Bytes]]:
    """Return the rises of *least* bytes or more; those within *width* are merged."""
    stairs: list[tuple[Seconds, Bytes]] = []
    base, since = tops[0], None
    # a stair is complete when its width has passed: only then is its height known
    for time, top in zip(times, tops, strict=True):
        if since is None and top > base:
            since = time
        if since is not None and time - since > width:
            if top - base >= least:
                stairs.append((since, top - base))
            base, since = top, None
    return stairs


LEVEL = 0.95  # confidence of an extrapolation's bounds
FEWEST = 20  # samples; a trend of fewer is a guess
SHORTEST = 1.0  # seconds; a shorter run is all start-up

_SETTLED = 0.25  # of the run: loading may peak higher than all that follows
_HALF, _LAST = 0.5, 0.75  # of the run: memory must rise since both
_BLOCKS = 12  # stretches of the settled part
_TAIL_BLOCKS = 16  # stretches of the last half, for the line
_FEWEST_BLOCKS = 5  # stretches, however few the samples
_GRID = 48  # moments per part of the run: 1,128 slopes
_SCORE = 2.33  # one flat series in a hundred reaches it
_TAIL_SCORE = 1.64  # one in twenty: a second opinion, on half of the series
_MATERIAL = 0.05  # of the peak, in another run as long: at 2 %, flat curves rise, too
_NEGLIGIBLE = 0.002  # share of the peak over the whole run: less than that is no rise
_LEAST = MIB  # the same, in bytes: an interpreter's memory is never quite steady
_DYING = 0.5  # of the earlier rate, left in the last quarter
_RELEASE = 0.05  # of the run, at its end, in which a program may release its memory
_KEPT = 0.8  # share of the recent memory below which it has released
_TOOTH = 0.3  # of the range of memory: the least fall that ends a tooth
_FEWEST_TEETH = 4
_FEW_TEETH = 6  # of fewer, every one has to rise: no test separates them from chance
_HELD = 0.98  # of the peak: a run that holds as much has levelled out


class _MemoryStretch(msgspec.Struct, frozen=True):
    """Memory around ``time``: the median, the peak, and the peak up to its end."""

    time: Seconds
    end: Seconds
    level: float
    most: Bytes
    top: Bytes


class _MemoryTrack:
    """Memory over time, from where it settled to where it was released."""

    def __init__(self, times: Sequence[Seconds], memory: Sequence[Bytes]) -> None:
        self.start = times[0]
        self.end = _before_release(times, memory)
        self.duration = self.end - self.start
        # before that point the program may still load
        first = bisect_left(times, self.at(_SETTLED))
        last = bisect_right(times, self.end)
        self.times = times[first:last]
        self.memory = memory[first:last]
        self.tops = _running_maximum(self.memory)

    def at(self, share: float) -> Seconds:
        """Return the moment at a share of the run."""
        return self.start + share * self.duration

    def top(self, time: Seconds) -> Bytes:
        """Return the peak up to *time*."""
        return self.tops[max(bisect_right(self.times, time) - 1, 0)]

    def top_slope(self, begin: float, end: float = 1.0) -> float:
        """Return the median slope of the tops in a part of the run, in bytes/s."""
        grid = _even_times(self.at(begin), self.at(end), _GRID)
        return lower_median(pair_slopes(grid, [self.top(time) for time in grid]))

    def stretches(self, begin: float, most: int) -> list[_MemoryStretch]:
        """Cut the run since *begin* into at most *most* equal stretches."""
        first = bisect_left(self.times, self.at(begin))
        # two samples or more for each stretch
        count = max(_FEWEST_BLOCKS, min(most, (len(self.times) - first) // 2))
        edges = _even_times(self.at(begin), self.end, count + 1)
        return [self._stretch(left, right) for left, right in pairwise(edges)]

    def _stretch(self, left: Seconds, right: Seconds) -> _MemoryStretch:
        low, high = bisect_right(self.times, left), bisect_right(self.times, right)
        if low == high:  # memory stays as it is between samples
            held = self.memory[max(low - 1, 0)]
            return _MemoryStretch(
                (left + right) / 2, right, held, held, self.top(right)
            )
        within, last = self.times[low:high], self.times[high - 1]
        memory = self.memory[low:high]
        top = self.tops[high - 1]
        return _MemoryStretch(
            median_of(within), last, median_of(memory), max(memory), top
        )


def growth_of(times: Sequence[Seconds], memory: Sequence[Bytes]) -> MemoryGrowth | None:
    """Return how memory changed towards the end of a run; None without samples.

    *times*, in seconds, rise; there is one of *memory*, in bytes, for each.
    """
    if not times:
        return None
    peak, end = max(memory), times[-1]
    if len(times) < FEWEST or end - times[0] < SHORTEST:
        return MemoryGrowth(growing=None, peak=peak, end=end)
    track = _MemoryTrack(times, memory)
    trend = _rising(track, _least_rise(track, peak))
    # a smaller rise is kept as the trend, but not called growth
    if trend is not None and trend.rate * track.duration >= _MATERIAL * peak:
        return MemoryGrowth(growing=True, peak=peak, end=end, trend=trend)
    if still_stepping(track.times, track.tops, track.end, _MATERIAL * peak):
        stairs = track.stretches(_SETTLED, _TAIL_BLOCKS)
        line = _line_through_stretches(stairs, _tops(stairs))
        return MemoryGrowth(growing=True, peak=peak, end=end, trend=line)
    since = _levelled_out(times, memory)
    return MemoryGrowth(growing=False, peak=peak, end=end, trend=trend, since=since)


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
        return MemoryExtrapolation(peak, peak, peak, time, factor, LEVEL)
    ahead = time - trend.time
    middle, low, high = (
        trend.level + rate * ahead for rate in (trend.rate, trend.low, trend.high)
    )
    # the line is a median: the highest samples lie above it by the scatter
    value = max(peak, round(middle + trend.scatter))
    return MemoryExtrapolation(
        value,
        low=min(max(peak, round(low - trend.sag)), value),
        high=max(value, round(max(high + trend.scatter, high * trend.surge))),
        time=time,
        factor=factor,
        level=LEVEL,
    )


def bound_by_steps(
    growth: MemoryGrowth,
    series: tuple[Sequence[Seconds], Sequence[Bytes]],
    progress: StepProgress,
) -> Bytes:
    """Return an upper bound of the peak if later steps add as much as those so far.

    *series* are times and memory of the run. Steps predict better than time on a
    machine that did other work as well. Return 0 if memory does not rise, or if the
    steps leave no time for a start-up.
    """
    # when the first step began: before it the program loaded
    began = growth.end - progress.done * progress.step_time
    if growth.trend is None or progress.total is None or began <= 0:
        return 0
    times, memory = series
    held = memory[max(bisect_right(times, began) - 1, 0)]
    # each further step adds as much as one of those done
    ahead = max(0.0, progress.total - progress.done) / progress.done
    return growth.peak + round(max(0, growth.peak - held) * ahead)


def _least_rise(track: _MemoryTrack, peak: Bytes) -> float:
    """Return the lowest rate that counts as a rise, in bytes/s.

    Samples that drift relative to batches see the tops climb, but by less than memory
    changes between two samples.
    """
    jump = median_of([abs(after - before) for before, after in pairwise(track.memory)])
    settled = (1 - _SETTLED) * track.duration
    return max(
        _NEGLIGIBLE * peak / track.duration, _LEAST / track.duration, jump / settled
    )


def _rising(track: _MemoryTrack, least: float) -> MemoryTrend | None:
    """Return the trend of the view that rises more surely; None if neither rises."""
    settled = track.stretches(_SETTLED, _BLOCKS)
    tail = track.stretches(_HALF, _TAIL_BLOCKS)
    trends = []
    if rise_score([s.most for s in settled]) >= _SCORE and _tops_rise(track, least):
        trends.append(
            _line_through_stretches(tail, _tops(tail), track.top_slope(_LAST))
        )
    if rise_score([s.level for s in settled]) >= _SCORE and _levels_rise(tail, least):
        trends.append(_line_through_stretches(tail, _levels(tail)))
    rising = [trend for trend in trends if trend.rate > least]
    if not rising:
        teeth = _teeth(track)
        line = (
            _line_through_stretches(teeth, _tops(teeth)) if _teeth_rise(teeth) else None
        )
        return line if line is not None and line.rate > least else None
    # of two rising views, the one whose slope is known best
    return min(rising, key=lambda t: (t.high - t.low) / t.rate)


def _teeth(track: _MemoryTrack) -> list[_MemoryStretch]:
    """Return the teeth of a saw-tooth: the crest of each, and the trough after it."""
    fall = _TOOTH * (max(track.memory) - min(track.memory))
    teeth: list[_MemoryStretch] = []
    crest, at = track.memory[0], track.times[0]
    trough: Bytes | None = None  # since the last crest
    for time, size in zip(track.times, track.memory, strict=True):
        if trough is None:
            if size >= crest:
                crest, at = size, time
            elif crest - size > fall:
                trough = size
        elif size - trough > fall:  # the next tooth has begun
            teeth.append(_MemoryStretch(at, at, trough, crest, crest))
            crest, at, trough = size, time, None
        else:
            trough = min(trough, size)
    if trough is not None:
        teeth.append(_MemoryStretch(at, at, trough, crest, crest))
    return teeth


def _teeth_rise(teeth: Sequence[_MemoryStretch]) -> bool:
    """Return whether crests and troughs both rise, up to the last ones."""
    if len(teeth) < _FEWEST_TEETH:
        return False
    half = len(teeth) // 2
    for ends in ([tooth.most for tooth in teeth], [tooth.level for tooth in teeth]):
        if len(teeth) < _FEW_TEETH:
            if any(after <= before for before, after in pairwise(ends)):
                return False
        elif rise_score(ends) < _SCORE or median_of(ends[half:]) <= median_of(
            ends[:half]
        ):
            return False
    return True


def _tops_rise(track: _MemoryTrack, least: float) -> bool:
    third, last = track.top_slope(_HALF, _LAST), track.top_slope(_LAST)
    half = track.top_slope(_HALF)
    return min(half, last) > least and last >= _DYING * third


def _levels_rise(tail: Sequence[_MemoryStretch], least: float) -> bool:
    levels = [stretch.level for stretch in tail]
    if rise_score(levels) < _TAIL_SCORE:
        return False
    half = len(tail) // 2
    third, last = _slope(tail[: half + 1]), _slope(tail[half:])
    return min(_slope(tail), last) > least and last >= _DYING * third


def _slope(stretches: Sequence[_MemoryStretch]) -> float:
    times, levels = zip(*_levels(stretches), strict=True)
    return lower_median(pair_slopes(times, levels))


def _levels(stretches: Sequence[_MemoryStretch]) -> list[tuple[Seconds, float]]:
    return [(stretch.time, stretch.level) for stretch in stretches]


def _tops(stretches: Sequence[_MemoryStretch]) -> list[tuple[Seconds, float]]:
    return [(stretch.end, float(stretch.top)) for stretch in stretches]


def _line_through_stretches(
    stretches: Sequence[_MemoryStretch],
    points: Sequence[tuple[Seconds, float]],
    recent: float | None = None,
) -> MemoryTrend:
    """Fit a line to *points*; a *recent* rate outside its interval takes precedence."""
    times, values = zip(*points, strict=True)
    rate, low, high = slope_interval(times, values)
    # the tops of the last quarter show the rate that continues
    if recent is not None and not low <= recent <= high:
        rate, low, high = recent, min(low, recent), max(high, recent)
    middle = times[len(times) // 2]
    level = median_of([value - rate * (time - middle) for time, value in points])
    above = [(s.most, level + rate * (s.end - middle)) for s in stretches]
    below = [level + rate * (time - middle) - value for time, value in points]
    return MemoryTrend(
        time=middle,
        level=level,
        rate=rate,
        low=max(0.0, low),
        high=high,
        scatter=max(0.0, *(most - line for most, line in above)),
        surge=max(1.0, *(most / line for most, line in above if line > 0)),
        sag=max(0.0, *below),
    )


def _levelled_out(times: Sequence[Seconds], memory: Sequence[Bytes]) -> Seconds:
    """Return the first moment at which the run held nearly its peak."""
    enough = _HELD * max(memory)
    return next(
        time for time, size in zip(times, memory, strict=True) if size >= enough
    )


def _before_release(times: Sequence[Seconds], memory: Sequence[Bytes]) -> Seconds:
    """Return the end of the run, or the moment when it began to release memory."""
    duration = times[-1] - times[0]
    recent = memory[bisect_left(times, times[-1] - (1 - _LAST) * duration) :]
    enough = _KEPT * median_of(recent)
    last = len(times) - 1
    # a low end that lasts for more than _RELEASE of the run is not a release
    while memory[last] < enough and times[-1] - times[last] <= _RELEASE * duration:
        last -= 1
    return times[last] if memory[last] >= enough else times[-1]


def _running_maximum(values: Sequence[Bytes]) -> list[Bytes]:
    tops, top = [], 0
    for value in values:
        top = max(top, value)
        tops.append(top)
    return tops


def _even_times(start: Seconds, end: Seconds, count: int) -> list[Seconds]:
    step = (end - start) / (count - 1)
    return [start + step * turn for turn in range(count - 1)] + [end]


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
