"""One measured quantity against a size: its curve, upper bound and caveats.

`fit_curve` chooses a curve through the measured points. The margin above it comes from
the errors of past curves (conformal prediction). `sizes_that_fit` inverts it: the sizes
that fit in a given memory. `caveats` lists the reasons not to trust a single number.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal, TypeAlias

import msgspec

from weigh.estimate.curve import (
    SIZES_OF_QUADRATIC,
    ConstantCurve,
    Curve,
    InverseCurve,
    LinearCurve,
    MemoryFailure,
    PowerCurve,
    QuadraticCurve,
    SizePoint,
    apart,
    bend,
    bent_line,
    ends,
    fit_constant,
    fit_inverse,
    fit_line,
    fit_power,
    fit_quadratic,
    fit_square,
    half_slopes,
    size_text,
)
from weigh.units import count_with_noun

LEVEL = 0.95  # confidence of a bound, unless the user names another
# level and coefficient, from 69 curves of memory: see benchmarks/estimate
_START = ((0.5, 0.0), (0.8, 0.39), (0.9, 0.53), (0.95, 0.62), (0.99, 1.0))

# shares of what a memory's true curve may add to the line
_GAP, _MOST_GAP, _HEIGHT, _REACH, _CHANGE = 0.3, 0.05, 0.05, 0.05, 0.5


def margin_unit(points: Sequence[SizePoint], line: float, size: float) -> float:
    """Return the unit of the margin, in bytes, at *size*, where the line is *line*.

    It stands for the unknown fixed part of the memory (what proportion from the largest
    size would add), for what one measurement may be off, for the slope that is less
    certain the closer the sizes are to each other, and for a slope that changes.
    """
    last, xs = points[-1], [point.x for point in points]
    gap = max(0.0, last.y * size / last.x - line)
    mean = fmean(xs)
    # the standard error of a slope grows with the distance from the middle of the sizes
    spread = math.sqrt(sum((one - mean) ** 2 for one in xs))
    leverage = max(0.0, size - mean) / spread if spread else 0.0
    rise = last.y - min(point.y for point in points)
    lower, upper = half_slopes(points)
    change = abs(upper - lower) * max(0.0, size - last.x)
    return (
        _GAP * min(gap, rise * size / last.x)
        + _MOST_GAP * gap
        + _HEIGHT * last.y
        + _REACH * rise * leverage
        + _CHANGE * change
    )


def coefficient(level: float) -> float:
    """Return the coefficient of an upper bound at confidence *level*, such as 0.95.

    The table is interpolated linearly in the logarithm of the risk, and extrapolated.
    """
    if level <= _START[0][0]:
        return 0.0
    rows = [(-math.log(1 - at), value) for at, value in _START]
    place = -math.log(1 - level)
    # the last segment also serves levels above the table
    beyond = sum(low < place for low, _ in rows[1:-1])
    (low, below), (high, above) = rows[beyond], rows[beyond + 1]
    return below + (above - below) * (place - low) / (high - low)


# repeats of one run differ by this much (1 to 12 % was measured for memory)
_SAME = 0.02
_SAME_TIME = 0.1  # with one run per size: the first also reads files from disk
FEWEST_SIZES = 3  # of a line that is judged: one is left out, two are the line
_BETTER = 0.9  # one more coefficient must lower the error by a tenth
_RISE = 1.1  # from the smallest to the largest size: more than runs differ
_DIPS = 0.1  # of the rise: what may fall in between
_FOLDS = 10  # of many sizes: each left out in turn would take minutes
_SIZES_TO_SQUARE = 4  # a square has two coefficients, and is tried in the third size
# of four and five sizes: the error of a square at most, and as a share of a line's
_SQUARE, _PLAINER = 0.02, 0.1
_EXACT = 1e-6  # smaller errors are those of the arithmetic

Fitter = Callable[[Sequence[SizePoint]], Curve | None]


def choose_curve(points: Sequence[SizePoint], *, falling: bool = False) -> Curve:
    """Fit a constant, a line or, with six sizes, a parabola that bends upwards.

    *falling* quantities (times) may fall with the size, as ``a + b / x``. Memory that
    falls is taken as constant at its largest value.
    """
    ys = [point.y for point in points]
    once = falling and all(point.runs == 1 for point in points)
    spread = max(point.high - point.low for point in points)
    noise = max((_SAME_TIME if once else _SAME) * max(ys), spread)
    if len(points) == 1 or max(ys) - min(ys) <= noise:
        return fit_constant(points)
    if ys[-1] < ys[0] or fit_line(points).slope <= 0:
        return _fall(points) if falling else fit_constant(points)
    if len(points) < FEWEST_SIZES:
        return fit_line(points)
    best: Curve = fit_constant(points)
    # a clear rise is no constant, whatever its cross-validation shows
    error = math.inf if _rises(ys) else _left_out_error(points, fit_constant)
    fitters: list[Fitter] = [fit_line]
    if len(points) > SIZES_OF_QUADRATIC:  # as many when one is left out
        fitters += [fit_square, fit_quadratic]
    elif _is_square(points, _SQUARE, _PLAINER):
        fitters = [fit_square]
    for fitter in fitters:
        # no further coefficient is needed where nothing is left to explain
        curve, own = fitter(points), max(_EXACT, _left_out_error(points, fitter))
        if curve is not None and own < _BETTER * error:
            best, error = curve, own
    return best


def _is_square(points: Sequence[SizePoint], most: float, share: float) -> bool:
    """Return whether a square predicts each size left out, within *most*.

    Its error is at most *share* of a line's. The steps of an allocator bend a line,
    too: many real jobs look like a square in three sizes (at a larger size it is 43 %
    off, a line 13 %), in four only squares.
    """
    far = apart(points)
    if len(far) < _SIZES_TO_SQUARE:
        return False
    line_error = _left_out_error(far, fit_line)
    return _left_out_error(far, fit_square) <= min(most, share * line_error)


def _rises(ys: Sequence[float]) -> bool:
    """Return whether the values rise by far more than they fall in between.

    Then a line is taken even if it predicts none of the sizes well.
    """
    falls = sum(max(0.0, low - high) for low, high in pairwise(ys))
    return ys[-1] >= _RISE * ys[0] and falls <= _DIPS * (ys[-1] - ys[0])


def _fall(points: Sequence[SizePoint]) -> Curve:
    curve = fit_inverse(points)
    if curve.work <= 0:
        return fit_constant(points)
    if curve.floor <= 0:  # no fixed part: the line would fall below zero
        return type(curve)(0.0, max(point.x * point.y for point in points))
    return curve


def _left_out_error(points: Sequence[SizePoint], fitter: Fitter) -> float:
    """Return the mean relative error at sizes left out (10-fold cross-validation)."""
    folds = min(len(points), _FOLDS)
    errors = []
    for fold in range(folds):
        # every n-th point, so that each fold has small and large sizes
        made = fitter([p for i, p in enumerate(points) if i % folds != fold])
        if made is None:
            return float("inf")
        errors += [abs(made.at(p.x) - p.y) / p.y for p in points[fold::folds]]
    return fmean(errors)


Quantity: TypeAlias = Literal["memory", "gpu_memory", "time", "time_per_sample"]

_TIMES: frozenset[Quantity] = frozenset({"time", "time_per_sample"})
TRUSTED_RATIO = 4  # beyond so many times the largest size, no number is trusted
STEADY_BEND = 0.25  # a slope that changes by a larger share is not a line
_BENDS = 0.3  # share of a square's bend, above which a bound follows the parabola
_STEADY, _VARYING = 0.01, 0.08  # shares of a line, of a constant
# of times, from workflow tasks of public traces, the last two with all six in view: see
# docs/accuracy.md
_TIME_GAP, _TIME_GAP_OF_CONSTANT, _TIME_GROWTH = 0.65, 0.33, 0.2
_TIME, _TIME_FAR = 0.3, 0.45  # at the sizes, and what it adds beyond them
# share of the bend, towards proportionality, as allocators step; at most: of twice the
# largest batch the error is 5.9 % with it and 6.3 % without (benchmarks/estimate)
_LEAN = 0.3
_MOST_LEAN = 0.1
_NEAR = 1.25  # up to here the slope of the last two sizes predicts best
_SEGMENT = 2 << 20  # CUDA allocators hand out memory in segments of 2 MiB


class FittedCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve through the measured sizes.

    ``base`` is the memory held before the first batch (the model), None if it was not
    measured. ``failed`` is the smallest size that ran out of memory, ``failed_in`` the
    memory that was available. ``power`` is set if memory grows faster than the size.
    """

    quantity: Quantity  # decides the unit of all values: bytes or seconds
    points: tuple[SizePoint, ...]  # at least one, in order of size
    curve: Curve
    # between -1 and 1, see `curve.bend`; 0 unless the curve is a line
    bend: float = 0.0
    base: float | None = None  # bytes
    failed: float | None = None  # None: no size failed
    failed_in: int | None = None  # bytes; None: not known
    power: PowerCurve | None = None

    @property
    def largest_size(self) -> float:
        """Return the largest size measured."""
        return self.points[-1].x

    @property
    def runs(self) -> int:
        """Return the number of runs that were measured."""
        return sum(point.runs for point in self.points)

    def predict(self, size: float) -> float:
        """Return the prediction at size *size*: bytes or seconds.

        Beyond the largest size a line leans towards proportionality, by at most a
        tenth: the more its slopes disagree, the more it leans.
        """
        value = self.curve.at(size)
        if isinstance(self.curve, LinearCurve) and size > self.largest_size:
            lean = min(_MOST_LEAN, _LEAN * abs(self.bend))
            proportional = self.points[-1].y * size / self.largest_size
            value += lean * max(0.0, proportional - value)
        if self.power is not None and size < self.points[0].x:
            # the line would fall below what the model alone holds, and below zero
            smallest = max(0.0, self.curve.at(self.points[0].x))
            base = min(self.base or 0.0, smallest)
            value = base + (smallest - base) * size / self.points[0].x
        return max(0.0, value)

    def upper(self, size: float, level: float = LEVEL) -> float:
        """Return the upper bound of the use at size *size*, at confidence *level*.

        It is at least the prediction, and at least the measurements at *size* and
        smaller sizes.
        """
        return self.bound(size, coefficient(level))

    def bound(self, size: float, factor: float) -> float:
        """Return the bound at *size*, *factor* units of the margin above the curve."""
        curve = self.curve.at(size)
        margin = factor * self._margin_unit(size, curve)
        # never below the prediction, which the lean may have raised above the curve
        bounds = [self.predict(size), curve + margin]
        bounds.append(self._as_far_off(size, curve, factor))
        bounds += [point.high for point in self.points if self._is_less(point, size)]
        if size > self.largest_size:
            bounds += self._steeper(size)
        highest = max(bounds)
        if self.quantity == "gpu_memory":
            # a bound within a segment would reserve less than the allocator takes
            return float(math.ceil(highest / _SEGMENT) * _SEGMENT)
        return highest

    def _as_far_off(self, size: float, curve: float, factor: float) -> float:
        """Return the bound of a size that is as far off the curve as the worst one.

        Beyond the largest size a time is off by more.
        """
        misfit = max(point.high - self.curve.at(point.x) for point in self.points)
        if self._is_time:
            # a time is off by more beyond the sizes, about as the square root of the
            # distance
            misfit *= math.sqrt(max(1.0, size / self.largest_size))
            return curve + misfit + factor * self._margin_unit(size, curve)
        # memory is off by no more beyond the sizes: the margin covers growth there
        size = min(size, self.largest_size)
        curve = self.curve.at(size)
        return curve + misfit + factor * self._share * max(0.0, curve)

    def _is_less(self, point: SizePoint, size: float) -> bool:
        """Return whether size *size* takes at least as much as *point*."""
        if isinstance(self.curve, InverseCurve):
            return point.x >= size
        # a line through a curve falls too fast below the smallest size
        is_least = point is self.points[0] and not self._is_clear_line()
        return point.x <= size or is_least

    def _steeper(self, size: float) -> Iterator[float]:
        """Yield the needs of a faster growth beyond the largest size."""
        if self.power is not None:
            yield self.power.at(size)
        if isinstance(self.curve, LinearCurve):
            # the last point that is apart from the largest, or else the first
            last = self.points[-1]
            before = (self.points[:1] + tuple(apart(self.points)[:-1]))[-1]
            slope = (last.y - before.y) / (last.x - before.x)
            yield last.y + slope * (min(size, _NEAR * last.x) - last.x)
        if (
            isinstance(self.curve, LinearCurve)
            and not self._is_time
            and self._may_be_square()
        ):
            yield bent_line(self.points).at(size) * (1 + _STEADY)
            if _is_square(self.points, math.inf, 1.0):
                yield fit_square(self.points).at(size) * (1 + _STEADY)

    def _is_clear_line(self) -> bool:
        """Return whether three sizes or more show a line, and no faster growth."""
        is_line = isinstance(self.curve, LinearCurve) and self.power is None
        enough = len(apart(self.points)) >= FEWEST_SIZES
        return is_line and enough and not self._may_be_square()

    def _may_be_square(self) -> bool:
        """Return whether the line bends by a good part of what a square does."""
        if len(apart(self.points)) < FEWEST_SIZES:
            return False
        first, middle, last = ends(self.points)
        return self.bend > _BENDS * (last.x - first.x) / (middle.x + last.x)

    @property
    def _is_time(self) -> bool:
        return self.quantity in _TIMES

    def _margin_unit(self, size: float, curve: float) -> float:
        if self._is_time:
            return self._time_unit(size, max(0.0, curve))
        if isinstance(self.curve, LinearCurve | QuadraticCurve):
            return margin_unit(self.points, curve, size)
        return self._share * curve + self._unseen_growth(size, curve)

    def _unseen_growth(self, size: float, curve: float) -> float:
        """Return what a line would add, in units, where it was taken for noise."""
        if len(self.points) == 1 or size <= self.largest_size:
            return 0.0
        line = fit_line(self.points).at(size)
        return max(0.0, line - curve) + margin_unit(self.points, line, size)

    def _time_unit(self, size: float, curve: float) -> float:
        """Return the unit of a time: also a constant one may grow beyond the sizes."""
        last, gap = self.points[-1], 0.0
        if isinstance(self.curve, LinearCurve):
            gap = _TIME_GAP * (last.y * size / last.x - curve)
        elif isinstance(self.curve, ConstantCurve):
            gap = _TIME_GAP_OF_CONSTANT * curve * (size / last.x - 1)
        growth = _TIME_GROWTH * (curve - last.y)
        # the extra share grows from 0 at the largest size to all of it at _NEAR times
        # that
        beyond = max(0.0, size - last.x) / ((_NEAR - 1) * last.x)
        share = _TIME + _TIME_FAR * min(1.0, beyond)
        return max(0.0, gap) + max(0.0, growth) + share * curve

    @property
    def _share(self) -> float:
        varies = not isinstance(self.curve, LinearCurve | QuadraticCurve)
        return _VARYING if varies else _STEADY


