"""Curves over a parameter: what was measured, the fit through it, and its bound."""

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from weigh.estimate.estimate import Estimate
from weigh.estimate.fit import Fit, Quantity
from weigh.estimate.samples import size_text
from weigh.render.html.words import Kind, figure, short
from weigh.render.printable import printable
from weigh.units import Bytes, format_brief

_FEW = 4
_STEPS = (1, 2, 5, 10)


def ticks(top: float, *, binary: bool, wanted: int = _FEW) -> tuple[float, ...]:
    """Return about *wanted* round numbers from 0 to *top*, which is above 0."""
    step = _step(top / wanted, binary=binary)
    return tuple(step * i for i in range(int(top / step) + 1))


def edges(low: float, high: float, *, binary: bool, wanted: int) -> tuple[float, ...]:
    """Return round edges of up to *wanted* + 1 bins that hold *low* to *high*."""
    step = _step((high - low) / wanted or high / wanted or 1.0, binary=binary)
    first = math.floor(low / step)
    last = max(first + 1, math.floor(high / step) + 1)
    return tuple(step * i for i in range(first, last + 1))


def _step(least: float, *, binary: bool) -> float:
    """Return the smallest round step that is at least *least*."""
    if binary:
        return 2.0 ** math.ceil(math.log2(max(least, 1.0)))
    power = 10.0 ** math.floor(math.log10(least))
    return next(_at_least(power, least))


def _at_least(power: float, least: float) -> Iterator[float]:
    for step in _STEPS:
        if step * power >= least:
            yield step * power
    yield 20 * power


WIDTH, HEIGHT = 440, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 12, 26
_CURVE_POINTS = 48
_Place: TypeAlias = tuple[float, float]
_TITLES: dict[Quantity, str] = {
    "gpu_memory": "GPU memory",
    "memory": "Memory",
    "time": "Time",
    "time_per_sample": "Time a sample",
}


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Curves to draw up to the target *to* (a quarter beyond the largest, if None).

    ``requested`` is the memory that is requested for it.
    """

    estimate: Estimate
    to: float | None = None
    level: float = 0.95
    requested: Bytes | None = None


class Dot(msgspec.Struct, frozen=True):
    """A measured point and its tooltip."""

    x: float
    y: float
    words: str


class Tick(msgspec.Struct, frozen=True):
    """A place on an axis."""

    at: float
    words: str


class CurveView(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity: paths to draw, and the same as rows of a table."""

    title: str
    words: str
    line: str
    band: str
    dots: tuple[Dot, ...]
    target: Dot | None
    requested: Tick | None
    failed: float | None
    failed_words: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    rows: tuple[tuple[str, str, str, str], ...]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    floor: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


class ScanView(msgspec.Struct, frozen=True, kw_only=True):
    """All curves over one parameter."""

    by: str
    level: str
    curves: tuple[CurveView, ...]
    notes: tuple[str, ...]


def scan_view(scan: Scan) -> ScanView:
    """Draw every quantity of an estimate that was measured."""
    made = scan.estimate
    fits = ((name, getattr(made, name)) for name in _TITLES)
    return ScanView(
        by=printable(made.by),
        level=f"{scan.level * 100:.4g} %",
        curves=tuple(_curve(fit, name, scan) for name, fit in fits if fit is not None),
        notes=tuple(printable(note) for note in made.notes),
    )


def _curve(fit: Fit, name: Quantity, scan: Scan) -> CurveView:
    far = max(1.25 * fit.largest_size if scan.to is None else scan.to, fit.largest_size)
    near = fit.points[0].x
    xs = [near + (far - near) * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
    expected = [fit.predict(x) for x in xs]
    bounds = [fit.upper(x, scan.level) for x in xs]
    requested = scan.requested if name == "memory" else None
    top = 1.05 * max(*bounds, *(point.high for point in fit.points), requested or 0)

    def place(x: float, y: float) -> _Place:
        across = _LEFT + x / far * (WIDTH - _LEFT - _RIGHT)
        up = HEIGHT - _BOTTOM - y / top * (HEIGHT - _TOP - _BOTTOM)
        return round(across, 1), round(up, 1)

    lower = [place(*pair) for pair in zip(xs, expected, strict=True)]
    upper = [place(*pair) for pair in zip(xs, bounds, strict=True)]
    sizes = ticks(far, binary=False, wanted=5)
    values = ticks(top, binary="memory" in name, wanted=5)
    failed = fit.failed if fit.failed is not None and fit.failed <= far else None
    return CurveView(
        title=_TITLES[name],
        words=_words(fit, name),
        line=_path(lower),
        band=_path([*upper, *reversed(lower)]) + "Z",
        dots=tuple(
            Dot(*place(p.x, p.y), f"{size_text(p.x)}: {_write(p.y, name)}")
            for p in fit.points
        ),
        target=_target(fit, name, scan, place),
        requested=None
        if requested is None
        else Tick(place(0, requested)[1], f"requested {_write(requested, name)}"),
        failed=None if failed is None else place(failed, 0)[0],
        failed_words="" if failed is None else f"{size_text(failed)} ran out of memory",
        x_ticks=tuple(Tick(place(x, 0)[0], size_text(x)) for x in sizes),
        y_ticks=tuple(Tick(place(0, y)[1], short(_write(y, name))) for y in values),
        rows=tuple(_rows(fit, name, far, scan.level)),
    )


def _target(
    fit: Fit, name: Quantity, scan: Scan, place: Callable[[float, float], _Place]
) -> Dot | None:
    """Return the bound at the target; None without one, and where it was measured."""
    if scan.to is None or scan.to <= fit.largest_size:
        return None
    bound = fit.upper(scan.to, scan.level)
    words = f"{size_text(scan.to)}: at most {_write(bound, name)}"
    return Dot(*place(scan.to, bound), words)


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _rows(
    fit: Fit, name: Quantity, far: float, level: float
) -> Iterator[tuple[str, str, str, str]]:
    """Return rows of size, measured, fitted and upper bound."""
    measured = {point.x: _write(point.y, name) for point in fit.points}
    for x in sorted({*measured, far}):
        yield (
            size_text(x),
            measured.get(x, "-"),
            _write(fit.predict(x), name),
            _write(fit.upper(x, level), name),
        )


def _words(fit: Fit, name: Quantity) -> str:
    first, last = fit.points[0], fit.points[-1]
    return (
        f"{_TITLES[name]}: {_write(first.y, name)} at {size_text(first.x)}, "
        f"{_write(last.y, name)} at {size_text(last.x)}, {len(fit.points)} sizes"
    )


def _write(value: float, name: Quantity) -> str:
    if name == "time_per_sample":
        return "0" if value == 0 else format_brief(value)
    kind: Kind = "time" if name == "time" else "size"
    return "0" if value == 0 else figure(value, kind)
