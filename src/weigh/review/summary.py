"""Summarize a report: measures, states, hours held and notes, from all its data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.model.job import FINAL, JobRequest
from weigh.model.record import Record, State
from weigh.model.report import (
    AccountedElement,
    GpuTable,
    JobReport,
    ReportMeasure,
    ReportNote,
    ReportRow,
)
from weigh.review.advice import AdviceSubject
from weigh.review.elements import ReviewedElement, resource_measures
from weigh.review.figures import filled_measures, with_other_figures
from weigh.review.notes import report_notes
from weigh.review.runs import ElementRequest, ReviewedRun, gpu_time_and_energy
from weigh.units import HOUR, Seconds


class ReportFindings(msgspec.Struct, frozen=True, kw_only=True):
    """All data of a report, before it is summarized.

    ``is_planned``: weigh submitted the job, so the plan has its elements. ``troubles``
    are why the scheduler could not be queried. ``next_requests`` are what resuming
    requests for tasks that ran short, by how they ended. ``unit`` is what a run of a
    job is: a task, or an element of a script's. ``packing_command`` plans the tasks
    anew.
    """

    title: str
    unit: str = "task"
    requested: ElementRequest
    runs: tuple[ReviewedRun, ...]
    elements: tuple[ReviewedElement, ...]
    is_planned: bool = False
    troubles: tuple[str, ...] = ()
    job: str | None = None
    scheduler: str | None = None
    accounted: tuple[AccountedElement, ...] = ()
    tables: tuple[GpuTable, ...] = ()
    request: ReportNote | None = None  # of a scan's target; None: by the runs
    next_requests: Mapping[State, JobRequest] = {}
    packing_command: str = "weigh plan TASKS"


def compose_report(
    report_findings: ReportFindings, drawn: tuple[Record, ...] = ()
) -> JobReport:
    """Return the report; *drawn* are the records with the series that a page draws."""
    found = report_findings
    # a task counts once, by its last attempt; hours and energy are of all attempts
    rows = tuple(run.row for run in found.runs if run.is_last)
    measured = _measures_to_show(found, rows)
    shown, source = filled_measures(
        measured, found.accounted, found.requested, scheduler=found.scheduler
    )
    starts, ends = [], []
    for one in found.elements:
        if one.started is not None:
            starts.append(one.started)
            ends += [] if one.wall_time is None else [one.started + one.wall_time]
    hours = [(one.requested, _held_for(one, found) / HOUR) for one in found.elements]
    gpu_hours = sum(one.gpus * h for one, h in hours)
    return JobReport(
        title=found.title,
        unit=found.unit,
        scheduler=found.scheduler,
        job=found.job,
        elements=len(found.elements) if found.job else None,
        started=min(starts, default=None),
        ended=max(ends, default=None),
        states=dict(Counter(row.state for row in rows)),
        measures=shown,
        rows=rows,
        notes=tuple(_all_notes(found, measured, rows, source)),
        records=drawn,
        gpu_hours=gpu_hours if found.requested.gpus else None,
        cpu_hours=_summed_hours((one.cpus, h) for one, h in hours),
        energy=gpu_time_and_energy(found.runs).energy,
        accounted=found.accounted,
        gpu_tables=found.tables,
    )


def _measures_to_show(
    found: ReportFindings, rows: Sequence[ReportRow]
) -> list[ReportMeasure]:
    """Return the measures of which something is known, with others' figures.

    Advice is based on these; what is shown also has accounting's figures where nothing
    was measured.
    """
    measures = with_other_figures(
        resource_measures(found.elements, found.requested),
        found.accounted,
        found.tables,
        scheduler=found.scheduler,
        killed=any(row.state == "OUT_OF_MEMORY" for row in rows),
    )
    return [
        one
        for one in measures
        if one.requested is not None or one.median is not None or one.others
    ]


def _all_notes(
    found: ReportFindings,
    measures: Sequence[ReportMeasure],
    rows: Sequence[ReportRow],
    source: str,
) -> Iterator[ReportNote]:
    yield from _scheduler_trouble_notes(found.troubles, rows)
    subject = AdviceSubject(
        elements=found.elements,
        requested=found.requested,
        measures={str(one.name): one for one in measures},
        unit=found.unit,
        next_requests=found.next_requests,
        packing_command=found.packing_command,
    )
    for note in report_notes(subject, rows):
        # the request of a scan is for its target, and not for the runs' usage
        if found.request is None or note.about != found.request.about:
            yield note
    if found.request is not None:
        yield found.request
    if source:
        yield ReportNote(about="source", words=source)
    # what accounting reported and cannot be, or is a part only; each once
    for words in dict.fromkeys(
        doubt for one in found.accounted for doubt in one.doubts
    ):
        yield ReportNote(about="figures", words=words, weight=20)


def _scheduler_trouble_notes(
    troubles: Sequence[str], report_rows: Sequence[ReportRow]
) -> Iterator[ReportNote]:
    """Yield why the scheduler could not be queried, if a task's state is open."""
    # once all tasks have a final state in their joblogs the scheduler is not needed
    if any(row.state not in FINAL for row in report_rows):
        for trouble in troubles:
            words = f"the scheduler could not be queried: {trouble}"
            yield ReportNote(about="warning", words=words, weight=101)


def _held_for(element: ReviewedElement, report_findings: ReportFindings) -> Seconds:
    """Return how long an element was held: by accounting, if weigh has no plan."""
    wall = element.wall_time or 0.0
    # elements of a plan are weigh's own, and their time is that of the scheduler
    # already
    if report_findings.is_planned:
        return wall
    walls = (
        one.wall_time
        for one in report_findings.accounted
        if one.element == element.number and one.wall_time is not None
    )
    return max([wall, *walls]) if report_findings.job else wall


def _summed_hours(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the sum of amounts x hours; None if no amount is known."""
    known = [amount * hours for amount, hours in pairs if amount is not None]
    return sum(known) if known else None
