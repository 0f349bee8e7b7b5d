"""Statistics of a few noisy figures: ratios of means, robust lines, tests of a rise.

Pure Python, because ``weigh run`` uses it: importing numpy would take longer than the
computation.

Sources: P. K. Sen, JASA 63 (1968) 1379-1389, for the slope and its interval;
M. G. Kendall, Rank Correlation Methods, 4th ed., for the variance with ties; S. Yue
and C. Wang, Water Resources Management 18 (2004) 201-218, for the inflation of that
variance by the autocorrelation of the detrended series.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

_HALVINGS = 60
_FEWEST = 2  # runs that have a spread


def ratio_interval(
    base: Sequence[float], other: Sequence[float], level: float
) -> tuple[float, float] | None:
    """Return the interval of the true ratio of *other* to *base*; None without spread.

    All figures are above zero. A single run is assumed to vary as those on the other
    side do.
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
    """Return the two-sided quantile of Student's distribution, in standard errors."""
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
    """Return the share of Student's distribution within *reach* of its middle."""
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
    """Return Welch's and Satterthwaite's degrees of freedom, as a whole number."""
    if any(variance is None for variance in variances):
        return max(counts) - 1
    parts = [
        ((variance or 0.0) / count) ** 2 / (count - 1)
        for variance, count in zip(variances, counts, strict=True)
    ]
    spread = sum(parts)
    return max(1, math.floor(error**2 / spread + 1e-9)) if spread > 0 else 1


_MOST_CORRELATION = 0.5  # a curve's own bend looks like correlation, too
_MOST_IN_INTERVALS = 0.75  # an interval covers that bend, too
_PLAIN = 0.25  # of the rise: smaller residuals are not correlated noise
_FEWEST_POINTS = 4


def slopes(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return the slopes between all pairs of points, in order."""
    return sorted(
        (values[later] - values[earlier]) / (times[later] - times[earlier])
        for later in range(len(times))
        for earlier in range(later)
    )


def lower_median(ordered: Sequence[float]) -> float:
    """Return the median of ordered values, the lower of two; 0 without values."""
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def median(values: Sequence[float]) -> float:
    """Return the median of *values*, the mean of two; 0 without values."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return (
        ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    )


def rise_score(values: Sequence[float]) -> float:
    """Return the Mann-Kendall score of equally spaced *values*: how surely they rise.

    It is standard normal for values in random order, corrected for correlated
    neighbours; one flat series in a hundred reaches 2.33.
    """
    if len(values) < _FEWEST_POINTS:
        return 0.0
    sign = _concordance(values)
    variance = _slope_variance(values) * inflation(values)
    if not sign or variance <= 0:
        return 0.0
    return (sign - math.copysign(1, sign)) / math.sqrt(variance)


def slope_interval(
    times: Sequence[float], values: Sequence[float], level: float
) -> tuple[float, float, float]:
    """Return the median slope and its interval at confidence *level*.

    *times* are equally spaced.
    """
    ordered = slopes(times, values)
    count, wider = len(values), inflation(values, _MOST_IN_INTERVALS)
    # a few figures, even fewer if correlated, do not determine their own spread
    quantile = student_quantile(max(1, round(count / wider) - 2), level)
    reach = quantile * math.sqrt(_plain_variance(count) * wider)
    last = len(ordered) - 1
    low = ordered[max(0, math.floor((last - reach) / 2))]
    high = ordered[min(last, math.ceil((last + reach) / 2))]
    return median(ordered), low, high


def inflation(values: Sequence[float], most: float = _MOST_CORRELATION) -> float:
    """Return the factor by which correlated neighbours widen a variance.

    The correlation is capped at *most*: 0.5 is a factor of 3.
    """
    count = len(values)
    slope = median(slopes(range(count), values))
    rest = [value - slope * turn for turn, value in enumerate(values)]
    if max(rest) - min(rest) < _PLAIN * abs(slope) * (count - 1):
        return 1.0
    mean = sum(rest) / count
    rest = [value - mean for value in rest]
    power = sum(value * value for value in rest)
    if power <= 0:
        return 1.0
    lag = sum(one * after for one, after in pairwise(rest)) / power
    lag += (1 + 4 * lag) / count  # the lag of a short series is underestimated
    lag = min(max(lag, 0.0), most)
    return (1 + lag) / (1 - lag)


def _concordance(values: Sequence[float]) -> int:
    """Return the number of rising pairs minus that of falling pairs."""
    return sum(
        (values[later] > values[earlier]) - (values[later] < values[earlier])
        for later in range(len(values))
        for earlier in range(later)
    )


def _slope_variance(values: Sequence[float]) -> float:
    """Return the variance of the concordance of *values* in random order."""
    ties: dict[float, int] = {}
    for value in values:
        ties[value] = ties.get(value, 0) + 1
    tied = sum(_plain_variance(count) for count in ties.values() if count > 1)
    return _plain_variance(len(values)) - tied


def _plain_variance(count: int) -> float:
    return count * (count - 1) * (2 * count + 5) / 18
