"""One run in words: facts, phases, batches, ranks, and its curves as a table."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from weigh.model.record import BatchTimes, ProgramPhase, Record, RecordedRank
from weigh.model.report import ReportRow
from weigh.render.html.masthead import state_as_words
from weigh.render.html.series_data import RunSeries, run_series
from weigh.render.html.words import (
    ABSENT,
    HtmlTable,
    brief_time_or_hyphen,
    figure_text,
    size_or_hyphen,
    table_of,
)
from weigh.render.printable import (
    count_with_commas,
    printable_text,
    shortened_text,
)
from weigh.render.record_lines import record_rows, signal_or_exit_text
from weigh.render.region_lines import memory_by_length
from weigh.units import format_duration, format_size

_MOST_PHASES = 200  # rows
_MOST_RANKS = 64  # rows
_TABLE_ROWS = 20  # rows of the table in place of the charts
_LONGEST_TEXT = 2000  # characters of a row


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
    samples: HtmlTable | None  # None: no curves


def run_view(record: Record, report_row: ReportRow | None = None) -> HtmlRun:
    """Return *record* in words; *report_row* is its task."""
    drawn = run_series(record)
    return HtmlRun(
        id=printable_text(record.id),
        title=_run_heading(record, report_row),
        state=printable_text(record.state),
        facts=_run_facts(record),
        phases=_phase_table(record.phases),
        batches=() if record.batches is None else tuple(_batch_facts(record.batches)),
        ranks=_rank_table(record.ranks),
        curves=tuple(chart.name for chart in drawn.charts),
        samples=_curve_sample_table(drawn),
    )


def _run_heading(record: Record, report_row: ReportRow | None) -> str:
    task = (
        None
        if report_row is None or report_row.task is None
        else f"Task {report_row.task}"
    )
    words = [task or record.label or f"Run {record.id}"]
    parameters = record.parameters or (
        {} if report_row is None else report_row.parameters
    )
    words += [f"{name}={value}" for name, value in parameters.items()]
    return printable_text(", ".join(words))


def _run_facts(record: Record) -> dict[str, list[str]]:
    """Return the rows of a record by their names, the lines of each."""
    state = f"{state_as_words(record.state)}{signal_or_exit_text(record)}"
    facts = {"ended": [printable_text(state)]}
    if record.usage is not None:
        facts["time"] = [format_duration(record.usage.wall_time)]
    name = ""
    for row in record_rows(record):
        name = row.name or name
        text = shortened_text(printable_text(row.text), _LONGEST_TEXT)
        facts.setdefault(name, []).append(text)
    return {**facts, "record": [printable_text(record.id)]}


def _phase_table(phases: Sequence[ProgramPhase]) -> HtmlTable | None:
    if not phases:
        return None
    number_of_gpus = max(len(phase.gpus) for phase in phases)
    # phases can have used different GPUs: the others get empty cells
    gpus = (f"GPU {number} peak" for number in range(number_of_gpus))
    shown = phases[:_MOST_PHASES]
    return table_of(
        ("phase", "calls", "time", "CPU time", "before", "peak", "after", *gpus),
        [_phase_cells(phase, number_of_gpus) for phase in shown],
        left_out=len(phases) - len(shown),
        # deeper phases would have no room for their names
        depths=tuple(min(phase.depth, 6) for phase in shown),
    )


def _phase_cells(phase: ProgramPhase, number_of_gpus: int) -> tuple[str, ...]:
    peaks = [size_or_hyphen(gpu.peak) for gpu in phase.gpus]
    rank = "" if phase.rank is None else f" (rank {phase.rank})"
    return (
        printable_text(phase.name) + rank,
        count_with_commas(phase.calls),
        brief_time_or_hyphen(phase.wall_time),
        brief_time_or_hyphen(phase.cpu_time),
        size_or_hyphen(phase.memory_before),
        size_or_hyphen(phase.peak_memory),
        size_or_hyphen(phase.memory_after),
        *peaks,
        *[ABSENT] * (number_of_gpus - len(peaks)),
    )


def _batch_facts(batches: BatchTimes) -> Iterator[tuple[str, str]]:
    of = "" if batches.total is None else f" of {count_with_commas(batches.total)}"
    yield "batches", f"{count_with_commas(batches.count)}{of}"
    if batches.size is not None:
        yield "size", count_with_commas(batches.size)
    times = (
        ("quickest", batches.time_min),
        ("median", batches.time_median),
        ("mean", batches.time_mean),
        ("slowest", batches.time_max),
        ("a sample", batches.time_per_sample),
    )
    yield from (
        (name, brief_time_or_hyphen(time)) for name, time in times if time is not None
    )
    if batches.peak_memory is not None:
        yield "peak memory", format_size(batches.peak_memory)
    if why := memory_by_length(batches):
        yield "rises with", why
    for number, gpu in enumerate(batches.gpus):
        if gpu.peak is not None:
            yield f"peak of GPU {number}", format_size(gpu.peak)


def _rank_table(ranks: Sequence[RecordedRank]) -> HtmlTable | None:
    if not ranks:
        return None
    shown = ranks[:_MOST_RANKS]
    return table_of(
        ("rank", "host", "peak memory", "CPU time"),
        [
            (
                str(rank.rank),
                printable_text(rank.host or ABSENT),
                size_or_hyphen(rank.peak_memory),
                figure_text(rank.cpu_time, "time"),
            )
            for rank in shown
        ],
        left_out=len(ranks) - len(shown),
    )


def _curve_sample_table(drawn: RunSeries) -> HtmlTable | None:
    """Return the curves as a short table, for readers without the charts.

    It has the sample with the most memory of each of equal stretches.
    """
    if not drawn.charts:
        return None
    memory, number = drawn.charts[0].values, len(drawn.t)
    edges = [number * i // _TABLE_ROWS for i in range(_TABLE_ROWS + 1)]
    # stretches without a sample are left out
    stretches = [range(a, b) for a, b in pairwise(edges) if b > a]
    kept = [max(stretch, key=lambda at: memory[at] or 0) for stretch in stretches]
    return table_of(
        ("time", *(chart.name for chart in drawn.charts)),
        [
            (
                format_duration(drawn.t[at]),
                *(figure_text(chart.values[at], chart.kind) for chart in drawn.charts),
            )
            for at in kept
        ],
    )