def fit_curve(
    points: Sequence[SizePoint],
    quantity: Quantity,
    *,
    base: float | None = None,
    failure: MemoryFailure | None = None,
) -> FittedCurve:
    """Choose a curve through *points* (one or more, in order of size) and fit it."""
    curve = choose_curve(points, falling=quantity in _TIMES)
    bent = bend(points) if isinstance(curve, LinearCurve) else 0.0
    power = None
    # a line that starts below the model's own memory cannot be right near zero
    if isinstance(curve, LinearCurve) and curve.intercept < (base or 0.0):
        power = fit_power(points, base or 0.0)
    return FittedCurve(
        quantity=quantity,
        points=tuple(points),
        curve=curve,
        bend=bent,
        base=base,
        failed=failure.size if failure else None,
        failed_in=failure.room if failure else None,
        power=power,
    )


_CLOSE = 1.5  # the largest size over the smallest: below it a bend is not seen
_MOST_SWING = 0.15  # of what is called constant; memory of repeats differs by 12 %


def caveats(fitted_curve: FittedCurve, x: float | None = None) -> tuple[str, ...]:
    """Return reasons not to trust one number of *fitted_curve*, at size *x* if given.

    There is none where three or more sizes were measured, the slope is steady, and *x*
    is at most 4 times the largest size.
    """
    return tuple(_fit_caveats(fitted_curve, x))


