"""Memory that still rises when a run ends: found, told from noise, carried on.

Two views of a run are tried. Its *tops*, the most held up to each moment, in which
batches of equal size, a collector's saw-tooth and a release at the end are flat. And
its *level*, the median of each stretch, in which noise hides less, and which one high
peak in the middle does not hide. Either grows if its stretches rise as one flat series
in a hundred does (Mann-Kendall), *and* it rose through the last half, *and* it does not
die out in the last quarter. What was held in the first quarter does not count: a model
may peak while it loads.

Pure Python, about ten milliseconds: ``weigh run`` calls it after the job.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from weigh.estimate.trend import (
    lower_median,
    median,
    rise_score,
    slope_interval,
    slopes,
)
from weigh.model.growth import Extrapolation, Growth, Progress, Trend
from weigh.units import MIB, Bytes, Seconds

_FEWEST = 3  # steps, below which a rhythm is a guess
_LATE = 1.5  # of the longest gap, after which no next step is to be expected
_UNEVEN = 2.0  # the longest gap over the shortest, and so the heights


def still_stepping(
    times: Sequence[Seconds], tops: Sequence[Bytes], end: Seconds, least: float
) -> bool:
    """Tell whether what was held at most rose by even steps and is due for the next.

    *tops* never fall; *least* is how many bytes are worth a step. Steps further and
    further apart are how a program warms up, and do not count.
    """
    steps = _steps(times, tops, least, (end - times[0]) / 20)
    if len(steps) < _FEWEST:
        return False
    gaps = [after - before for (before, _), (after, _) in pairwise(steps)]
    heights = [height for _, height in steps]
    if max(gaps) > _UNEVEN * min(gaps) or max(heights) > _UNEVEN * min(heights):
        return False
    return end - steps[-1][0] <= _LATE * max(gaps)


def _steps(
    times: Sequence[Seconds], tops: Sequence[Bytes], least: float, width: Seconds
) -> list[tuple[Seconds, Bytes]]:
    """Give the rises of *least* bytes or more, each drawn together over *width*."""
    steps: list[tuple[Seconds, Bytes]] = []
    base, since = tops[0], None
    for time, top in zip(times, tops, strict=True):
        if since is None and top > base:
            since = time
        if since is not None and time - since > width:
            if top - base >= least:
                steps.append((since, top - base))
            base, since = top, None
    return steps


LEVEL = 0.95  # at which an extrapolation's bounds hold the truth
FEWEST = 20  # samples, below which a trend is a guess
SHORTEST = 1.0  # seconds, below which a run is all start-up

_SETTLED = 0.25  # of the run: loading may peak higher than all that follows
_HALF, _LAST = 0.5, 0.75  # of the run: rising since the one and since the other
_BLOCKS = 12  # stretches of the settled part, compared as wholes
_TAIL_BLOCKS = 16  # stretches of the last half, for the line
_FEWEST_BLOCKS = 5
_GRID = 48  # moments a part is looked at: 1,128 slopes
_SCORE = 2.33  # of a flat series one in a hundred has it
_TAIL_SCORE = 1.64  # one in twenty: a second opinion, on half of the series
_MATERIAL = 0.02  # of the peak, in a run as long again
_NEGLIGIBLE = 0.002
_LEAST = MIB  # the same, in bytes: interpreters breathe
_DYING = 0.5  # of the rate before, left in the last quarter
_RELEASE = 0.05  # of the run, at its end, in which a program may let go of everything
_KEPT = 0.8  # below which share of what was held it has
_HELD = 0.98  # of the peak: a run that holds as much has found its level


class _Stretch(msgspec.Struct, frozen=True):
    """What was held about *time*: median, the most, the most until its end."""

    time: Seconds
    end: Seconds
    level: float
    most: Bytes
    top: Bytes


class _Track:
    """What was held over time, from where it settled to where it was let go."""

    def __init__(self, times: Sequence[Seconds], memory: Sequence[Bytes]) -> None:
        self.start = times[0]
        self.end = _before_release(times, memory)
        self.duration = self.end - self.start
        first = bisect_left(times, self.at(_SETTLED))
        last = bisect_right(times, self.end)
        self.times = times[first:last]
        self.memory = memory[first:last]
        self.tops = _running(self.memory)

    def at(self, share: float) -> Seconds:
        """Give the moment at a share of the run."""
        return self.start + share * self.duration

    def top(self, time: Seconds) -> Bytes:
        """Give the most held by *time*."""
        return self.tops[max(bisect_right(self.times, time) - 1, 0)]

    def top_slope(self, begin: float, end: float = 1.0) -> float:
        """Give the median slope of the tops in a part of the run, in bytes a second."""
        grid = _grid(self.at(begin), self.at(end), _GRID)
        return lower_median(slopes(grid, [self.top(time) for time in grid]))

    def stretches(self, begin: float, most: int) -> list[_Stretch]:
        """Cut the run since *begin* into equal stretches, at most so many."""
        first = bisect_left(self.times, self.at(begin))
        count = max(_FEWEST_BLOCKS, min(most, (len(self.times) - first) // 2))
        edges = _grid(self.at(begin), self.end, count + 1)
        return [self._stretch(left, right) for left, right in pairwise(edges)]

    def _stretch(self, left: Seconds, right: Seconds) -> _Stretch:
        low, high = bisect_right(self.times, left), bisect_right(self.times, right)
        if low == high:  # memory stays as it is between samples
            held = self.memory[max(low - 1, 0)]
            return _Stretch((left + right) / 2, right, held, held, self.top(right))
        within, last = self.times[low:high], self.times[high - 1]
        memory = self.memory[low:high]
        top = self.tops[high - 1]
        return _Stretch(median(within), last, median(memory), max(memory), top)


def growth_of(times: Sequence[Seconds], memory: Sequence[Bytes]) -> Growth | None:
    """Tell how memory moved towards the end of a run; None where nothing was seen.

    *times* rise, in seconds; *memory* in bytes, as many.
    """
    if not times:
        return None
    peak, end = max(memory), times[-1]
    if len(times) < FEWEST or end - times[0] < SHORTEST:
        return Growth(growing=None, peak=peak, end=end)
    track = _Track(times, memory)
    trend = _rising(track, _least(track, peak))
    if trend is not None and trend.rate * track.duration >= _MATERIAL * peak:
        return Growth(growing=True, peak=peak, end=end, trend=trend)
    if still_stepping(track.times, track.tops, track.end, _MATERIAL * peak):
        stairs = track.stretches(_SETTLED, _TAIL_BLOCKS)
        line = _line(stairs, _tops(stairs))
        return Growth(growing=True, peak=peak, end=end, trend=line)
    since = _levelled_out(times, memory)
    return Growth(growing=False, peak=peak, end=end, trend=trend, since=since)


def is_growing(times: Sequence[Seconds], memory: Sequence[Bytes]) -> bool | None:
    """Tell whether a run ended while its memory still rose; None if it was too short.

    A rise counts that would add 2 % of the peak, and 1 MiB, in a run as long again.
    """
    growth = growth_of(times, memory)
    return None if growth is None else growth.growing


def extrapolate(growth: Growth, time: Seconds) -> Extrapolation:
    """Carry memory on to a run of *time* seconds; never below the peak that was seen.

    The line holds while the job goes on as it did: a buffer that fills up levels off.
    """
    factor = time / growth.end if growth.end > 0 else 1.0
    trend, peak = growth.trend, growth.peak
    if trend is None or time <= growth.end:
        return Extrapolation(peak, peak, peak, time, factor, LEVEL)
    ahead = time - trend.time
    middle, low, high = (
        trend.level + rate * ahead for rate in (trend.rate, trend.low, trend.high)
    )
    value = max(peak, round(middle + trend.scatter))
    return Extrapolation(
        value,
        low=min(max(peak, round(low - trend.sag)), value),
        high=max(value, round(max(high + trend.scatter, high * trend.surge))),
        time=time,
        factor=factor,
        level=LEVEL,
    )


def bound_by_steps(
    growth: Growth,
    series: tuple[Sequence[Seconds], Sequence[Bytes]],
    progress: Progress,
) -> Bytes:
    """Bound the peak of all steps: each to come adds what those so far have added.

    *series* are times and memory of the run. The clock says less than the steps where
    the machine did other work meanwhile. 0 where there is no rise, or the time of the
    steps leaves none to have started up in.
    """
    began = growth.end - progress.done * progress.step_time
    if growth.trend is None or progress.total is None or began <= 0:
        return 0
    times, memory = series
    held = memory[max(bisect_right(times, began) - 1, 0)]
    ahead = max(0.0, progress.total - progress.done) / progress.done
    return growth.peak + round(max(0, growth.peak - held) * ahead)


def _least(track: _Track, peak: Bytes) -> float:
    """Give the rate from which a rise is one, in bytes a second.

    Sampling in step with batches sees their tops climb by less than what they change
    between two samples.
    """
    jump = median([abs(after - before) for before, after in pairwise(track.memory)])
    settled = (1 - _SETTLED) * track.duration
    return max(
        _NEGLIGIBLE * peak / track.duration, _LEAST / track.duration, jump / settled
    )


def _rising(track: _Track, least: float) -> Trend | None:
    """Give the trend of the view that rises, the surer one; None if neither does."""
    settled = track.stretches(_SETTLED, _BLOCKS)
    tail = track.stretches(_HALF, _TAIL_BLOCKS)
    trends = []
    if rise_score([s.most for s in settled]) >= _SCORE and _tops_rise(track, least):
        trends.append(_line(tail, _tops(tail), track.top_slope(_LAST)))
    if rise_score([s.level for s in settled]) >= _SCORE and _levels_rise(tail, least):
        trends.append(_line(tail, _levels(tail)))
    rising = [trend for trend in trends if trend.rate > least]
    return min(rising, key=lambda t: (t.high - t.low) / t.rate, default=None)


def _tops_rise(track: _Track, least: float) -> bool:
    third, last = track.top_slope(_HALF, _LAST), track.top_slope(_LAST)
    half = track.top_slope(_HALF)
    return min(half, last) > least and last >= _DYING * third


def _levels_rise(tail: Sequence[_Stretch], least: float) -> bool:
    levels = [stretch.level for stretch in tail]
    if rise_score(levels) < _TAIL_SCORE:
        return False
    half = len(tail) // 2
    third, last = _slope(tail[: half + 1]), _slope(tail[half:])
    return min(_slope(tail), last) > least and last >= _DYING * third


def _slope(stretches: Sequence[_Stretch]) -> float:
    times, levels = zip(*_levels(stretches), strict=True)
    return lower_median(slopes(times, levels))


def _levels(stretches: Sequence[_Stretch]) -> list[tuple[Seconds, float]]:
    return [(stretch.time, stretch.level) for stretch in stretches]


def _tops(stretches: Sequence[_Stretch]) -> list[tuple[Seconds, float]]:
    return [(stretch.end, float(stretch.top)) for stretch in stretches]


def _line(
    stretches: Sequence[_Stretch],
    points: Sequence[tuple[Seconds, float]],
    recent: float | None = None,
) -> Trend:
    """Lay a line through *points*; where the *recent* rate is another, that counts."""
    times, values = zip(*points, strict=True)
    rate, low, high = slope_interval(times, values, LEVEL)
    if recent is not None and not low <= recent <= high:
        rate, low, high = recent, min(low, recent), max(high, recent)
    middle = times[len(times) // 2]
    level = median([value - rate * (time - middle) for time, value in points])
    above = [(s.most, level + rate * (s.end - middle)) for s in stretches]
    below = [level + rate * (time - middle) - value for time, value in points]
    return Trend(
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
    """Give the first moment at which the run held nearly all it ever did."""
    enough = _HELD * max(memory)
    return next(
        time for time, size in zip(times, memory, strict=True) if size >= enough
    )


def _before_release(times: Sequence[Seconds], memory: Sequence[Bytes]) -> Seconds:
    """Give the end of the run, or where it began to let go of what it held."""
    duration = times[-1] - times[0]
    recent = memory[bisect_left(times, times[-1] - (1 - _LAST) * duration) :]
    enough = _KEPT * median(recent)
    last = len(times) - 1
    while memory[last] < enough and times[-1] - times[last] <= _RELEASE * duration:
        last -= 1
    return times[last] if memory[last] >= enough else times[-1]


def _running(values: Sequence[Bytes]) -> list[Bytes]:
    tops, top = [], 0
    for value in values:
        top = max(top, value)
        tops.append(top)
    return tops


def _grid(start: Seconds, end: Seconds, count: int) -> list[Seconds]:
    step = (end - start) / (count - 1)
    return [start + step * turn for turn in range(count - 1)] + [end]
