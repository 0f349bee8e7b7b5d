"""A report as one self-contained page: no network, everything escaped."""

import math
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from os.path import commonprefix
from typing import Literal, TypeAlias

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from weigh.model.report import JobReport, ReportMeasure, ReportRow
from weigh.render.html.run_view import ChartLevel, RunSeries, run_series, run_view
from weigh.render.printable import printable_text, three_digit_text
from weigh.render.words import (
    NAMES,
    held_hours,
    measure_value_text,
    requested_words,
    share_of_request_text,
    state_counts,
    state_text,
    unit_value_text,
    used_words,
)
from weigh.schedulers import find_kind
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.units import Seconds, count_with_noun, format_duration

# shares of the request: above, it may be too little; below, it is too much
_TIGHT, _LOOSE = 0.95, 0.5
_LIMITED = frozenset({"memory", "gpu_memory", "time"})  # beyond it a job is killed


def _bar_tone(measure: ReportMeasure) -> str:
    """Return how the bar of a measure is coloured: tight, fine or loose."""
    used = measure.efficiency or 0.0
    if used > _TIGHT and measure.name in _LIMITED:
        return "tight"
    return "fine" if used >= _LOOSE else "loose"


Cell: TypeAlias = int | float | str | None
CellKind: TypeAlias = Literal[
    "int", "bytes", "seconds", "cpus", "share", "text", "state", "number"
]
_FEWEST = 2  # a single row is shown as a run
_MOST_PARAMETERS = 12  # columns
_LONGEST = 300  # characters of a cell
_DIGITS, _DIGITS_OF_LARGE = 6, 3  # microseconds, and a millisecond in 16 minutes
_LARGE = 1000.0  # from here on fewer digits behind the point
_LARGEST = 1e300  # beyond it an axis is of no use, and its length overflows
_LOGARITHMIC = 30.0  # the most times the least: from here on an axis is logarithmic
_EXACT = 2**53  # integers beyond lose digits in JavaScript
# of the cells: with more different texts, indexes save nothing
_WORTH_A_DICTIONARY = 0.5
_USUAL: dict[str, Cell] = {
    "attempts": 1,
    "exit_code": 0,
    "label": "",
    "command": "",
}  # not worth a column

_DIFFERING = frozenset({"label", "node"})  # the same throughout: not worth one either
_COLUMNS: tuple[tuple[str, str, CellKind], ...] = (
    ("task", "task", "int"),
    ("state", "state", "state"),
    ("wall_time", "time", "seconds"),
    ("memory", "memory", "bytes"),
    ("gpu_memory", "GPU memory", "bytes"),
    ("gpu_utilization", "GPU busy", "share"),
    ("cpus", "CPUs", "cpus"),
    ("exit_code", "exit", "int"),
    ("signal", "signal", "int"),
    ("reason", "why", "text"),
    ("error", "error", "text"),
    ("attempts", "attempts", "int"),
    ("node", "node", "text"),
    ("label", "label", "text"),
    ("command", "command", "text"),
    ("output", "output", "text"),
    ("record", "record", "text"),
)


class PageColumn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column; ``key`` is its name in filters.

    ``values`` are the cells, or indexes into ``words``.
    """

    key: str
    title: str
    kind: CellKind
    values: tuple[Cell, ...]
    words: tuple[str, ...] | None = None


class TaskColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks, column by column; one that is empty throughout is left out."""

    noun: Literal["tasks", "runs"]
    count: int
    columns: tuple[PageColumn, ...]


def task_columns(report_rows: Sequence[ReportRow]) -> TaskColumns | None:
    """Turn *report_rows* into columns; None if there is nothing to compare."""
    if len(report_rows) < _FEWEST:
        return None
    columns = list(_run_table_columns(report_rows))
    are_tasks = any(row.task is not None for row in report_rows)
    if are_tasks:
        columns = [column for column in columns if column.key != "record"]
    else:  # runs are known by their records
        columns.sort(key=lambda column: column.key != "record")
    # parameters stand behind the name and the state, which come first
    named = 1 + (columns[0].key != "state")
    parameters = list(_parameter_columns(report_rows))
    if parameters:  # in which the commands differ
        columns = [column for column in columns if column.key != "command"]
    columns[named:named] = [*parameters, *_metric_columns(report_rows)]
    noun: Literal["tasks", "runs"] = "tasks" if are_tasks else "runs"
    return TaskColumns(noun=noun, count=len(report_rows), columns=tuple(columns))


