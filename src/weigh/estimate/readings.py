"""Read memory, GPU memory and time per size from the records of one command."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import shorten

import msgspec

from weigh.errors import UsageError
from weigh.estimate.curve import LARGEST_SIZE, MemoryFailure
from weigh.model.record import BatchTimes, Record, Usage
from weigh.units import Bytes, count_with_noun
from weigh.usage_needs import knobs_of
from weigh.why_run_ended import ran_out_on_gpu

_NUMBER = re.compile(r"(?<![\d.])\.?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\d)")
_WORD_END, _A_NUMBER = "\0", "\1"  # an argument cannot hold \0, and hardly holds \1


class ReadingsGroup(msgspec.Struct, frozen=True):
    """What records have in common; in ``command``, ``{name}`` stands for a size."""

    # without numbers that vary, so that runs of different sizes are one group
    command: tuple[str, ...]
    host: str | None  # None: not recorded
    gpus: tuple[str, ...]  # their names, in order; empty: none was used
    # limits of memory in the environment or the command, such as -Xmx
    knobs: tuple[str, ...] = ()


def groups_of(records: Sequence[Record]) -> list[ReadingsGroup]:
    """Return the group of each record.

    A number in the command may equal a parameter's value by chance, as 1 often does. It
    stands for the parameter only if it does in most records of this command, or in all
    where digits are written around the value: ``{n}e6`` or ``.{n}``.
    """
    # the words joined, with a mark in place of each number
    texts = [
        _NUMBER.sub(_A_NUMBER, _WORD_END.join(record.command)) for record in records
    ]
    seen = Counter(texts)
    counts: Counter[tuple[str, int, str]] = Counter()
    numbers_by_record = [_numbers_in_command(record) for record in records]
    for text, numbers in zip(texts, numbers_by_record, strict=True):
        for place, (number, patterns) in enumerate(numbers):
            counts.update((text, place, pattern) for pattern in {number, *patterns})
    groups = []
    for record, text, numbers in zip(records, texts, numbers_by_record, strict=True):
        first, *pieces = text.split(_A_NUMBER)
        for place, ((number, patterns), piece) in enumerate(
            zip(numbers, pieces, strict=True)
        ):
            varies = counts[text, place, number] < seen[text]
            fitting = [
                (count, pattern)
                for pattern in patterns
                if ((count := counts[text, place, pattern]) == seen[text] and varies)
                or (_is_whole(pattern) and 2 * count > seen[text])
            ]
            first += max(fitting, default=(0, number))[1] + piece
        groups.append(
            ReadingsGroup(
                tuple(first.split(_WORD_END)) if record.command else (),
                record.host.name if record.host else None,
                tuple(sorted(g.name for g in record.usage.gpus))
                if record.usage
                else (),
                knobs_of(record),
            )
        )
    return groups


def _numbers_in_command(record: Record) -> list[tuple[str, list[str]]]:
    """Return the numbers of a command, and how parameters may have made them."""
    return [
        (
            number,
            [
                pattern
                for name, value in record.parameters.items()
                if not isinstance(value, str)
                # an option's sign is not part of its number: -1 is found as 1
                for pattern in _patterns_of_number(number, name, abs(value))
            ],
        )
        for number in _NUMBER.findall(_WORD_END.join(record.command))
    ]


def _patterns_of_number(number: str, name: str, value: float) -> Iterator[str]:
    """Yield ``{name}``, or that between digits: what *number* is made of."""
    if value == float(number):
        yield f"{{{name}}}"
        return
    for match in re.finditer(f"(?={re.escape(f'{value:.15g}')})", number):
        end = match.start() + len(f"{value:.15g}")
        yield f"{number[: match.start()]}{{{name}}}{number[end:]}"


def _is_whole(pattern: str) -> bool:
    return pattern.startswith("{") and pattern.endswith("}")


_TIMES = "*"


class SizeReading(msgspec.Struct, frozen=True):
    """One run at size ``x``; bytes and seconds, None if not measured.

    ``gpu_base`` is the job's GPU memory before the first batch: the model.
    """

    x: float
    memory: int | None
    gpu_memory: int | None
    time: float | None
    time_per_sample: float | None
    gpu_base: int | None


class SizeReadings(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one group of records, and notes about the others."""

    by: str  # names of the size's parameters, joined by *
    group: ReadingsGroup
    rows: tuple[SizeReading, ...]
    completed: tuple[Record, ...]  # that were read
    memory_failure: MemoryFailure | None = None
    gpu_failure: MemoryFailure | None = None
    notes: tuple[str, ...] = ()