def next_size(
    fitted_curve: FittedCurve, *, wanted: float | None = None, fits: float | None = None
) -> int:
    """Return the size to measure next: twice the largest, or half of *wanted*.

    It does not exceed *fits*, a size known to fit. After a failure it lies between the
    largest size that ran and the smallest that did not.
    """
    largest = fitted_curve.largest_size
    if fitted_curve.failed is not None and fitted_curve.failed > largest:
        # the middle on a scale of ratios: both ends may be off by a factor
        return _rounded_size(math.sqrt(largest * fitted_curve.failed))
    size = 2 * largest  # a size predicts its double well enough
    if wanted is not None and wanted > size:
        # half of a far target, so that its double is the target
        size = max(size, wanted / 2)
    elif wanted is not None and wanted > largest:
        size = wanted
    if fits is not None and largest < fits < size:
        size = fits
    return _rounded_size(size)


def _fit_caveats(fitted_curve: FittedCurve, x: float | None) -> Iterator[str]:
    sizes = len(fitted_curve.points)
    far = len(apart(fitted_curve.points))
    if far < min(sizes, FEWEST_SIZES):
        yield f"only {far} of the {sizes} sizes differ by 5 %: a bend takes three"
    elif sizes < FEWEST_SIZES:  # one or two sizes
        yield (
            f"only {count_with_noun(sizes, 'size')} measured: it takes three to see a "
            "bend"
        )
    if fitted_curve.power is not None:
        what = "time" if fitted_curve.quantity in _TIMES else "memory"
        yield (
            f"{what} grows faster than the size: a line would start below "
            f"{'what the model alone holds' if fitted_curve.base else 'zero'}"
        )
    elif abs(fitted_curve.bend) > STEADY_BEND and not isinstance(
        fitted_curve.curve, ConstantCurve
    ):
        way = "grows" if fitted_curve.bend > 0 else "falls"
        yield (
            f"the slope {way} by {abs(fitted_curve.bend) * 100:.0f} % along the sizes "
            "measured"
        )
    elif (
        isinstance(fitted_curve.curve, ConstantCurve)
        and _swing(fitted_curve.points) > _MOST_SWING
    ):
        share = 100 * _swing(fitted_curve.points)
        yield f"the values differ by {share:.0f} %, but do not follow the size"
    smallest, largest = fitted_curve.points[0].x, fitted_curve.largest_size
    # up to _NEAR times the largest size the last slope is trusted even then
    if sizes > 1 and largest < _CLOSE * smallest and (x or largest) > _NEAR * largest:
        yield (
            f"sizes from {size_text(smallest)} to {size_text(largest)} are too close "
            f"to each other for {size_text(x or largest)}"
        )
    if x is not None and x > TRUSTED_RATIO * fitted_curve.largest_size:
        ratio = x / fitted_curve.largest_size
        times = float(f"{ratio:.2g}")
        yield f"{size_text(x)} is {times:g} times the largest size measured"


