"""Statistics of a few noisy figures: ratios of means, robust lines, tests of a rise.

Pure Python, because ``weigh run`` uses it: importing numpy would take longer than the
computation.

Sources: P. K. Sen, JASA 63 (1968) 1379-1389, for the slope and its interval;
M. G. Kendall, Rank Correlation Methods, 4th ed., for the variance with ties; S. Yue
and C. Wang, Water Resources Management 18 (2004) 201-218, for the inflation of that
variance by the autocorrelation of the detrended series.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise


def ratio_interval(
    base: Sequence[float], other: Sequence[float]
) -> tuple[float, float] | None:
    """Return the 95 % interval of the ratio of *other* to *base*: Welch's, of logs.

    All figures are above zero. A single run is assumed to vary as those on the other
    side do; None if both are single.
    """
    counts = len(base), len(other)
    if max(counts) == 1:
        return None
    logs = [[math.log(value) for value in values] for values in (base, other)]
    means = [sum(values) / len(values) for values in logs]
    squares = [
        sum((value - mean) ** 2 for value in values)
        for values, mean in zip(logs, means, strict=True)
    ]
    freedoms = [count - 1 for count in counts]
    # one side is a single run: its variance is taken from the other side
    if min(counts) == 1:
        variance = sum(squares) / max(freedoms)
        error, freedom = sum(variance / count for count in counts), max(freedoms)
    else:
        errors = [s / f / n for s, f, n in zip(squares, freedoms, counts, strict=True)]
        error = sum(errors)
        each = sum(one**2 / f for one, f in zip(errors, freedoms, strict=True))
        # Welch and Satterthwaite's; the small term keeps 4.0 from becoming 3
        freedom = math.floor(error**2 / each + 1e-9) if each > 0 else 1
    reach = student_quantile(freedom) * math.sqrt(error)
    difference = means[1] - means[0]
    return math.exp(difference - reach), math.exp(difference + reach)


_STUDENT = """
    12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228
    2.201 2.179 2.160 2.145 2.131 2.120 2.110 2.101 2.093 2.086
    2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042
"""


def student_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's distribution."""
    quantiles = [float(word) for word in _STUDENT.split()]
    if freedom <= len(quantiles):
        return quantiles[max(freedom, 1) - 1]
    return 1.96 + 2.46 / freedom  # off by less than a thousandth


_MOST_CORRELATION = 0.5  # a curve's own bend looks like correlation, too
_MOST_IN_INTERVALS = 0.75  # an interval covers that bend, too
_PLAIN = 0.25  # of the rise: smaller residuals are not correlated noise
_FEWEST_POINTS = 4  # of three values in random order one in six only rises


def pair_slopes(xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """Return the slopes between all pairs of points of different *xs*, in order."""
    return sorted(
        (ys[later] - ys[earlier]) / (xs[later] - xs[earlier])
        for later in range(len(xs))
        for earlier in range(later)
        if xs[later] != xs[earlier]
    )


def lower_median(ordered: Sequence[float]) -> float:
    """Return the median of ordered values, the lower of two; 0 without values."""
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def median_of(values: Iterable[float]) -> float:
    """Return the median of *values*, the mean of two; 0 without values.

    The standard library's costs `weigh run` 15 ms of imports.
    """
    ordered = sorted(values)
    return (lower_median(ordered) + lower_median(ordered[::-1])) / 2


def median_line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return the intercept and the slope of the Theil-Sen line (Sen 1968)."""
    slope = median_of(pair_slopes(xs, ys))
    return median_of(y - slope * x for x, y in zip(xs, ys, strict=True)), slope


def rise_score(values: Sequence[float]) -> float:
    """Return the Mann-Kendall score of equally spaced *values*: how surely they rise.

    It is standard normal for values in random order, corrected for correlated
    neighbours; one flat series in a hundred reaches 2.33.
    """
    if len(values) < _FEWEST_POINTS:
        return 0.0
    sign = concordance(values)
    variance = _slope_variance(values) * inflation(values)
    if not sign or variance <= 0:
        return 0.0
    # the count is moved by one towards zero: it changes in steps of two
    return (sign - math.copysign(1, sign)) / math.sqrt(variance)


def slope_interval(
    times: Sequence[float], values: Sequence[float]
) -> tuple[float, float, float]:
    """Return the median slope and its 95 % interval.

    *times* are equally spaced.
    """
    ordered = pair_slopes(times, values)
    count, wider = len(values), inflation(values, _MOST_IN_INTERVALS)
    # a few figures, even fewer if correlated, do not determine their own spread
    quantile = student_quantile(round(count / wider) - 2)
    reach = quantile * math.sqrt(concordance_variance(count) * wider)
    last = len(ordered) - 1
    low = ordered[max(0, math.floor((last - reach) / 2))]
    high = ordered[min(last, math.ceil((last + reach) / 2))]
    return median_of(ordered), low, high


def inflation(values: Sequence[float], most: float = _MOST_CORRELATION) -> float:
    """Return the factor by which correlated neighbours widen a variance.

    The correlation is capped at *most*: 0.5 is a factor of 3.
    """
    count = len(values)
    slope = median_of(pair_slopes(range(count), values))
    rest = [value - slope * turn for turn, value in enumerate(values)]
    # small against the rise: that is the bend of a curve, not noise
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


def concordance(values: Sequence[float]) -> int:
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
    tied = sum(concordance_variance(count) for count in ties.values() if count > 1)
    return concordance_variance(len(values)) - tied


def concordance_variance(count: int) -> float:
    """Return the variance of the concordance of *count* values in random order."""
    return count * (count - 1) * (2 * count + 5) / 18
