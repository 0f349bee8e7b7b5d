"""No renderer changes a number: what is written reads back as what was measured."""

import csv
import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from some_reports import reports

from weigh.model.report import Measure, Report
from weigh.render.printable import cell, three
from weigh.render.report_files import (
    COLUMNS,
    escaped,
    render_csv,
    render_json,
    render_jsonl,
    render_markdown,
)
from weigh.render.report_lines import render_text
from weigh.render.report_seff import render_seff
from weigh.render.words import amount
from weigh.units import HOUR

NUMBERS = (
    "task",
    "element",
    "started",
    "wall_time",
    "cpu_time",
    "cpus",
    "memory",
    "gpu_memory",
    "gpu_utilization",
    "energy",
)


@given(reports())
def test_json_reads_back_as_the_report(report: Report) -> None:
    assert msgspec.json.decode(render_json(report), type=Report) == report


@given(reports())
def test_json_lines_hold_each_task_as_it_is(report: Report) -> None:
    lines = render_jsonl(report).split("\n") if report.rows else []
    assert len(lines) == len(report.rows)
    for line, row in zip(lines, report.rows, strict=True):
        told = json.loads(line)
        assert {name: told[name] for name in NUMBERS} == {
            name: getattr(row, name) for name in NUMBERS
        }


@given(reports())
def test_csv_holds_each_number_as_it_is(report: Report) -> None:
    table = list(csv.DictReader(io.StringIO(render_csv(report), newline="")))
    assert len(table) == len(report.rows)
    for cells, row in zip(table, report.rows, strict=True):
        for name in NUMBERS:
            value = getattr(row, name)
            assert cells[name] == "" if value is None else float(cells[name]) == value
        for name, given_value in row.parameters.items():
            assert cells[f"param:{name}"] == str(cell(given_value))


def test_csv_has_a_column_for_every_number_of_a_row() -> None:
    assert set(NUMBERS) <= set(COLUMNS)


@given(reports())
def test_text_and_markdown_hold_every_figure_of_every_measure(report: Report) -> None:
    text, markdown = render_text(report), render_markdown(report)
    for measure in report.measures:
        if measure.median is not None:
            assert amount(measure, measure.median) in text
        if measure.most is not None:
            assert amount(measure, measure.most) in markdown


def _seff(report: Report) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in render_seff(report).split("\n"))


@given(reports())
def test_seff_has_its_ten_lines_and_states_no_other_numbers(report: Report) -> None:
    told = _seff(report)
    assert len(told) == 10
    measures: dict[str, Any] = {one.name: one for one in report.measures}
    most = measures["memory"].most
    if most is not None:
        number, unit = told["Memory Utilized"].split()
        size = float(number) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
        assert abs(size - most) <= 0.005 * {"KiB": 1024, "MiB": 1 << 20}.get(
            unit, 1 << 30
        )
    if report.cpu_time is not None and report.cpu_hours and report.cpu_hours > 1e-6:
        share = float(told["CPU Efficiency"].split("%")[0])
        assert abs(share / 100 * report.cpu_hours * HOUR - report.cpu_time) <= (
            0.000051 * report.cpu_hours * HOUR + 1e-9 * report.cpu_time
        )


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        (12.59, "12.6"),
        (9.996, "10.0"),
        (99.99, "100"),
        (3.999, "4.00"),
        (0.004, "0.00"),
    ],
)
def test_a_figure_of_cpus_is_rounded_and_never_cut(cpus: float, words: str) -> None:
    assert amount(Measure(name="cpus", unit="cpus"), cpus) == words


def test_markdown_shows_entities_and_dollars_as_they_are() -> None:
    assert escaped("&lt; $x$ a|b") == r"\&lt; \$x\$ a\|b"


def test_seff_keeps_a_title_that_steers_in_its_line() -> None:
    told = render_seff(Report(title="a\nState: COMPLETED\x1b[2J"))
    assert told.count("\n") == 9
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0.0, "0"),
        (2.1e-05, "<0.001"),
        (0.0058, "0.0058"),
        (12.34, "12.3"),
        (7518, "7,518"),
    ],
)
def test_hours_are_written_without_powers_of_ten(hours: float, words: str) -> None:
    assert three(hours) == words
