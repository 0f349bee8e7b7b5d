"""Compare runs: medians, their spread, and which differences may be noise."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from weigh.errors import UsageError
from weigh.estimate.trend import median, ratio_interval
from weigh.model.comparison import (
    Change,
    Comparison,
    Difference,
    Figure,
    Order,
    Row,
    Side,
    Unit,
)
from weigh.model.record import Record, Usage
from weigh.need import has_waited, knobs_of, wait_words

_Value = int | float | str | None
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COMMIT = 10  # letters of one


def letter(turn: int) -> str:
    """Return the name of a side: A to Z, then a number."""
    return _LETTERS[turn] if turn < len(_LETTERS) else f"#{turn + 1}"


def differences(groups: Sequence[Sequence[Record]]) -> Iterator[Difference]:
    """Yield the parameters that differ between sides, then the command.

    A command that differs only in the values of parameters is not repeated.
    """
    names = dict.fromkeys(n for group in groups for r in group for n in r.parameters)
    for name in names:
        values = tuple(_parameter(group, name) for group in groups)
        if len(set(values)) > 1:
            yield Difference(name, values)
    if _unexplained(groups):
        yield Difference("command", _changed_words(groups))


def notes(sides: Sequence[Side], groups: Sequence[Sequence[Record]]) -> Iterator[str]:
    """Yield what makes a comparison doubtful, the most serious first."""
    yield from _failures(sides, groups)
    yield from _mixed(sides, groups)
    for what, read in _SURROUNDINGS:
        yield from _unlike(what, [_values(group, read) for group in groups])
    if _unexplained(groups):
        yield "different commands"
    for turn, side in enumerate(sides):
        if side.growing:
            yield (
                f"{letter(turn)}: memory was still rising at the end; "
                "the peak holds for this length of run only"
            )
    yield from _waits(groups)
    if all(side.runs == 1 for side in sides):
        yield "one run each: no spread known; weigh run --repeat 3 measures it"


def _waits(groups: Sequence[Sequence[Record]]) -> Iterator[str]:
    """Yield the longest wait for CPUs of each side: its time is not the program's."""
    for turn, group in enumerate(groups):
        usages = [r.usage for r in group if r.usage is not None and has_waited(r.usage)]
        if usages:
            worst = max(
                usages, key=lambda one: one.cpu_wait.time if one.cpu_wait else 0
            )
            yield f"{letter(turn)} {wait_words(worst)}"


def _failures(
    sides: Sequence[Side], groups: Sequence[Sequence[Record]]
) -> Iterator[str]:
    for turn, (side, group) in enumerate(zip(sides, groups, strict=True)):
        if side.state == "RUNNING":
            yield f"{letter(turn)} is still running: its figures are not final"
        elif side.state != "COMPLETED":
            bad = next(r for r in group if r.state == side.state)
            code = f", exit code {bad.exit_code}" if bad.exit_code else ""
            signal = f", signal {bad.signal}" if bad.signal is not None else ""
            yield (
                f"{letter(turn)} did not complete ({side.state}{code}{signal}): "
                "its figures are not those of a whole run"
            )
        if side.failed:
            runs = "run" if side.failed == 1 else "runs"
            yield f"{letter(turn)}: {side.failed} {runs} failed and left out"


def _mixed(sides: Sequence[Side], groups: Sequence[Sequence[Record]]) -> Iterator[str]:
    for turn, (side, group) in enumerate(zip(sides, groups, strict=True)):
        commands = {record.command for record in group}
        if len(commands) > 1:
            yield (
                f"{letter(turn)}: {side.name} covers {len(commands)} different "
                "commands: the spread includes their differences"
            )


def _unlike(what: str, values: Sequence[str | None]) -> Iterator[str]:
    known = {value for value in values if value is not None}
    if len(known) > 1:
        each = (f"{letter(n)} {value or '?'}" for n, value in enumerate(values))
        yield f"different {what}: {', '.join(each)}"


def _values(
    group: Sequence[Record], read: Callable[[Record], str | None]
) -> str | None:
    values = dict.fromkeys(value for r in group if (value := read(r)) is not None)
    return " and ".join(values) or None


def _host(record: Record) -> str | None:
    return record.host.name if record.host else None


def _gpus(record: Record) -> str | None:
    if record.usage is None:
        return None
    used = [gpu.name for gpu in record.usage.gpus if gpu.job_peak != 0]
    counts = {name: used.count(name) for name in used}
    words = (name if n == 1 else f"{n} x {name}" for name, n in counts.items())
    return " + ".join(words) or "none"


def _code(record: Record) -> str | None:
    commit = record.provenance.git_commit if record.provenance else None
    return commit[:_COMMIT] if commit else None


def _knobs(record: Record) -> str | None:
    return " ".join(knobs_of(record)) or None


_SURROUNDINGS: tuple[tuple[str, Callable[[Record], str | None]], ...] = (
    ("hosts", _host),
    ("GPUs", _gpus),
    ("commits", _code),
    ("limits of memory in the program", _knobs),
)


