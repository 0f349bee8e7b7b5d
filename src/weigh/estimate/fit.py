"""One measured quantity against a size: the curve, its bound, and what to doubt."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from weigh.estimate.choice import choose
from weigh.estimate.curve import Curve, Inverse, Line, Power, Quadratic, bend, fit_power
from weigh.estimate.margin import STEADY, VARYING, coefficient, doubt
from weigh.estimate.points import Failure, Point

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
