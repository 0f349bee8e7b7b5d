"""Are two handfuls of runs alike? Welch's test on logarithms, exact and without chance.

The ratio of two figures is the difference of their logarithms, so its interval is
Welch's for that difference. Its degrees of freedom are rounded down to a whole number,
which widens it a little and lets the distribution be summed exactly.

Sources: B. L. Welch, Biometrika 34 (1947) 28-35; M. Abramowitz and I. A. Stegun,
Handbook of Mathematical Functions, 26.7.3 and 26.7.4, for the distribution.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

_HALVINGS = 60
_FEWEST = 2  # runs that have a spread


def ratio_interval(
    base: Sequence[float], other: Sequence[float], level: float
) -> tuple[float, float] | None:
    """Give what holds the true ratio of *other* to *base*; None without any spread.

    All figures are above zero. A single run is taken to vary as the several on the
    other side do.
    """
    logs = [[math.log(value) for value in values] for values in (base, other)]
    counts = [len(values) for values in logs]
    if max(counts) < _FEWEST:
        return None
    means = [sum(values) / len(values) for values in logs]
    variances = [_variance(values) for values in logs]
    known = [variance for variance in variances if variance is not None]
    filled = [known[0] if variance is None else variance for variance in variances]
    error = sum(v / n for v, n in zip(filled, counts, strict=True))
    reach = 0.0
    if error > 0:
        freedom = _freedom(variances, counts, error)
        reach = student_quantile(freedom, level) * math.sqrt(error)
    difference = means[1] - means[0]
    return math.exp(difference - reach), math.exp(difference + reach)


@lru_cache(maxsize=256)
def student_quantile(freedom: int, level: float) -> float:
    """Give how many standard errors to either side hold the share *level*."""
    low, high = 0.0, 1.0
    while student_share(freedom, high) < level:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if student_share(freedom, middle) < level:
            low = middle
        else:
            high = middle
    return high


def student_share(freedom: int, reach: float) -> float:
    """Give the share of Student's distribution within *reach* of its middle."""
    angle = math.atan(reach / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for turn in range(freedom // 2):
        total += term
        first = 2 * turn + 1 + odd
        term *= square * first / (first + 1)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _variance(values: Sequence[float]) -> float | None:
    if len(values) < _FEWEST:
        return None
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _freedom(
    variances: Sequence[float | None], counts: Sequence[int], error: float
) -> int:
    """Give Welch's and Satterthwaite's degrees of freedom, as a whole number."""
    if any(variance is None for variance in variances):
        return max(counts) - 1
    parts = [
        ((variance or 0.0) / count) ** 2 / (count - 1)
        for variance, count in zip(variances, counts, strict=True)
    ]
    spread = sum(parts)
    return max(1, math.floor(error**2 / spread + 1e-9)) if spread > 0 else 1
