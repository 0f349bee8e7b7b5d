"""The current time per step, and the time of the remaining steps with an interval.

The history of a counter is cut into blocks of equal numbers of steps. Blocks before the
last change of level (a warm-up, a slower node, a smaller input) are left out, and so is
a single pause longer than half of all else; the mean of the rest is the pace. The
interval follows from the error of that mean, the scatter of the blocks to come, and the
correlation of neighbours.
"""

import math
from bisect import bisect_left
from itertools import pairwise
from statistics import fmean, pstdev
from typing import NamedTuple

from weigh.robust import median_of
from weigh.units import Seconds

# what all ways of reading have in common
FEWEST = 3  # observations that show something
AT_ONCE: Seconds = 0.05  # within it buffered output counts as one
PATIENCE: Seconds = 2.0  # without a count, before one is over
AT_END = 0.98  # of the total: the last steps may never be printed
MOST_POINTS = 512  # per counter; at more, every second one is dropped


class ProgressPoint(NamedTuple):
    """The ``position``, in steps, that was reached at ``time``."""

    time: Seconds
    position: float


class ProgressHistory:
    """Points that rise in time; of a counter, in position as well."""

    def __init__(self) -> None:
        self.points: list[ProgressPoint] = []

    def add(self, time: Seconds, position: float) -> None:
        """Add a point, unless it is no further than the last one."""
        if not self.points or position > self.points[-1].position:
            self.put(time, position)

    def put(self, time: Seconds, position: float) -> None:
        """Add a point, wherever it is.

        A later point of the same time replaces the earlier: buffered output arrives all
        at once, and only its end is current.
        """
        points = self.points
        if points and time <= points[-1].time:
            points.pop()
        points.append(ProgressPoint(time, position))
        if len(points) > MOST_POINTS:
            # the first and the last stay, as both ends are used
            del points[1:-1:2]


def time_at(points: list[ProgressPoint], position: float) -> Seconds:
    """Interpolate when *position* was reached."""
    index = bisect_left(points, position, key=lambda point: point.position)
    if index == 0:
        return points[0].time
    before, after = points[index - 1], points[min(index, len(points) - 1)]
    if after.position == before.position:
        return after.time
    share = (position - before.position) / (after.position - before.position)
    return before.time + share * (after.time - before.time)


_BLOCKS = 24  # at most: enough for a change of level, few enough for all pairs
_ENOUGH = 0.05  # of the run: then even a single step is enough
_PAUSE = 0.5  # of all else: recurring pauses (evaluation) are shorter
_ALONE = 6.0  # standard deviations of the other blocks, beyond which a pause is alone
_TWICE = 2.0  # times the median block: a pause on the edge of two blocks is in both
_PRIOR = 0.15  # spread expected before any is measured
_PRIOR_OF_EPOCHS = 0.07  # the same for epochs of many steps each
_PRIOR_WEIGHT = 2  # in blocks
_ALIKE_IN_LEVELS = 4.0  # another change of level looks like correlation, too
_ALIKE_MOST = 0.9  # correlation: at 1 the interval would have no end
_FLOOR = 0.06  # real tools were off by so much whose steps hardly scattered (emcee)
_UNEVEN = 0.2  # equal shares of an unknown unit
_LASTING = 2.5  # so much further than in the past (benchmarks/progress.py)
_WARM_UP = 0.06  # of the run, in which all steps may have been slow ones
_WARM_POINTS = 100  # or so many counts
_MOST_OFF = 2.2  # a factor of 9: a wider interval shows no more, and stays finite
_UNSEEN_OF_EPOCH = 0.3  # the same at the end of the first epoch (YOLO's validation)
_LATE = 0.02  # of an epoch: it may be counted a little late
_SLACK = 1e-6  # of a step: positions are sums of fractions
# Student's t, two-sided 90 %, by degrees of freedom from 1 on
_T = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_Z = 1.645


class StepPace(NamedTuple):
    """Seconds per step; seconds for the remaining steps, and their 90 % interval."""

    step_time: Seconds
    remaining: Seconds
    low: Seconds
    high: Seconds
    grain: Seconds  # between two counts


class PaceBlocks(NamedTuple):
    """Seconds per step in blocks of ``width`` steps, the oldest first."""

    width: float
    times: list[Seconds]


