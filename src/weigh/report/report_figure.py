"""Curves of a run as a picture, by matplotlib: PNG, PDF or SVG."""

import os
from typing import TYPE_CHECKING

from weigh.errors import UsageError
from weigh.model.report import Measure, Report
from weigh.report.columns import shortened
from weigh.report.html.series_data import Chart, RunSeries, run_series
from weigh.report.html.ticks import clock_ticks, ticks
from weigh.report.html.words import KINDS, NAMES, Kind, figure, short
from weigh.report.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
_WIDTH, _ROW = 8.0, 2.0  # inches
_DOTS = 150
_COLOURS = {"memory": "#1f6f8b", "cpus": "#7a5195", "gpu": "#2f7d4f"}
_ASKED = "#b4531a"
_BANDS = ("#1f6f8b", "#b4531a", "#2f7d4f", "#7a5195", "#8a7a12", "#a33b6a")
_OFF_SCALE = 4  # an asked line beyond so many peaks is said, not drawn
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
        raise UsageError(f"{path}: name the picture *.png, *.pdf or *.svg")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "a picture takes matplotlib: pip install 'weigh[plot]' "
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
        raise UsageError("nothing to draw: no run of this has a series")
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
    # no date within: the same report gives the same file
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
    words = [f"at most {figure(peak, chart.kind)}"]
    for level in chart.levels:
        words.append(f"{level.words} {figure(level.value, chart.kind)}")
        if level.value <= _OFF_SCALE * peak:
            axes.axhline(level.value, color=_ASKED, linewidth=1, linestyle="--")
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
    if measure.asked is not None:
        words.append(f"asked for {figure(measure.asked, kind)}")
        if measure.asked <= _OFF_SCALE * max(measure.values):
            axes.axvline(measure.asked, color=_ASKED, linewidth=1, linestyle="--")
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
    """Keep matplotlib from reading mathematics between two dollar signs."""
    return text.replace("$", r"\$")
