"""No renderer changes a number: what is written reads back as what was measured."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from some_reports import reports
from some_runs import a_peak, a_run

from weigh.model.record import Certainty
from weigh.model.report import JobReport
from weigh.render.html.run_view import run_view
from weigh.render.printable import indented_json, width_of
from weigh.render.record_lines import render_record, render_summary
from weigh.render.report_lines import report_screen_text
from weigh.render.words import unit_value_text
from weigh.review.elements import single_run_element
from weigh.review.runs import ElementRequest, runs_of_records
from weigh.review.summary import ReportFindings, compose_report
from weigh.units import format_size


@given(reports())
def test_json_reads_back_as_the_report(report: JobReport) -> None:
    assert msgspec.json.decode(indented_json(report), type=JobReport) == report


@given(reports())
def test_the_text_holds_every_figure_of_every_measure_in_80_columns(
    report: JobReport,
) -> None:
    text = report_screen_text(report)
    assert max(map(width_of, text.splitlines())) <= 80
    for measure in report.measures:
        if measure.median is not None:
            assert unit_value_text(measure.median, measure.unit) in text
        if measure.most is not None:
            assert (
                len(measure.values) < 2
                or unit_value_text(measure.most, measure.unit) in text
            )


@given(
    value=st.integers(1, 1 << 45),
    off=st.floats(0, 0.5),
    files=st.floats(0, 1),
    certainty=st.sampled_from(["exact", "counted", "guessed", None]),
)
def test_all_screens_write_one_figure_for_one_peak(
    value: int, off: float, files: float, certainty: Certainty | None
) -> None:
    peak = a_peak(
        value,
        low=round(value * (1 - off)),
        high=round(value * (1 + off)),
        anonymous=value - round(files * value),
        shared=0,
        file=round(files * value),
        source="pages: of the tree",
        time=1.0,
        certainty=certainty,
    )
    record = a_run(peak_memory=peak, wall_time=9.0, processes=3, growing=False)
    runs = tuple(runs_of_records([record]))
    elements = tuple(single_run_element(run, ElementRequest()) for run in runs)
    findings = ReportFindings(
        title="x", requested=ElementRequest(), runs=runs, elements=elements
    )
    screens = (
        render_summary(record),
        render_record(record),
        report_screen_text(compose_report(findings)),
        f"  memory {run_view(record).facts['memory'][0]}",
    )
    for screen in screens:
        line = next(one for one in screen.splitlines() if one.startswith("  memory "))
        assert line.replace(",", "").split()[1:3] == format_size(value).split()
