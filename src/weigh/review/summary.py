"""Summarize a report: measures, states, hours held and notes, from all its data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.model.job import FINAL
from weigh.model.record import Record
from weigh.model.report import Accounted, GpuTable, Note, Report, Row
from weigh.render.printable import three
from weigh.render.words import AS_USUAL, step_words
from weigh.review.advice import Subject
from weigh.review.elements import Element, measures
from weigh.review.figures import filled_measures, with_other_figures
from weigh.review.gpu_energy import gpu_totals
from weigh.review.notes import notes
from weigh.review.requested import Requested
from weigh.review.runs import Run
from weigh.units import GIB, HOUR, Seconds


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All data of a report, before it is summarized.

    ``is_planned``: weigh submitted the job, so the plan has its elements. ``troubles``
    are why the scheduler could not be queried. ``slots`` is how many tasks an element
    of a shared queue runs at once. ``rounds`` are why the tasks of each later job were
    sent again. ``unit`` is what a run of a job is: a task, or an element of a script's.
    """

    title: str
    unit: str = "task"
    requested: Requested
    runs: tuple[Run, ...]
    elements: tuple[Element, ...]
    is_planned: bool = False
    troubles: tuple[str, ...] = ()
    job: str | None = None
    scheduler: str | None = None
    accounted: tuple[Accounted, ...] = ()
    tables: tuple[GpuTable, ...] = ()
    request: Note | None = None
    slots: int | None = None
    rounds: tuple[str, ...] = ()


def step_notes(accounted: Sequence[Accounted]) -> Iterator[Note]:
    """Yield the steps of a job, if it had several or one failed.

    A job may complete although a step ran out of memory.
    """
    steps = accounted[0].steps if len(accounted) == 1 else ()
    words = step_words(steps)
    if words:
        is_usual = all(one.state in AS_USUAL for one in steps)
        yield Note(about="steps", words=words, weight=10 if is_usual else 30)


def compose(found: Findings, drawn: tuple[Record, ...] = ()) -> Report:
    """Return the report; *drawn* are the records with the series that a page draws."""
    runs, elements, requested = found.runs, found.elements, found.requested
    rows = tuple(run.row for run in runs if run.is_last)
    starts = [one.started for one in elements if one.started is not None]
    ends = [
        one.started + one.wall_time
        for one in elements
        if one.started is not None and one.wall_time is not None
    ]
    hours = [(one.requested, _held_for(one, found) / HOUR) for one in elements]
    cpu = [run.row.cpu_time for run in runs if run.row.cpu_time is not None]
    measured = tuple(
        one
        for one in with_other_figures(
            measures(elements, requested),
            found.accounted,
            found.tables,
            scheduler=found.scheduler,
            killed=any(row.state == "OUT_OF_MEMORY" for row in rows),
        )
        if one.requested is not None or one.median is not None or one.others
    )
    by_name = {str(one.name): one for one in measured}
    shown, source = filled_measures(
        measured, found.accounted, requested, scheduler=found.scheduler
    )
    return Report(
        title=found.title,
        unit=found.unit,
        scheduler=found.scheduler,
        job=found.job,
        elements=len(elements) if found.job else None,
        started=min(starts, default=None),
        ended=max(ends, default=None),
        states=dict(Counter(row.state for row in rows)),
        measures=shown,
        rows=rows,
        notes=(
            *_caveats(found.troubles, rows),
            *_slots(found),
            *_with_request(
                notes(
                    Subject(
                        elements=elements,
                        requested=requested,
                        measures=by_name,
                        unit=found.unit,
                    ),
                    rows,
                ),
                found.request,
            ),
            *(Note(about="source", words=source),) * bool(source),
            *step_notes(found.accounted),
            *_doubts(found.accounted),
            *_rounds(found.rounds),
        ),
        records=drawn,
        gpu_hours=sum(one.gpus * h for one, h in hours) if requested.gpus else None,
        cpu_hours=_held((one.cpus, h) for one, h in hours),
        memory_hours=_held((one.memory, h / GIB) for one, h in hours),
        runs=sum(run.row.started is not None for run in runs),
        run_time=sum(run.row.wall_time or 0.0 for run in runs),
        cpu_time=sum(cpu) if cpu else None,
        energy=gpu_totals(runs).energy,
        accounted=found.accounted,
        gpu_tables=found.tables,
    )


def _doubts(accounted: Sequence[Accounted]) -> Iterator[Note]:
    """Yield what accounting reported and cannot be, or is a part only; each once."""
    for words in dict.fromkeys(doubt for one in accounted for doubt in one.doubts):
        yield Note(about="accounting", words=words, weight=20)


def _rounds(rounds: Sequence[str]) -> Iterator[Note]:
    if rounds:
        yield Note(about="rounds", words=f"sent again: {'; '.join(rounds)}")


def _with_request(notes: Sequence[Note], request: Note | None) -> Sequence[Note]:
    """Replace the request from the runs' usage by the one for a scan's target."""
    if request is None:
        return notes
    return (*(note for note in notes if note.about != request.about), request)


def _caveats(troubles: Sequence[str], rows: Sequence[Row]) -> Iterator[Note]:
    """Yield why the scheduler could not be queried, if a task's state is open."""
    if any(row.state not in FINAL for row in rows):
        for trouble in troubles:
            words = f"the scheduler could not be queried: {trouble}"
            yield Note(about="warning", words=words, weight=101)


def _slots(found: Findings) -> Iterator[Note]:
    """Yield how much of the time that its elements held slots a queue used."""
    held = sum((one.wall_time or 0.0) * (found.slots or 0) for one in found.elements)
    used = sum(run.row.wall_time or 0.0 for run in found.runs)
    if held > 0:
        words = f"{three(held / HOUR)} slot hours held, {three(used / HOUR)} used"
        yield Note(about="slots", words=f"{words} ({100 * used / held:.0f} %)")


def _held_for(element: Element, found: Findings) -> Seconds:
    """Return how long an element was held: by accounting, if weigh has no plan."""
    wall = element.wall_time or 0.0
    if found.is_planned:
        return wall
    walls = (
        one.wall_time
        for one in found.accounted
        if one.element == element.number and one.wall_time is not None
    )
    return max([wall, *walls]) if found.job else wall


def _held(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the sum of amounts x hours; None if no amount is known."""
    known = [amount * hours for amount, hours in pairs if amount is not None]
    return sum(known) if known else None
