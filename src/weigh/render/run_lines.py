"""The summary after ``weigh run``: one screen of 80 columns."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    PeakMemory,
    ProgramRegions,
    Record,
    RecordedRank,
    RepeatedRun,
    Request,
    RunOutcome,
    Usage,
)
from weigh.render.printable import printable_text, width_of, without_control_characters
from weigh.render.request_lines import (
    any_layout_lines,
    common_lines,
    folded_lines,
    request_note_lines,
)
from weigh.units import MIB, Bytes, Seconds, format_duration, format_size

if TYPE_CHECKING:
    from weigh import joined, need
    from weigh.estimate import growth as estimate_growth
    from weigh.render import gpu_lines, progress_lines, region_lines
    from weigh.render import words as render_words
else:  # each is imported when it is first used
    estimate_growth = lazy_module("weigh.estimate.growth")
    joined = lazy_module("weigh.joined")
    need = lazy_module("weigh.need")
    gpu_lines = lazy_module("weigh.render.gpu_lines")
    progress_lines = lazy_module("weigh.render.progress_lines")
    region_lines = lazy_module("weigh.render.region_lines")
    render_words = lazy_module("weigh.render.words")

WIDTH = 80
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_INDENT = "           "
_FILE_SHARE = 0.2  # of the peak: more is worth a line
_FILE_FLOOR = 32 * MIB  # less may be the program's own libraries
_Number = TypeVar("_Number", Bytes, Seconds)
_MOST_NODES = 4  # named in the summary
# kinds of a peak's source that explain a figure to a reader
_SOURCES = ("own cgroup", "cgroup", "pages", "status")
_WORTH_NAMING = 0.5  # of the value: a lower bound below that
_SURE = 1.02  # bounds closer than this are written as one figure


def render_summary(
    record: Record,
    request: Request | None = None,
    *,
    colour: bool = False,
    gpus_allocated: bool = False,
    no_request: str | None = None,
) -> str:
    """Write the summary of a finished record, with the request derived from it.

    With *gpus_allocated*, unused GPUs are listed; *no_request* is the reason why
    there is no request.
    """
    lines = [_run_headline(record, colour=colour)]
    lines += _outcome_lines(record.outcome)
    if record.repeats:
        lines += _repeat_statistics_lines(record.repeats)
    elif record.usage is not None:
        lines += _run_usage_lines(record.usage, _memory_trend_text(record))
    if record.usage is not None and record.usage.gpus:
        lines += gpu_lines.gpu_lines(record.usage.gpus, allocated=gpus_allocated)
    lines += parts_lines(record)
    if request is not None:
        lines += _run_request_lines(request, record.usage)
    elif no_request is not None:
        lines += _folded_row("request", f"none: {no_request}")
    # the texts hold words of the program and the scheduler
    safe = (
        lines[0],
        *map(without_control_characters, lines[1:]),
    )  # the first line has colours
    return "".join(f"{line}\n" for line in safe)


def parts_lines(record: Record) -> list[str]:
    """Write the parts of a run: nodes, ranks, phases, loops and progress."""
    return [
        *_nodes_lines(record),
        *_ranks_lines(record.ranks),
        *_unmeasured_lines(record),
        *_measured_region_lines(record),
        *_reported_progress_lines(record),
    ]


def _nodes_lines(record: Record) -> Iterator[str]:
    words = nodes_words(record)
    if words:
        yield from _folded_row("nodes", words)


def nodes_words(record: Record) -> str:
    """Write the memory of the nodes, the largest first; empty if there are none."""
    peaks = {
        printable_text(node.name): node.peak_memory.value
        for node in record.nodes
        if node.peak_memory is not None
    }
    if not peaks:
        return ""
    ordered = sorted(peaks, key=lambda name: -peaks[name])
    named = [f"{name} {format_size(peaks[name])}" for name in ordered]
    # the largest and the smallest are what matters
    if len(named) > _MOST_NODES:
        named = [*named[: _MOST_NODES - 1], "...", named[-1]]
    total = record.usage.total_memory if record.usage else None
    words = f"; total {format_size(total)}" if total else ""
    return f"{len(peaks)}: {', '.join(named)}{words}"


def _unmeasured_lines(record: Record) -> Iterator[str]:
    """Write what was not measured."""
    if record.missing:
        text = f"{'; '.join(record.missing)}: the figures are a lower bound"
        yield from _folded_row("missing", printable_text(text))


def _ranks_lines(ranks: Sequence[RecordedRank]) -> Iterator[str]:
    words = ranks_words(ranks)
    if words:
        yield from _folded_row("ranks", words)
    if len(ranks) > 1:
        for line in joined.imbalance_notes(ranks):
            yield from _folded_row("", printable_text(line))


def ranks_words(ranks: Sequence[RecordedRank]) -> str:
    """Write the range of peak memory over the ranks; empty if none was measured."""
    peaks = [rank.peak_memory for rank in ranks if rank.peak_memory is not None]
    if not peaks:
        return ""
    return f"{len(ranks)}, each {_memory_range_text(min(peaks), max(peaks))} (RSS)"


def _memory_range_text(smallest_size: Bytes, largest_size: Bytes) -> str:
    even = largest_size <= smallest_size * _SURE
    return (
        format_size(largest_size)
        if even
        else f"between {_size_range_text(smallest_size, largest_size)}"
    )


def _measured_region_lines(record: Record) -> list[str]:
    """Write the regions that the program measured, if any."""
    if not (record.phases or record.batches or record.events):
        return []
    loops = () if record.batches is None else (record.batches,)
    return region_lines.region_lines(
        ProgramRegions(
            phases=record.phases,
            batches=loops,
            events=record.events,
            gpus=_staged_gpus(record),
        )
    )


def _staged_gpus(record: Record) -> tuple[GpuUsage, ...]:
    """Return the GPUs of which a loop shows before, model, batches and total."""
    if record.batches is None or record.usage is None:
        return ()
    # only for those GPUs the memory before the loop is known
    in_loop = {gpu.uuid for gpu in record.batches.gpus if gpu.before is not None}
    return tuple(
        msgspec.structs.replace(gpu, peak_memory=_peak_in_use(gpu))
        for gpu in record.usage.gpus
        if gpu.uuid in in_loop and gpu.job_peak != 0
    )


def _peak_in_use(gpu_usage: GpuUsage) -> Bytes | None:
    """Return the job's peak on top of what was in use before it."""
    own = gpu_usage.process_peak_memory
    return (
        gpu_usage.device_peak_memory
        if own is None
        else (gpu_usage.memory_before or 0) + own
    )


