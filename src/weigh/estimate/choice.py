"""Which curve: the one that foretells best a size left out, the simplest of equals."""

from collections.abc import Callable, Sequence
from statistics import fmean

from weigh.estimate.curve import (
    Curve,
    fit_constant,
    fit_inverse,
    fit_line,
    fit_quadratic,
)
from weigh.estimate.points import Point

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
