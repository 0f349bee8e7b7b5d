"""Rows, requests and figures of a report, by values worked out by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import some_runs
from sessions import check_session
from transcript import check_answers

from weigh.model.record import Record
from weigh.model.report import JobReport, ReportMeasure, ReportRow
from weigh.review.advice import AdviceSubject, resource_notes
from weigh.review.elements import single_run_element
from weigh.review.runs import ElementRequest, ReviewedRun, epoch_seconds
from weigh.review.summary import ReportFindings, compose_report
from weigh.units import parse_size


def a_record(**changes: Any) -> Record:
    known: dict[str, Any] = {
        "id": "0" * 12,
        "started": "2026-01-01T00:00:00Z",
        "exit_code": None,
    }
    return some_runs.a_run("true", **known | changes)


def a_run(*, need: int | None = None, **row: Any) -> ReviewedRun:
    known = {"state": "COMPLETED"} | row
    return ReviewedRun(row=ReportRow(**known), need=need)


def held(own: int, file: int) -> ReviewedRun:
    """Return a run whose memory is known by its parts."""
    peak = some_runs.a_peak(own + file, anonymous=own, shared=0, file=file)
    record = a_record(wall_time=5.0, peak_memory=peak)
    row = ReportRow(started=0.0, wall_time=5.0, memory=own + file, command="true")
    return ReviewedRun(row=row, record=record, need=own + file)


def a_subject(
    requested: ElementRequest,
    *runs: ReviewedRun,
    measures: Sequence[ReportMeasure] = (),
) -> AdviceSubject:
    return AdviceSubject(
        elements=[single_run_element(run, requested) for run in runs],
        requested=requested,
        measures={one.name: one for one in measures},
    )


def a_report(requested: ElementRequest, *runs: ReviewedRun, **more: Any) -> JobReport:
    elements = more.pop("elements", a_subject(requested, *runs).elements)
    findings = ReportFindings(
        title="t", requested=requested, runs=runs, elements=tuple(elements), **more
    )
    return compose_report(findings)


def test_worked_examples_of_reviews() -> None:
    helpers = (a_record, a_report, a_run, a_subject, held)
    names: dict[str, object] = {one.__name__: one for one in helpers}
    names["began"] = epoch_seconds(a_record().started)
    check_session(Path(__file__).with_name("reviewed.session"), names)


def advised(words: str) -> list[str]:
    """Return flags and weights of the notes on one element that completed."""
    name, used_text, requested_text = words.split()
    is_memory = name == "memory"
    used = parse_size(used_text) if is_memory else float(used_text)
    asked = parse_size(requested_text) if is_memory else int(requested_text)
    field = "time_limit" if name == "time" else name
    requested = ElementRequest(scheduler="slurm", **{field: asked})  # type: ignore[arg-type]
    measure = ReportMeasure(name=name, unit="bytes", median=used, most=used)  # type: ignore[arg-type]
    need = round(used) if is_memory else None
    run = a_run(started=0.0, wall_time=100.0, need=need)
    notes = resource_notes(a_subject(requested, run, measures=[measure]))
    return [f"{note.flag} {note.weight:.4g}" for note in notes]


def test_a_flag_is_advised_from_a_threshold_on() -> None:
    """What wastes more comes first, and what loses work before it."""
    path = Path(__file__).with_name("advised.texts")
    check_answers(path, {"used and requested": advised})
