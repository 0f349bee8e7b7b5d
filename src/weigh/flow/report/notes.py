"""What there is to say of a report, in plain words, the strongest first."""

from collections.abc import Collection, Iterator, Sequence

from weigh.dialect import gridengine, slurm
from weigh.errors import UsageError
from weigh.flow.report.advice import Subject, resource_notes
from weigh.flow.report.failures import failure_notes, node_notes
from weigh.flow.report.gpu_notes import gpu_notes
from weigh.model.report import Note, Row
from weigh.request import DEFAULT_HEADROOM, from_usages


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
    asked = subject.asked
    if asked.memory or asked.time_limit or asked.cpus:
        return
    records = [run.record for one in subject.elements for run in one.runs if run.record]
    try:
        request = from_usages(records)
    except UsageError:
        return  # nothing was measured, which stands there already
    dialect = gridengine if subject.scheduler == gridengine.NAME else slurm
    yield Note(
        about="ask for",
        words=f"what was used + {100 * DEFAULT_HEADROOM:.0f} %{subject.basis()}",
        flag=" ".join(dialect.directives(request)),
        weight=1,
    )
