"""Measured points, one per size, and the curves that are fitted to them.

Straight lines are Theil-Sen lines, the median of the slopes of all pairs (Sen 1968):
one outlier (an allocator's step, a busy node) must not turn the line.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Literal, TypeAlias

import msgspec

from weigh.errors import UsageError
from weigh.robust import median_line
from weigh.units import Bytes

LARGEST_SIZE = 1e18  # larger figures would overflow a 64-bit integer
_MOST_SIZES = 100  # pairwise slopes grow with the square


class SizePoint(msgspec.Struct, frozen=True):
    """The measurement at one size, between ``low`` and ``high`` over its runs."""

    x: float  # the size
    # bytes or seconds: the largest run or the median, see `gather_size_points`
    y: float
    low: float
    high: float
    runs: int = 1


class MemoryFailure(msgspec.Struct, frozen=True):
    """The smallest size that ran out of memory; ``room`` is how much was available."""

    size: float
    room: Bytes | None = None  # None: not known


def gather_size_points(
    pairs: Iterable[tuple[float, float]], *, keep: Literal["most", "middle"]
) -> tuple[SizePoint, ...]:
    """Group runs of the same size, in order of size.

    *keep* is ``most`` for memory, because a request has to cover the largest run, and
    ``middle`` (the median) for times.

    Raises:
        UsageError: a size or a measurement is not finite and positive.
    """
    sizes: dict[float, list[float]] = {}
    for x, y in pairs:
        check_size(x)
        if not (math.isfinite(y) and y > 0):
            raise UsageError(f"size {x:g}: {y!r} cannot have been measured")
        sizes.setdefault(float(x), []).append(float(y))
    chosen = max if keep == "most" else median
    points = tuple(
        SizePoint(x=x, y=float(chosen(ys)), low=min(ys), high=max(ys), runs=len(ys))
        for x, ys in sorted(sizes.items())
    )
    return points if len(points) <= _MOST_SIZES else _thinned(points)


def check_size(size: float) -> float:
    """Return *size* unchanged.

    Raises:
        UsageError: *size* is not a number above 0, or too large.
    """
    if not 0 < size <= LARGEST_SIZE:
        raise UsageError(f"a size must be a number above 0, not {size!r}")
    return size


def size_text(size: float) -> str:
    """Format a size as a person writes it: ``300``, ``0.5``, never ``1e+06``."""
    return f"{size:.0f}" if float(size).is_integer() else f"{size:g}"


def _thinned(points: tuple[SizePoint, ...]) -> tuple[SizePoint, ...]:
    """Keep the ends and the point with the largest y of each stretch between them."""
    inner = points[1:-1]
    stretches = _MOST_SIZES - 2
    edges = [len(inner) * i // stretches for i in range(stretches + 1)]
    kept = (max(inner[a:b], key=lambda point: point.y) for a, b in pairwise(edges))
    return (points[0], *kept, points[-1])


class ConstantCurve(msgspec.Struct, frozen=True, tag="constant"):
    """The same value at every size: the largest measured."""

    value: float

    def at(self, _x: float) -> float:
        """Return the value."""
        return self.value


class LinearCurve(msgspec.Struct, frozen=True, tag="line"):
    """``intercept + slope * x``."""

    intercept: float
    slope: float

    def at(self, size: float) -> float:
        """Return the value at *size*."""
        return self.intercept + self.slope * size


class QuadraticCurve(msgspec.Struct, frozen=True, tag="quadratic"):
    """``intercept + slope * x + square * x**2``, rising over the measured sizes."""

    intercept: float
    slope: float
    square: float

    def at(self, size: float) -> float:
        """Return the value at *size*; left of the minimum, the minimum."""
        if self.square > 0:
            size = max(size, -self.slope / (2 * self.square))
        return self.intercept + (self.slope + self.square * size) * size


class InverseCurve(msgspec.Struct, frozen=True, tag="inverse"):
    """``floor + work / x``: a time that falls as batches grow."""

    floor: float
    work: float

    def at(self, size: float) -> float:
        """Return the value at *size*."""
        return self.floor + self.work / size


class PowerCurve(msgspec.Struct, frozen=True, tag="power"):
    """``base + factor * x**exponent``."""

    base: float
    factor: float
    exponent: float

    def at(self, size: float) -> float:
        """Return the value at *size*."""
        return self.base + self.factor * math.pow(size, self.exponent)


Curve: TypeAlias = (
    ConstantCurve | LinearCurve | QuadraticCurve | InverseCurve | PowerCurve
)


def fit_constant(points: Sequence[SizePoint]) -> ConstantCurve:
    """Return the largest value as a constant."""
    return ConstantCurve(max(point.y for point in points))


def fit_line(points: Sequence[SizePoint]) -> LinearCurve:
    """Fit a Theil-Sen line; it takes two sizes."""
    return LinearCurve(*median_line([p.x for p in points], [p.y for p in points]))


def fit_inverse(points: Sequence[SizePoint]) -> InverseCurve:
    """Fit a Theil-Sen line in ``1 / x``; it takes two sizes."""
    # the order of sizes turns around with 1 / x
    turned = [msgspec.structs.replace(p, x=1 / p.x) for p in reversed(points)]
    line = fit_line(turned)
    return InverseCurve(line.intercept, line.slope)


def fit_power(points: Sequence[SizePoint], base: float = 0.0) -> PowerCurve | None:
    """Fit a straight line in logarithms above *base*; None where there is none.

    The exponent is at most 3: two close sizes may suggest more, but no batch grows so.
    """
    if any(point.y <= base for point in points):
        return None
    logs = [
        msgspec.structs.replace(p, x=math.log(p.x), y=math.log(p.y - base))
        for p in points
    ]
    line = fit_line(logs)
    try:
        factor = math.exp(line.intercept)
    except OverflowError:  # falls so steeply that no power is meant
        return None
    if line.slope <= _STEEPEST:
        return PowerCurve(base, factor, line.slope)
    last = points[-1]
    return PowerCurve(base, (last.y - base) / last.x**_STEEPEST, _STEEPEST)


def fit_square(points: Sequence[SizePoint]) -> QuadraticCurve:
    """Fit a Theil-Sen line in the square of the size; it takes two sizes."""
    line = fit_line([msgspec.structs.replace(p, x=p.x**2) for p in points])
    return QuadraticCurve(line.intercept, 0.0, max(0.0, line.slope))


def fit_quadratic(points: Sequence[SizePoint]) -> QuadraticCurve | None:
    """Fit a parabola by least relative squares; None unless it bends upwards.

    It takes five sizes: with fewer it follows steps of the allocator (22 % off at
    twice the largest size, where a line is 6 % off).
    """
    if len(points) < SIZES_OF_QUADRATIC:
        return None
    # sizes are scaled to 1: the test for a unique solution is an absolute number
    scale, height = points[-1].x, points[-1].y
    rows = [(1.0, p.x / scale, (p.x / scale) ** 2) for p in points]
    weights = [height / p.y for p in points]
    found = _least_squares(rows, [p.y for p in points], weights)
    if found is None:
        return None
    a, b, c = found[0], found[1] / scale, found[2] / scale**2
    rising = b + 2 * c * points[0].x >= 0
    return QuadraticCurve(a, b, c) if c >= 0 and rising else None


def apart(points: Sequence[SizePoint]) -> list[SizePoint]:
    """Return the points without those that are almost of the next larger one's size.

    Between two sizes 4 % apart, runs that differ by 2 % make any slope.
    """
    kept = [points[-1]]
    for point in reversed(points[:-1]):
        if point.x * _APART <= kept[-1].x:
            kept.append(point)
    return kept[::-1]


def half_slopes(points: Sequence[SizePoint]) -> tuple[float, float]:
    """Return the slopes of the lower and of the upper half; 0 of one point.

    Sizes that are almost the same count as one.
    """
    points = apart(points)
    if len(points) <= 2:  # noqa: PLR2004 - one slope only
        slope = fit_line(points).slope if len(points) > 1 else 0.0
        return slope, slope
    # the middle point belongs to both halves, so three points have two slopes
    middle = (len(points) - 1) // 2
    return fit_line(points[: middle + 1]).slope, fit_line(points[middle:]).slope


def bend(points: Sequence[SizePoint]) -> float:
    """Return how much the slope changes along the points, between -1 and 1.

    That is the slope of the upper half minus that of the lower half, as a share of the
    steeper one: positive if growth accelerates, 0 with fewer than three sizes.
    """
    lower, upper = half_slopes(points)
    steeper = max(abs(lower), abs(upper))
    if steeper == 0:
        return 0.0
    return max(-1.0, min(1.0, (upper - lower) / steeper))


def ends(points: Sequence[SizePoint]) -> tuple[SizePoint, SizePoint, SizePoint]:
    """Return the smallest, the middle and the largest of the points that are apart."""
    points = apart(points)
    return points[0], points[(len(points) - 1) // 2], points[-1]


def bent_line(points: Sequence[SizePoint]) -> QuadraticCurve:
    """Return the curve through the ends of the points, bent as their halves are.

    Through three points it is exact.
    """
    lower, upper = half_slopes(points)
    first, middle, last = ends(points)
    # the slope of a chord is the parabola's at its middle: from one half to the other
    square = (upper - lower) / (last.x - first.x)
    slope = upper - square * (middle.x + last.x)
    return QuadraticCurve(last.y - (slope + square * last.x) * last.x, slope, square)


SIZES_OF_QUADRATIC = 5  # see fit_quadratic
_APART = 1.05  # sizes closer than that make no slope
_STEEPEST = 3.0  # largest exponent


def _least_squares(
    rows: Sequence[Sequence[float]], ys: Sequence[float], weights: Sequence[float]
) -> list[float] | None:
    """Solve the weighted normal equations; None without a unique solution."""
    weighted = [
        ([value * w for value in row], y * w)
        for row, y, w in zip(rows, ys, weights, strict=True)
    ]
    order = len(rows[0])
    matrix = [
        [fmean(r[i] * r[j] for r, _ in weighted) for j in range(order)]
        + [fmean(r[i] * y for r, y in weighted)]
        for i in range(order)
    ]
    return _eliminate(matrix)


def _eliminate(matrix: list[list[float]]) -> list[float] | None:
    order = len(matrix)
    for i in range(order):
        # the largest pivot keeps the division stable
        pivot = max(range(i, order), key=lambda row: abs(matrix[row][i]))
        if abs(matrix[pivot][i]) < 1e-12:  # noqa: PLR2004 - the columns depend on each other
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for row in range(order):
            if row != i:
                share = matrix[row][i] / matrix[i][i]
                matrix[row] = [
                    value - share * own
                    for value, own in zip(matrix[row], matrix[i], strict=True)
                ]
    return [matrix[i][order] / matrix[i][i] for i in range(order)]
