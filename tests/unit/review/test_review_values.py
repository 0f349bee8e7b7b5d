"""Rows, requests and figures of a report, by values worked out by hand."""

from pathlib import Path

import pytest
from transcript import check_answers

from weigh.model.job import ElementState
from weigh.model.record import (
    Allocation,
    Record,
    RecordedJob,
    RecordedRank,
    RepeatedRun,
    RunOutcome,
    Usage,
)
from weigh.model.report import (
    AccountedElement,
    OtherFigure,
    ReportMeasure,
    ReportRow,
)
from weigh.render.report_lines import report_note_lines
from weigh.review.advice import AdviceSubject, resource_notes
from weigh.review.elements import elements_of_runs, memory_at_once, single_run_element
from weigh.review.figures import (
    request_with_accounting,
)
from weigh.review.notes import report_notes
from weigh.review.runs import (
    ElementRequest,
    ReviewedRun,
    row_of,
    runs_of_records,
)
from weigh.review.summary import ReportFindings, compose_report
from weigh.units import GIB, MIB, parse_size

NOTHING = ElementRequest()


def a_record(**changes: object) -> Record:
    known = {
        "id": "0" * 12,
        "command": ("true",),
        "started": "2026-01-01T00:00:00Z",
        "state": "COMPLETED",
        "usage": Usage(wall_time=10.0),
    }
    return Record(**known | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheduler", "index", "element"), [("slurm", 3, 3), ("gridengine", 3, 2)]
)
def test_a_row_has_the_task_and_attempt_of_its_record_and_counts_elements_from_0(
    scheduler: str, index: int, element: int
) -> None:
    job = RecordedJob(id="7", element=index, task=5, attempt=2)

    row = row_of(a_record(job=job, allocation=Allocation(scheduler=scheduler)))

    assert (row.job, row.element, row.task, row.attempt) == ("7", element, 5, 2)


def test_only_a_repeat_that_failed_has_a_reason() -> None:
    repeats = (
        RepeatedRun(Usage(wall_time=1.0), exit_code=0, signal=None),
        RepeatedRun(Usage(wall_time=2.0), exit_code=3, signal=None),
    )
    record = a_record(
        state="FAILED", outcome=RunOutcome("exit code 3"), repeats=repeats
    )

    rows = [run.row for run in runs_of_records([record])]

    assert [row.reason for row in rows] == [None, "exit code 3"]
    assert [(row.started or 0) - (rows[0].started or 0) for row in rows] == [0, 1]


@pytest.mark.parametrize(
    ("state", "started", "wall_time"),
    [
        (None, 100.0, 5.0),
        (ElementState(state="COMPLETED", started=90.0, ended=120.0), 90.0, 30.0),
        # the clocks of two machines do not mix
        (ElementState(state="RUNNING", started=90.0), 100.0, 5.0),
    ],
)
def test_start_and_end_of_an_element_are_of_one_source(
    state: ElementState | None, started: float, wall_time: float
) -> None:
    run = ReviewedRun(row=ReportRow(element=0, started=100.0, wall_time=5.0))

    (element,) = elements_of_runs([run], [state] if state else [], NOTHING)

    assert (element.started, element.wall_time) == (started, wall_time)


def test_accounting_completes_a_request_and_replaces_nothing() -> None:
    accounted = AccountedElement(
        element=0, cpus=4, memory_asked=GIB, time_limit=600, gpus=1, nodes=2
    )

    bare = request_with_accounting(NOTHING, [accounted])
    own = request_with_accounting(
        ElementRequest(cpus=2, memory=MIB, time_limit=60, gpus=3), [accounted]
    )

    assert (bare.cpus, bare.memory, bare.time_limit, bare.gpus) == (4, GIB, 600, 1)
    assert (own.cpus, own.memory, own.time_limit, own.gpus) == (2, MIB, 60, 3)
    assert (bare.nodes, own.nodes) == (2, 2)
    assert request_with_accounting(NOTHING, [AccountedElement(element=0)]).nodes == 1


def test_a_report_spans_the_attempts_that_began() -> None:
    began = ReviewedRun(row=ReportRow(started=1.0, wall_time=2.0, state="FAILED"))
    again = ReviewedRun(row=ReportRow(started=4.0, wall_time=5.0, state="COMPLETED"))
    waits = ReviewedRun(row=ReportRow(state="PENDING"))
    runs = (began, again, waits)
    elements = tuple(single_run_element(run, NOTHING) for run in runs)

    report = compose_report(
        ReportFindings(title="t", requested=NOTHING, runs=runs, elements=elements)
    )

    assert (report.started, report.ended) == (1.0, 9.0)


