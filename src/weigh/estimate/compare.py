"""Compare runs: medians, their spread, and which differences may be noise."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from weigh.errors import UsageError
from weigh.estimate.history_groups import template
from weigh.model.comparison import (
    ComparedFigure,
    ComparisonRow,
    ComparisonSide,
    FigureChange,
    ParameterDifference,
    RunComparison,
    Unit,
)
from weigh.model.record import BatchTimes, Record, Usage
from weigh.need import has_waited, knobs_of, wait_words
from weigh.robust import median_of, ratio_interval

COMPLETED = "COMPLETED"
_COMMIT = 10  # letters of one


class ComparedRecords(msgspec.Struct, frozen=True):
    """The records that one name stands for: runs of one command."""

    name: str
    records: tuple[Record, ...]


class _CountedRuns(msgspec.Struct, frozen=True):
    """The runs of a group that count, and how many failed."""

    usages: tuple[Usage, ...]
    records: tuple[Record, ...]
    failed: int  # runs that did not count


# a figure and its lowest and highest possible value
_Reading: TypeAlias = tuple[float, float, float]


def letter(turn: int) -> str:
    """Return the name of a side: A to Z, then a number."""
    return chr(ord("A") + turn) if turn < 26 else f"#{turn + 1}"  # noqa: PLR2004


def compare_record_groups(groups: Sequence[ComparedRecords]) -> RunComparison:
    """Compare each of *groups* with the first.

    Failed runs are left out if others completed. Warm-up runs are always left out.

    Raises:
        UsageError: fewer than two groups, or one without any measurement.
    """
    if len(groups) < 2:  # noqa: PLR2004 - one and another
        raise UsageError("nothing to compare with: name two records or more")
    counted = [_counted_runs(group) for group in groups]
    sides = [_side(group, one) for group, one in zip(groups, counted, strict=True)]
    records = [one.records for one in counted]
    return RunComparison(
        sides=tuple(sides),
        differences=tuple(_different_parameters(records)),
        rows=tuple(_compared_rows(counted)),
        notes=tuple(_comparison_doubts(sides, records)),
    )


def _counted_runs(group: ComparedRecords) -> _CountedRuns:
    # a record with repeats has one run for each of them
    ran = [(record, *run) for record in group.records for run in _runs_of(record)]
    if not ran:
        raise UsageError(
            f"{group.name} has no measurement: measure it with weigh run -- COMMAND"
        )
    # failed runs count only if there is nothing else
    whole = [run for run in ran if run[2]] or ran
    records = {record.id: record for record, _, _ in whole}
    return _CountedRuns(
        usages=tuple(usage for _, usage, _ in whole),
        records=tuple(records.values()),
        failed=len(ran) - len(whole),
    )


def _runs_of(record: Record) -> Iterator[tuple[Usage, bool]]:
    """Yield each run of a record and whether it completed."""
    if not record.repeats and record.usage is not None:
        yield record.usage, record.state == COMPLETED
    for repeat in record.repeats:
        if not repeat.warmup:
            yield repeat.usage, repeat.exit_code == 0 and repeat.signal is None


def _side(group: ComparedRecords, counted: _CountedRuns) -> ComparisonSide:
    states = [r.state for r in counted.records if r.state != COMPLETED]
    return ComparisonSide(
        name=group.name,
        records=tuple(record.id for record in counted.records),
        command=counted.records[0].command,
        runs=len(counted.usages),
        state=states[0] if states else COMPLETED,
        failed=counted.failed,
        growing=any(usage.growing for usage in counted.usages),
    )


def _different_parameters(
    groups: Sequence[Sequence[Record]],
) -> Iterator[ParameterDifference]:
    names = dict.fromkeys(n for group in groups for r in group for n in r.parameters)
    for name in names:
        # a dict keeps the order of the values, a set would not
        values = [{r.parameters.get(name): None for r in group} for group in groups]
        if any(one != values[0] for one in values):
            each = (
                next(iter(one))
                if len(one) == 1
                else ", ".join("not recorded" if v is None else str(v) for v in one)
                for one in values
            )
            yield ParameterDifference(name, tuple(each))


def _comparison_doubts(
    sides: Sequence[ComparisonSide], groups: Sequence[Sequence[Record]]
) -> Iterator[str]:
    """Yield what makes a comparison doubtful, the most serious first."""
    # doubts about a side come first: they may make the whole comparison worthless
    for turn, (side, group) in enumerate(zip(sides, groups, strict=True)):
        for doubt in _doubts_of_side(side, group):
            yield f"{letter(turn)}{doubt}"
    for what, read in _SURROUNDINGS:
        values = [
            " and ".join(dict.fromkeys(filter(None, map(read, group))))
            for group in groups
        ]
        # an unknown host or GPU is no difference
        if len(set(filter(None, values))) > 1:
            each = (f"{letter(n)} {value or '?'}" for n, value in enumerate(values))
            yield f"different {what}: {', '.join(each)}"
    if len({template(r.command, r.parameters) for group in groups for r in group}) > 1:
        yield "different commands"
    if all(side.runs == 1 for side in sides):
        yield "one run each: no spread known; weigh run --repeat 3 measures it"


def _doubts_of_side(side: ComparisonSide, group: Sequence[Record]) -> Iterator[str]:
    if side.state == "RUNNING":
        yield " is still running: its figures are not final"
    elif side.state != COMPLETED:
        code = next((r.exit_code for r in group if r.state == side.state), None)
        state = f"{side.state}, exit code {code}" if code else side.state
        yield f" did not complete ({state}): its figures are not those of a whole run"
    if side.failed:
        runs = "run" if side.failed == 1 else "runs"
        yield f": {side.failed} {runs} failed and left out"
    if side.growing:
        yield (
            ": memory was still rising at the end; "
            "the peak holds for this length of run only"
        )
    waited = [r.usage for r in group if r.usage is not None and has_waited(r.usage)]
    if waited:
        yield f" {wait_words(waited[0])}"


def _gpu_names(record: Record) -> str:
    if record.usage is None:
        return ""
    # GPUs that were visible but not used do not matter
    used = [gpu.name for gpu in record.usage.gpus if gpu.job_peak != 0]
    counts = {name: used.count(name) for name in used}
    words = (name if n == 1 else f"{n} x {name}" for name, n in counts.items())
    return " + ".join(words) or "none"


def _commit_of_record(record: Record) -> str:
    return ((record.provenance and record.provenance.git_commit) or "")[:_COMMIT]


_SURROUNDINGS: tuple[tuple[str, Callable[[Record], str]], ...] = (
    ("hosts", lambda record: record.host.name if record.host else ""),
    ("GPUs", _gpu_names),
    ("commits", _commit_of_record),
    ("limits of memory in the program", lambda record: " ".join(knobs_of(record))),
)


def _compared_rows(counted: Sequence[_CountedRuns]) -> Iterator[ComparisonRow]:
    for name, unit, read in _QUANTITIES:
        found = [
            [_bounded(value) for value in read(side) if value is not None]
            for side in counted
        ]
        if any(found):
            changes = (
                figure_change(found[0], other) if found[0] and other else None
                for other in found[1:]
            )
            figures = (_figure(readings) if readings else None for readings in found)
            yield ComparisonRow(name, unit, tuple(figures), (None, *changes))


def _bounded(value: float | _Reading) -> _Reading:
    return value if isinstance(value, tuple) else (value, value, value)


def _figure(readings: Sequence[_Reading]) -> ComparedFigure:
    values = [value for value, _, _ in readings]
    if len(readings) == 1:
        return ComparedFigure(*readings[0], 1)
    return ComparedFigure(median_of(values), min(values), max(values), len(values))


def figure_change(base: Sequence[_Reading], other: Sequence[_Reading]) -> FigureChange:
    """Return how *other* differs from *base*, and whether that may be noise.

    Where the spread is known, a difference is one if Welch's 95 % interval of the ratio
    excludes 1. Measurements whose bounds overlap never differ.
    """
    first, low, high = (list(column) for column in zip(*base, strict=True))
    second, its_low, its_high = (list(column) for column in zip(*other, strict=True))
    middles = median_of(first), median_of(second)
    # a ratio needs values above 0
    interval = ratio_interval(first, second) if min(first + second) > 0 else None
    is_apart = None if interval is None else not interval[0] <= 1 <= interval[1]
    is_bounded = low != high or its_low != its_high
    # bounds that overlap in both directions may hide the same peak
    if is_bounded and median_of(low) <= median_of(its_high):
        is_apart = False if median_of(its_low) <= median_of(high) else is_apart
    return FigureChange(
        ratio=middles[1] / middles[0] if middles[0] > 0 else None,
        difference=middles[1] - middles[0],
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        distinguishable=is_apart,
    )


def _peak_reading(usage: Usage) -> _Reading | None:
    peak = usage.peak_memory
    return None if peak is None else (peak.value, peak.low, peak.high)


def _gpu_busy(usage: Usage) -> float | None:
    # a GPU that the job never used would halve the mean
    used = [gpu for gpu in usage.gpus if gpu.job_peak != 0]
    busy = [g.utilization_mean for g in used if g.utilization_mean is not None]
    return sum(busy) / len(busy) if busy else None


def _batch_gpu_memory(loop: BatchTimes) -> float | None:
    """Return the GPU memory that the batches took in addition to the model."""
    # before the first batch the GPU held the model
    pairs = ((gpu.peak, gpu.before) for gpu in loop.gpus)
    return max(
        (p - b for p, b in pairs if p is not None and b is not None), default=None
    )


_Values: TypeAlias = Iterator[float | _Reading | None]
_ReadSide: TypeAlias = Callable[[_CountedRuns], _Values]


def _of_runs(read: Callable[[Usage], float | _Reading | None]) -> _ReadSide:
    return lambda counted: map(read, counted.usages)


def _of_loops(read: Callable[[BatchTimes], float | None]) -> _ReadSide:
    return lambda counted: (read(r.batches) for r in counted.records if r.batches)


_QUANTITIES: tuple[tuple[str, Unit, _ReadSide], ...] = (
    ("wall_time", "seconds", _of_runs(lambda usage: usage.wall_time)),
    ("cpu_time", "seconds", _of_runs(lambda usage: usage.cpu_time)),
    ("peak_memory", "bytes", _of_runs(_peak_reading)),
    (
        "max_process_memory",  # where that of all is not known
        "bytes",
        _of_runs(lambda u: None if u.peak_memory else u.max_process_memory),
    ),
    (
        "gpu_memory",
        "bytes",
        _of_runs(lambda u: max((g.job_peak or 0 for g in u.gpus), default=0) or None),
    ),
    ("batch_gpu_memory", "bytes", _of_loops(_batch_gpu_memory)),
    ("gpu_utilization", "per cent", _of_runs(_gpu_busy)),
    ("time_per_batch", "seconds", _of_loops(lambda loop: loop.time_mean)),
    ("time_per_sample", "seconds", _of_loops(lambda loop: loop.time_per_sample)),
)
