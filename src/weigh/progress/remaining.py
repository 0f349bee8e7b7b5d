"""When a list of tasks is done: by what runs says, and by what the done ones took."""

import heapq
import math
from collections.abc import Sequence

import msgspec

from weigh.units import Seconds

_NORMAL_90 = 1.645  # standard deviations on either side that hold 90 %
_USUAL_SPREAD = 0.3  # of their mean, that times of tasks have
_WORTH = 2  # as many tasks as the usual spread is worth, beside what was seen
_LAST = 3  # times the lanes: tasks at the end that are played one by one
_FEWEST_LAST = 40
_MOST_DRAWS, _MOST_PLAYS, _FEWEST_PLAYS = 6000, 60, 12
_OVERDUE = 0.25  # of its time so far, that a task longer than all others still takes


class Span(msgspec.Struct, frozen=True):
    """Seconds until something ends: about ``value``, between ``low`` and ``high``."""

    value: Seconds
    low: Seconds
    high: Seconds


class Durations(msgspec.Struct, frozen=True):
    """What tasks took: ``times`` of some, ``count`` of all."""

    times: tuple[Seconds, ...]
    count: int

    @property
    def mean(self) -> Seconds:
        """Give the mean; raises ZeroDivisionError where there is none."""
        return sum(self.times) / len(self.times)

    @property
    def spread(self) -> float:
        """Give the standard deviation as a share of the mean; of few times a guess."""
        mean = self.mean
        if mean <= 0:
            return _USUAL_SPREAD
        squares = sum((time / mean - 1) ** 2 for time in self.times)
        guess = _WORTH * _USUAL_SPREAD**2
        return math.sqrt((squares + guess) / (len(self.times) + _WORTH - 1))


def still_to_run(elapsed: Seconds, known: Durations) -> Span | None:
    """Say how much longer a task runs that says nothing, *elapsed* seconds into it.

    It takes as long as those that took longer than that, or a little more than all.
    """
    if not known.times:
        return None
    longer = sorted(time - elapsed for time in known.times if time > elapsed)
    if not longer:
        return Span(_OVERDUE * elapsed, 0.0, elapsed)
    value = sum(longer) / len(longer)
    return Span(value, longer[len(longer) // 20], max(longer[-1], 1.3 * value))


def until_done(
    running: Sequence[Span], waiting: int, known: Durations, *, lanes: int
) -> Span | None:
    """Say when *running* and *waiting* tasks are done, *lanes* of them at a time.

    The rest is played through a number of times, with times drawn from those known, as
    the last tasks of a list seldom end together. None where some wait and nothing tells
    what one takes.
    """
    if waiting <= 0:
        if not running:
            return None
        return Span(
            max(one.value for one in running),
            max(one.low for one in running),
            max(one.high for one in running),
        )
    if not known.times:
        return None
    lanes = max(1, min(lanes, waiting + len(running)))
    last = min(waiting, max(_FEWEST_LAST, _LAST * lanes))
    plays = max(_FEWEST_PLAYS, min(_MOST_PLAYS, _MOST_DRAWS // last))
    draw = _Draw()
    ends = [_play(running, waiting, last, (known, lanes, draw)) for _ in range(plays)]
    value = sum(ends) / plays
    half = _NORMAL_90 * math.sqrt(sum((end - value) ** 2 for end in ends) / (plays - 1))
    first = max((one.low for one in running), default=0.0)
    return Span(value, min(value, max(first, value - half)), value + half)


class _Draw:
    """Draws that look random and never change: a forecast must not flicker."""

    def __init__(self) -> None:
        self._state = 0x9E3779B97F4A7C15

    def share(self) -> float:
        """Draw evenly from 0 to 1; a linear congruential generator (Knuth, MMIX)."""
        state = self._state * 6364136223846793005 + 1442695040888963407
        self._state = state & (1 << 64) - 1
        return ((self._state >> 11) + 0.5) / (1 << 53)

    def normal(self) -> float:
        """Draw from the standard normal distribution (Box and Muller, 1958)."""
        radius = math.sqrt(-2.0 * math.log(self.share()))
        return radius * math.cos(2.0 * math.pi * self.share())

    def around_one(self, spread: float) -> float:
        """Draw a factor, of mean 1, from a log-normal distribution."""
        return math.exp(spread * self.normal() - spread * spread / 2)


def _play(
    running: Sequence[Span],
    waiting: int,
    last: int,
    by: tuple[Durations, int, _Draw],
) -> Seconds:
    """Give the end of one play; all but the *last* that wait are one sum."""
    known, lanes, draw = by
    count, spread, mean = max(1, known.count), known.spread, known.mean
    doubt = spread / math.sqrt(count)  # of the mean; more where few are known
    scale = draw.around_one((1 + 1 / count) * doubt)
    sum_of = waiting - last
    work = sum_of * mean + math.sqrt(sum_of) * spread * mean * draw.normal()
    free = [_end(one, draw.normal()) for one in running][:lanes]
    free += [0.0] * (lanes - len(free))
    late = max((_end(one, 0.0) for one in running), default=0.0)
    begin = max(0.0, work) * scale / lanes
    free = [end + begin for end in free]
    heapq.heapify(free)
    times = known.times
    for _ in range(last):
        time = times[int(draw.share() * len(times))] * scale
        end = free[0] + time * draw.around_one(doubt)
        late = max(late, end)
        heapq.heapreplace(free, end)
    return max(late, *free)


def _end(one: Span, normal: float) -> Seconds:
    """Draw the end of a running task from what its own interval allows."""
    side = one.high - one.value if normal > 0 else one.value - one.low
    return max(0.0, one.value + normal * side / _NORMAL_90)
