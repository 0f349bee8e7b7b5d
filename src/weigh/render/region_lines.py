"""Regions that a program measured of itself, on one screen of 80 columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import (
    BatchTimes,
    LengthPeak,
    ProgramEvent,
    ProgramPhase,
    ProgramRegions,
    WholeLoopForecast,
)
from weigh.render.printable import (
    WIDTH,
    padded_text,
    printable_text,
    shortened_text,
    three_digit_text,
)
from weigh.units import (
    Bytes,
    count_with_noun,
    format_brief,
    format_duration,
    format_size,
    size_or_dash,
)

_NAME = 24  # columns of a phase's name
_MOST_PHASES = 40  # rows
_MOST_LOOPS = 5  # of a program
_MOST_EVENT_NAMES = 5  # of different names, the last event of each
PHASE_TITLES = ("phase", "calls", "time", "cpu", "before", "peak", "after")
_BOUND = "upper bound"  # the source of a peak begins so where it is not the phase's own


def render_regions(regions: ProgramRegions, title: str = "regions") -> str:
    """Write phases, loops over batches, GPUs and events; empty if there are none."""
    if not (regions.phases or regions.batches or regions.events):
        return ""
    wall = regions.wall_time
    took = "" if wall is None else f", {format_duration(wall)} since the first"
    lines = [shortened_text(f"weigh  {printable_text(title)}{took}", WIDTH)]
    lines += region_lines(regions, is_sampled=False)
    if regions.peak_memory is not None:
        peak = format_size(regions.peak_memory)
        lines.append(
            _region_row(
                "memory", f"peak {peak} of the largest single process (upper bound)"
            )
        )
    return "".join(f"{line}\n" for line in lines)


def region_lines(regions: ProgramRegions, *, is_sampled: bool = True) -> list[str]:
    """Write one row per phase, and a few rows per loop and GPU.

    Unless GPUs were sampled meanwhile, as by ``weigh run``, their peaks are those seen
    at the edges of phases and batches.
    """
    # phases know a GPU by its UUID; a reader knows the number
    numbers = {gpu.uuid: gpu.index for gpu in regions.gpus if gpu.index is not None}
    lines = [*_phase_lines(regions.phases, numbers)]
    for loop in regions.batches[:_MOST_LOOPS]:
        (name, text), *rows = batch_rows(loop)
        lines.append(_region_row(name, text))
        lines += (_region_row("", f"{name:<7}{text}") for name, text in rows)
    if len(regions.batches) > _MOST_LOOPS:
        lines.append(
            _region_row("", f"and {len(regions.batches) - _MOST_LOOPS} more loops")
        )
    for number, gpu in enumerate(regions.gpus):
        lines += _region_gpu_lines(
            number if gpu.index is None else gpu.index, gpu, regions
        )
        if not is_sampled and regions.batches:
            lines.append(
                _region_row("", "peaks as seen at batch edges; weigh run samples more")
            )
    lines += _last_event_lines(regions.events)
    return lines


def render_gpu(
    gpu_number: int, gpu_name: str, used: Bytes | None, total: Bytes | None
) -> str:
    """Write one GPU's memory on a line: used, total, share."""
    if used is None or total is None:
        text = "memory unknown"
    else:
        share = f"{used / total:.0%}" if total else "?"
        text = f"{format_size(used)} of {format_size(total)}  {share}"
    return (
        f"  gpu {gpu_number}    "
        f"{padded_text(shortened_text(printable_text(gpu_name), 36), 37)} {text}"
    )


