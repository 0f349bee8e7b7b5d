"""A report as CSV, JSON, JSON lines and Markdown."""

import csv
import io
from collections.abc import Iterator

import msgspec

from weigh.model.report import Measure, Report
from weigh.render.printable import cell, printable
from weigh.render.words import (
    NAMES,
    amount,
    held_words,
    percent,
    requested_words,
    state_words,
)

COLUMNS = (
    "task",
    "element",
    "attempt",
    "attempts",
    "record",
    "label",
    "state",
    "exit_code",
    "signal",
    "reason",
    "error",
    "node",
    "started",
    "wall_time",
    "cpu_time",
    "cpus",
    "memory",
    "gpu_memory",
    "gpu_utilization",
    "gpus",
    "energy",
    "growing",
    "output",
    "command",
)


def render_csv(report: Report) -> str:
    """Write a header and one row per task; parameters come last, as ``param:NAME``.

    Values that were not measured are empty; control characters are escaped.
    """
    names = {name: None for row in report.rows for name in row.parameters}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["job", *COLUMNS, *(f"param:{name}" for name in names)])
    for row in report.rows:
        values = [getattr(row, column) for column in COLUMNS]
        given = [row.parameters.get(name) for name in names]
        writer.writerow(
            [cell(value) for value in (row.job or report.job, *values, *given)]
        )
    return out.getvalue().removesuffix("\n")


def render_json(report: Report) -> str:
    """Write the whole report as one JSON document, the schema first."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_jsonl(report: Report) -> str:
    """Write one line of JSON per task, each with its job."""
    of = {"schema": report.schema, "title": report.title}
    lines = (
        msgspec.json.encode(
            of | msgspec.to_builtins(row) | {"job": row.job or report.job}
        ).decode()
        for row in report.rows
    )
    return "\n".join(lines)


_SPECIAL = frozenset("\\`*_{}[]<>()#+!|~&$")


def render_markdown(report: Report) -> str:
    """Write a heading, the table and the notes."""
    return "\n".join(_lines(report))


def escaped(text: str) -> str:
    """Escape *text* so that Markdown shows it unchanged."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in printable(text))


def _lines(report: Report) -> Iterator[str]:
    yield f"### {escaped(report.title)}"
    yield ""
    number = len(report.rows)
    what = report.unit + ("" if number == 1 else "s")
    held = held_words(report)
    yield f"{number:,} {what}, {state_words(report)}{'; ' + held if held else ''}"
    yield ""
    yield "| | requested | used (median) | used (peak) | used of request |"
    yield "|---|---:|---:|---:|---:|"
    for one in report.measures:
        yield _row(one)
    others = [(one, figure) for one in report.measures for figure in one.others]
    if others or report.notes:
        yield ""
    for one, figure in others:
        word = f"; {figure.word}" if figure.word else ""
        text = f"{figure.source}: {amount(one, figure.value)}{word}"
        yield f"- {NAMES[one.name]}, {escaped(text)}"
    for note in report.notes:
        flag = f" `{printable(note.flag).replace('`', '')}`" if note.flag else ""
        yield f"- **{escaped(note.about)}** {escaped(note.words)}{flag}"


def _row(measure: Measure) -> str:
    share = "" if measure.efficiency is None else percent(measure.efficiency)
    cells = (
        NAMES[measure.name],
        requested_words(measure),
        amount(measure, measure.median),
        amount(measure, measure.most),
        share,
    )
    return f"| {' | '.join(cells)} |"
