"""``weigh report`` as people see it: golden text, 80 columns, ASCII and unicode."""

from pathlib import Path

from hypothesis import given
from some_reports import reports

from weigh.model.report import JobReport
from weigh.render.printable import width_of
from weigh.render.report_lines import report_screen_text

GOLDEN = Path(__file__).parent / "golden"
MOST_LINES = 24  # one screen


@given(reports())
def test_no_line_is_wider_than_80_columns(report: JobReport) -> None:
    lines = report_screen_text(report).splitlines()
    assert max(map(width_of, lines)) <= 80