def _phase_lines(
    phases: Sequence[ProgramPhase], numbers: Mapping[str, int]
) -> Iterator[str]:
    if not phases:
        return
    yield _phase_table_row(PHASE_TITLES)
    for phase in phases[:_MOST_PHASES]:
        yield _phase_table_row((_phase_name_cell(phase), *phase_cells(phase)[1:]))
    if len(phases) > _MOST_PHASES:
        yield f"  and {len(phases) - _MOST_PHASES} more phases"
    if any(phase.calls == 0 for phase in phases[:_MOST_PHASES]):
        yield "  calls 0: not ended"
    if any(_is_bound(phase) for phase in phases[:_MOST_PHASES]):
        yield "  <  upper bound: the peak of the process so far, not of the phase"
    yield from _phase_gpus(phases, numbers)


def phase_cells(phase: ProgramPhase) -> tuple[str, ...]:
    """Return what is known of a phase, in the order of the titles."""
    cpu = "-" if phase.cpu_time is None else format_brief(phase.cpu_time)
    return (
        _phase_name(phase),
        call_count_text(phase.calls),
        format_brief(phase.wall_time),
        cpu,
        size_or_dash(phase.memory_before),
        f"{'<' if _is_bound(phase) else ''}{size_or_dash(phase.peak_memory)}",
        size_or_dash(phase.memory_after),
    )


def _phase_name(phase: ProgramPhase) -> str:
    rank = "" if phase.rank is None else f"{phase.rank}: "
    return rank + printable_text(phase.name)


def _phase_name_cell(phase: ProgramPhase) -> str:
    # deeper phases would have no room for their names
    indented = "  " * min(phase.depth, 6) + _phase_name(phase)
    return shortened_text(indented, _NAME)


def _phase_table_row(cells: Sequence[str]) -> str:
    name, calls, time, cpu, *sizes = cells
    row = f"  {padded_text(name, _NAME)}{calls:>7}{time:>10}{cpu:>10}"
    return row + "".join(f"{size:>9}" for size in sizes)


def _phase_gpus(
    phases: Sequence[ProgramPhase], numbers: Mapping[str, int]
) -> Iterator[str]:
    """Write a table of memory for each GPU that was used."""
    uuids = list(dict.fromkeys(gpu.uuid for phase in phases for gpu in phase.gpus))
    for number, uuid in enumerate(uuids):
        own = [gpu for phase in phases for gpu in phase.gpus if gpu.uuid == uuid]
        # a GPU whose memory never changed was not used by the phases
        if all(gpu.peak == gpu.before == gpu.after for gpu in own):
            continue
        shown = numbers.get(uuid, number)
        title = f"gpu {shown} memory in use"
        yield _phase_table_row((title, "", "taken", "", *PHASE_TITLES[-3:]))
        for phase in phases[:_MOST_PHASES]:
            for gpu in phase.gpus:
                if gpu.uuid == uuid:
                    taken = _size_difference_text(gpu.after, gpu.before)
                    sizes = map(size_or_dash, (gpu.before, gpu.peak, gpu.after))
                    name = _phase_name_cell(phase)
                    yield _phase_table_row((name, "", taken, "", *sizes))


def batch_rows(loop: BatchTimes) -> Iterator[tuple[str, str]]:
    """Yield name and text of what is known of a loop over batches."""
    many = f"{loop.count:,}"
    total = loop.total if loop.forecast is None else loop.forecast.batches
    if total is not None:
        many = f"{many} of {total:,}"
    size = "" if loop.size is None else f", of {loop.size:,} each"
    # a loop over single samples, such as lines, that names the size of batches
    if loop.size is not None and loop.size > 1 < loop.count == loop.samples:
        size = f", of 1 each, not {loop.size:,}"
    samples = (
        "" if loop.samples is None else f", {count_with_noun(loop.samples, 'sample')}"
    )
    yield "batches", f"{many}{size}{samples}"
    if loop.time_mean is None:
        return
    all_time = format_brief(loop.time_mean * loop.count)
    each = ""
    if loop.time_per_sample is not None:
        each = f", {format_brief(loop.time_per_sample)} per sample"
    yield "time", f"{all_time}, mean {format_brief(loop.time_mean)}{each}"
    three = (
        ("quickest", loop.time_min),
        ("median", loop.time_median),
        ("slowest", loop.time_max),
    )
    words = [f"{word} {format_brief(value)}" for word, value in three if value]
    if words:
        yield "", ", ".join(words)
    if loop.peak_memory is not None:
        yield "peak", f"{format_size(loop.peak_memory)} of memory in the loop"
    if loop.forecast is not None:
        yield from _whole_loop_rows(loop.forecast)
    if why := memory_by_length(loop):
        # behind its own first word
        name, _, text = why.partition(" ")
        yield name, text


