"""Curves of a run in a terminal: blocks, what was asked for, phases below."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from weigh.model.report import Report
from weigh.report.columns import columns_of, shortened
from weigh.report.html.series_data import Chart, RunSeries, run_series
from weigh.report.html.words import figure
from weigh.report.printable import printable
from weigh.units import format_duration

WIDTH = 80
_HEIGHT = 6
_MARGIN = 12  # the indent, a figure such as `1023 MiB`, a space and the axis
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = " ..::::##"
_EIGHTHS = 8
_OFF_SCALE = 4  # an asked line beyond so many peaks is said, not drawn
_NARROWEST_NAME = 3
_TICKS = 4


def plot_lines(
    report: Report, *, width: int = WIDTH, is_ascii: bool = False
) -> Iterator[str]:
    """Draw the curves of each run in *report* that has any, in *width* columns."""
    blocks = _LETTERS if is_ascii else _BLOCKS
    for record in report.records:
        drawn = run_series(record, report.measures)
        if not drawn.charts:
            continue
        words = printable(f"{record.label or ''} {record.id}".strip())
        yield shortened(f"{words}, {format_duration(drawn.t[-1])}", width)
        for chart in drawn.charts:
            yield from _chart(drawn, chart, width, blocks)
        yield from _lanes(drawn, width)


def has_curves(report: Report) -> bool:
    """Tell whether there is anything to draw."""
    return any(run_series(record).charts for record in report.records)


def _chart(drawn: RunSeries, chart: Chart, width: int, blocks: str) -> Iterator[str]:
    across = width - _MARGIN
    columns = _columns(drawn.t, chart.values, across)
    peak = max(columns) or 1.0
    levels = [level for level in chart.levels if level.value <= _OFF_SCALE * peak]
    top = max(peak, *(level.value for level in levels), 0.0)
    said = [
        f"{level.words} {figure(level.value, chart.kind)}" for level in chart.levels
    ]
    title = f"  {chart.name}, at most {', '.join([figure(peak, chart.kind), *said])}"
    yield shortened(title, width)
    asked = {_row_of(level.value, top) for level in levels}
    labels = {0: figure(top, chart.kind), _HEIGHT - 1: "0"}
    for row in range(_HEIGHT):
        floor = (_HEIGHT - 1 - row) * _EIGHTHS
        filled = (round(value / top * _HEIGHT * _EIGHTHS) - floor for value in columns)
        cells = [blocks[min(_EIGHTHS, max(0, eighths))] for eighths in filled]
        if row in asked:
            cells = ["-" if cell == " " else cell for cell in cells]
        yield f"{labels.get(row, ''):>{_MARGIN - 2}} |{''.join(cells)}".rstrip()
    yield _axis(drawn.t, across)


def _row_of(value: float, top: float) -> int:
    return min(_HEIGHT - 1, int((1 - value / top) * _HEIGHT))


def _columns(
    times: Sequence[float], values: Sequence[float | None], across: int
) -> list[float]:
    """Give the most in each column's time; where nothing was read, what was before."""
    first, span = times[0], (times[-1] - times[0]) or 1.0
    most: list[float | None] = [None] * across
    for t, value in zip(times, values, strict=True):
        at = min(across - 1, int((t - first) / span * across))
        if value is not None:
            most[at] = max(value, most[at] or 0.0)
    filled, last = [], 0.0
    for one in most:
        last = last if one is None else one
        filled.append(last)
    return filled


def _axis(times: Sequence[float], across: int) -> str:
    line = [" "] * across
    first, span = times[0], times[-1] - times[0]
    for number in range(_TICKS + 1):
        seconds = first + span * number / _TICKS
        text = "0" if seconds < span / 1e3 else format_duration(seconds)
        at = round(number / _TICKS * across) - len(text) // 2
        at = min(across - len(text), max(0, at))
        line[at : at + len(text)] = text
    return " " * _MARGIN + "".join(line).rstrip()


def _lanes(drawn: RunSeries, width: int) -> Iterator[str]:
    """Write the outermost phases under their time, as far as their names have room."""
    across = width - _MARGIN
    first, span = drawn.t[0], (drawn.t[-1] - drawn.t[0]) or 1.0
    outer = sorted(
        (phase for phase in drawn.phases if phase.depth == 0),
        key=lambda phase: phase.start,
    )
    if not outer:
        return
    starts = [
        min(across, max(0, round((phase.start - first) / span * across)))
        for phase in outer
    ]
    line = " " * starts[0]
    for phase, (start, end) in zip(outer, pairwise([*starts, across]), strict=True):
        room = end - start - 1
        name = shortened(f"|{phase.name}", room) if room > _NARROWEST_NAME else "|"
        line += name + " " * (end - start - columns_of(name))
    yield f"{'  phases':<{_MARGIN}}{line}".rstrip()