def pace(
    points: list[ProgressPoint], *, ahead: float, has_cycles: bool, is_even: bool = True
) -> StepPace | None:
    """Return the pace from *points*; None if there are too few.

    *ahead* steps are left. *has_cycles* means that each step is a round of others (an
    epoch) and may contain a pause, so that only whole steps are a fair sample. Without
    *is_even* equal shares need not be equal work.
    """
    seen, every = points, cut(points, has_cycles=False) if len(points) > 1 else None
    points = _on_one_level(points, 3, has_cycles=has_cycles)
    # a pace from two points would be a guess, unless they span much of the run
    way = _steps_covered(points) if len(points) > 1 else 0.0
    if len(points) < FEWEST and not way >= max(_SLACK, _ENOUGH * (way + ahead)):
        return None
    width, times = cut(points, has_cycles=has_cycles)
    # an epoch may end with a pause: only whole ones have their share of it
    mean = _mean_of_whole(points) if has_cycles else None
    is_whole = has_cycles and _whole_steps_between(points) >= FEWEST
    # with one or two whole epochs their own mean stands, with its pauses
    if is_whole or mean is None:
        times = without_pause(times)
        mean = sum(times) / len(times)
    spread = _spread_of_blocks(times, mean, _PRIOR_OF_EPOCHS if is_whole else _PRIOR)
    alike = _alikeness([time - mean for time in times])
    # how many blocks lie ahead: the fewer, the less their scatter evens out
    future = max(ahead / width, 1 / _BLOCKS)
    deviation = spread * math.sqrt((1 / len(times) + 1 / future) * alike)
    # the prior counts as some blocks, so it gives degrees of freedom too
    off = _student(len(times) + _PRIOR_WEIGHT - 1) * deviation / mean
    sample = PaceBlocks(width, times) if is_even or every is None else every
    floor = _FLOOR if is_even else _UNEVEN
    lasting = _LASTING * _unsteadiness(sample, ahead)
    # independent reasons add up as squares
    off = min(math.hypot(off, floor, lasting), _MOST_OFF)
    remaining = ahead * mean
    # the last count may lie up to one grain behind what is done
    grain = (points[-1].time - points[0].time) / (len(points) - 1)
    low, high = _not_seen(seen, ahead, has_cycles=has_cycles) if is_even else (1.0, 0.0)
    return StepPace(
        mean,
        remaining,
        max(0.0, remaining * math.exp(-off) * low - grain),
        remaining * math.exp(math.hypot(off, high)) + grain,
        grain,
    )