def _parameter(group: Sequence[Record], name: str) -> _Value:
    values: dict[_Value, None] = dict.fromkeys(
        record.parameters.get(name) for record in group
    )
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(
        "not recorded" if value is None else str(value) for value in values
    )


def _changed_words(groups: Sequence[Sequence[Record]]) -> tuple[str, ...]:
    """Return each side's differing words, or whole commands of different lengths."""
    commands = [group[0].command for group in groups]
    if len({len(command) for command in commands}) > 1:
        return tuple(" ".join(command) for command in commands)
    columns = enumerate(zip(*commands, strict=True))
    places = [n for n, words in columns if len(set(words)) > 1]
    return tuple(" ".join(command[n] for n in places) for command in commands)


def _unexplained(groups: Sequence[Sequence[Record]]) -> bool:
    """Return whether commands differ in more than the values of parameters."""
    stripped = set()
    for group in groups:
        values = {str(value) for value in group[0].parameters.values()}
        stripped.add(tuple(_without(word, values) for word in group[0].command))
    return len(stripped) > 1


def _without(word: str, values: set[str]) -> str:
    """Replace a parameter's value: the whole word, or the part after an equals sign."""
    name, equals, value = word.rpartition("=")
    if word in values:
        return "{}"
    return f"{name}=" if equals and value in values else word


LEVEL = 0.95
COMPLETED = "COMPLETED"
_FEWEST = 2


class Group(msgspec.Struct, frozen=True):
    """The records that one name stands for: runs of one command."""

    name: str
    records: tuple[Record, ...]


class Reading(msgspec.Struct, frozen=True):
    """One quantity of one run, between its known bounds."""

    value: float
    low: float
    high: float


class _Counted(msgspec.Struct, frozen=True):
    """The runs of a group that count, and how many failed."""

    usages: tuple[Usage, ...]
    records: tuple[Record, ...]
    failed: int


_Pick: TypeAlias = Callable[[_Counted], list[Reading]]


def compare(groups: Sequence[Group], by: Order | None = None) -> Comparison:
    """Compare each of *groups* with the first; *by* orders the others.

    Failed runs are left out if others completed. Warm-up runs are always left out.

    Raises:
        UsageError: fewer than two groups, or one without any measurement.
    """
    if len(groups) < _FEWEST:
        raise UsageError("nothing to compare with: name two records or more")
    counted = [_counted(group) for group in groups]
    if by is not None:
        order = _order(counted, by)
        groups = [groups[turn] for turn in order]
        counted = [counted[turn] for turn in order]
    sides = [_side(group, one) for group, one in zip(groups, counted, strict=True)]
    everyone = [one.records for one in counted]
    return Comparison(
        sides=tuple(sides),
        differences=tuple(differences(everyone)),
        rows=tuple(_rows(counted)),
        notes=tuple(notes(sides, everyone)),
    )


def change(base: Sequence[Reading], other: Sequence[Reading]) -> Change:
    """Return how *other* differs from *base*, and whether that may be noise.

    Where the spread is known, a difference is one if Welch's 95 % interval of the ratio
    excludes 1. Measurements whose bounds overlap never differ.
    """
    first, second = ([r.value for r in readings] for readings in (base, other))
    middles = median(first), median(second)
    interval = None
    if min(*first, *second) > 0:
        interval = ratio_interval(first, second, LEVEL)
    low, high = interval or (None, None)
    return Change(
        ratio=middles[1] / middles[0] if middles[0] > 0 else None,
        difference=middles[1] - middles[0],
        low=low,
        high=high,
        distinguishable=_distinguishable(base, other, interval),
    )


def _distinguishable(
    base: Sequence[Reading],
    other: Sequence[Reading],
    interval: tuple[float, float] | None,
) -> bool | None:
    low, high = _bounds(base)
    its_low, its_high = _bounds(other)
    if low <= its_high and its_low <= high and (low < high or its_low < its_high):
        return False
    if interval is not None:
        return not interval[0] <= 1 <= interval[1]
    return None


def _bounds(readings: Sequence[Reading]) -> tuple[float, float]:
    return median([r.low for r in readings]), median([r.high for r in readings])


def _counted(group: Group) -> _Counted:
    ran = [(record, *run) for record in group.records for run in _runs(record)]
    if not ran:
        raise UsageError(
            f"{group.name} has no measurement: measure it with weigh run -- COMMAND"
        )
    whole = [run for run in ran if run[2]] or ran
    records = {record.id: record for record, _, _ in whole}
    return _Counted(
        usages=tuple(usage for _, usage, _ in whole),
        records=tuple(records.values()),
        failed=len(ran) - len(whole),
    )


def _runs(record: Record) -> Iterator[tuple[Usage, bool]]:
    """Yield each run of a record and whether it completed."""
    if not record.repeats:
        if record.usage is not None:
            yield record.usage, record.state == COMPLETED
        return
    for repeat in record.repeats:
        if not repeat.warmup:
            yield repeat.usage, repeat.exit_code == 0 and repeat.signal is None


