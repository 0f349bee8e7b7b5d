"""The current time per step, and the time of the remaining steps with an interval.

The history of a counter is cut into blocks of equal numbers of steps. Blocks before the
last change of level (a warm-up, a slower node, a smaller input) are left out, and so is
a single pause longer than half of all else; the mean of the rest is the pace. The
interval follows from the scatter of the blocks, and from how well each first part of
them would have predicted the second.
"""

import math
from bisect import bisect_left
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from weigh.units import Seconds

FEWEST = 3  # observations that show something
TICK: Seconds = 0.2  # output is read so often
AT_ONCE = TICK / 4  # within it buffered output counts as one
MOST_POINTS = 512  # per counter; at more, every second one is dropped


class ProgressPoint(NamedTuple):
    """The ``position``, in steps, that was reached at ``time``."""

    time: Seconds
    position: float


class ProgressHistory:
    """Points that rise in time; of a counter, in position as well."""

    def __init__(self) -> None:
        self.points: list[ProgressPoint] = []
        # when the last point came, or the first that it replaced
        self._since: Seconds = 0.0

    def add(self, time: Seconds, position: float) -> None:
        """Add a point, unless it is no further than the last one."""
        if not self.points or position > self.points[-1].position:
            self.put(time, position)

    def put(self, time: Seconds, position: float) -> None:
        """Add a point, wherever it is.

        A later point of about the same time replaces the earlier: buffered output
        arrives all at once, and only its end is current.
        """
        points = self.points
        if points and time - self._since < AT_ONCE:
            points.pop()
        else:
            self._since = time
        points.append(ProgressPoint(time, position))
        if len(points) > MOST_POINTS:
            # the first and the last stay, as both ends are used
            del points[1:-1:2]


# benchmarks/progress.py: without each of these recordings lose their interval, or it is
# much wider
_BLOCKS = 24  # at most: enough for a change of level, few enough for all pairs
_NEW_LEVEL = 0.3  # least difference of two levels; below it neighbours are alike
_SURE_OF_LEVEL = 6.0  # standard errors, as the best of many cuts is tested
# the spread of two blocks more, expected before any is measured; an interval is at
# least as wide to both sides together (emcee, fine_tune, tqdm_folds)
_USUAL_SPREAD = 0.15
_LASTING = 3.0  # times further off than in the past (2 standard deviations of few)
_EARLY = 0.06  # of the run, in which all steps may have been slow ones (tqdm_warm)
_SLACK = 0.02  # of a step: an epoch may be counted a little late


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
    way = points[-1].position - points[0].position if points else 0.0
    if way <= 0:
        return None
    # of a few rounds none is the exception
    current = points if has_cycles and way <= FEWEST else without_pause(points)
    blocks = cut(current, has_cycles=has_cycles)
    # a warm-up and two more: levels without end are a drift
    for _ in range(3):
        first = last_change(blocks.times)
        if not first:
            break
        edge = points[-1].position - blocks.width * (len(blocks.times) - first)
        since = [point for point in current if point.position > edge]
        current = [ProgressPoint(time_at(current, edge), edge), *since]
        blocks = cut(current, has_cycles=has_cycles)
    seen = current[-1].position - current[0].position
    # a pace from two points would be a guess, unless they span much of the run
    if len(current) < FEWEST and seen < (seen + ahead) / _BLOCKS:
        return None
    width, times = blocks
    mean = fmean(times)
    prior = 2 * (_USUAL_SPREAD * mean) ** 2
    spread = math.sqrt((_squares_around_mean(times) + prior) / (len(times) + 1)) / mean
    # how many blocks lie ahead: the fewer, the less their scatter evens out
    future = max(ahead / width, 1 / _BLOCKS)
    scattered = 2 * spread * math.sqrt(1 / len(times) + 1 / future)
    sample, floor = blocks, _USUAL_SPREAD / 2
    if not is_even:
        sample = cut(points, has_cycles=False)
    # the first epoch may end with an evaluation
    if not is_even or (has_cycles and way < 1 + _SLACK):
        floor *= 3
    # independent reasons add up as squares
    off = math.hypot(scattered, floor, _LASTING * _unsteadiness(sample, ahead))
    # a factor of 9: a wider interval shows no more, and stays finite
    factor = math.exp(min(off, 2.2))
    # the first steps may have been a warm-up
    begun = min(1.0, way / (way + ahead) / _EARLY)
    remaining = ahead * mean
    # the last count may lie up to one grain behind what is done
    grain = (current[-1].time - current[0].time) / (len(current) - 1)
    low = remaining / factor * begun**2 - grain
    return StepPace(mean, remaining, max(0.0, low), remaining * factor + grain, grain)


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


def without_pause(points: list[ProgressPoint]) -> list[ProgressPoint]:
    """Return *points* as if the run had not paused for once.

    That is a single pause longer than half of all else, a suspended job; a second one
    nearly as long would be a pause that recurs.
    """
    gaps = [after.time - before.time for before, after in pairwise(points)]
    if len(gaps) <= FEWEST:
        return points
    *_, second, longest = sorted(gaps)
    others = points[-1].time - points[0].time - longest
    if longest <= others / 2 or second > longest / 3:
        return points
    end = gaps.index(longest) + 1
    lost = longest - others / (len(gaps) - 1)
    before = [ProgressPoint(time + lost, position) for time, position in points[:end]]
    return before + points[end:]


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


def cut(points: list[ProgressPoint], *, has_cycles: bool) -> PaceBlocks:
    """Cut the steps between two or more *points* into up to 24 blocks.

    With *has_cycles*, of whole epochs, so that each has its pause. The very first has
    none before it, so it is left out if others remain.
    """
    first, last = points[0].position, points[-1].position
    count = min(_BLOCKS, len(points) - 1)
    width = (last - first) / count
    whole = int(last - first - _SLACK) or int(last - first + _SLACK)
    if has_cycles and whole:
        width = float(math.ceil(whole / _BLOCKS))
        count = int(whole / width)
    # from the end backwards, so that the last block is complete
    edges = [time_at(points, last - width * n) for n in range(count, -1, -1)]
    return PaceBlocks(width, [(b - a) / width for a, b in pairwise(edges)])


def last_change(blocks: list[Seconds]) -> int:
    """Return the block with which the last level begins; 0 if there is only one level.

    The cut that leaves the least scatter is tested. At least three blocks must follow.
    """
    cuts = range(1, len(blocks) - 2)
    if not cuts:
        return 0

    def scatter(cut_at: int) -> float:
        sides = blocks[:cut_at], blocks[cut_at:]
        return sum(map(_squares_around_mean, sides))

    best = min(cuts, key=scatter)
    left, right = fmean(blocks[:best]), fmean(blocks[best:])
    after = len(blocks) - best
    variance = scatter(best) / (len(blocks) - 2)
    error = math.sqrt(variance * (1 / best + 1 / after))
    least = max(_SURE_OF_LEVEL * error, _NEW_LEVEL * right)
    # as far as the least is not beyond it, whatever a sum was rounded to
    is_beyond = abs(left - right) > least and not math.isclose(abs(left - right), least)
    return best if is_beyond else 0


def _squares_around_mean(values: list[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