def advised(words: str) -> list[str]:
    """Return flags and weights of the notes on one element that completed."""
    name, used_text, requested_text = words.split()
    is_memory = name == "memory"
    used = parse_size(used_text) if is_memory else float(used_text)
    asked = parse_size(requested_text) if is_memory else int(requested_text)
    field = "time_limit" if name == "time" else name
    requested = ElementRequest(scheduler="slurm", **{field: asked})  # type: ignore[arg-type]
    measure = ReportMeasure(name=name, unit="bytes", median=used, most=used)  # type: ignore[arg-type]
    row = ReportRow(started=0.0, wall_time=100.0, state="COMPLETED")
    run = ReviewedRun(row=row, need=round(used) if is_memory else None)
    subject = AdviceSubject(
        elements=[single_run_element(run, requested)],
        requested=requested,
        measures={measure.name: measure},
    )
    return [f"{note.flag} {note.weight:.4g}" for note in resource_notes(subject)]


def test_a_flag_is_advised_from_a_threshold_on() -> None:
    """What wastes more comes first, and what loses work before it."""
    path = Path(__file__).with_name("advised.texts")
    check_answers(path, {"used and requested": advised})


@pytest.mark.parametrize(("elapsed", "advised"), [(None, True), (200.0, False)])
def test_what_accounting_saw_counts_where_weigh_saw_only_a_part_of_the_job(
    elapsed: float | None, *, advised: bool
) -> None:
    requested = ElementRequest(scheduler="slurm", memory=1000 * MIB)
    measures = {
        name: ReportMeasure(
            name=name,  # type: ignore[arg-type]
            unit="bytes",
            median=most,
            most=most,
            others=(OtherFigure(source="sacct", value=theirs),) if theirs else (),
        )
        for name, most, theirs in (
            ("memory", GIB, 800.0 * MIB),
            ("time", 100.0, elapsed),
        )
    }
    row = ReportRow(started=0.0, wall_time=100.0, state="COMPLETED")
    element = single_run_element(ReviewedRun(row=row, need=100 * MIB), requested)

    notes = resource_notes(
        AdviceSubject(elements=[element], requested=requested, measures=measures)
    )

    assert any(note.flag == "--mem=120M" for note in notes) is advised


@pytest.mark.parametrize(("runs", "notes"), [(1, 1), (2, 0)])
def test_the_ranks_of_one_run_alone_are_compared(runs: int, notes: int) -> None:
    ranks = tuple(
        RecordedRank(number, host="n1", peak_memory=size * MIB)
        for number, size in enumerate((100, 100, 400))
    )
    records = [a_record(id=f"{number:012x}", ranks=ranks) for number in range(runs)]
    elements = [single_run_element(run, NOTHING) for run in runs_of_records(records)]

    found = report_notes(
        AdviceSubject(elements=elements, requested=NOTHING, measures={}), ()
    )

    words = [note.words for note in found if note.about == "ranks"]
    assert len(words) == notes
    assert all(one.startswith("largest: rank 2 on n1, 400 MiB") for one in words)


def test_an_element_that_never_ran_held_nothing() -> None:
    waits = ReviewedRun(row=ReportRow(state="PENDING"))
    ran = ReviewedRun(row=ReportRow(started=0.0, wall_time=1800.0, state="COMPLETED"))
    requested = ElementRequest(cpus=4, memory=2 * GIB)

    report = compose_report(
        ReportFindings(
            title="t",
            requested=requested,
            runs=(waits, ran),
            elements=tuple(single_run_element(run, requested) for run in (waits, ran)),
        )
    )

    assert report.cpu_hours == 2.0


def test_runs_are_of_their_element_and_one_without_runs_has_a_state() -> None:
    states = [ElementState(state="PENDING")] * 3
    rows = [ReportRow(element=number, started=0.0) for number in (1, 1, None)]

    found = elements_of_runs([ReviewedRun(row=row) for row in rows], states, NOTHING)

    assert [(one.number, len(one.runs)) for one in found] == [(0, 1), (1, 2), (2, 0)]
    assert [one.state for one in found] == states


@pytest.mark.parametrize(("wall_time", "most"), [(1.001, 7), (1.002, 7), (1.1, 14)])
def test_runs_that_follow_each_other_overlap_by_no_rounding(
    wall_time: float, most: int
) -> None:
    rows = (
        ReportRow(started=0.0, wall_time=wall_time, memory=7),
        ReportRow(started=1.0, wall_time=1.0, memory=7),
    )

    for ordered in (rows, rows[::-1]):
        assert memory_at_once([ReviewedRun(row=row) for row in ordered]) == most


def test_the_title_of_a_doubt_on_accounting_is_not_cut() -> None:
    accounted = AccountedElement(element=0, doubts=("a node has no 1 EiB",))
    report = compose_report(
        ReportFindings(
            title="t",
            requested=NOTHING,
            runs=(),
            elements=(),
            accounted=(accounted,),
        )
    )
    lines = [line for note in report.notes for line in report_note_lines(note)]
    assert "  figures   a node has no 1 EiB" in lines