def _reported_progress_lines(record: Record) -> Iterator[str]:
    """Write the progress that the program reported."""
    if record.progress is None or record.batches is not None:
        return
    yield from _folded_row(
        "progress", printable_text(progress_lines.steps_and_speed_text(record.progress))
    )


def _run_headline(record: Record, *, colour: bool) -> str:
    """Write state and time on the left, the record's id on the right."""
    wall = record.usage.wall_time if record.usage else 0.0
    # a warm-up is no run to be counted
    counted = [repeat for repeat in record.repeats if not repeat.warmup]
    took = f"{len(counted)} runs" if counted else format_duration(wall)
    joiner = "," if counted else " for" if record.state == "RUNNING" else " in"
    state, ended = (
        f"weigh  {record.state}",
        f"{joiner} {took}{_signal_or_exit_text(record)}",
    )
    name = f"run {printable_text(record.id)}"
    gap = " " * max(2, WIDTH - len(state) - len(ended) - len(name))
    if colour:
        tint = _GREEN if record.state == "COMPLETED" else _RED
        state = f"weigh  {tint}{record.state}{_PLAIN}"
    return f"{state}{ended}{gap}{name}"


def _signal_or_exit_text(record: Record) -> str:
    if record.signal is not None:
        return f", signal {record.signal}"
    return f", exit code {record.exit_code}" if record.exit_code else ""