def _run_table_columns(report_rows: Sequence[ReportRow]) -> Iterator[PageColumn]:
    for key, title, kind in _COLUMNS:
        cells = [getattr(row, key) for row in report_rows]
        if key == "reason":  # the column of exit codes has them
            cells = [None if (c or "").startswith("exit code") else c for c in cells]
        if key in _DIFFERING and len(set(cells)) == 1:
            continue
        if key == "state":
            yield _text_column(key, title, kind, [state_text(str(c)) for c in cells])
        elif any(c is not None and c != _USUAL.get(key) for c in cells):
            if kind == "text":
                texts = [_shortened_cell(c or "") for c in cells]
                shown = _below_folder(texts) if key == "output" else texts
                yield _text_column(key, title, kind, shown)
            else:
                yield _number_column(key, title, kind, cells)


def _below_folder(paths: Sequence[str]) -> list[str]:
    """Return paths without the folder that they have in common."""
    known = [path for path in paths if path]
    folder = commonprefix(known).rpartition("/")[0]  # noqa: RUF071 - up to a slash
    return [path[len(folder) + 1 :] if folder and path else path for path in paths]


def _parameter_columns(report_rows: Sequence[ReportRow]) -> Iterator[PageColumn]:
    """Yield one column per parameter that any task has."""
    names = list(dict.fromkeys(name for row in report_rows for name in row.parameters))
    for name in names[:_MOST_PARAMETERS]:
        cells = [row.parameters.get(name) for row in report_rows]
        shown = _shortened_cell(name)
        # what JavaScript cannot hold exactly is shown as text
        if all(c is None or _is_number(c) for c in cells):
            yield PageColumn(key=shown, title=shown, kind="number", values=tuple(cells))
        else:
            texts = [_shortened_cell("" if c is None else str(c)) for c in cells]
            yield _text_column(shown, shown, "text", texts)


def _metric_columns(report_rows: Sequence[ReportRow]) -> Iterator[PageColumn]:
    """Yield the columns of the requested metric."""
    found = [row.metric for row in report_rows]
    if any(one is not None for one in found):
        bests = [None if one is None else one.best for one in found]
        yield _number_column("best", "best", "number", bests)
        lasts = [None if one is None else one.last for one in found]
        yield _number_column("last", "last", "number", lasts)
        trends = ["" if one is None else one.trend or "" for one in found]
        yield _text_column("trend", "trend", "text", trends)


class ScatterPlot(msgspec.Struct, frozen=True):
    """The best value of a metric against a parameter: a point for each task.

    The points are in a square of 100 by 100, upwards as in the picture.
    """

    parameter: str
    points: tuple[tuple[float, float], ...]
    low: str
    high: str
    """The ends of the parameter's axis."""
    is_logarithmic: bool
    least: str
    most: str
    """The ends of the metric's axis."""


def scatter_plots(report_rows: Sequence[ReportRow]) -> Iterator[ScatterPlot]:
    """Yield a plot for each numeric parameter that differs between tasks."""
    names = dict.fromkeys(name for row in report_rows for name in row.parameters)
    for name in list(names)[:_MOST_PARAMETERS]:
        pairs = [
            (float(value), row.metric.best)
            for row in report_rows
            if row.metric is not None
            and row.metric.best is not None
            and isinstance(value := row.parameters.get(name), int | float)
            and abs(value) <= _LARGEST
        ]
        xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
        if len(set(xs)) >= _FEWEST and len(set(ys)) >= _FEWEST:
            is_log = min(xs) > 0 and max(xs) / min(xs) >= _LOGARITHMIC
            places = [math.log(x) for x in xs] if is_log else xs
            yield ScatterPlot(
                parameter=_shortened_cell(name),
                points=tuple(zip(_of_hundred(places), _of_hundred(ys), strict=True)),
                low=f"{min(xs):g}",
                high=f"{max(xs):g}",
                is_logarithmic=is_log,
                least=f"{min(ys):.4g}",
                most=f"{max(ys):.4g}",
            )


