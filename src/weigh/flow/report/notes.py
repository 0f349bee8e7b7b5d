"""What there is to say of a report, in plain words, the strongest first."""

from collections.abc import Collection, Iterator, Sequence

from weigh.dialect import gridengine, slurm
from weigh.errors import UsageError
from weigh.flow.report.advice import (
    Subject,
    enough_memory,
    lacked_memory,
    resource_notes,
)
from weigh.flow.report.failures import failure_notes, node_notes
from weigh.flow.report.gpu_notes import gpu_notes
from weigh.model.record import Request
from weigh.model.report import Note, Row
from weigh.request import DEFAULT_HEADROOM, from_usages, why_no_request


def notes(subject: Subject, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Say what to change and what went wrong, the strongest first."""
    said = list(_all(subject, rows))
    said += _fine(subject, {note.about for note in said})
    if any(note.words.endswith(subject.basis()) for note in said):
        said += _few(subject)
    return tuple(sorted(said, key=lambda note: note.weight, reverse=True))


def _all(subject: Subject, rows: Sequence[Row]) -> Iterator[Note]:
    yield from failure_notes(rows)
    yield from resource_notes(subject)
    yield from gpu_notes(subject)
    yield from _growing(subject)
    yield from node_notes(rows, subject.scheduler)
    yield from _unasked(subject)


def _growing(subject: Subject) -> Iterator[Note]:
    rising = sum(
        bool(run.row.growing)
        for one in subject.elements
        for run in one.runs
        if run.is_last
    )
    if rising:
        what = "it was" if rising == 1 else f"in {rising:,} runs it was"
        yield Note(
            about="memory",
            words=f"{what} still rising at the end: a longer job needs more",
            flag="weigh request --steps TOTAL --done N",
            weight=55,
            is_finding=True,
        )


def _fine(subject: Subject, said: Collection[str]) -> Iterator[Note]:
    """Say what needs no change, of what was asked for and measured."""
    about = {"memory": "memory", "time": "time", "cpus": "CPUs"}
    good = [
        word
        for name, word in about.items()
        if word not in said
        and (one := subject.measures.get(name)) is not None
        and one.efficiency is not None
    ]
    if good and subject.completed:
        yield Note(about="fine", words=", ".join(good) + subject.basis())


def _few(subject: Subject) -> Iterator[Note]:
    """Say what advice from few runs is worth."""
    few = subject.few()
    if few.startswith("no"):
        words = f"{few}: what was used is a lower bound of what is needed"
        yield Note(about="basis", words=words, weight=-1)
    elif few:
        words = f"{few}: three would say how far the next one may lie off"
        yield Note(about="basis", words=words, weight=-1)


def _unasked(subject: Subject) -> Iterator[Note]:
    """Say what to ask for where nobody asked for anything."""
    if not subject.asked.is_nothing:
        return
    every = (run.record for one in subject.elements for run in one.runs if run.record)
    apart = {record.id: record for record in every}
    reasons = {why_no_request(record) for record in apart.values()}
    records = [one for one in apart.values() if why_no_request(one) is None]
    try:
        request = from_usages(records)
    except UsageError:
        for why in sorted(reason for reason in reasons if reason):
            yield Note(about="ask for", words=f"nothing: {why}", weight=1)
        return
    dialect = gridengine if subject.scheduler == gridengine.NAME else slurm
    yield Note(
        about="ask for",
        words=f"{_rule(subject, request)}{subject.basis()}",
        flag=" ".join(dialect.directives(request)),
        weight=1,
    )


def _rule(subject: Subject, request: Request) -> str:
    """Return how the request follows from what was used."""
    usual = f"what was used + {100 * DEFAULT_HEADROOM:.0f} %"
    enough = enough_memory(subject)
    if enough is None or request.memory is None or request.memory <= enough:
        return usual
    if lacked_memory(subject):
        return f"twice the memory that ran out, else {usual}"
    return f"the memory granted, as a run failed; else {usual}"