def _outcome_lines(outcome: RunOutcome | None) -> Iterator[str]:
    # the headline has the exit code already
    if outcome is not None and not outcome.reason.startswith("exit code"):
        text = "; ".join((outcome.reason, *outcome.evidence))
        yield from _folded_row("ended", printable_text(text).removeprefix("ended "))


def _memory_trend_text(record: Record) -> str:
    """Describe whether memory was flat or rising at the end."""
    usage, series = record.usage, record.series
    if usage is None or usage.growing is None or usage.peak_memory is None:
        return ""
    time = usage.peak_memory.time
    if series is None or not series.t:
        still = "still rising at the end" if usage.growing else ""
        return still or ("then flat" if time else "")
    growth = estimate_growth.growth_of(series.t, series.memory)
    return "" if growth is None else render_words.growth_words(growth, time)


def _run_usage_lines(usage: Usage, trend: str) -> Iterator[str]:
    if usage.peak_memory is not None:
        yield from _run_memory_lines(usage.peak_memory, trend)
        # for a single process there is only one way to count
        if usage.processes is not None and usage.processes > 1:
            yield from _peak_source_lines(usage.peak_memory)
        yield from _large_memory_part_lines(usage.peak_memory)
        if usage.jvm is not None:
            for words in need.heap_words(usage):
                yield from _folded_row("", words)
        if usage.sign is not None:
            for words in need.sign_words(usage):
                yield from _folded_row("", words)
    else:
        yield from _folded_row("memory", "not measured: no data in /proc")
    if usage.cpu_time is not None:
        yield from _folded_row("cpu", _cpu_usage_text(usage))
    if usage.cpu_wait is not None:
        words = need.wait_words(usage)
        yield from _folded_row("", words) if words else ()
    if usage.read_bytes is not None and usage.write_bytes is not None:
        read, written = format_size(usage.read_bytes), format_size(usage.write_bytes)
        yield from _folded_row("disk", f"{read} read, {written} written")


def _run_memory_lines(peak: PeakMemory, trend: str) -> Iterator[str]:
    if peak.source == "launcher floor":
        words = f"up to {format_size(peak.high)}: too short to measure more exactly"
        yield from _folded_row("memory", words)
        return
    figure = f"{format_size(peak.value):<10}"
    if peak.certainty != "exact" and peak.high > peak.low * _SURE:
        figure += f"  {_peak_bounds_text(peak)}"
    at = "" if peak.time is None else f"peak at {format_duration(peak.time)}"
    course = ", ".join(filter(None, (at, trend)))
    text = f"{figure}  {course}" if at else f"{figure.rstrip()}, {trend}"
    text = text if course else figure
    if len(text) <= WIDTH - len(_INDENT):
        yield from _folded_row("memory", text.rstrip())
    else:  # a second line, rather than a single word in it
        yield from _folded_row("memory", figure.rstrip())
        yield from _folded_row("", course)


def _peak_bounds_text(peak: PeakMemory) -> str:
    """Write the bounds; a low one that shows little is left out."""
    if peak.low >= _WORTH_NAMING * peak.value:
        return f"(between {_size_range_text(peak.low, peak.high)})"
    return f"(at most {format_size(peak.high)})"


def _size_range_text(low: Bytes, high: Bytes) -> str:
    """Write two sizes, with the unit once if they share it."""
    first, last = format_size(low), format_size(high)
    if first.split()[1] == last.split()[1]:
        first = first.split()[0]
    return f"{first} and {last}"


def _peak_source_lines(peak: PeakMemory) -> Iterator[str]:
    """Write where the memory of several processes is from."""
    kind, colon, _ = peak.source.partition(":")
    if colon and kind in _SOURCES:
        yield from _folded_row("", peak.source)


