"""The curves of a run, as the page's script draws them."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.record import Record, Series
from weigh.model.report import Measure
from weigh.model.report import Name as MeasureName
from weigh.render.html.words import Kind
from weigh.render.printable import printable

_MOST_PHASES = 200
_MOST_EVENTS = 200
_DEEPEST = 3  # lanes of phases above a curve
_DIGITS = 4  # a tenth of a millisecond, or of a thousandth of a CPU


class Level(msgspec.Struct, frozen=True):
    """A line across a chart: what was asked for, what a card has."""

    words: str
    value: float


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One curve; ``values`` beside the run's ``t``."""

    name: str
    kind: Kind
    tone: str
    values: tuple[float | None, ...]
    levels: tuple[Level, ...] = ()


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A phase from its first begin to its last end."""

    name: str
    depth: int
    calls: int
    start: float
    end: float


class Mark(msgspec.Struct, frozen=True):
    """An event at a moment."""

    t: float
    words: str


class RunSeries(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn of one run."""

    id: str
    t: tuple[float, ...] = ()
    charts: tuple[Chart, ...] = ()
    phases: tuple[Stretch, ...] = ()
    marks: tuple[Mark, ...] = ()


def run_series(record: Record, measures: Sequence[Measure] = ()) -> RunSeries:
    """Gather the curves of *record*, with what was asked for as lines across.

    What the record does not say of its request is taken from *measures*.
    """
    series = record.series
    if series is None or len(series.t) < 2 or len(series.memory) != len(series.t):  # noqa: PLR2004
        return RunSeries(id=printable(record.id))
    return RunSeries(
        id=printable(record.id),
        t=tuple(round(t, _DIGITS) for t in series.t),
        charts=tuple(_charts(record, series, measures)),
        phases=tuple(_phases(record)),
        marks=tuple(_marks(record)),
    )


def _charts(
    record: Record, series: Series, measures: Sequence[Measure]
) -> Iterator[Chart]:
    yield Chart(
        name="Memory",
        kind="size",
        tone="memory",
        values=series.memory,
        levels=tuple(_levels(record, measures, "memory")),
    )
    if len(series.cpu) == len(series.t) and any(x is not None for x in series.cpu):
        rounded = (None if x is None else round(x, _DIGITS) for x in series.cpu)
        yield Chart(
            name="CPUs busy",
            kind="cpus",
            tone="cpus",
            values=tuple(rounded),
            levels=tuple(_levels(record, measures, "cpus")),
        )
    yield from _gpu_charts(record, series, measures)


def _gpu_charts(
    record: Record, series: Series, measures: Sequence[Measure]
) -> Iterator[Chart]:
    asked = tuple(_asked(measures, "gpu_memory"))
    cards = () if record.usage is None else record.usage.gpus
    for number, column in enumerate(series.gpu_memory):
        if len(column) != len(series.t):
            continue
        card = cards[number] if number < len(cards) else None
        total = None if card is None else card.memory_total
        of = "" if card is None else f", {printable(card.name)}"
        yield Chart(
            name=f"GPU {number} memory{of}",
            kind="size",
            tone="gpu",
            values=column,
            levels=asked or (() if total is None else (Level("the card has", total),)),
        )


def _levels(
    record: Record, measures: Sequence[Measure], name: MeasureName
) -> Iterator[Level]:
    """Give what was asked for; for the whole element where the run itself says none."""
    for said, what in ((record.request, "asked for"), (record.allocation, "granted")):
        value = None if said is None else getattr(said, name)
        if value is not None:
            yield Level(what, value)
            return
    yield from _asked(measures, name)


def _asked(measures: Sequence[Measure], name: MeasureName) -> Iterator[Level]:
    for measure in measures:
        if measure.name == name and measure.asked is not None:
            yield Level("asked for", measure.asked)


def _phases(record: Record) -> Iterator[Stretch]:
    """Give the phases of the first rank that lie on the curve's own time."""
    first = min((p.rank for p in record.phases if p.rank is not None), default=None)
    shown = [p for p in record.phases if p.rank == first and p.depth < _DEEPEST]
    for phase in shown[:_MOST_PHASES]:
        if phase.end > phase.start:
            yield Stretch(
                name=printable(phase.name),
                depth=phase.depth,
                calls=phase.calls,
                start=round(phase.start, _DIGITS),
                end=round(phase.end, _DIGITS),
            )


def _marks(record: Record) -> Iterator[Mark]:
    for event in record.events[:_MOST_EVENTS]:
        value = "" if event.value is None else f" {event.value}"
        yield Mark(round(event.time, _DIGITS), printable(f"{event.name}{value}"))
