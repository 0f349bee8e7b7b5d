"""The curves of a run as data for the page's script."""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from weigh.model.record import Record, SampleSeries
from weigh.render.html.words import Kind
from weigh.render.printable import printable_text

_MOST_PHASES = 200  # drawn; more could not be distinguished
_MOST_EVENTS = 200  # drawn
_DEEPEST = 3  # lanes of phases above a curve
_DIGITS = 4  # a tenth of a millisecond, or of a thousandth of a CPU


class ChartLevel(msgspec.Struct, frozen=True):
    """A horizontal line in a chart: the request, or the memory of the GPU."""

    words: str
    value: float  # in the unit of its chart


class SeriesChart(msgspec.Struct, frozen=True, kw_only=True):
    """One curve; ``values`` belong to the run's times ``t``.

    ``peak`` is the measured one, which may lie between two samples.
    """

    name: str
    kind: Kind
    tone: str  # class of its colour in the style sheet
    values: tuple[float | None, ...]  # None: not sampled at that time
    levels: tuple[ChartLevel, ...] = ()
    peak: float | None = None  # None: as in the samples


class PhaseStretch(msgspec.Struct, frozen=True, kw_only=True):
    """A phase from its first begin to its last end."""

    name: str
    depth: int  # 0: not within another phase
    calls: int
    start: float  # seconds since the start of the run
    end: float  # seconds since the start of the run


class EventMark(msgspec.Struct, frozen=True):
    """An event at a moment."""

    t: float  # seconds since the start of the run
    words: str


class RunSeries(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn of one run."""

    id: str
    t: tuple[float, ...] = ()  # seconds since the start of the run
    charts: tuple[SeriesChart, ...] = ()
    phases: tuple[PhaseStretch, ...] = ()
    marks: tuple[EventMark, ...] = ()


_Levels: TypeAlias = Mapping[str, ChartLevel]


def run_series(record: Record, levels: _Levels = {}) -> RunSeries:  # noqa: B006
    """Return the curves of *record*, with its request as horizontal lines.

    *levels* are those of the report, for what the record itself has no request of.
    """
    series = record.series
    # a curve needs two points, and columns of equal length
    if series is None or len(series.t) < 2 or len(series.memory) != len(series.t):  # noqa: PLR2004
        return RunSeries(id=printable_text(record.id))
    return RunSeries(
        id=printable_text(record.id),
        t=tuple(round(t, _DIGITS) for t in series.t),
        charts=tuple(_resource_charts(record, series, levels)),
        phases=tuple(_phase_stretches(record)),
        marks=tuple(_event_marks(record)),
    )


def _resource_charts(
    record: Record, series: SampleSeries, levels: _Levels
) -> Iterator[SeriesChart]:
    peak = None if record.usage is None else record.usage.peak_memory
    yield SeriesChart(
        name="Memory",
        kind="size",
        tone="memory",
        values=series.memory,
        levels=_requested_levels(record, levels, "memory"),
        peak=None if peak is None else peak.value,
    )
    # the curve of CPUs may be missing as a whole
    if len(series.cpu) == len(series.t) and any(x is not None for x in series.cpu):
        rounded = (None if x is None else round(x, _DIGITS) for x in series.cpu)
        yield SeriesChart(
            name="CPUs busy",
            kind="cpus",
            tone="cpus",
            values=tuple(rounded),
            levels=_requested_levels(record, levels, "cpus"),
        )
    gpus = () if record.usage is None else record.usage.gpus
    for number, column in enumerate(series.gpu_memory):
        if len(column) != len(series.t):
            continue
        gpu = gpus[number] if number < len(gpus) else None
        total = None if gpu is None else gpu.memory_total
        # the request if there is one, else the GPU's own memory
        level = levels.get("gpu_memory", total and ChartLevel("GPU total", total))
        yield SeriesChart(
            name=f"GPU {number} memory"
            + ("" if gpu is None else f", {printable_text(gpu.name)}"),
            kind="size",
            tone="gpu",
            values=column,
            levels=(level,) if level else (),
        )


def _requested_levels(
    record: Record, levels: _Levels, name: Literal["memory", "cpus"]
) -> tuple[ChartLevel, ...]:
    """Return what was requested or granted; of the whole element, if not of the run."""
    if record.requested is not None and (value := getattr(record.requested, name)):
        return (ChartLevel("requested", value),)
    if record.allocation is not None and (value := getattr(record.allocation, name)):
        return (ChartLevel("granted", value),)
    return (levels[name],) if name in levels else ()


def _phase_stretches(record: Record) -> Iterator[PhaseStretch]:
    """Yield the phases of the first rank, which share the curve's time."""
    # other ranks began at other times, and would overlap
    first = min((p.rank for p in record.phases if p.rank is not None), default=None)
    shown = [p for p in record.phases if p.rank == first and p.depth < _DEEPEST]
    for phase in shown[:_MOST_PHASES]:
        # a phase that has not ended takes no time yet
        if phase.end > phase.start:
            yield PhaseStretch(
                name=printable_text(phase.name),
                depth=phase.depth,
                calls=phase.calls,
                start=round(phase.start, _DIGITS),
                end=round(phase.end, _DIGITS),
            )


def _event_marks(record: Record) -> Iterator[EventMark]:
    for event in record.events[:_MOST_EVENTS]:
        value = "" if event.value is None else f" {event.value}"
        yield EventMark(
            round(event.time, _DIGITS), printable_text(f"{event.name}{value}")
        )
