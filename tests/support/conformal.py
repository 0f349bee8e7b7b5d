"""The conformal coefficient of an upper bound, from the scores of past curves."""

import math
from collections.abc import Sequence

_TAIL_SHARE = 5  # the upper fifth of the scores shows how the tail falls off


def from_scores(scores: Sequence[float], level: float) -> float:
    """Return the conformal coefficient of *scores* for *level*; at least 0.

    Only half of the stated risk is used, because curves of one program resemble each
    other and count as fewer. Beyond the ranks of the scores the coefficient follows an
    exponential tail.
    """
    ordered = sorted(max(0.0, score) for score in scores)
    risk = (1 - level) / 2
    rank = math.ceil((len(ordered) + 1) * (1 - risk))
    if rank <= len(ordered):
        return ordered[rank - 1]
    return max(ordered[-1], _tail_quantile(ordered, risk))


def _tail_quantile(ordered: Sequence[float], risk: float) -> float:
    upper = max(3, len(ordered) // _TAIL_SHARE)
    if len(ordered) <= upper:
        return ordered[-1]
    threshold = ordered[-upper - 1]
    mean = sum(ordered[-upper:]) / upper - threshold
    return threshold + mean * math.log(upper / len(ordered) / risk)
