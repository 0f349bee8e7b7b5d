"""One record on one screen: every figure with its source."""

from collections.abc import Iterator, Sequence

from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    Allocation,
    CodeProvenance,
    PeakMemory,
    Record,
    RecordedHost,
    RecordedRank,
    Request,
    SampleSeries,
    Usage,
)
from weigh.need import cache_words, heap_words, sign_words, wait_words
from weigh.render.columns import columns_of, wrap_by_columns
from weigh.render.printable import local_time, printable_text, quoted_command_line
from weigh.render.run_lines import parts_lines
from weigh.units import duration_or_dash, format_duration, format_size, size_or_dash

WIDTH = 80
_MARGIN = 14  # two of indent, a name, two of gap
_LEVELS = " .:-=+*#%@"  # from low to high
_PLOT = WIDTH - _MARGIN - 2  # columns of a plot
_FIGURE = 20  # columns of a figure's name
MB = 1_000_000  # as NVIDIA's tools count rates


def render_record(record: Record) -> str:
    """Write a record as text of at most 80 columns."""
    lines = [_record_title(record), *_record_identity_lines(record)]
    if record.usage is not None:
        lines += _record_usage_lines(record.usage)
    if record.series is not None:
        lines += _memory_over_time_lines(record.series)
    lines += parts_lines(record)
    lines += rank_table(record.ranks)
    lines += _record_context_lines(record)
    return "\n".join(lines)


_MOST_RANKS = 32  # of more, the largest are listed