def _whole_loop_rows(forecast: WholeLoopForecast) -> Iterator[tuple[str, str]]:
    """Yield that the longest batch ran, and how long all batches take."""
    count = f"{forecast.batches:,}"
    longest = f"{forecast.longest:,}"
    yield "", f"with the longest batch of {count}, of length {longest}"
    yield "all", f"{count} batches about {format_duration(forecast.time)}"


_FEWEST = 3  # points from which on a correlation is looked at
_STRAIGHT = 0.9  # correlation of memory and length
_ROSE = 0.05  # share of the peak by which memory rose with the length
_LATER = 0.2  # share of that rise that may come after the longest batch


def memory_by_length(loop: BatchTimes) -> str:
    """Write that memory rose with the length of the batches; empty if it did not.

    It did not if it rose on after the longest batch, as with a leak.
    """
    rows = loop.lengths
    if len(rows) < _FEWEST or not loop.lengths_vary:
        return ""
    on_gpu = max((gpu.of_program for gpu in loop.gpus), default=None)
    words = [
        f"{what} {format_size(min(pairs)[1])} -> {format_size(max(pairs)[1])}"
        for what, pairs, peak in (
            ("memory", _length_peaks(rows, "memory"), loop.peak_memory),
            ("GPU memory", _length_peaks(rows, "gpu_memory"), on_gpu),
        )
        if peak is not None and _does_length_explain_peak(pairs, peak)
    ]
    if not words:
        return ""
    span = f"length {loop.shortest or 0:,} to {rows[-1].length:,}"
    return f"{span}: {', '.join(words)} with the longest batch"


def _length_peaks(
    rows: Sequence[LengthPeak], memory_kind: Literal["memory", "gpu_memory"]
) -> list[tuple[int, Bytes]]:
    pairs = [(row.length, getattr(row, memory_kind)) for row in rows]
    return [(length, size) for length, size in pairs if size is not None]


def _does_length_explain_peak(
    pairs: Sequence[tuple[int, Bytes]], loop_peak: Bytes
) -> bool:
    """Return whether lengths explain the *loop_peak* of a loop."""
    import statistics  # noqa: PLC0415 - start-up time

    if len(pairs) < _FEWEST:
        return False
    lengths, sizes = zip(*pairs, strict=True)
    rise = sizes[-1] - sizes[0]
    return (
        rise >= _ROSE * sizes[-1] > 0
        and loop_peak - sizes[-1] <= _LATER * rise
        and statistics.correlation(lengths, sizes) >= _STRAIGHT
    )


