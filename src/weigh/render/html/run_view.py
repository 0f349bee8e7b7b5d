"""One run in words: facts, phases, batches, ranks, and its curves as a table."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from weigh.model.record import Batches, Phase, Rank, Record
from weigh.model.report import Row
from weigh.render.html.masthead import state_words
from weigh.render.html.series_data import RunSeries, run_series
from weigh.render.html.words import ABSENT, Table, brief, figure, size, table_of
from weigh.render.printable import command_line, count, printable
from weigh.render.region_lines import memory_by_length
from weigh.render.words import usage_words
from weigh.units import format_duration, format_size

_MOST_PHASES = 200
_MOST_RANKS = 64
_TABLE_ROWS = 20
_LONGEST_COMMAND = 2000


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run, safe to show."""

    id: str
    title: str
    state: str
    facts: tuple[tuple[str, str], ...]
    phases: Table | None
    batches: tuple[tuple[str, str], ...]
    ranks: Table | None
    curves: tuple[str, ...]
    samples: Table | None


def run_view(record: Record, row: Row | None = None) -> RunView:
    """Return *record* in words; *row* is its task."""
    drawn = run_series(record)
    return RunView(
        id=printable(record.id),
        title=_title(record, row),
        state=printable(record.state),
        facts=tuple((name, printable(text)) for name, text in _facts(record)),
        phases=_phases(record.phases),
        batches=() if record.batches is None else tuple(_batches(record.batches)),
        ranks=_ranks(record.ranks),
        curves=tuple(chart.name for chart in drawn.charts),
        samples=_samples(drawn),
    )


def _title(record: Record, row: Row | None) -> str:
    task = None if row is None or row.task is None else f"Task {row.task}"
    words = [task or record.label or f"Run {record.id}"]
    parameters = record.parameters or ({} if row is None else row.parameters)
    words += [f"{name}={value}" for name, value in parameters.items()]
    return printable(", ".join(words))


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    yield "command", command_line(record.command)[:_LONGEST_COMMAND]
    ended = [state_words(record.state)]
    if record.signal is not None:
        ended.append(f"signal {record.signal}")
    elif record.exit_code:
        ended.append(f"exit code {record.exit_code}")
    if record.outcome is not None:
        ended += (record.outcome.reason, *record.outcome.evidence)
    yield "ended", "; ".join(dict.fromkeys(ended))
    if record.usage is not None:
        yield "time", format_duration(record.usage.wall_time)
        yield from usage_words(record.usage)
    if record.host is not None:
        yield "host", record.host.name
    yield "started", record.started
    yield "record", record.id


def _phases(phases: Sequence[Phase]) -> Table | None:
    if not phases:
        return None
    number_of_gpus = max(len(phase.gpus) for phase in phases)
    gpus = (f"GPU {number} peak" for number in range(number_of_gpus))
    shown = phases[:_MOST_PHASES]
    return table_of(
        ("phase", "calls", "time", "CPU time", "before", "peak", "after", *gpus),
        [_phase(phase, number_of_gpus) for phase in shown],
        left_out=len(phases) - len(shown),
        depths=tuple(min(phase.depth, 6) for phase in shown),
    )


def _phase(phase: Phase, number_of_gpus: int) -> tuple[str, ...]:
    peaks = [size(gpu.peak) for gpu in phase.gpus]
    rank = "" if phase.rank is None else f" (rank {phase.rank})"
    return (
        printable(phase.name) + rank,
        count(phase.calls),
        brief(phase.wall_time),
        brief(phase.cpu_time),
        size(phase.memory_before),
        size(phase.peak_memory),
        size(phase.memory_after),
        *peaks,
        *[ABSENT] * (number_of_gpus - len(peaks)),
    )


def _batches(batches: Batches) -> Iterator[tuple[str, str]]:
    of = "" if batches.total is None else f" of {count(batches.total)}"
    yield "batches", f"{count(batches.count)}{of}"
    if batches.size is not None:
        yield "size", count(batches.size)
    times = (
        ("quickest", batches.time_min),
        ("median", batches.time_median),
        ("mean", batches.time_mean),
        ("slowest", batches.time_max),
        ("a sample", batches.time_per_sample),
    )
    yield from ((name, brief(time)) for name, time in times if time is not None)
    if batches.peak_memory is not None:
        yield "peak memory", format_size(batches.peak_memory)
    if why := memory_by_length(batches):
        yield "rises with", why
    for number, gpu in enumerate(batches.gpus):
        if gpu.peak is not None:
            yield f"peak of GPU {number}", format_size(gpu.peak)


def _ranks(ranks: Sequence[Rank]) -> Table | None:
    if not ranks:
        return None
    shown = ranks[:_MOST_RANKS]
    return table_of(
        ("rank", "host", "peak memory", "CPU time"),
        [
            (
                str(rank.rank),
                printable(rank.host or ABSENT),
                size(rank.peak_memory),
                figure(rank.cpu_time, "time"),
            )
            for rank in shown
        ],
        left_out=len(ranks) - len(shown),
    )


def _samples(drawn: RunSeries) -> Table | None:
    """Return the curves as a short table, for readers without the charts.

    It has the sample with the most memory of each of equal stretches.
    """
    if not drawn.charts:
        return None
    memory, number = drawn.charts[0].values, len(drawn.t)
    edges = [number * i // _TABLE_ROWS for i in range(_TABLE_ROWS + 1)]
    stretches = [range(a, b) for a, b in pairwise(edges) if b > a]
    kept = [max(stretch, key=lambda at: memory[at] or 0) for stretch in stretches]
    return table_of(
        ("time", *(chart.name for chart in drawn.charts)),
        [
            (
                format_duration(drawn.t[at]),
                *(figure(chart.values[at], chart.kind) for chart in drawn.charts),
            )
            for at in kept
        ],
    )