def read(records: Sequence[Record], size_names: Sequence[str]) -> SizeReadings:
    """Read the largest group of *records* that have the parameters *size_names*.

    The size is the product of several names, such as the tokens of a batch.

    Raises:
        UsageError: no record has the parameters, or they are not sizes.
    """
    having = _records_with_size(records, size_names)
    groups = groups_of(having)
    group = _largest_group(having, groups)
    chosen = [r for r, other in zip(having, groups, strict=True) if other == group]
    done = [record for record in chosen if record.state == "COMPLETED"]
    # each repeat is a reading of its own; None marks an impossible one
    found = [
        row for record in done for row in _size_readings_of_record(record, size_names)
    ]
    rows = tuple(row for row in found if row is not None)
    burst = [
        record
        for record, other in zip(having, groups, strict=True)
        if record.state == "OUT_OF_MEMORY"
        and (other.command, other.host) == (group.command, group.host)
        # a run that failed early may not have reached its GPU yet
        and other.gpus in {(), group.gpus}
    ]
    ended = sum(record.state not in {"COMPLETED", "OUT_OF_MEMORY"} for record in chosen)
    return SizeReadings(
        by=_TIMES.join(size_names),
        group=group,
        rows=rows,
        completed=tuple(done),
        memory_failure=_smallest_failure(burst, size_names, gpu=False),
        gpu_failure=_smallest_failure(burst, size_names, gpu=True),
        notes=(
            *_unsized(records, size_names),
            *_other_groups(Counter(groups), group),
            *_left_out_notes(ended, "it did not complete"),
            *_left_out_notes(
                len(found) - len(rows), "its memory or time is impossible"
            ),
            *_others_vary(done, size_names),
            *_lengths_vary(done),
        ),
    )


def size_of(record: Record, size_names: Sequence[str]) -> float:
    """Return the product of the parameters *size_names*, which are numbers."""
    return math.prod(float(record.parameters[name]) for name in size_names)


