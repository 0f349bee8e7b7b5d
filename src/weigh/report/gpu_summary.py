"""The GPU rows of what ``weigh run`` says after the job."""

from collections.abc import Iterator, Sequence

from weigh.measure.gpu.use import unused_gpus, was_used
from weigh.model.gpu import GpuUsage
from weigh.report.gpu_words import listed, short_name, xid_words
from weigh.report.printable import printable, shortened
from weigh.units import format_duration, format_size

WIDTH = 80
_INDENT = "           "
_PER_PROCESS = "NVML per process"
_LONG = 1.0  # seconds held down by heat, from which it is worth a line


def gpu_lines(usages: Sequence[GpuUsage], *, allocated: bool) -> list[str]:
    """Write a row for each GPU that was used, and what to know about the others.

    *allocated*: a scheduler gave them, so that unused ones were asked for in vain.
    """
    idle = unused_gpus(usages)
    rows = [usage for usage in usages if was_used(usage) is not False]
    many = len(usages) > 1
    lines: list[str] = []
    for usage in rows:
        lines.append(_line(f"gpu {usage.index}" if many else "gpu", _used(usage)))
        lines += [_line("", text) for text in _trouble(usage)]
    lines += [_line("", text) for text in _sources(rows)]
    if idle:
        lines += _idle(rows, idle, allocated=allocated)
    return lines


def _used(usage: GpuUsage) -> str:
    """Give peak, total, how busy and which card: what fits in one line."""
    words = f"{_memory(usage):<20}  {_busy(usage)}"
    room = WIDTH - len(_INDENT) - len(words)
    return words + shortened(printable(short_name(usage.name)), room)


def _memory(usage: GpuUsage) -> str:
    total = usage.memory_total
    of = f" of {format_size(total)}" if total else ""
    if usage.peak_memory is not None:
        return f"{format_size(usage.peak_memory)}{of}"
    if usage.device_peak_memory is not None:
        return f"at most {format_size(usage.device_peak_memory)}{of}"
    return "memory not told"


def _busy(usage: GpuUsage) -> str:
    if usage.utilization_mean is None:
        return ""
    words = f"busy {usage.utilization_mean:.0f} %"
    if usage.utilization_max is not None:
        words += f", at most {usage.utilization_max:.0f} %"
    return f"{words:<25}  "


def _trouble(usage: GpuUsage) -> Iterator[str]:
    """Say what the card or its driver went through, if it was out of the ordinary."""
    if usage.ecc_errors:
        errors = "error" if usage.ecc_errors == 1 else "errors"
        yield (
            f"{usage.ecc_errors} memory {errors} that could not be corrected: "
            "tell the admins"
        )
    if usage.xids:
        yield xid_words(usage.xids)
    slowed = (usage.throttle or {}).get("thermal", 0.0)
    if slowed >= _LONG:
        yield f"slowed down by its heat for {format_duration(slowed)}"


def _sources(rows: Sequence[GpuUsage]) -> Iterator[str]:
    """Say how the memory was found, unless it was the plain way."""
    sources = {row.source for row in rows} - {None, _PER_PROCESS}
    if sources:
        yield "processes hidden here: the card's memory minus what was in use"
        yield "before the run; what others did meanwhile counts too"
    if any(row.peak_memory is None and row.device_peak_memory for row in rows):
        yield "processes hidden here: what the whole card held, others' too"


def _idle(
    rows: Sequence[GpuUsage], idle: Sequence[GpuUsage], *, allocated: bool
) -> list[str]:
    total = len(rows) + len(idle)
    if rows:
        text = f"{len(rows)} of {total} GPUs used"
        if allocated:
            which = listed([usage.index for usage in idle])
            text += f": ask for {len(rows)} ({which} never touched)"
        return [_line("", shortened(text, WIDTH - len(_INDENT)))]
    if not allocated:
        return []
    what = "the GPU was" if total == 1 else f"none of the {total} GPUs was"
    never = "never used" if total == 1 else "used"
    return [_line("gpu", f"{what} {never}: ask for none")]


def _line(name: str, text: str) -> str:
    return f"  {name:<9}{text}".rstrip()