def _region_gpu_lines(
    gpu_number: int, gpu_usage: GpuUsage, regions: ProgramRegions
) -> Iterator[str]:
    """Write the memory of one GPU: before, for the model, for batches, in total."""
    total = (
        ""
        if gpu_usage.memory_total is None
        else f", {format_size(gpu_usage.memory_total)}"
    )
    name = shortened_text(printable_text(gpu_usage.name), 40)
    yield _region_row(f"gpu {gpu_number}", f"{name}{total}")
    # a GPU that others use is "not used" if this run added nothing
    if (
        gpu_usage.peak_memory is not None
        and gpu_usage.peak_memory == gpu_usage.memory_before
    ):
        yield _region_row("", "not used: no more memory in use than before")
        return
    rows = [("in use before", size_or_dash(gpu_usage.memory_before))]
    # memory before the first batch is what the model takes
    loop = _first_memory_of_gpu(gpu_usage.uuid, (one.gpus for one in regions.batches))
    if loop is not None:
        taken = _rise(loop.before, gpu_usage.memory_before)
        rows.append(("taken until the batches: model", taken))
        rows.append(("peak of the batches beyond that", _rise(loop.peak, loop.before)))
    rows.append(
        (
            "peak beyond what was in use",
            _rise(gpu_usage.peak_memory, gpu_usage.memory_before),
        )
    )
    whole = (
        gpu_usage.peak_memory
        # the driver's figure of the whole GPU; else the highest that was seen in use
        if gpu_usage.device_peak_memory is None
        else gpu_usage.device_peak_memory
    )
    rows.append(("peak of the whole GPU", size_or_dash(whole)))
    rows += _torch_memory_rows(gpu_usage, regions)
    for what, size in rows:
        yield _region_row("", f"{what:<38}{size:>10}")


def _torch_memory_rows(
    gpu_usage: GpuUsage, regions: ProgramRegions
) -> Iterator[tuple[str, str]]:
    """Yield torch's own counters, and the memory outside them."""
    used = [
        one_gpu
        for part in (regions.phases, regions.batches)
        for one in part
        for one_gpu in one.gpus
        if one_gpu.uuid == gpu_usage.uuid
    ]
    reserved = max((one.torch_reserved or 0 for one in used), default=0)
    allocated = max((one.torch_allocated or 0 for one in used), default=0)
    if not reserved:
        return
    yield "torch: max_memory_allocated", format_size(allocated)
    yield "torch: max_memory_reserved", format_size(reserved)
    if gpu_usage.peak_memory is not None:
        # what the process holds outside of torch: libraries, kernels, other frameworks
        beyond = gpu_usage.peak_memory - (gpu_usage.memory_before or 0) - reserved
        if beyond > 0:
            yield "CUDA context and others, beyond torch", format_size(beyond)


def _first_memory_of_gpu(
    gpu_uuid: str, parts: Iterator[Sequence[GpuMemory]]
) -> GpuMemory | None:
    return next((gpu for part in parts for gpu in part if gpu.uuid == gpu_uuid), None)


def _last_event_lines(events: Sequence[ProgramEvent]) -> Iterator[str]:
    """Write the last event of each name."""
    # a later event of a name replaces the earlier one
    last = {event.name: event for event in events}
    for event in tuple(last.values())[:_MOST_EVENT_NAMES]:
        value = "" if event.value is None else f" {_event_value_text(event.value)}"
        text = f"{printable_text(event.name)}{value} at {format_brief(event.time)}"
        yield shortened_text(_region_row("event", text), WIDTH)


def _event_value_text(event_value: float | str) -> str:
    return (
        printable_text(event_value)
        if isinstance(event_value, str)
        else f"{event_value:.6g}"
    )


def _is_bound(phase: ProgramPhase) -> bool:
    return phase.peak_memory is not None and (phase.source or "").startswith(_BOUND)


def call_count_text(call_count: int) -> str:
    """Write a number of calls, from 100,000 on in millions."""
    if call_count < 100_000:  # noqa: PLR2004 - six digits to read
        return f"{call_count:,}"
    return f"{three_digit_text(call_count / 1e6)}M"


def _size_difference_text(memory_size: Bytes | None, less: Bytes | None) -> str:
    if memory_size is None or less is None:
        return "-"
    sign = "-" if memory_size < less else ""
    return f"{sign}{format_size(abs(memory_size - less))}"


def _rise(memory_size: Bytes | None, less: Bytes | None) -> str:
    """Write a rise; one below zero is other users' doing, and the job's is unknown."""
    is_known = memory_size is not None and less is not None and memory_size >= less
    return _size_difference_text(memory_size, less) if is_known else "-"


def _region_row(row_name: str, row_text: str) -> str:
    return f"  {row_name:<9}{row_text}".rstrip()
