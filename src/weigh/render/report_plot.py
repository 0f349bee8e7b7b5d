"""Curves of runs: as a picture by matplotlib, and as text in a terminal."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from weigh.errors import UsageError
from weigh.model.report import Measure, Report
from weigh.render.columns import columns_of, shortened
from weigh.render.html.curves import clock_ticks, ticks
from weigh.render.html.series_data import Chart, RunSeries, run_series
from weigh.render.html.words import KINDS, NAMES, Kind, figure, short
from weigh.render.printable import printable
from weigh.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
_WIDTH, _ROW = 8.0, 2.0  # inches
_DOTS = 150
_COLOURS = {"memory": "#1f6f8b", "cpus": "#7a5195", "gpu": "#2f7d4f"}
_REQUESTED = "#b4531a"
_BANDS = ("#1f6f8b", "#b4531a", "#2f7d4f", "#7a5195", "#8a7a12", "#a33b6a")
_OFF_SCALE = 4  # a request above so many peaks is written, not drawn
_ROOM = 1.08  # above the curve, for the names of phases
_LONGEST = 60  # letters of a title
_LETTERS_ACROSS = 110
_FEWEST_LETTERS = 4
_FEWEST = 5  # values of a histogram


def save_figure(report: Report, path: str) -> None:
    """Draw the curves of *report*, or how its elements spread, to *path*.

    Raises:
        UsageError: not a picture's name, no matplotlib, or nothing to draw.
        OSError: the file cannot be written.
    """
    suffix = os.path.splitext(path)[1].removeprefix(".").lower()
    if suffix not in FORMATS:
        raise UsageError(f"{path}: a picture must be named *.png, *.pdf or *.svg")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "a picture requires matplotlib: pip install 'weigh[plot]' "
            "(--plot without a file draws here, --html FILE a page)"
        ) from error
    runs = [(r, run_series(r, report.measures)) for r in report.records]
    titled = [
        (printable(record.label or f"run {record.id}"), drawn)
        for record, drawn in runs
        if drawn.charts
    ]
    spread = [one for one in report.measures if len(one.values) >= _FEWEST]
    rows = sum(len(drawn.charts) for _, drawn in titled) or len(spread)
    if not rows:
        raise UsageError("nothing to draw: these runs have no series of samples")
    figure = Figure(figsize=(_WIDTH, _ROW * rows + 0.6), layout="constrained")
    axes = [axes for (axes,) in figure.subplots(rows, 1, squeeze=False)]
    if titled:
        _draw_runs(axes, titled)
    else:
        for one, measure in zip(axes, spread, strict=True):
            _draw_spread(one, measure)
    _save(figure, path, suffix, printable(report.title))


def _save(figure: "Figure", path: str, suffix: str, title: str) -> None:
    figure.suptitle(_plain(shortened(title, 90)), fontsize=11)
    # no date inside: the same report yields the same file
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(path, format=suffix, dpi=_DOTS, metadata=undated.get(suffix))


def _draw_runs(axes: list["Axes"], runs: list[tuple[str, RunSeries]]) -> None:
    remaining = iter(axes)
    for name, drawn in runs:
        for number, chart in enumerate(drawn.charts):
            one = next(remaining)
            _draw(one, drawn, chart)
            title = f"{name}: {chart.name}" if number == 0 else chart.name
            one.set_title(_plain(shortened(title, _LONGEST)), fontsize=9, loc="left")
            if number == 0:
                _name_phases(one, drawn)


def _name_phases(axes: "Axes", drawn: RunSeries) -> None:
    span = drawn.t[-1] - drawn.t[0] or 1.0
    for phase in drawn.phases:
        room = int((phase.end - phase.start) / span * _LETTERS_ACROSS)
        if phase.depth == 0 and room >= _FEWEST_LETTERS:
            axes.annotate(
                _plain(shortened(phase.name, room)),
                (phase.start, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10),
                textcoords="offset points",
                fontsize=7,
            )


def _draw(axes: "Axes", drawn: RunSeries, chart: Chart) -> None:
    values = [float("nan") if value is None else value for value in chart.values]
    axes.plot(drawn.t, values, color=_COLOURS[chart.tone], linewidth=1.2)
    for number, phase in enumerate(p for p in drawn.phases if p.depth == 0):
        band = _BANDS[number % len(_BANDS)]
        axes.axvspan(phase.start, phase.end, color=band, alpha=0.08, linewidth=0)
    peak = max((value for value in chart.values if value is not None), default=0.0)
    words = [f"peak {figure(peak, chart.kind)}"]
    for level in chart.levels:
        words.append(f"{level.words} {figure(level.value, chart.kind)}")
        if level.value <= _OFF_SCALE * peak:
            axes.axhline(level.value, color=_REQUESTED, linewidth=1, linestyle="--")
    axes.set_title(", ".join(words), fontsize=8, loc="right", color="#5a646e")
    top = axes.get_ylim()[1] * _ROOM if peak > 0 else 1.0
    axes.set_xlim(drawn.t[0], drawn.t[-1])
    axes.set_ylim(0, top)
    axes.set_xticks(clock_ticks(drawn.t[0], drawn.t[-1], wanted=8))
    axes.set_yticks(ticks(top, binary=chart.kind == "size", wanted=5))
    _name_axes(axes, "time", chart.kind)


def _draw_spread(axes: "Axes", measure: Measure) -> None:
    kind = KINDS[measure.unit]
    axes.hist(measure.values, bins="auto", color=_COLOURS["memory"])
    words = [f"{len(measure.values)} values"]
    if measure.requested is not None:
        words.append(f"requested {figure(measure.requested, kind)}")
        if measure.requested <= _OFF_SCALE * max(measure.values):
            axes.axvline(
                measure.requested, color=_REQUESTED, linewidth=1, linestyle="--"
            )
    axes.set_title(NAMES[measure.name], fontsize=9, loc="left")
    axes.set_title(", ".join(words), fontsize=8, loc="right", color="#5a646e")
    _name_axes(axes, kind, None)


def _name_axes(axes: "Axes", across: Kind, up: Kind | None) -> None:
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _at: _tick(value, across))
    if up is not None:
        axes.yaxis.set_major_formatter(lambda value, _at: _tick(value, up))


def _tick(value: float, kind: Kind) -> str:
    if value <= 0:
        return "0" if value == 0 else ""
    return short(figure(value, kind))


def _plain(text: str) -> str:
    """Escape dollar signs, which matplotlib reads as mathematics."""
    return text.replace("$", r"\$")


WIDTH = 80
_HEIGHT = 6
_MARGIN = 12  # the indent, a figure such as `1023 MiB`, a space and the axis
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = " ..::::##"
_EIGHTHS = 8
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
    """Return whether any run has a curve."""
    return any(run_series(record).charts for record in report.records)


def _chart(drawn: RunSeries, chart: Chart, width: int, blocks: str) -> Iterator[str]:
    across = width - _MARGIN
    columns = _columns(drawn.t, chart.values, across)
    peak = max(columns) or 1.0
    levels = [level for level in chart.levels if level.value <= _OFF_SCALE * peak]
    top = max(peak, *(level.value for level in levels), 0.0)
    levels_words = [
        f"{level.words} {figure(level.value, chart.kind)}" for level in chart.levels
    ]
    title = (
        f"  {chart.name}, peak {', '.join([figure(peak, chart.kind), *levels_words])}"
    )
    yield shortened(title, width)
    requested = {_row_of(level.value, top) for level in levels}
    labels = {0: figure(top, chart.kind), _HEIGHT - 1: "0"}
    for row in range(_HEIGHT):
        floor = (_HEIGHT - 1 - row) * _EIGHTHS
        filled = (round(value / top * _HEIGHT * _EIGHTHS) - floor for value in columns)
        cells = [blocks[min(_EIGHTHS, max(0, eighths))] for eighths in filled]
        if row in requested:
            cells = ["-" if cell == " " else cell for cell in cells]
        yield f"{labels.get(row, ''):>{_MARGIN - 2}} |{''.join(cells)}".rstrip()
    yield _axis(drawn.t, across)


def _row_of(value: float, top: float) -> int:
    return min(_HEIGHT - 1, int((1 - value / top) * _HEIGHT))


def _columns(
    times: Sequence[float], values: Sequence[float | None], across: int
) -> list[float]:
    """Return the maximum per column; a column without a sample repeats the last."""
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
    """Write the outermost phases under their time, names cut to fit."""
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
