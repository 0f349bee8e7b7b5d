"""Curves over a parameter: what was measured, the fit through it, and its bound."""

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from weigh.estimate.estimate import SizeEstimate
from weigh.estimate.fit import FittedCurve, Quantity
from weigh.estimate.samples import size_text
from weigh.render.html.words import figure_text, without_trailing_zeros
from weigh.units import format_brief

LEVEL = 0.95  # of the bound that is drawn


def round_ticks(top: float, *, binary: bool, wanted: int = 5) -> tuple[float, ...]:
    """Return about *wanted* round numbers from 0 to *top*, which is above 0."""
    step = round_step(top / wanted, binary=binary)
    return tuple(step * i for i in range(int(top / step) + 1))


def round_step(smallest_step: float, *, binary: bool) -> float:
    """Return the smallest round step that is at least *smallest_step*."""
    if binary:
        # sizes have powers of two for round numbers
        return 2.0 ** math.ceil(math.log2(max(smallest_step, 1.0)))
    power = 10.0 ** math.floor(math.log10(smallest_step))
    # 20: rounding can make even 10 times the power too small
    return power * next((n for n in (1, 2, 5, 10) if n * power >= smallest_step), 20)


LEFT, RIGHT, TOP, FLOOR = 66, 428, 12, 214  # of the picture's 440 x 240 points
_CURVE_POINTS = 48  # points of a path
_Place: TypeAlias = Callable[[float, float], tuple[float, float]]
_Mark: TypeAlias = tuple[float, str]  # where on an axis, and its words
_TITLES: dict[Quantity, str] = {
    "gpu_memory": "GPU memory",
    "memory": "Memory",
    "time": "Time",
    "time_per_sample": "Time a sample",
}


class CurveView(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity: paths to draw, and the same as rows of a table.

    A dot is a measured point: its place, and its tooltip.
    """

    title: str
    words: str  # for readers who do not see the picture
    line: str  # path of the fit
    band: str  # path around the fit and its bound
    dots: tuple[tuple[tuple[float, float], str], ...]
    failed: _Mark | None  # None: no size ran out of memory within the picture
    x_ticks: tuple[_Mark, ...]
    y_ticks: tuple[_Mark, ...]
    rows: tuple[tuple[str, str, str, str], ...]  # size, measured, fitted, bound


def curve_views(curves: SizeEstimate) -> tuple[CurveView, ...]:
    """Draw every quantity of an estimate that was measured."""
    fits = ((name, getattr(curves, name)) for name in _TITLES)
    return tuple(_curve_view(fit, name) for name, fit in fits if fit is not None)


def _curve_view(fitted_curve: FittedCurve, quantity_name: Quantity) -> CurveView:
    # a quarter beyond the largest size; below the smallest there is no support
    near, far = fitted_curve.points[0].x, 1.25 * fitted_curve.largest_size
    xs = [near + (far - near) * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
    bounds = [fitted_curve.upper(x, LEVEL) for x in xs]
    # some room above the highest bound
    top = 1.05 * max(*bounds, *(point.high for point in fitted_curve.points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / far * (RIGHT - LEFT)
        return round(across, 1), round(FLOOR - y / top * (FLOOR - TOP), 1)

    lower = [place(x, fitted_curve.predict(x)) for x in xs]
    upper = [place(*pair) for pair in zip(xs, bounds, strict=True)]
    sizes = round_ticks(far, binary=False)
    values = round_ticks(top, binary="memory" in quantity_name)
    return CurveView(
        title=_TITLES[quantity_name],
        words=_curve_words(fitted_curve, quantity_name),
        line=_curve_path(lower),
        # along the bound and back along the fit: the area between them
        band=_curve_path([*upper, *reversed(lower)]) + "Z",
        dots=tuple(
            (place(p.x, p.y), f"{size_text(p.x)}: {_quantity_text(p.y, quantity_name)}")
            for p in fitted_curve.points
        ),
        failed=_failed_mark(fitted_curve, far, place),
        x_ticks=tuple((place(x, 0)[0], size_text(x)) for x in sizes),
        y_ticks=tuple(
            (place(0, y)[1], without_trailing_zeros(_quantity_text(y, quantity_name)))
            for y in values
        ),
        rows=tuple(_curve_rows(fitted_curve, quantity_name, far)),
    )


def _failed_mark(
    fitted_curve: FittedCurve, axis_end: float, place: _Place
) -> _Mark | None:
    """Return where the smallest size ran out of memory, if it is in the picture."""
    # beyond the axis it would be drawn outside of the picture
    if fitted_curve.failed is None or fitted_curve.failed > axis_end:
        return None
    return place(fitted_curve.failed, 0)[
        0
    ], f"{size_text(fitted_curve.failed)} ran out of memory"


def _curve_path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _curve_rows(
    fitted_curve: FittedCurve, quantity_name: Quantity, axis_end: float
) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows of size, measured, fitted and upper bound."""
    measured = {
        point.x: _quantity_text(point.y, quantity_name) for point in fitted_curve.points
    }
    for x in sorted({*measured, axis_end}):
        fitted, bound = fitted_curve.predict(x), fitted_curve.upper(x, LEVEL)
        yield (
            size_text(x),
            measured.get(x, "-"),
            _quantity_text(fitted, quantity_name),
            _quantity_text(bound, quantity_name),
        )


def _curve_words(fitted_curve: FittedCurve, quantity_name: Quantity) -> str:
    first, last = fitted_curve.points[0], fitted_curve.points[-1]
    return (
        f"{_TITLES[quantity_name]}: {_quantity_text(first.y, quantity_name)} at "
        f"{size_text(first.x)}, "
        f"{_quantity_text(last.y, quantity_name)} at {size_text(last.x)}, "
        f"{len(fitted_curve.points)} sizes"
    )


def _quantity_text(value: float, quantity_name: Quantity) -> str:
    if value == 0:
        return "0"
    if quantity_name == "time_per_sample":
        return format_brief(value)
    return figure_text(value, "time" if quantity_name == "time" else "size")