def _side(group: Group, counted: _Counted) -> Side:
    records = counted.records
    bad = [record.state for record in records if record.state != COMPLETED]
    return Side(
        name=group.name,
        records=tuple(record.id for record in records),
        command=records[0].command,
        runs=len(counted.usages),
        state=bad[0] if bad else COMPLETED,
        failed=counted.failed,
        growing=any(usage.growing for usage in counted.usages),
    )


def _order(counted: Sequence[_Counted], by: Order) -> list[int]:
    """Return the order of the sides: the first stays first, the others ascend."""
    pick = _wall_time if by == "time" else _peak_memory

    def size(turn: int) -> tuple[bool, float]:
        values = [r.value for u in counted[turn].usages if (r := pick(u)) is not None]
        return not values, median(values)

    return [0, *sorted(range(1, len(counted)), key=size)]


def _rows(counted: Sequence[_Counted]) -> Iterator[Row]:
    for name, unit, pick in _QUANTITIES:
        yield from _row(name, unit, [pick(one) for one in counted])


def _row(name: str, unit: Unit, found: Sequence[list[Reading]]) -> Iterator[Row]:
    if not any(found):
        return
    yield Row(
        name=name,
        unit=unit,
        figures=tuple(_figure(readings) if readings else None for readings in found),
        changes=(
            None,
            *(
                change(found[0], readings) if found[0] and readings else None
                for readings in found[1:]
            ),
        ),
    )


def _figure(readings: Sequence[Reading]) -> Figure:
    values = tuple(reading.value for reading in readings)
    alone = len(values) == 1
    return Figure(
        median=median(values),
        least=readings[0].low if alone else min(values),
        most=readings[0].high if alone else max(values),
        runs=len(values),
        values=values,
    )


def _exactly(value: float | None) -> Reading | None:
    return None if value is None else Reading(value, value, value)


def _wall_time(usage: Usage) -> Reading | None:
    return _exactly(usage.wall_time)


def _cpu_time(usage: Usage) -> Reading | None:
    return _exactly(usage.cpu_time)


def _alone(usage: Usage) -> Reading | None:
    """Return the time without the wait for CPUs, if the run waited for them."""
    wait = usage.cpu_wait
    return None if wait is None or not has_waited(usage) else _exactly(wait.alone)


def _cpu_wait(usage: Usage) -> Reading | None:
    wait = usage.cpu_wait
    return None if wait is None or not has_waited(usage) else _exactly(wait.time)


def _peak_memory(usage: Usage) -> Reading | None:
    peak = usage.peak_memory
    return None if peak is None else Reading(peak.value, peak.low, peak.high)


def _largest_process(usage: Usage) -> Reading | None:
    """Return the peak of the largest process if the peak of all is not known."""
    return _exactly(usage.max_process_memory) if usage.peak_memory is None else None


def _gpu_memory(usage: Usage) -> Reading | None:
    peaks = [gpu.job_peak for gpu in usage.gpus if gpu.job_peak is not None]
    return _exactly(max(peaks)) if peaks else None


def _gpu_utilization(usage: Usage) -> Reading | None:
    used = [gpu for gpu in usage.gpus if gpu.job_peak != 0]
    busy = [g.utilization_mean for g in used if g.utilization_mean is not None]
    return _exactly(sum(busy) / len(busy)) if busy else None


def _batch_gpu_memory(record: Record) -> Reading | None:
    """Return the GPU memory that the batches took in addition to the model."""
    gpus = () if record.batches is None else record.batches.gpus
    taken = [
        gpu.peak - gpu.before
        for gpu in gpus
        if gpu.peak is not None and gpu.before is not None
    ]
    return _exactly(max(taken)) if taken else None


def _time_per_batch(record: Record) -> Reading | None:
    return _exactly(None if record.batches is None else record.batches.time_mean)


def _time_per_sample(record: Record) -> Reading | None:
    return _exactly(None if record.batches is None else record.batches.time_per_sample)


def _of_runs(pick: Callable[[Usage], Reading | None]) -> _Pick:
    return lambda one: [r for usage in one.usages if (r := pick(usage)) is not None]


def _of_records(pick: Callable[[Record], Reading | None]) -> _Pick:
    """Return a picker of a quantity that a record has once, however often it ran."""
    return lambda one: [r for record in one.records if (r := pick(record)) is not None]


_QUANTITIES: tuple[tuple[str, Unit, _Pick], ...] = (
    ("wall_time", "seconds", _of_runs(_wall_time)),
    ("cpu_time", "seconds", _of_runs(_cpu_time)),
    ("cpu_wait", "seconds", _of_runs(_cpu_wait)),
    ("alone_time", "seconds", _of_runs(_alone)),
    ("peak_memory", "bytes", _of_runs(_peak_memory)),
    ("max_process_memory", "bytes", _of_runs(_largest_process)),
    ("gpu_memory", "bytes", _of_runs(_gpu_memory)),
    ("batch_gpu_memory", "bytes", _of_records(_batch_gpu_memory)),
    ("gpu_utilization", "per cent", _of_runs(_gpu_utilization)),
    ("time_per_batch", "seconds", _of_records(_time_per_batch)),
    ("time_per_sample", "seconds", _of_records(_time_per_sample)),
)
