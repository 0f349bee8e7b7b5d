"""A report as one self-contained page: no network, everything escaped."""

import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from weigh.model.report import Report
from weigh.report.html.curves import Scan, ScanView, scan_view
from weigh.report.html.gpu_table import gpu_table
from weigh.report.html.histogram import Histogram, histograms
from weigh.report.html.masthead import Masthead, masthead
from weigh.report.html.measure_view import MeasureView, measure_views
from weigh.report.html.note_view import NoteView, note_views
from weigh.report.html.run_view import RunView, run_view
from weigh.report.html.series_data import RunSeries, run_series
from weigh.report.html.table import Table
from weigh.report.html.task_columns import TaskColumns, task_columns

_TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
_UPLOT = ("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE")
_SCRIPTS = ("format.js", "element.js", "theme.js", "charts.js", "tasks.js")
# what ends a script, opens a comment in one, or was once taken for a line's end
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_UNSAFE |= {"\u2028": "\\u2028", "\u2029": "\\u2029"}


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """What the page's scripts read."""

    runs: tuple[RunSeries, ...] = ()
    tasks: TaskColumns | None = None


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """What the template writes."""

    head: Masthead
    is_job: bool
    measures: tuple[MeasureView, ...]
    gpu_table: Table | None
    notes: tuple[NoteView, ...]
    runs: tuple[RunView, ...]
    scans: tuple[ScanView, ...]
    histograms: tuple[Histogram, ...]


def render_page(
    report: Report, scans: Sequence[Scan] = (), *, version: str | None = None
) -> str:
    """Write a report as one HTML page; *version* is weigh's, for the foot.

    *scans* are curves over a parameter, drawn with what they were measured on.
    """
    data = _Data(
        runs=tuple(run_series(record, report.measures) for record in report.records),
        tasks=task_columns(report.rows),
    )
    row_of = {row.record: row for row in report.rows}
    content = _Content(
        head=masthead(report),
        is_job=report.job is not None,
        measures=measure_views(report.measures),
        gpu_table=gpu_table(report.gpu_tables),
        notes=note_views(report.notes),
        runs=tuple(run_view(one, row_of.get(one.id)) for one in report.records),
        scans=tuple(scan_view(scan) for scan in scans),
        histograms=histograms(report.measures),
    )
    has_curves = any(run.charts for run in data.runs)
    styles = _style(has_curves=has_curves)
    scripts = tuple(_scripts(has_curves=has_curves))
    return (
        _environment()
        .get_template("page.html")
        .render(
            content=content,
            data=embedded_json(data),
            tasks=data.tasks,
            series=data.runs,
            style=Markup(styles),  # noqa: S704 - files of this package
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            policy=_policy(styles, scripts),
            version=version,
        )
    )


def embedded_json(data: object) -> Markup:
    """Write *data* as JSON that cannot end the script element it stands in."""
    text = msgspec.json.encode(data).decode()
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - nothing of HTML is left in it


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Allow this page's own style and scripts by their hashes, and nothing else."""
    allowed = " ".join(_hashed(script) for script in scripts)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {_hashed(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _style(*, has_curves: bool) -> str:
    uplot = f"{_file(_UPLOT[1])}\n" if has_curves else ""
    return f"\n{uplot}{_file('style.css')}"


def _scripts(*, has_curves: bool) -> Iterator[str]:
    """Give the scripts; uPlot, half of the page, only where there is a curve."""
    if has_curves:
        yield f"/*\n{_file(_UPLOT[2])}\n*/\n{_file(_UPLOT[0])}"
    own = "\n".join(_file(name) for name in _SCRIPTS)
    yield f'\n"use strict";\n(() => {{\n{own}\n}})();\n'


@cache
def _file(name: str) -> str:
    with open(os.path.join(_TEMPLATES, name), encoding="utf-8") as file:
        return file.read()


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
