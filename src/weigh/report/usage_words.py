"""What a run used, a line a figure, for pages: memory with bounds and source."""

from collections.abc import Iterator

from weigh.model.gpu import GpuUsage
from weigh.model.record import PeakMemory, Usage
from weigh.units import format_duration, format_size


def usage_words(usage: Usage) -> Iterator[tuple[str, str]]:
    """Yield name and words of each figure there is."""
    peak = usage.peak_memory
    yield "memory", "not measured" if peak is None else _peak(peak)
    if usage.cpu_time is not None:
        cpus = usage.cpus_used
        busy = "" if cpus is None else f", {cpus:.2f}".rstrip("0").rstrip(".") + " busy"
        yield "CPU time", f"{format_duration(usage.cpu_time)}{busy}"
    if usage.read_bytes is not None and usage.write_bytes is not None:
        read, written = format_size(usage.read_bytes), format_size(usage.write_bytes)
        yield "disk", f"{read} read, {written} written"
    for number, gpu in enumerate(usage.gpus):
        yield f"GPU {number}", _gpu(gpu)


def _peak(peak: PeakMemory) -> str:
    words = [format_size(peak.value)]
    if peak.high > peak.low:
        words.append(f"between {format_size(peak.low)} and {format_size(peak.high)}")
    if peak.time is not None:
        words.append(f"at {format_duration(peak.time)}")
    return f"{', '.join(words)} ({peak.source})"


def _gpu(gpu: GpuUsage) -> str:
    held = "-" if gpu.job_peak is None else format_size(gpu.job_peak)
    of = f" of {format_size(gpu.memory_total)}" if gpu.memory_total is not None else ""
    words = [f"{gpu.name}: {held}{of}"]
    if gpu.utilization_mean is not None:
        words.append(f"busy {gpu.utilization_mean:.0f} %")
    if gpu.power_mean is not None:
        words.append(f"{gpu.power_mean:.0f} W")
    source = f" ({gpu.source})" if gpu.source is not None else ""
    return ", ".join(words) + source