def _swing(points: Sequence[SizePoint]) -> float:
    """Return by which share of the largest value those of the sizes differ."""
    ys = [point.y for point in points]
    return 1 - min(ys) / max(ys) if max(ys) > 0 else 0.0


def _rounded_size(size: float) -> int:
    """Round to two digits, as a person would choose a size; at least 1."""
    if size < 1:
        return 1
    # digits to the left of the point are rounded, those to the right are dropped
    digits = 1 - math.floor(math.log10(size))
    return max(1, int(round(size, min(0, digits))))


_AFTER_FAILURE = 0.9  # of a size that ran out of memory, by an unknown amount
_FARTHEST = 1 << 40  # no size is so large: beyond it memory does not depend on size


class FittingSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that fit in ``memory`` bytes.

    ``size`` is the largest whole size whose upper bound fits, None if not even size 1
    fits; ``at_most`` is the largest whose prediction fits. If ``why`` is not empty, the
    data support only the range between the two, and a measurement at ``next_size``
    would narrow it. ``unbounded`` means that memory does not grow with the size.
    """

    memory: int
    level: float  # confidence of the bound, between 0 and 1
    size: int | None
    at_most: int | None
    unbounded: bool = False
    why: tuple[str, ...] = ()
    next_size: int | None = None


def sizes_that_fit(
    fitted_curve: FittedCurve, memory: float, level: float = LEVEL
) -> FittingSizes:
    """Return the sizes that fit in *memory* according to *fitted_curve*."""
    flat = isinstance(fitted_curve.curve, ConstantCurve)
    size = _largest(fitted_curve, memory, level)
    most = _largest(fitted_curve, memory, None)
    # a constant needs no caveat for a size: it is the same at each
    far = most if most is not None and not flat else None
    why = caveats(fitted_curve, far)
    failed = _failed_within(fitted_curve, memory)
    if failed is not None and most is not None:
        most = min(most, math.ceil(failed) - 1)
        # between a size that ran and one that failed nothing is known: stay near the
        # former
        below = min(
            most, max(int(fitted_curve.largest_size), int(_AFTER_FAILURE * failed))
        )
        size = below if size is None else min(size, below)
        # a failure at size 1 leaves no size at all
        size, most = size if size > 0 else None, most if most > 0 else None
    return FittingSizes(
        memory=round(memory),
        level=level,
        size=size,
        at_most=most,
        unbounded=flat and size is not None and failed is None,
        why=why,
        next_size=next_size(fitted_curve, wanted=far, fits=size) if why else None,
    )


def _failed_within(fitted_curve: FittedCurve, memory: float) -> float | None:
    """Return the size that ran out of memory with at least *memory* available."""
    # it failed with less than that, which shows nothing about *memory*
    if fitted_curve.failed_in is not None and memory > fitted_curve.failed_in:
        return None
    return fitted_curve.failed


def _largest(
    fitted_curve: FittedCurve, memory: float, level: float | None
) -> int | None:
    """Return the largest whole size that fits at *level*; None: by its prediction."""

    def fits(size: float) -> bool:
        use = (
            fitted_curve.predict(size)
            if level is None
            else fitted_curve.upper(size, level)
        )
        return use <= memory

    if not fits(1):
        return None
    low, high = 1, 2
    # double until it no longer fits, then halve the interval
    while high < _FARTHEST and fits(high):
        low, high = high, high * 2
    if high >= _FARTHEST:
        return _FARTHEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
