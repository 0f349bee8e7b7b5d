"""One measured quantity against a size: the curve, its bound, and what to doubt."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

import msgspec

from weigh.estimate.curve import (
    Curve,
    Inverse,
    Line,
    Power,
    Quadratic,
    bend,
    fit_constant,
    fit_inverse,
    fit_line,
    fit_power,
    fit_quadratic,
)
from weigh.estimate.samples import Failure, Point

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


# the same run differs by this much from time to time (1 to 12 % was seen for memory)
_SAME = 0.02
_SAME_TIME = 0.1  # of one run each: the first also reads the files from disk
_BETTER = 0.9  # a curve with one more coefficient has to earn it
_SIZES_TO_LEAVE_OUT = 3
_FOLDS = 10
_SIZES_FOR_SQUARES = 6  # five are left when one is left out

Fitter = Callable[[Sequence[Point]], Curve | None]


def choose(points: Sequence[Point], *, falling: bool = False) -> Curve:
    """Fit a constant, a line or, with six sizes, a parabola that bends upwards.

    *falling* quantities (times) may come down with the size, as ``a + b / x``; memory
    that comes down is held constant at the most that was seen.
    """
    ys = [point.y for point in points]
    once = falling and all(point.runs == 1 for point in points)
    noise = max((_SAME_TIME if once else _SAME) * max(ys), _spread(points))
    if len(points) == 1 or max(ys) - min(ys) <= noise:
        return fit_constant(points)
    if ys[-1] < ys[0] or fit_line(points).slope <= 0:
        return _fall(points) if falling else fit_constant(points)
    if len(points) < _SIZES_TO_LEAVE_OUT:
        return fit_line(points)
    best: Curve = fit_constant(points)
    error = _left_out(points, fit_constant)
    for fitter in _candidates(points):
        curve, own = fitter(points), _left_out(points, fitter)
        if curve is not None and own < _BETTER * error:
            best, error = curve, own
    return best


def _candidates(points: Sequence[Point]) -> list[Fitter]:
    squares = len(points) >= _SIZES_FOR_SQUARES
    return [fit_line, fit_quadratic] if squares else [fit_line]


def _fall(points: Sequence[Point]) -> Curve:
    curve = fit_inverse(points)
    if curve.work <= 0:
        return fit_constant(points)
    if curve.floor <= 0:  # nothing but work: it would end below zero
        return type(curve)(0.0, max(point.x * point.y for point in points))
    return curve


def _spread(points: Sequence[Point]) -> float:
    """Return by how much runs of one size differ, where sizes were repeated."""
    return max(point.high - point.low for point in points)


def _left_out(points: Sequence[Point], fitter: Fitter) -> float:
    """Return the mean relative error at sizes left out, one or one in ten at a time."""
    folds = min(len(points), _FOLDS)
    errors = []
    for fold in range(folds):
        made = fitter([p for i, p in enumerate(points) if i % folds != fold])
        if made is None:
            return float("inf")
        errors += [abs(made.at(p.x) - p.y) / p.y for p in points[fold::folds]]
    return fmean(errors)


Quantity: TypeAlias = Literal["memory", "gpu_memory", "time", "time_per_sample"]

TRUSTED_RATIO = 4  # beyond so many times the largest size, no number
STEADY_BEND = 0.25  # a slope that changes by more than this share is no line
FEWEST_SIZES = 3
_LEAN = 0.3  # of the bend, towards proportion: steps of the allocator
_MOST_LEAN = 0.1
_HALF = 1.9  # sizes are rounded: 100 and 190 are a double too
_NEAR = 1.25  # so close to the largest size the last two know best
_SEGMENT = 2 << 20  # CUDA allocators hand out memory in segments of 2 MiB


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A curve through the sizes measured.

    ``base`` is what is held before the first batch (the model), None where it was not
    measured. ``failed`` is the smallest size that ran out of memory, ``failed_in`` how
    much there was. ``scores`` are those of the user's own past curves (see ``margin``).
    ``power`` is set where memory grows faster than the size.
    """

    quantity: Quantity
    points: tuple[Point, ...]
    curve: Curve
    bend: float = 0.0
    base: float | None = None
    failed: float | None = None
    failed_in: int | None = None
    power: Power | None = None
    scores: tuple[float, ...] = ()

    @property
    def largest_size(self) -> float:
        """Return the largest size measured."""
        return self.points[-1].x

    @property
    def runs(self) -> int:
        """Return how many runs it rests on."""
        return sum(point.runs for point in self.points)

    def predict(self, x: float) -> float:
        """Return what to expect at size *x*: bytes or seconds.

        Beyond the largest size a line leans towards proportion, the more its slopes
        disagree and by a tenth at most.
        """
        value = self.curve.at(x)
        if isinstance(self.curve, Line) and x > self.largest_size:
            lean = min(_MOST_LEAN, _LEAN * abs(self.bend))
            value += lean * max(0.0, self._proportional(x) - value)
        return max(0.0, value)

    def upper(self, x: float, level: float = 0.95) -> float:
        """Return a bound that the use at size *x* stays below with *level*.

        Never below ``predict``, nor below what was measured at *x* or a lesser size.
        """
        return self.bound(x, coefficient(level, self.scores))

    def bound(self, x: float, factor: float) -> float:
        """Return the bound at *x* that is *factor* doubts above the curve."""
        curve = self.curve.at(x)
        bounds = [self.predict(x), curve + factor * self._doubt(x, curve)]
        bounds.append(self._between(min(x, self.largest_size), factor))
        bounds += [point.high for point in self.points if self._is_less(point, x)]
        if x > self.largest_size:
            bounds += self._steeper(x)
        highest = max(bounds)
        if self.quantity == "gpu_memory":
            return float(math.ceil(highest / _SEGMENT) * _SEGMENT)
        return highest

    def _between(self, x: float, factor: float) -> float:
        """Return the bound among the sizes measured: as far off as one of them was."""
        curve = self.curve.at(x)
        misfit = max(point.high - self.curve.at(point.x) for point in self.points)
        return curve + misfit + factor * self._share() * max(0.0, curve)

    def _is_less(self, point: Point, x: float) -> bool:
        """Tell whether what was measured there is no more than what *x* takes."""
        if isinstance(self.curve, Inverse):
            return point.x >= x
        return point.x <= x

    def _steeper(self, x: float) -> Iterator[float]:
        """Give what a faster growth would need beyond the largest size."""
        if self.power is not None:
            yield self.power.at(x)
        if isinstance(self.curve, Line):
            before, last = self.points[-2:]
            slope = (last.y - before.y) / (last.x - before.x)
            yield last.y + slope * (min(x, _NEAR * last.x) - last.x)

    def _doubt(self, x: float, curve: float) -> float:
        return doubt(
            curve,
            proportional=self._proportional(x),
            largest=self.points[-1].y,
            share=self._share(),
        )

    def _share(self) -> float:
        timed = self.quantity in {"time", "time_per_sample"}
        varying = timed or not isinstance(self.curve, Line | Quadratic)
        return VARYING if varying else STEADY

    def _proportional(self, x: float) -> float:
        if not isinstance(self.curve, Line):
            return 0.0
        return self.points[-1].y * x / self.largest_size