def varying_parameters(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the numeric parameters that differ among *records*."""
    values: dict[str, set[float]] = {}
    for record in records:
        for name, value in record.parameters.items():
            if not isinstance(value, str):
                values.setdefault(name, set()).add(value)
    return tuple(name for name, seen in values.items() if len(seen) > 1)


def gpu_memory(usage: Usage) -> int | None:
    """Return the job's peak on one GPU, None if not measured."""
    # the fullest GPU decides: each has to hold its own part
    return max((gpu.job_peak or 0 for gpu in usage.gpus), default=0) or None


def _records_with_size(
    records: Sequence[Record], size_names: Sequence[str]
) -> list[Record]:
    """Return the records that have a size.

    Raises:
        UsageError: no record has one.
    """
    having = [r for r in records if all(name in r.parameters for name in size_names)]
    if not having:
        raise UsageError(_none_has(records, size_names))
    unsized = [_no_size(record, size_names) for record in having]
    if all(unsized):
        raise UsageError(
            f"{unsized[0]} is not a size above 0: a fit needs numbers (another --by)"
        )
    return [r for r, no_size in zip(having, unsized, strict=True) if no_size is None]


def _no_size(record: Record, size_names: Sequence[str]) -> str | None:
    """Return the parameter that is not a number above 0; None if all are."""
    for name in size_names:
        value = record.parameters[name]
        if isinstance(value, str) or not 0 < value <= LARGEST_SIZE:
            return f"{name}={value!r}"
    return None


def _largest_group(
    records: Sequence[Record], groups: Sequence[ReadingsGroup]
) -> ReadingsGroup:
    """Return the group with the most completed records; the first of equals."""
    # the group that a curve can be fitted to, not the one with most attempts
    ran = [g for r, g in zip(records, groups, strict=True) if r.state == "COMPLETED"]
    return Counter(ran or groups).most_common(1)[0][0]


def _smallest_failure(
    burst: Sequence[Record], size_names: Sequence[str], *, gpu: bool
) -> MemoryFailure | None:
    # where it is not known which memory ran out, it may be either
    of_that = [r for r in burst if ran_out_on_gpu(r.outcome) in {None, gpu}]
    if not of_that:
        return None
    # the smallest failure bounds the sizes most closely
    first = min(of_that, key=lambda record: size_of(record, size_names))
    return MemoryFailure(size_of(first, size_names), _memory_available(first, gpu=gpu))


def _memory_available(record: Record, *, gpu: bool) -> Bytes | None:
    if gpu:
        gpus = record.usage.gpus if record.usage else ()
        totals = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
        # the smallest GPU of several is the one that was full
        return min(totals, default=None)
    # the job's own limit applies before the machine's memory
    if record.allocation is not None and record.allocation.memory is not None:
        return record.allocation.memory
    return record.host.memory if record.host else None


def _size_readings_of_record(
    record: Record, size_names: Sequence[str]
) -> Iterator[SizeReading | None]:
    # a warm-up run is not typical
    usages: list[Usage | None] = [r.usage for r in record.repeats if not r.warmup]
    for usage in usages or [record.usage]:
        row = (
            None
            if usage is None
            else _size_reading(size_of(record, size_names), usage, record)
        )
        # one figure that is impossible makes the whole reading doubtful
        is_sane = row is not None and all(
            y is None or 0 < y <= LARGEST_SIZE
            for y in (row.memory, row.gpu_memory, row.time, row.time_per_sample)
        )
        yield row if is_sane else None


def _size_reading(size: float, usage: Usage, record: Record) -> SizeReading:
    batches = record.batches
    return SizeReading(
        x=size,
        memory=usage.peak_memory.value if usage.peak_memory else None,
        gpu_memory=gpu_memory(usage),
        time=usage.wall_time + record.left_out_time,
        time_per_sample=batches.time_per_sample if batches else None,
        gpu_base=_gpu_base(usage, batches),
    )


def _gpu_base(usage: Usage, batches: BatchTimes | None) -> int | None:
    """Return the job's memory on the fullest GPU when the batches began."""
    if batches is None:
        return None
    # what was held on the GPU by others before the job is not the model's
    before = {gpu.uuid: gpu.memory_before or 0 for gpu in usage.gpus}
    held = [
        max(0, gpu.before - before.get(gpu.uuid, 0))
        for gpu in batches.gpus
        if gpu.before is not None
    ]
    return max(held, default=None)


def _none_has(records: Sequence[Record], size_names: Sequence[str]) -> str:
    if not records:
        return "no records to fit (measure a few sizes with weigh scan)"
    names = ", ".join(sorted({name for r in records for name in r.parameters}))
    there = f"they have {names}" if names else "record them with weigh run --param"
    return f"no record has the parameter {_TIMES.join(size_names)} ({there})"


def _left_out_notes(count: int, why: str) -> Iterator[str]:
    if count:
        yield f"{count_with_noun(count, 'record')} left out: {why}"


def _unsized(records: Sequence[Record], size_names: Sequence[str]) -> Iterator[str]:
    having = [r for r in records if all(name in r.parameters for name in size_names)]
    yield from _left_out_notes(
        len(records) - len(having), f"no parameter {_TIMES.join(size_names)}"
    )
    unsized = sum(_no_size(record, size_names) is not None for record in having)
    yield from _left_out_notes(
        unsized, f"its {_TIMES.join(size_names)} is not a number above 0"
    )


def _other_groups(
    groups: Counter[ReadingsGroup], group: ReadingsGroup
) -> Iterator[str]:
    differences: Counter[str] = Counter()
    for other, count in groups.items():
        if other != group:
            differences[_group_difference(other, group)] += count
    for difference, count in differences.items():
        yield from _left_out_notes(count, difference)


def _group_difference(other: ReadingsGroup, group: ReadingsGroup) -> str:
    if other.command != group.command:
        return f"another command, {shorten(' '.join(other.command), 50)}"
    if other.host != group.host:
        return f"another host, {other.host or 'unknown'}"
    if other.knobs != group.knobs:
        return f"another limit of memory, {' '.join(other.knobs) or 'none'}"
    return f"another GPU, {', '.join(other.gpus) or 'none'}"


def _others_vary(records: Sequence[Record], size_names: Sequence[str]) -> Iterator[str]:
    """Yield a note on parameters that vary in addition to *size_names*."""
    others = [name for name in varying_parameters(records) if name not in size_names]
    if others:
        yield f"{', '.join(others)} varied too: the largest run of each size counts"


_ROSE = 1.05  # times the memory of the first batch


def _lengths_vary(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note where lengths vary at one size, and memory rose with the longest."""
    loops = [record.batches for record in records if record.batches is not None]
    varied = [loop for loop in loops if _rose_with_length(loop)]
    if varied:
        shortest = min(loop.shortest or 0 for loop in varied)
        longest = max(loop.lengths[-1].length for loop in varied)
        yield (
            f"the longest sample of a batch measured {shortest} to {longest} at one "
            "size, and memory rose with it: a longer one may exceed the bound"
        )


def _rose_with_length(loop: BatchTimes) -> bool:
    if not loop.lengths_vary:
        return False
    # lengths are only noted as they grow: the last is the longest
    first, last = loop.lengths[0], loop.lengths[-1]
    pairs = ((first.memory, last.memory), (first.gpu_memory, last.gpu_memory))
    return any(a is not None and b is not None and b > _ROSE * a for a, b in pairs)
