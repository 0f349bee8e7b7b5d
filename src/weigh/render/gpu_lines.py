"""The list of GPUs, and the GPU rows of the summary after ``weigh run``."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.gpu import HEALTHY, Gpu, GpuOccupant, GpuUsage
from weigh.render.printable import padded, printable, shortened, width_of
from weigh.render.request_lines import folded
from weigh.render.words import (
    listed,
    memory_words,
    preallocation_words,
    short_name,
    xid_words,
)
from weigh.units import GIB, format_duration, format_size

SCHEMA = "weigh.gpus/1"
WIDTH = 80
_LONGEST_NAME = 26
_LONGEST_COMMAND = 15  # as the kernel keeps it
_RIGHT = frozenset({0, 2, 3})  # number, memory and share
_LITTLE = GIB  # memory that the driver may hold itself, without any process
_HIDDEN = "processes hidden"


class GpuListing(msgspec.Struct, frozen=True):
    """The user's GPUs; ``notes`` are warnings, or why there are none."""

    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


def gpu_list(gpus: tuple[Gpu, ...]) -> list[str]:
    """Write one line per GPU, and a second if torch uses it in this process."""
    cells = [_gpu_list_cells(gpu) for gpu in gpus]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for gpu, row in zip(gpus, cells, strict=True):
        aligned = [
            f"{cell:>{width}}" if place in _RIGHT else padded(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        start = "  " + "  ".join(aligned[:-1]) + "  "
        lines.append((start + shortened(row[-1], WIDTH - width_of(start))).rstrip())
        if gpu.torch_reserved is not None:
            lines.append(_torch_peaks_text(gpu))
    return lines


def gpu_list_document(listing: GpuListing) -> bytes:
    """Write the list as one document."""
    return msgspec.json.encode(
        {"schema": SCHEMA, "gpus": listing.gpus, "notes": listing.notes}
    )


def _gpu_list_cells(gpu: Gpu) -> tuple[str, str, str, str, str, str]:
    name = shortened(printable(short_name(gpu.name)), _LONGEST_NAME)
    share = "" if gpu.memory_percent is None else f"{gpu.memory_percent:.0f} %"
    memory = memory_words(gpu.memory_used, gpu.memory_total)
    return (
        str(gpu.index),
        name,
        memory,
        share,
        _gpu_load_text(gpu),
        _first_occupant_text(gpu),
    )


def _gpu_load_text(gpu: Gpu) -> str:
    if gpu.utilization is None:
        return ""
    return f"busy {gpu.utilization:.0f} %" if gpu.utilization else "idle"


def _first_occupant_text(gpu: Gpu) -> str:
    """Write who uses the GPU: the user's own process first, the others counted."""
    occupants = gpu.occupants
    if occupants is None:
        return _HIDDEN
    if not occupants:
        if (gpu.memory_used or 0) > _LITTLE or gpu.utilization:
            return _HIDDEN
        return "allocated, not used" if gpu.allocated else "free"
    first = max(occupants, key=lambda one: (one.mine is True, one.memory or 0))
    more = f" +{len(occupants) - 1}" if len(occupants) > 1 else ""
    return f"{_occupant_owner(first)}: {_occupant_command(first)}{first.pid}{more}"


def _occupant_owner(occupant: GpuOccupant) -> str:
    return "mine" if occupant.mine else printable(occupant.user or "other")


def _occupant_command(occupant: GpuOccupant) -> str:
    if occupant.command is None:
        return ""
    return f"{shortened(printable(occupant.command), _LONGEST_COMMAND)} "


def _torch_peaks_text(gpu: Gpu) -> str:
    """Write torch's peaks, and the memory that NVML counts outside torch."""
    which = f"cuda:{gpu.cuda_index}{', current' if gpu.torch_current else ''}"
    text = f"torch {which}: peak {format_size(gpu.torch_allocated or 0)}"
    text += f", reserved {format_size(gpu.torch_reserved or 0)}"
    if gpu.outside_torch is not None:
        text += f"; outside {format_size(gpu.outside_torch)}"
    return f"     {text}"


SUMMARY_WIDTH = 80
_INDENT = "           "
_PER_PROCESS = "NVML per process"
_LONG = 1.0  # seconds of thermal throttling that are worth a line


def gpu_lines(usages: Sequence[GpuUsage], *, allocated: bool) -> list[str]:
    """Write one row per GPU that was used, and how many were not used.

    *allocated*: a scheduler granted them, so unused ones need not be requested.
    """
    idle = [usage for usage in usages if usage.was_used is False]
    rows = [usage for usage in usages if usage.was_used is not False]
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
    """Write peak, total, utilization and model on one line."""
    words = f"{_memory(usage):<20}  {_average_use(usage)}"
    room = SUMMARY_WIDTH - len(_INDENT) - len(words)
    return words + shortened(printable(short_name(usage.name)), room)


def _memory(usage: GpuUsage) -> str:
    total = usage.memory_total
    of = f" of {format_size(total)}" if total else ""
    if usage.peak_memory is not None:
        return f"{format_size(usage.peak_memory)}{of}"
    if usage.device_peak_memory:
        return f"up to {format_size(usage.device_peak_memory)}{of}"
    return "memory unknown"


def _average_use(usage: GpuUsage) -> str:
    if usage.utilization_mean is None:
        return ""
    words = f"busy {usage.utilization_mean:.0f} %"
    if usage.utilization_max is not None:
        words += f", peak {usage.utilization_max:.0f} %"
    return f"{words:<25}  "


def _trouble(usage: GpuUsage) -> Iterator[str]:
    """Yield what qualifies the memory, errors and thermal throttling, if any."""
    if usage.preallocated:
        text = f"{format_size(usage.preallocated)} taken at once: "
        yield from folded(text + preallocation_words(), SUMMARY_WIDTH - len(_INDENT))
    if usage.other_memory and not usage.job_peak:
        size = format_size(usage.other_memory)
        yield f"another process of yours holds {size} of it: what it did is not counted"
    if usage.ecc_errors:
        errors = "error" if usage.ecc_errors == 1 else "errors"
        yield (f"{usage.ecc_errors} uncorrected memory {errors}: report to the admins")
    if usage.xids:
        yield xid_words(usage.xids)
    elif not usage.ecc_errors and not (usage.health or HEALTHY).startswith(HEALTHY):
        yield f"{usage.health}: report to the admins"
    slowed = (usage.throttle or {}).get("thermal", 0.0)
    if slowed >= _LONG:
        yield f"slowed down by heat for {format_duration(slowed)}"


def _sources(rows: Sequence[GpuUsage]) -> Iterator[str]:
    """Yield how memory was measured, unless it was NVML's figure per process."""
    sources = {row.source for row in rows} - {None, _PER_PROCESS}
    if sources:
        yield "the driver hides processes: the GPU's memory minus what was in use"
        yield "before the run, so other users' changes since are included"
    if any(row.peak_memory is None and row.device_peak_memory for row in rows):
        yield "the driver hides processes: memory of the whole GPU, others included"


def _idle(
    rows: Sequence[GpuUsage], idle: Sequence[GpuUsage], *, allocated: bool
) -> list[str]:
    total = len(rows) + len(idle)
    if rows:
        text = f"{len(rows)} of {total} GPUs used"
        if allocated:
            which = listed([usage.index for usage in idle])
            text += f": request {len(rows)} ({which} never used)"
        return [_line("", shortened(text, SUMMARY_WIDTH - len(_INDENT)))]
    if not allocated:
        return []
    what = "the GPU was" if total == 1 else f"none of the {total} GPUs was"
    never = "never used" if total == 1 else "used"
    return [_line("gpu", f"{what} {never}: request none")]


def _line(name: str, text: str) -> str:
    return f"  {name:<9}{text}".rstrip()