def _large_memory_part_lines(peak: PeakMemory) -> Iterator[str]:
    """Write mapped files and shared memory, if they are large."""
    parts = []
    if peak.shared and peak.shared > max(_FILE_SHARE * peak.value, _FILE_FLOOR):
        parts.append(f"{format_size(peak.shared)} shared memory")
    if peak.file and peak.file > max(_FILE_SHARE * peak.value, _FILE_FLOOR):
        parts.append(f"{format_size(peak.file)} mapped files the kernel can drop")
    if parts:
        yield from _folded_row("", f"of which {', '.join(parts)}")


def _cpu_usage_text(usage: Usage) -> str:
    words = [f"{format_duration(usage.cpu_time or 0.0):<10}"]
    count = usage.processes or 1
    busy = f"{usage.cpus_used:.2f} of a core, " if usage.cpus_used is not None else ""
    if usage.cpus_used is not None and usage.cpus_used > 1:
        busy = f"{usage.cpus_used:.1f} cores, "
    words.append(f"{busy}{count} process{'es' if count > 1 else ''}")
    return "  ".join(words)


def _repeat_statistics_lines(repeats: tuple[RepeatedRun, ...]) -> Iterator[str]:
    ran = [repeat for repeat in repeats if not repeat.warmup]
    # failed runs end early, and would lower the figures
    whole = [repeat.usage for repeat in ran if repeat.exit_code == 0]
    counted = whole or [repeat.usage for repeat in ran]
    if not counted:  # it failed in a warm-up run
        yield from _run_usage_lines(repeats[-1].usage, "")
        return
    yield f"{_INDENT}{'minimum':<12}{'median':<12}maximum"
    peaks = [usage.peak_memory.value for usage in counted if usage.peak_memory]
    if peaks:
        yield from _folded_row(
            "memory",
            _spaced_words(
                [format_size(size) for size in _minimum_median_maximum(peaks)]
            ),
        )
    times = {
        "time": [usage.wall_time for usage in counted],
        "cpu": [usage.cpu_time for usage in counted if usage.cpu_time is not None],
    }
    for name, values in times.items():
        if values:
            spread = [
                format_duration(seconds) for seconds in _minimum_median_maximum(values)
            ]
            yield from _folded_row(name, _spaced_words(spread))


def _minimum_median_maximum(repeat_values: Sequence[_Number]) -> list[_Number]:
    ordered = sorted(repeat_values)
    # the lower of two in the middle: a value that was measured
    return [ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]]


def _spaced_words(column_words: list[str]) -> str:
    return "".join(f"{word:<12}" for word in column_words).rstrip()


def _run_request_lines(request: Request, usage: Usage | None) -> Iterator[str]:
    common = common_lines(request, WIDTH - len(_INDENT))
    lines = [_INDENT + line for form in common for line in form]
    # the name stands in the first line, in the place of its indent
    name = "at least" if request.lower_bound else "request"
    lines[0] = f"  {name:<9}{lines[0].lstrip()}"
    if common[-1] and usage is not None and usage.virtual_memory:
        hint = f"     (virtual size: {format_size(usage.virtual_memory)})"
        lines[-1] += hint if len(lines[-1] + hint) <= WIDTH else ""
    yield from lines
    for line in any_layout_lines(request, WIDTH - len(_INDENT)):
        yield _INDENT + line
    yield from request_note_lines(request, indent=_INDENT)


def _folded_row(row_name: str, row_text: str) -> Iterator[str]:
    """Write one row, folded if it is too long."""
    line = f"  {row_name:<9}{row_text}".rstrip()
    if width_of(line) <= WIDTH:
        yield line
        return
    for turn, part in enumerate(folded_lines(row_text, WIDTH - len(_INDENT))):
        yield f"  {'' if turn else row_name:<9}{part}"
