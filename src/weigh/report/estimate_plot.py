"""Curves in a terminal: measured points, the fit, its bound; plain letters only."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from weigh.estimate.fit import Fit
from weigh.estimate.points import size_text
from weigh.report.columns import columns_of
from weigh.units import format_duration, format_size

_HEIGHT = 8
_MEASURED, _CURVE, _BOUND = "o", ".", "'"
_GAP = 2


def plots(
    fits: Sequence[tuple[str, Fit]], *, to: float, width: int, level: float
) -> Iterator[str]:
    """Draw the named *fits* from 0 to the size *to*, two side by side."""
    across = width if len(fits) == 1 else (width - _GAP) // 2
    drawn = [plot(fit, name, to=to, width=across, level=level) for name, fit in fits]
    nothing: list[str] = []
    for left, right in zip_longest(drawn[::2], drawn[1::2], fillvalue=nothing):
        for one, other in zip_longest(left, right, fillvalue=""):
            gap = " " * (across - columns_of(one) + _GAP)
            yield f"{one}{gap}{other}".rstrip()
    if fits:
        marks = f"{_MEASURED} measured   {_CURVE} fitted   {_BOUND} bound of"
        yield f"  {marks} {level * 100:.4g} %"


def plot(fit: Fit, title: str, *, to: float, width: int, level: float) -> list[str]:
    """Draw *fit* from 0 to the size *to* in *width* columns."""
    far = max(to, fit.largest_size)
    top = max(fit.upper(far, level), fit.upper(fit.points[0].x, level))
    sized = "memory" in fit.quantity
    label_of_top = format_size(round(top)) if sized else format_duration(top)
    margin = columns_of(label_of_top) + 2
    across = max(10, width - margin - 4)
    rows = _grid(fit, far, top, across, level)
    lines = [f"  {title}"]
    for number, row in enumerate(rows):
        label = {0: label_of_top, _HEIGHT - 1: "0"}.get(number, "")
        lines.append(f"  {label:>{margin - 1}} |{''.join(row)}".rstrip())
    lines.append(_axis(fit, far, margin, across))
    return lines


def _grid(
    fit: Fit, far: float, top: float, across: int, level: float
) -> list[list[str]]:
    rows = [[" "] * across for _ in range(_HEIGHT)]

    def put(x: float, y: float, mark: str) -> None:
        column = min(across - 1, round(x / far * (across - 1)))
        row = _HEIGHT - 1 - min(_HEIGHT - 1, max(0, round(y / top * (_HEIGHT - 1))))
        rows[row][column] = mark

    for column in range(across):
        x = far * max(column, 0.5) / (across - 1)
        if x >= fit.points[0].x:
            put(x, fit.upper(x, level), _BOUND)
            put(x, fit.predict(x), _CURVE)
    for point in fit.points:
        put(point.x, point.y, _MEASURED)
    return rows


def _axis(fit: Fit, far: float, margin: int, across: int) -> str:
    """Write the measured sizes under their places, where there is room."""
    line = [" "] * across
    free = 0
    for x in _marks(fit, far):
        text = size_text(x)
        at = min(across - len(text), round(x / far * (across - 1)))
        if at >= free:
            line[at : at + len(text)] = text
            free = at + len(text) + 1
    return " " * (margin + 3) + "".join(line).rstrip()


def _marks(fit: Fit, far: float) -> Iterator[float]:
    yield from (point.x for point in fit.points)
    if far > fit.largest_size:
        yield far
