"""No renderer changes a number: what is written reads back as what was measured."""

import msgspec
import pytest
from hypothesis import given
from some_reports import reports

from weigh.flow.report.paper import escaped_markdown
from weigh.model.report import Measure, Report
from weigh.render.printable import three
from weigh.render.report_lines import render_json, render_text
from weigh.render.words import amount


@given(reports())
def test_json_reads_back_as_the_report(report: Report) -> None:
    assert msgspec.json.decode(render_json(report), type=Report) == report


@given(reports())
def test_the_text_holds_every_figure_of_every_measure(report: Report) -> None:
    text = render_text(report)
    for measure in report.measures:
        if measure.median is not None:
            assert amount(measure, measure.median) in text
        if measure.most is not None:
            assert len(measure.values) < 2 or amount(measure, measure.most) in text


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
    assert escaped_markdown("&lt; $x$ a|b") == r"\&lt; \$x\$ a\|b"


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