def rank_table(ranks: Sequence[RecordedRank]) -> list[str]:
    """Write where each rank ran and what it used; nothing for one rank."""
    if len(ranks) < 2:  # noqa: PLR2004 - one is the run itself
        return []
    shown = list(ranks)
    if len(ranks) > _MOST_RANKS:
        # the ranks that need most are those one looks for
        shown.sort(key=lambda rank: -(rank.peak_memory or 0))
    has_steps = len({rank.step for rank in ranks}) > 1
    has_gpus = any(rank.gpus for rank in ranks)
    names = (
        *("rank", *(("step",) if has_steps else ()), "node", "memory", "CPU", "time"),
        *(("GPU memory",) if has_gpus else ()),
    )
    rows = [
        (
            str(rank.rank),
            *((printable_text(rank.step or "-"),) if has_steps else ()),
            printable_text(rank.host or "-"),
            size_or_dash(rank.peak_memory),
            duration_or_dash(rank.cpu_time),
            duration_or_dash(rank.wall_time),
            *((_rank_gpu_memory_text(rank),) if has_gpus else ()),
        )
        for rank in shown[:_MOST_RANKS]
    ]
    widths = [max(map(columns_of, column)) for column in zip(names, *rows, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        for row in (names, *rows)
    ]
    more = len(ranks) - len(rows)
    return [line.rstrip()[:WIDTH] for line in lines] + (
        [f"  and {more} smaller ones (weigh records export has all)"] if more else []
    )


def _rank_gpu_memory_text(rank: RecordedRank) -> str:
    """Write the memory of a rank on each GPU that it used."""
    peaks = [gpu.peak or gpu.torch_reserved for gpu in rank.gpus]
    return ", ".join(format_size(peak) for peak in peaks if peak) or "-"


def sparkline_text(sample_values: Sequence[float | None], width: int) -> str:
    """Draw values in *width* characters, each the highest value of its stretch."""
    known = [value for value in sample_values if value is not None]
    top = max(known, default=0)
    if not sample_values or top <= 0:
        return ""
    width = min(width, len(sample_values))
    return "".join(
        _sparkline_level(
            sample_values[
                # rounding down both ends makes stretches of almost equal length,
                # without gaps
                len(sample_values) * n // width : len(sample_values) * (n + 1) // width
            ],
            top,
        )
        for n in range(width)
    )


def _record_title(record: Record) -> str:
    title = f"{printable_text(record.id)}  {printable_text(record.state)}"
    if record.signal is not None:
        title += f", signal {record.signal}"
    elif record.exit_code:
        title += f", exit code {record.exit_code}"
    if record.usage is not None:
        title += f", {format_duration(record.usage.wall_time)}"
    return title


def _record_identity_lines(record: Record) -> Iterator[str]:
    if record.outcome is not None:
        yield from _record_entry_lines("why", record.outcome.reason)
        for evidence in record.outcome.evidence:
            yield from _record_entry_lines("", evidence)
    yield from _record_entry_lines("label", record.label)
    yield from _record_entry_lines("command", quoted_command_line(record.command))
    pairs = (f"{name}={value}" for name, value in record.parameters.items())
    yield from _record_entry_lines("parameters", ", ".join(pairs))
    yield from _record_entry_lines("folder", record.cwd)
    started = " ".join(local_time(record.started))
    ended = f" to {' '.join(local_time(record.ended))}" if record.ended else ""
    yield from _record_entry_lines("when", started + ended)
    if record.host is not None:
        yield from _record_entry_lines("where", _host_text(record.host))


def _record_usage_lines(usage: Usage) -> Iterator[str]:
    if usage.peak_memory is not None:
        yield from _peak_memory_lines(usage.peak_memory, growing=usage.growing)
    elif usage.max_process_memory is None:
        yield from _record_entry_lines("memory", "not measured")
    others = (
        ("largest single process", usage.max_process_memory),
        ("address space (virtual)", usage.virtual_memory),
        ("cgroup with page cache", usage.cgroup_peak),
    )
    # the name of the row stands once, at its first line
    name = "" if usage.peak_memory is not None else "memory"
    known = [f"{what} {format_size(size)}" for what, size in others if size is not None]
    for line in known:
        yield from _record_entry_lines(name, line)
        name = ""
    for words in (*heap_words(usage), *sign_words(usage), *cache_words(usage)):
        yield from _record_entry_lines("", words)
    yield from _record_entry_lines("cpu", _cpu_time_text(usage))
    yield from _record_entry_lines("", wait_words(usage))
    yield from _record_entry_lines("disk", _disk_traffic_text(usage))
    for number, gpu in enumerate(usage.gpus):
        yield from _gpu_detail_lines(number if gpu.index is None else gpu.index, gpu)


def _peak_memory_lines(peak: PeakMemory, *, growing: bool | None) -> Iterator[str]:
    # too short a run: only an upper bound is known, no figure
    if peak.source == "launcher floor":
        words = f"up to {format_size(peak.high)}: too short to measure more exactly"
        yield from _record_entry_lines("memory", words)
        return
    low, high = format_size(peak.low), format_size(peak.high)
    is_sure = peak.certainty == "exact" or low == high
    # for a figure that is exact, or looks so, bounds add nothing
    between = "" if is_sure else f"  between {low} and {high}"
    when = "" if peak.time is None else f", at {format_duration(peak.time)}"
    still = ", still growing at the end" if growing else ""
    yield from _record_entry_lines(
        "memory", f"{format_size(peak.value)}{between}{when}{still}"
    )
    parts = (
        ("anonymous", peak.anonymous),
        ("shared", peak.shared),
        ("mapped files", peak.file),
    )
    known = [f"{what} {format_size(size)}" for what, size in parts if size is not None]
    yield from _record_entry_lines("", ", ".join(known))
    yield from _record_entry_lines("", f"source: {peak.source}")


def _cpu_time_text(usage: Usage) -> str:
    times = (
        ("{}", usage.cpu_time),
        ("user {}", usage.user_time),
        ("system {}", usage.system_time),
    )
    words = [form.format(format_duration(t)) for form, t in times if t is not None]
    if usage.cpus_used is not None:
        words.append(f"{usage.cpus_used:.2f} of a core on average")
    if usage.processes is not None:
        plural = "" if usage.processes == 1 else "es"
        words.append(f"{usage.processes} process{plural}")
    return ", ".join(words)


def _disk_traffic_text(usage: Usage) -> str:
    sizes = (("read", usage.read_bytes), ("written", usage.write_bytes))
    return ", ".join(f"{format_size(b)} {what}" for what, b in sizes if b is not None)


def _gpu_detail_lines(gpu_number: int, gpu_usage: GpuUsage) -> Iterator[str]:
    of = f" of {format_size(gpu_usage.memory_total)}" if gpu_usage.memory_total else ""
    peak = (
        "not measured"
        if gpu_usage.peak_memory is None
        else format_size(gpu_usage.peak_memory)
    )
    yield from _record_entry_lines(f"gpu {gpu_number}", f"{gpu_usage.name}: {peak}{of}")
    if gpu_usage.process_peak_memory is not None:
        before = _optional_size_text(", {} held before", gpu_usage.memory_before)
        yield from _record_entry_lines(
            "", f"of this job's {format_size(gpu_usage.process_peak_memory)}{before}"
        )
    if gpu_usage.source is not None:
        yield from _record_entry_lines("", f"source: {gpu_usage.source}")
    for what, words in gpu_figures(gpu_usage):
        name = what
        for line in wrap_by_columns(printable_text(words), WIDTH - _MARGIN - _FIGURE):
            yield f"{'':{_MARGIN}}{name:<{_FIGURE}}{line}"
            name = ""


def gpu_figures(gpu_usage: GpuUsage) -> Iterator[tuple[str, str]]:
    """Yield what was measured of a GPU except for its memory, each with its name.

    The rows are those that schedulers' prologues print into a job's log.
    """
    if gpu_usage.energy is not None:
        yield "energy", f"{gpu_usage.energy:.0f} J"
    for what, unit, scale, values in (
        (
            "power",
            "W",
            1,
            (gpu_usage.power_mean, gpu_usage.power_max, gpu_usage.power_min),
        ),
        (
            "SM clock",
            "MHz",
            1,
            (gpu_usage.sm_clock_mean, gpu_usage.sm_clock_max, gpu_usage.sm_clock_min),
        ),
        (
            "memory clock",
            "MHz",
            1,
            (
                gpu_usage.memory_clock_mean,
                gpu_usage.memory_clock_max,
                gpu_usage.memory_clock_min,
            ),
        ),
        (
            "busy",
            "%",
            1,
            (
                gpu_usage.utilization_mean,
                gpu_usage.utilization_max,
                gpu_usage.utilization_min,
            ),
        ),
        (
            "memory busy",
            "%",
            1,
            (
                gpu_usage.memory_utilization_mean,
                gpu_usage.memory_utilization_max,
                gpu_usage.memory_utilization_min,
            ),
        ),
        (
            "PCIe in",
            "MB/s",
            MB,
            (gpu_usage.pcie_rx, gpu_usage.pcie_rx_max, gpu_usage.pcie_rx_min),
        ),
        (
            "PCIe out",
            "MB/s",
            MB,
            (gpu_usage.pcie_tx, gpu_usage.pcie_tx_max, gpu_usage.pcie_tx_min),
        ),
    ):
        known = [
            f"{word} {value / scale:.4g}"
            for word, value in zip(("mean", "max", "min"), values, strict=True)
            if value is not None
        ]
        if known:
            yield what, f"{', '.join(known)} {unit}"
    yield (
        "ECC errors",
        _reported_counts_text(
            ("single-bit", gpu_usage.corrected_ecc_errors),
            ("double-bit", gpu_usage.ecc_errors),
        ),
    )
    yield (
        "PCIe replays, XIDs",
        _reported_counts_text(
            ("replays", gpu_usage.pcie_replays), ("XIDs", gpu_usage.xid_errors)
        ),
    )
    times = (gpu_usage.throttle or {}).items()
    slowed = [f"{why} {format_duration(time) if time else 0}" for why, time in times]
    shares = (gpu_usage.slowed or {}).items()
    slowed += [f"{why} in {share:.0f} % of readings" for why, share in shares]
    if gpu_usage.throttle is not None or gpu_usage.slowed is not None:
        yield "slowed down by", ", ".join(slowed) or "nothing"
    for one in gpu_usage.processes:
        if one.sm_utilization is not None:
            memory = one.memory_utilization or 0.0
            yield (
                f"process {one.pid}",
                f"busy {one.sm_utilization:.0f} %, memory {memory:.0f} %",
            )
    if gpu_usage.health is not None:
        yield "health", gpu_usage.health


def _reported_counts_text(*counts: tuple[str, int | None]) -> str:
    return ", ".join(
        f"{what} {'not reported' if number is None else number}"
        for what, number in counts
    )


def _memory_over_time_lines(series: SampleSeries) -> Iterator[str]:
    line = sparkline_text(series.memory, _PLOT)
    if line:
        yield f"  {'over time':<{_MARGIN - 4}}  |{line}|"
        span = format_duration(series.t[-1]) if series.t else "?"
        top = format_size(max(series.memory))
        yield from _record_entry_lines("", f"memory, 0 to {span}, up to {top}")


def _record_context_lines(record: Record) -> Iterator[str]:
    if record.repeats:
        yield from _record_entry_lines(
            "repeats", f"{len(record.repeats)} runs; the largest is shown"
        )
    if record.requested is not None:
        yield from _record_entry_lines(
            "requested", _record_request_text(record.requested)
        )
    if record.allocation is not None:
        yield from _record_entry_lines("granted", _allocation_text(record.allocation))
    if record.job is not None:
        job = record.job
        names = (("element", job.element), ("task", job.task), ("attempt", job.attempt))
        words = [f"{what} {number}" for what, number in names if number is not None]
        yield from _record_entry_lines("job", ", ".join([job.id, *words]))
    if record.provenance is not None:
        yield from _record_entry_lines("code", _provenance_text(record.provenance))
    monitor = record.monitor
    if monitor is not None:
        cost = _optional_size_text("{} of memory", monitor.memory)
        if monitor.cpu_time is not None:
            cost = f"{format_duration(monitor.cpu_time)} of CPU, {cost}".rstrip(", ")
        samples = f"{monitor.samples} samples" if monitor.samples else ""
        yield from _record_entry_lines(
            "measuring", ", ".join(w for w in (cost, samples) if w)
        )
        for warning in monitor.warnings:
            yield from _record_entry_lines("note", warning)


def _record_request_text(request: Request) -> str:
    words = [f"{request.cpus} CPUs" if request.cpus != 1 else "1 CPU"]
    words.append(_optional_size_text("{}", request.memory))
    if request.time_limit is not None:
        words.append(format_duration(request.time_limit))
    words.append(f"{request.gpus} GPUs" if request.gpus else "")
    return ", ".join(word for word in words if word)


def _allocation_text(allocation: Allocation) -> str:
    words: list[str] = [allocation.scheduler]
    counts = (
        ("queue", allocation.queue),
        ("CPUs", allocation.cpus),
        ("nodes", allocation.nodes),
        ("GPUs", allocation.gpus),
    )
    words += [f"{what} {value}" for what, value in counts if value is not None]
    words.append(_optional_size_text("{}", allocation.memory))
    return ", ".join(word for word in words if word)


def _provenance_text(provenance: CodeProvenance) -> str:
    commit = provenance.git_commit
    changed = " with changes" if provenance.git_dirty else ""
    words = (
        f"commit {commit[:12]}{changed}" if commit else "",
        f"Python {provenance.python}" if provenance.python else "",
        f"weigh {provenance.weigh}" if provenance.weigh else "",
    )
    return ", ".join(word for word in words if word)


def _host_text(recorded_host: RecordedHost) -> str:
    words = [
        recorded_host.name,
        recorded_host.system if recorded_host.system != "unknown" else "",
    ]
    words.append("" if recorded_host.cpus is None else f"{recorded_host.cpus} CPUs")
    words.append(_optional_size_text("{}", recorded_host.memory))
    return ", ".join(word for word in words if word)


def _optional_size_text(form: str, memory_size: int | None) -> str:
    return "" if memory_size is None else form.format(format_size(memory_size))


def _record_entry_lines(entry_name: str, entry_text: str | None) -> Iterator[str]:
    """Yield a name and its text, folded; nothing for an empty text."""
    if not entry_text:
        return
    for line in wrap_by_columns(printable_text(entry_text), WIDTH - _MARGIN):
        yield f"  {entry_name:<{_MARGIN - 4}}  {line}"
        entry_name = ""


def _sparkline_level(share: Sequence[float | None], top: float) -> str:
    # a stretch without samples counts as 0
    highest = max((value for value in share if value is not None), default=0)
    return _LEVELS[round(highest / top * (len(_LEVELS) - 1))]