def _unsteadiness(blocks: PaceBlocks, ahead: float) -> float:
    """Return how far the pace of the *ahead* steps may be from that of the *blocks*.

    It is the logarithm of their ratio. Each cut of *blocks* in two shows how well the
    first part would have predicted the second; half of what neighbours differ by is
    mere scatter. Steps that lie further ahead than these are no better known, however
    many they are.
    """
    times = blocks.times
    count = len(times)
    # each part has a quarter of the blocks at least
    edge = max(1, count // 4)
    cuts = range(edge, min(count - 1, count - edge) + 1)
    if not cuts:
        return 0.0
    lasting = fmean(
        math.log(fmean(times[at:]) / fmean(times[:at])) ** 2
        / (1 / at + 1 / (count - at))
        for at in cuts
    )
    # neighbours differ by scatter alone: twice its variance
    scatter = fmean((b - a) ** 2 for a, b in pairwise(times)) / 2 / fmean(times) ** 2
    parts = max(4 / count, 1 / count + blocks.width / max(ahead, _SLACK))
    return math.sqrt(max(0.0, lasting - scatter / 2) * min(parts, 1.0))


def _not_seen(
    points: list[ProgressPoint], ahead: float, *, has_cycles: bool
) -> tuple[float, float]:
    """Return what the beginning of a run does not show, for both ends of the interval.

    A factor for the low end, because the first steps may have been a warm-up; the
    logarithm of one for the high end, because the first epoch may end with an
    evaluation.
    """
    way = _steps_covered(points)
    share = way / (way + ahead) if way else 0.0
    warm = max(share / _WARM_UP, len(points) / _WARM_POINTS)
    is_first = has_cycles and way < 1 + _LATE
    return min(1.0, warm) ** 2, _UNSEEN_OF_EPOCH if is_first else 0.0


def _on_one_level(
    points: list[ProgressPoint], depth: int, *, has_cycles: bool
) -> list[ProgressPoint]:
    """Return the points since the last change of level."""
    if len(points) <= FEWEST or not depth:
        return points
    width, times = cut(points, has_cycles=has_cycles)
    first = last_change(without_pause(times))
    if not first:
        return points
    edge = points[-1].position - width * (len(times) - first)
    kept = [ProgressPoint(time_at(points, edge), edge)]
    kept += [point for point in points if point.position > edge]
    return _on_one_level(kept, depth - 1, has_cycles=has_cycles)


def cut(points: list[ProgressPoint], *, has_cycles: bool) -> PaceBlocks:
    """Cut the steps between two or more *points* into up to 24 blocks."""
    first, last = points[0].position, points[-1].position
    count = min(_BLOCKS, len(points) - 1)
    width = (last - first) / count
    whole = _whole_steps_between(points)
    # whole epochs in each block, so that each has its pause
    if has_cycles and whole >= FEWEST:
        width = float(math.ceil(whole / _BLOCKS))
        count = int(whole / width)
    # from the end backwards, so that the last block is complete
    edges = [time_at(points, last - width * n) for n in range(count, -1, -1)]
    return PaceBlocks(width, [(b - a) / width for a, b in pairwise(edges)])


def without_pause(blocks: list[Seconds]) -> list[Seconds]:
    """Return *blocks* with a single pause that will hardly recur set to their mean.

    That is a pause longer than half of all else, or one that would have recurred by now
    if it came at equal distances.
    """
    count = len(blocks)
    # of so few blocks the longest is no outlier
    if count < FEWEST + 1:
        return blocks
    longest = blocks.index(max(blocks))
    high = _TWICE * median_of(blocks)
    pause = [longest]
    neighbours = [n for n in (longest - 1, longest + 1) if 0 <= n < count]
    neighbour = max(neighbours, key=lambda n: blocks[n])
    if blocks[neighbour] > high:  # the pause lies on the edge of two blocks
        pause.append(neighbour)
    rest = [block for n, block in enumerate(blocks) if n not in pause]
    usual = fmean(rest)
    excess = sum(blocks[n] for n in pause) - len(pause) * usual
    # a second block nearly as long would be a pause that recurs
    is_single = max(rest) - usual < excess / 3
    is_past = count > 2 * longest + 2 and excess > _ALONE * pstdev(rest)
    if not (is_single and (is_past or excess > _PAUSE * sum(rest))):
        return blocks
    return [usual if n in pause else block for n, block in enumerate(blocks)]


def _mean_of_whole(points: list[ProgressPoint]) -> Seconds | None:
    """Return the mean of the last whole steps; None before the first."""
    whole = _whole_steps_between(points)
    if not whole:
        return None
    last = points[-1]
    return (last.time - time_at(points, last.position - whole)) / whole


def _steps_covered(points: list[ProgressPoint]) -> float:
    return points[-1].position - points[0].position


def _whole_steps_between(points: list[ProgressPoint]) -> int:
    """Return the number of whole steps between the first point and the last.

    The very first step has no pause before it, so it is left out if others remain.
    """
    way = _steps_covered(points)
    return int(way - _LATE) or int(way + _SLACK)


def last_change(blocks: list[Seconds]) -> int:
    """Return the block with which the last level begins; 0 if there is only one level.

    The cut that leaves the least scatter is tested: Student's t of its two sides
    decides, with a threshold for the best of many. At least three blocks must follow.
    """
    count = len(blocks)
    cuts = range(1, count - 2)
    if not cuts:
        return 0
    best = min(cuts, key=lambda at: _squares(_deviations(blocks, at)))
    off = _deviations(blocks, best)
    left, right = fmean(blocks[:best]), fmean(blocks[best:])
    variance = _squares(off) / (count - 2) * min(_alikeness(off), _ALIKE_IN_LEVELS)
    error = math.sqrt(variance * (1 / best + 1 / (count - best)))
    is_changed = abs(left - right) > error * (5 + 20 / (count - 2))
    return best if is_changed else 0


def _deviations(blocks: list[Seconds], at: int) -> list[float]:
    """Return how far each block is from the mean of its side of the cut."""
    left, right = fmean(blocks[:at]), fmean(blocks[at:])
    return [x - left for x in blocks[:at]] + [x - right for x in blocks[at:]]


def _squares(off: list[float]) -> float:
    return sum(x * x for x in off)


def _spread_of_blocks(blocks: list[Seconds], mean: Seconds, prior: float) -> Seconds:
    squares = sum((block - mean) ** 2 for block in blocks)
    expected = _PRIOR_WEIGHT * (prior * mean) ** 2
    return math.sqrt((expected + squares) / (_PRIOR_WEIGHT + len(blocks) - 1))


def _alikeness(off: list[float]) -> float:
    """Return the factor by which correlated neighbours widen a mean's squared error.

    It follows from the correlation of neighbouring deviations, without the bias that
    few blocks have.
    """
    count = len(off)
    squares = _squares(off)
    if count < 8 or not squares:  # noqa: PLR2004 - too few for a correlation
        return 1.0
    alike = sum(x * y for x, y in pairwise(off)) / squares
    # neighbours of an independent sample correlate by about -1 / count
    alike = min(max((alike + 1 / count) / (1 - 4 / count), 0.0), _ALIKE_MOST)
    return (1 + alike) / (1 - alike)


def _student(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else _Z + 1.6 / freedom
