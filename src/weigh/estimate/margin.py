"""How far above a line the truth may be: a conformal margin.

A line through small sizes misses by what it cannot know: how much of the memory is
fixed and how much grows. So the margin is a coefficient times a doubt in bytes,

    doubt(x) = gap + 0.3 growth + share line(x)

``gap`` is what proportion from the largest size would add to the line, ``growth`` what
the line adds to the largest size measured; ``share`` is 0.02 for memory along a line,
and 0.12 for a constant and for times, which vary more from run to run. The coefficient
comes from scores, ``(truth - line) / doubt``, of curves whose end was held out (split
conformal prediction, Vovk et al. 2005). benchmarks/estimate.py does it on public
measurements of 12 networks on 5 GPUs, each network judged by the others.
"""

import math
from collections.abc import Sequence

_GROWTH = 0.3
STEADY, VARYING = 0.02, 0.12  # shares of the value itself
# Of the coefficient for a stated level, from those 60 curves: see benchmarks/estimate
_START = ((0.5, 0.0), (0.8, 0.16), (0.9, 0.29), (0.95, 0.41), (0.99, 0.53))
_START_SCORES = 60  # how many of the user's own curves weigh as much as those
_TAIL_SHARE = 5  # the upper fifth of the scores shows how the tail falls


def doubt(
    line: float, *, proportional: float, largest: float, share: float = STEADY
) -> float:
    """Return the unit of the margin, in bytes, for the line's value at a size.

    *proportional* is the largest measurement times the ratio of the sizes, *largest*
    that measurement itself.
    """
    gap = max(0.0, proportional - line)
    growth = max(0.0, line - largest)
    return gap + _GROWTH * growth + share * max(0.0, line)


def coefficient(level: float, scores: Sequence[float] = ()) -> float:
    """Return the coefficient for a bound that holds with *level*, such as 0.95.

    *scores* are those of the user's own curves; they count beside the 60 public ones
    by their number.
    """
    start = _start(level)
    if not scores:
        return start
    own = from_scores(scores, level)
    weight = len(scores) / (len(scores) + _START_SCORES)
    return start + weight * (own - start)


def from_scores(scores: Sequence[float], level: float) -> float:
    """Return the conformal coefficient of *scores* for *level*; at least 0.

    Half of the stated risk is used, because curves of one program resemble each
    other and count for fewer than they are. A level that the ranks of the scores
    cannot carry is reached along an exponential tail.
    """
    ordered = sorted(max(0.0, score) for score in scores)
    risk = (1 - level) / 2
    rank = math.ceil((len(ordered) + 1) * (1 - risk))
    if rank <= len(ordered):
        return ordered[rank - 1]
    return max(ordered[-1], _tail(ordered, risk))


def _tail(ordered: Sequence[float], risk: float) -> float:
    upper = max(3, len(ordered) // _TAIL_SHARE)
    if len(ordered) <= upper:
        return ordered[-1]
    threshold = ordered[-upper - 1]
    mean = sum(ordered[-upper:]) / upper - threshold
    return threshold + mean * math.log(upper / len(ordered) / risk)


def _start(level: float) -> float:
    """Read the table, straight in the logarithm of the risk, and on beyond its end."""
    if level <= _START[0][0]:
        return 0.0
    rows = [(-math.log(1 - at), value) for at, value in _START]
    place = -math.log(1 - level)
    beyond = sum(low < place for low, _ in rows[1:-1])
    (low, below), (high, above) = rows[beyond], rows[beyond + 1]
    return below + (above - below) * (place - low) / (high - low)