def _of_hundred(values: Sequence[float]) -> list[float]:
    """Return each value's place between the least, 0, and the most, 100."""
    least, most = min(values), max(values)
    return [round(100 * (value - least) / (most - least), 2) for value in values]


def _is_number(cell: Cell) -> bool:
    """Return whether JavaScript can hold *cell* as an exact number."""
    return isinstance(cell, int | float) and abs(cell) <= _EXACT


def _number_column(
    key: str, title: str, cell_kind: CellKind, cells: Sequence[Cell]
) -> PageColumn:
    # digits beyond take room in the page, and show nothing
    rounded = (_rounded_page_value(c) if isinstance(c, float) else c for c in cells)
    return PageColumn(key=key, title=title, kind=cell_kind, values=tuple(rounded))


def _rounded_page_value(cell_value: float) -> float:
    return round(cell_value, _DIGITS if abs(cell_value) < _LARGE else _DIGITS_OF_LARGE)


def _text_column(
    key: str, title: str, cell_kind: CellKind, texts: Sequence[str]
) -> PageColumn:
    """Return a column of texts: of few different ones, the cells are indexes."""
    # a dict keeps the order in which texts come first
    places = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    if len(places) > _WORTH_A_DICTIONARY * len(texts):
        return PageColumn(key=key, title=title, kind=cell_kind, values=tuple(texts))
    values = tuple(places[text] for text in texts)
    return PageColumn(
        key=key, title=title, kind=cell_kind, values=values, words=tuple(places)
    )


