"""``weigh compare``: medians of runs, their spread, and what may be noise."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import msgspec

from weigh.errors import UsageError
from weigh.estimate.history import template
from weigh.estimate.readings import gpu_memory
from weigh.flow.here import Here, here_now
from weigh.flow.records.records import find_record, open_store
from weigh.model.record import BatchTimes, Record, Usage
from weigh.render.comparison_lines import (
    ComparedFigure,
    ComparisonRow,
    ComparisonSide,
    FigureChange,
    ParameterDifference,
    RunComparison,
    Unit,
    side_letter,
)
from weigh.request import COMPLETED
from weigh.robust import ratio_interval
from weigh.store.find import labelled_entries
from weigh.store.index import read_index, read_record
from weigh.units import count_with_noun
from weigh.usage_needs import has_waited, wait_words


class ComparedRecords(msgspec.Struct, frozen=True):
    """The records that one name stands for: runs of one command."""

    name: str
    records: tuple[Record, ...]


def compare(*runs: Record | str | Sequence[Record]) -> RunComparison:
    """Compare runs with the first of them, as ``weigh compare`` does.

    Each is a record, several of one thing, or a name as on the command line.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    return compare_named(here_now(), runs)


def compare_named(
    here: Here, runs: Sequence[Record | str | Sequence[Record]]
) -> RunComparison:
    """Compare records with the first; a label stands for all of its records.

    Raises:
        UsageError: fewer than two, the same one twice, or nothing was measured.
        RecordNotFoundError: no such record; offers the nearest names.
    """
    groups = []
    seen: dict[str, str] = {}
    for run in runs:
        if isinstance(run, str):
            group = _records_called(here, run)
        else:
            records = (run,) if isinstance(run, Record) else tuple(run)
            name = records[0].label or records[0].id if records else "an empty list"
            group = ComparedRecords(name, records)
        for record in group.records:
            # the same record on two sides would show a difference of 0
            if record.id in seen:
                raise UsageError(
                    f"{seen[record.id]} and {group.name} are the same record "
                    f"({record.id}): name another"
                )
        seen.update((record.id, group.name) for record in group.records)
        groups.append(group)
    return compare_record_groups(groups)


def _records_called(here: Here, name: str) -> ComparedRecords:
    store = open_store(here.cwd, here.env)
    labelled = labelled_entries(read_index(store.root), name)
    if labelled:
        return ComparedRecords(
            name, tuple(read_record(entry) for entry in labelled[::-1])
        )
    return ComparedRecords(name, (find_record(store, name),))


class _ComparedSide(msgspec.Struct, frozen=True):
    """The runs of one name that count: their usages, and the records they are of."""

    shown: ComparisonSide
    usages: tuple[Usage, ...]
    records: tuple[Record, ...]

    @property
    def loops(self) -> list[BatchTimes]:
        """Return the timed loops of the records."""
        return [record.batches for record in self.records if record.batches]


def compare_record_groups(groups: Sequence[ComparedRecords]) -> RunComparison:
    """Compare each of *groups* with the first.

    Failed runs are left out if others completed. Warm-up runs are always left out.

    Raises:
        UsageError: fewer than two groups, or one without any measurement.
    """
    if len(groups) < 2:  # noqa: PLR2004 - one and another
        raise UsageError("nothing to compare with: name two records or more")
    sides = [_compared_side(group) for group in groups]
    return RunComparison(
        sides=tuple(side.shown for side in sides),
        differences=tuple(_different_parameters(sides)),
        rows=tuple(_compared_rows(sides)),
        notes=tuple(_comparison_doubts(sides)),
    )


def _compared_side(group: ComparedRecords) -> _ComparedSide:
    # a record with repeats has one run for each of them
    ran = [(record, *run) for record in group.records for run in _runs_of(record)]
    if not ran:
        raise UsageError(
            f"{group.name} has no measurement: measure it with weigh run -- COMMAND"
        )
    # failed runs count only if there is nothing else
    whole = [run for run in ran if run[2]] or ran
    records = tuple({record.id: record for record, _, _ in whole}.values())
    usages = tuple(usage for _, usage, _ in whole)
    shown = ComparisonSide(
        name=group.name,
        records=tuple(record.id for record in records),
        command=records[0].command,
        runs=len(usages),
        state=next((r.state for r in records if r.state != COMPLETED), COMPLETED),
        failed=len(ran) - len(whole),
    )
    return _ComparedSide(shown, usages, records)


def _runs_of(record: Record) -> Iterator[tuple[Usage, bool]]:
    """Yield each run of a record and whether it completed."""
    if not record.repeats and record.usage is not None:
        yield record.usage, record.state == COMPLETED
    for repeat in record.repeats:
        if not repeat.warmup:
            yield repeat.usage, repeat.exit_code == 0 and repeat.signal is None