def fit(
    points: Sequence[Point],
    quantity: Quantity,
    *,
    base: float | None = None,
    failure: Failure | None = None,
    scores: Sequence[float] = (),
) -> Fit:
    """Choose a curve through *points* (in order of size, one at least) and fit it."""
    curve = choose(points, falling=quantity in {"time", "time_per_sample"})
    bent = bend(points) if isinstance(curve, Line) else 0.0
    power = None
    if isinstance(curve, Line) and curve.intercept < (base or 0.0):
        power = fit_power(points, base or 0.0)
    return Fit(
        quantity=quantity,
        points=tuple(points),
        curve=curve,
        bend=bent,
        base=base,
        failed=failure.size if failure else None,
        failed_in=failure.room if failure else None,
        power=power,
        scores=tuple(scores),
    )


def backtest(points: Sequence[Point]) -> tuple[float, ...]:
    """Score the curve's own past: a size foretold from three or more up to its half.

    The largest size first, then the largest of at most half of it, and so on.
    """
    scores: list[float] = []
    held = points[-1]
    while True:
        known = [point for point in points if point.x <= held.x / _HALF]
        if len(known) < FEWEST_SIZES:
            return tuple(scores)
        scores += _score(fit(known, "memory"), held)
        held = known[-1]


def _score(made: Fit, held: Point) -> list[float]:
    """Return how many doubts above its line *held* lies; nothing without a line."""
    if not isinstance(made.curve, Line):
        return []
    line, last = made.curve.at(held.x), made.points[-1]
    unit = doubt(line, proportional=last.y * held.x / last.x, largest=last.y)
    return [(held.y - line) / unit] if unit > 0 else []