def _shortened_cell(cell_text: str) -> str:
    shown = printable_text(cell_text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


_KWH = 3.6e6  # joules


def utc_time_text(seconds: Seconds) -> str:
    """Write seconds since the epoch in UTC: pages are read in other time zones."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
    return f"{at:%Y-%m-%d %H:%M} UTC"


def page_facts(report: JobReport) -> Iterator[str]:
    """Yield what stands below the title: job, elements, times."""
    if report.job is not None:
        yield printable_text(f"job {report.job}{_on_scheduler_text(report.scheduler)}")
    if report.elements is not None:
        yield count_with_noun(report.elements, "element")
    if report.started is not None:
        yield f"started {utc_time_text(report.started)}"
        # clocks of nodes differ: a job cannot end before it started
        if report.ended is not None and report.ended >= report.started:
            yield f"took {format_duration(report.ended - report.started)}"


def _on_scheduler_text(scheduler: str | None) -> str:
    if scheduler is None:
        return ""
    kind = find_kind(scheduler)
    title = "this machine" if scheduler == LOCAL else scheduler
    return f" on {title if kind is None else kind.title}"


def held_totals(report: JobReport) -> Iterator[tuple[str, str]]:
    """Yield the hours and the energy that were held, and their units."""
    yield from held_hours(report)
    if report.energy is not None:
        yield three_digit_text(report.energy / _KWH), "kWh of GPUs"


# found next to this file, also in an installed package
_TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_UPLOT = ("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE")
_SCRIPTS = ("format.js", "element.js", "charts.js", "tasks.js")
# what ends a script, opens a comment, or once counted as the end of a line
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_UNSAFE |= {"\u2028": "\\u2028", "\u2029": "\\u2029"}


class _PageData(msgspec.Struct, frozen=True, kw_only=True):
    """What the page's scripts read."""

    runs: tuple[RunSeries, ...] = ()
    tasks: TaskColumns | None = None


def render_page(report: JobReport, *, version: str | None = None) -> str:
    """Write a report as one HTML page; *version* is weigh's, for the foot."""
    data = _PageData(runs=tuple(_run_curves(report)), tasks=task_columns(report.rows))
    # by the record of the run: a task without one has no curves
    row_of = {row.record: row for row in report.rows}
    has_curves = any(run.charts for run in data.runs)
    styles = _page_style(has_curves=has_curves)
    scripts = tuple(_page_scripts(has_curves=has_curves))
    return (
        template_environment()
        .get_template("page.html")
        .render(
            report=report,
            facts=tuple(page_facts(report)),
            totals=tuple(held_totals(report)),
            measures=[one for one in report.measures if _has_figures(one)],
            has_median=any(len(one.values) > 1 for one in report.measures),
            scatter_plots=tuple(scatter_plots(report.rows)),
            runs=[
                run_view(record, row_of.get(record.id), drawn.charts)
                for record, drawn in zip(report.records, data.runs, strict=True)
            ],
            data=embedded_json(data),
            tasks=data.tasks,
            style=Markup(styles),  # noqa: S704 - files of this package
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            policy=content_security_policy(styles, scripts),
            version=version,
        )
    )


def _has_figures(measure: ReportMeasure) -> bool:
    figures = (measure.requested, measure.median, measure.most)
    return any(value is not None for value in figures) or bool(measure.others)


def _run_curves(report: JobReport) -> Iterator[RunSeries]:
    """Yield the curves of each run, each with what it is to be compared with."""
    row_of = {row.record: row for row in report.rows}
    shared = Counter(row.element for row in report.rows)
    for record in report.records:
        row = row_of.get(record.id)
        # an element with several tasks: the request is for all of them
        shares = row is not None and row.element is not None and shared[row.element] > 1
        words = "requested for its element" if shares else "requested"
        levels: dict[str, ChartLevel] = {
            one.name: ChartLevel(words, one.requested)
            for one in report.measures
            if one.requested is not None
        }
        yield run_series(record, levels)


def embedded_json(document: object) -> Markup:
    """Write *document* as JSON that cannot end its script element."""
    text = msgspec.json.encode(document).decode()
    # JSON may escape any character, so the text stays the same document
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - nothing of HTML is left in it


def content_security_policy(style: str, scripts: Sequence[str]) -> str:
    """Allow a page's own style and scripts by their hashes, and nothing else."""
    allowed = " ".join(_policy_hash(script) for script in scripts) or "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {_policy_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _policy_hash(page_part: str) -> str:
    return f"'sha256-{b64encode(sha256(page_part.encode()).digest()).decode()}'"


def _page_style(*, has_curves: bool) -> str:
    uplot = f"{_template_file_text(_UPLOT[1])}\n" if has_curves else ""
    return f"\n{uplot}{_template_file_text('style.css')}"


def _page_scripts(*, has_curves: bool) -> Iterator[str]:
    """Yield the scripts; uPlot, half of the page, only if there is a curve."""
    if has_curves:
        licence, program = map(_template_file_text, (_UPLOT[2], _UPLOT[0]))
        yield f"/*\n{licence}\n*/\n{program}"
    own = "\n".join(_template_file_text(name) for name in _SCRIPTS)
    # a scope of its own: no name becomes one of the window
    yield f'\n"use strict";\n(() => {{\n{own}\n}})();\n'


@cache
def _template_file_text(file_name: str) -> str:
    with open(os.path.join(_TEMPLATES, file_name), encoding="utf-8") as file:
        return file.read()


@cache
def template_environment() -> Environment:
    """Return the templates; what they show is escaped."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        # names, commands and output are untrusted text
        autoescape=True,
        # a name that is mistyped in a template is an error, not empty
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bar_tone": _bar_tone,
        "figure": unit_value_text,
        "measured": measure_value_text,
        "name": NAMES.__getitem__,
        "of_request": share_of_request_text,
        "printable": printable_text,
        "requested": requested_words,
        "state_counts": state_counts,
        "used": used_words,
    }
    return made
