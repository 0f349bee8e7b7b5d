"""What records of one command say, size by size: memory, GPU memory and time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from weigh.errors import UsageError
from weigh.model.record import Batches, Record, Usage

_TIMES = "*"


class Reading(msgspec.Struct, frozen=True):
    """One run at size ``x``; bytes and seconds, None where not measured.

    ``gpu_base`` is what the card held of the job before the first batch: the model.
    """

    x: float
    memory: int | None
    gpu_memory: int | None
    time: float
    time_per_sample: float | None
    gpu_base: int | None


class Readings(msgspec.Struct, frozen=True):
    """The readings of one group of records, and what to know about the others.

    ``failed`` is the smallest size that ended out of memory.
    """

    by: str
    group: "Group"
    rows: tuple[Reading, ...]
    records: int
    failed: float | None = None
    notes: tuple[str, ...] = ()


class Group(msgspec.Struct, frozen=True):
    """Records that can be compared: one command, one host, the same GPUs."""

    command: tuple[str, ...]
    host: str | None
    gpus: tuple[str, ...]


def read(records: Sequence[Record], by: Sequence[str]) -> Readings:
    """Read the largest group of *records* that have the parameters *by*.

    Several names are multiplied, as in a batch's tokens.

    Raises:
        UsageError: no record has the parameters, or one of them is no number.
    """
    having = [r for r in records if all(name in r.parameters for name in by)]
    if not having:
        raise UsageError(_none_has(records, by))
    groups = Counter(group_of(record) for record in having)
    group, _ = groups.most_common(1)[0]
    chosen = [record for record in having if group_of(record) == group]
    done = [record for record in chosen if record.state == "COMPLETED"]
    burst = [record for record in chosen if record.state == "OUT_OF_MEMORY"]
    failed = min((size_of(record, by) for record in burst), default=None)
    notes = (
        *_left_out(len(records) - len(having), f"no parameter {_TIMES.join(by)}"),
        *_other_groups(groups, group),
        *_left_out(len(chosen) - len(done) - len(burst), "failed"),
    )
    return Readings(
        by=_TIMES.join(by),
        group=group,
        rows=tuple(row for record in done for row in _rows(record, by)),
        records=len(done),
        failed=failed,
        notes=notes,
    )


def group_of(record: Record) -> Group:
    """Tell which records this one can be compared with."""
    usage = record.usage
    return Group(
        command=template(record),
        host=record.host.name if record.host else None,
        gpus=tuple(sorted(gpu.name for gpu in usage.gpus)) if usage else (),
    )


def template(record: Record) -> tuple[str, ...]:
    """Return the command with ``{name}`` where a parameter's value stands."""
    return tuple(_field(word, record.parameters) for word in record.command)


def size_of(record: Record, by: Sequence[str]) -> float:
    """Return the product of the parameters *by*.

    Raises:
        UsageError: one of them is no number.
    """
    size = 1.0
    for name in by:
        value = record.parameters[name]
        if isinstance(value, str):
            raise UsageError(
                f"{name}={value!r} of record {record.id} is no number: "
                "a fit needs sizes (choose another --by)"
            )
        size *= value
    return size


def varying(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the numeric parameters that differ among *records*."""
    values: dict[str, set[float]] = {}
    for record in records:
        for name, value in record.parameters.items():
            if not isinstance(value, str):
                values.setdefault(name, set()).add(value)
    return tuple(name for name, seen in values.items() if len(seen) > 1)


def products(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Give each name alone, then every product of several."""
    for count in range(1, len(names) + 1):
        yield from combinations(names, count)


def _rows(record: Record, by: Sequence[str]) -> Iterator[Reading]:
    usages: list[Usage | None] = [r.usage for r in record.repeats if not r.warmup]
    if not usages:
        usages = [record.usage]
    for usage in usages:
        if usage is not None:
            yield _row(size_of(record, by), usage, record.batches)


def _row(x: float, usage: Usage, batches: Batches | None) -> Reading:
    return Reading(
        x=x,
        memory=usage.peak_memory.value if usage.peak_memory else None,
        gpu_memory=gpu_memory(usage),
        time=usage.wall_time,
        time_per_sample=batches.time_per_sample if batches else None,
        gpu_base=_gpu_base(usage, batches),
    )


def gpu_memory(usage: Usage) -> int | None:
    """Return the most that the job held on one card, None where not measured.

    ``peak_memory`` is the job's already: what others held is taken off.
    """
    held = [
        gpu.process_peak_memory if gpu.peak_memory is None else gpu.peak_memory
        for gpu in usage.gpus
    ]
    return max((size for size in held if size is not None), default=None) or None


def _gpu_base(usage: Usage, batches: Batches | None) -> int | None:
    """Return what the fullest card held of the job when the batches began."""
    if batches is None:
        return None
    before = {gpu.uuid: gpu.memory_before or 0 for gpu in usage.gpus}
    held = [
        max(0, gpu.before - before.get(gpu.uuid, 0))
        for gpu in batches.gpus
        if gpu.before is not None
    ]
    return max(held, default=None)


def _field(word: str, parameters: dict[str, int | float | str]) -> str:
    for name, value in parameters.items():
        text = str(value)
        if word == text:
            return f"{{{name}}}"
        if word.endswith(f"={text}"):
            return f"{word.removesuffix(text)}{{{name}}}"
    return word


def _none_has(records: Sequence[Record], by: Sequence[str]) -> str:
    if not records:
        return "no records to fit (measure a few sizes with weigh scan)"
    names = ", ".join(sorted({name for r in records for name in r.parameters}))
    there = f"they have {names}" if names else "give them with weigh run --param"
    return f"no record has the parameter {_TIMES.join(by)} ({there})"


def _left_out(count: int, why: str) -> Iterator[str]:
    if count:
        yield f"{count} record{'s' if count > 1 else ''} left out: {why}"


def _other_groups(groups: Counter[Group], group: Group) -> Iterator[str]:
    for other, count in groups.items():
        if other != group:
            yield from _left_out(count, _difference(other, group))


def _difference(other: Group, group: Group) -> str:
    if other.command != group.command:
        return f"another command, {' '.join(other.command)[:50]}"
    if other.host != group.host:
        return f"another host, {other.host or 'unknown'}"
    return f"another GPU, {', '.join(other.gpus) or 'none'}"
