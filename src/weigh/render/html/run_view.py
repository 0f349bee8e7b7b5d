"""One run: its rows, phases, batches and ranks, and its curves as data and table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from weigh.model.record import (
    BatchTimes,
    ProgramPhase,
    Record,
    RecordedRank,
    SampleSeries,
)
from weigh.model.report import ReportRow, Unit
from weigh.render.printable import printable_text, shortened_text
from weigh.render.record_lines import (
    MOST_RANKS,
    rank_table,
    record_rows,
    signal_or_exit_text,
)
from weigh.render.region_lines import PHASE_TITLES, batch_rows, phase_cells
from weigh.render.words import state_text
from weigh.units import format_duration, format_size, size_or_dash

ABSENT = "-"


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table; the first cell of a row is its heading.

    ``left_out`` rows are not shown; ``depths`` indent the headings.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0  # rows
    depths: tuple[int, ...] = ()  # empty: no row is indented


_MOST_PARTS = 200  # phases or events of a run; more could not be distinguished
_LONGEST_TEXT = 2000  # characters of a row
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
    kind: Unit
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
        kind="bytes",
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
            kind="bytes",
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
    for phase in shown[:_MOST_PARTS]:
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
    for event in record.events[:_MOST_PARTS]:
        value = "" if event.value is None else f" {event.value}"
        yield EventMark(
            round(event.time, _DIGITS), printable_text(f"{event.name}{value}")
        )


class HtmlRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, safe to show."""

    id: str
    title: str
    state: str  # as in the record, for its colour
    facts: dict[str, list[str]]  # by name
    phases: HtmlTable | None  # None: the program measured no phases
    batches: tuple[tuple[str, str], ...]
    ranks: HtmlTable | None  # None: not a distributed run
    curves: tuple[str, ...]  # names of the charts


def run_view(
    record: Record,
    report_row: ReportRow | None = None,
    charts: Sequence[SeriesChart] = (),
) -> HtmlRun:
    """Return *record* in words; *report_row* is its task, *charts* are drawn of it."""
    return HtmlRun(
        id=printable_text(record.id),
        title=_run_heading(record, report_row),
        state=printable_text(record.state),
        facts=_run_facts(record),
        phases=_phase_table(record.phases),
        batches=() if record.batches is None else tuple(_batch_facts(record.batches)),
        ranks=_rank_table(record.ranks),
        curves=tuple(chart.name for chart in charts),
    )


def _run_heading(record: Record, report_row: ReportRow | None) -> str:
    row = report_row or ReportRow()
    task = None if row.task is None else f"Task {row.task}"
    words = [task or record.label or f"Run {record.id}"]
    parameters = record.parameters or row.parameters
    words += [f"{name}={value}" for name, value in parameters.items()]
    return printable_text(", ".join(words))


def _run_facts(record: Record) -> dict[str, list[str]]:
    """Return the rows of a record by their names, the lines of each."""
    state = f"{state_text(record.state)}{signal_or_exit_text(record)}"
    facts = {"ended": [printable_text(state)]}
    if record.usage is not None:
        facts["time"] = [format_duration(record.usage.wall_time)]
    name = ""
    for row in record_rows(record):
        name = row.name or name
        text = row.text
        if row.is_summary:  # what a terminal aligns are words behind each other here
            text = ", ".join(part.strip() for part in text.split("  ") if part)
        text = shortened_text(printable_text(text), _LONGEST_TEXT)
        facts.setdefault(name, []).append(text)
    return {**facts, "record": [printable_text(record.id)]}


def _phase_table(phases: Sequence[ProgramPhase]) -> HtmlTable | None:
    if not phases:
        return None
    shown = phases[:_MOST_PARTS]
    # phases can have used different GPUs: the others get empty cells
    count = max(len(phase.gpus) for phase in shown)
    titles = (*PHASE_TITLES, *(f"GPU {number} peak" for number in range(count)))
    rows = []
    for phase in shown:
        peaks = [size_or_dash(gpu.peak) for gpu in phase.gpus]
        rows.append((*phase_cells(phase), *peaks, *[ABSENT] * (count - len(peaks))))
    # without the columns in which nothing was measured, but with the names
    columns = zip(titles, *rows, strict=True)
    kept = [one for at, one in enumerate(columns) if not at or {*one[1:]} != {ABSENT}]
    head, *table = zip(*kept, strict=True)
    return HtmlTable(
        titles=head,
        rows=tuple(table),
        left_out=len(phases) - len(shown),
        # deeper phases would have no room for their names
        depths=tuple(min(phase.depth, 6) for phase in shown),
    )


def _batch_facts(batches: BatchTimes) -> Iterator[tuple[str, str]]:
    yield from batch_rows(batches)
    for number, gpu in enumerate(batches.gpus):
        if gpu.peak is not None:
            yield f"peak of GPU {number}", format_size(gpu.peak)


def _rank_table(ranks: Sequence[RecordedRank]) -> HtmlTable | None:
    if not ranks:
        return None
    cells = rank_table(ranks)
    return HtmlTable(
        titles=tuple(cells),
        rows=tuple(zip(*cells.values(), strict=True)),
        left_out=max(0, len(ranks) - MOST_RANKS),
    )