def _different_parameters(
    sides: Sequence[_ComparedSide],
) -> Iterator[ParameterDifference]:
    records = [record for side in sides for record in side.records]
    for name in dict.fromkeys(name for one in records for name in one.parameters):
        values: list[int | float | str | None] = []
        for side in sides:
            # a dict keeps the order of the values, a set would not
            several = list(dict.fromkeys(r.parameters.get(name) for r in side.records))
            words = ("not recorded" if v is None else str(v) for v in several)
            values.append(several[0] if len(several) == 1 else ", ".join(words))
        if len(set(values)) > 1:
            yield ParameterDifference(name, tuple(values))


def _comparison_doubts(sides: Sequence[_ComparedSide]) -> Iterator[str]:
    """Yield what makes a comparison doubtful, the most serious first."""
    # doubts about a side come first: they may make the whole comparison worthless
    for turn, side in enumerate(sides):
        for doubt in _doubts_of_side(side):
            yield f"{side_letter(turn)}{doubt}"
    for what, read in _SURROUNDINGS:
        values = [
            " and ".join(dict.fromkeys(filter(None, map(read, side.records))))
            for side in sides
        ]
        # an unknown host or GPU is no difference
        if len(set(filter(None, values))) > 1:
            each = (
                f"{side_letter(n)} {value or '?'}" for n, value in enumerate(values)
            )
            yield f"different {what}: {', '.join(each)}"
    if len({template(r.command, r.parameters) for s in sides for r in s.records}) > 1:
        yield "different commands"
    if all(side.shown.runs == 1 for side in sides):
        yield "one run each: no spread known; weigh run --repeat 3 measures it"


def _doubts_of_side(side: _ComparedSide) -> Iterator[str]:
    shown = side.shown
    if shown.state != COMPLETED:
        code = next(r.exit_code for r in side.records if r.state == shown.state)
        state = f"{shown.state}, exit code {code}" if code else shown.state
        yield f" did not complete ({state}): its figures are not those of a whole run"
    if shown.failed:
        yield f": {count_with_noun(shown.failed, 'run')} failed and left out"
    waited = [usage for usage in side.usages if has_waited(usage)]
    if waited:
        yield f" {wait_words(waited[0])}"


def _gpu_names(record: Record) -> str:
    if record.usage is None:
        return ""
    # GPUs that were visible but not used do not matter
    used = [gpu.name for gpu in record.usage.gpus if gpu.job_peak != 0]
    return " + ".join(used) or "none"


def _commit_of(record: Record) -> str:
    return ((record.provenance and record.provenance.git_commit) or "")[:10]


_SURROUNDINGS: tuple[tuple[str, Callable[[Record], str]], ...] = (
    ("hosts", lambda record: record.host.name if record.host else ""),
    ("GPUs", _gpu_names),
    ("commits", _commit_of),
)


def _compared_rows(sides: Sequence[_ComparedSide]) -> Iterator[ComparisonRow]:
    for name, unit, read in _QUANTITIES:
        found = [[value for value in read(side) if value is not None] for side in sides]
        if any(found):
            changes = (
                figure_change(found[0], other) if found[0] and other else None
                for other in found[1:]
            )
            figures = (
                ComparedFigure(median(values), min(values), max(values), len(values))
                if values
                else None
                for values in found
            )
            yield ComparisonRow(name, unit, tuple(figures), (None, *changes))


def figure_change(base: list[float], other: list[float]) -> FigureChange:
    """Return how *other* differs from *base*, and whether that may be noise.

    Where the spread is known, a difference is one if Welch's 95 % interval of the ratio
    excludes 1.
    """
    middles = median(base), median(other)
    # a ratio needs values above 0
    interval = ratio_interval(base, other) if min(base + other) > 0 else None
    low, high = interval or (None, None)
    return FigureChange(
        ratio=middles[1] / middles[0] if middles[0] > 0 else None,
        difference=middles[1] - middles[0],
        low=low,
        high=high,
        distinguishable=None
        if interval is None
        else not interval[0] <= 1 <= interval[1],
    )


def _peak_of_usage(usage: Usage) -> float | None:
    return None if usage.peak_memory is None else float(usage.peak_memory.value)


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


_QUANTITIES: tuple[
    tuple[str, Unit, Callable[[_ComparedSide], Iterable[float | None]]], ...
] = (
    ("wall_time", "seconds", lambda side: (u.wall_time for u in side.usages)),
    ("cpu_time", "seconds", lambda side: (u.cpu_time for u in side.usages)),
    ("peak_memory", "bytes", lambda side: map(_peak_of_usage, side.usages)),
    ("gpu_memory", "bytes", lambda side: map(gpu_memory, side.usages)),
    ("batch_gpu_memory", "bytes", lambda side: map(_batch_gpu_memory, side.loops)),
    ("gpu_utilization", "per cent", lambda side: map(_gpu_busy, side.usages)),
    ("time_per_batch", "seconds", lambda side: (b.time_mean for b in side.loops)),
    (
        "time_per_sample",
        "seconds",
        lambda side: (b.time_per_sample for b in side.loops),
    ),
)
