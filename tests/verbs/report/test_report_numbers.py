"""No renderer changes a number: what is written reads back as what was measured."""

import msgspec
import pytest
from hypothesis import given
from some_reports import reports

from weigh.flow.report.forms import escaped_markdown
from weigh.model.report import JobReport, ReportMeasure
from weigh.render.printable import three_digit_text
from weigh.render.report_lines import report_json, report_screen_text
from weigh.render.words import measure_value_text


@given(reports())
def test_json_reads_back_as_the_report(report: JobReport) -> None:
    assert msgspec.json.decode(report_json(report), type=JobReport) == report


@given(reports())
def test_the_text_holds_every_figure_of_every_measure(report: JobReport) -> None:
    text = report_screen_text(report)
    for measure in report.measures:
        if measure.median is not None:
            assert measure_value_text(measure, measure.median) in text
        if measure.most is not None:
            assert (
                len(measure.values) < 2
                or measure_value_text(measure, measure.most) in text
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
    assert measure_value_text(ReportMeasure(name="cpus", unit="cpus"), cpus) == words


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
    assert three_digit_text(hours) == words
