"""``weigh gpus``: a line for each GPU that is mine, or one document."""

import msgspec

from weigh.model.gpu import Gpu, GpuOccupant
from weigh.report.gpu_words import memory_words, short_name
from weigh.report.printable import printable, shortened
from weigh.units import GIB, format_size

SCHEMA = "weigh.gpus/1"
WIDTH = 80
_LONGEST_NAME = 26
_LONGEST_COMMAND = 15  # as the kernel keeps it
_RIGHT = frozenset({0, 2, 3})  # number, memory and share
_LITTLE = GIB  # without a process beside it, this much may be the driver's own
_HIDDEN = "processes hidden"


class GpuListing(msgspec.Struct, frozen=True):
    """The GPUs that are mine; ``notes`` say what is in doubt, or why there are none."""

    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


def render_text(gpus: tuple[Gpu, ...]) -> list[str]:
    """Write a line for each GPU, and another where torch is at work in this process."""
    cells = [_cells(gpu) for gpu in gpus]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for gpu, row in zip(gpus, cells, strict=True):
        aligned = [
            f"{cell:>{width}}" if place in _RIGHT else f"{cell:<{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        start = "  " + "  ".join(aligned[:-1]) + "  "
        lines.append((start + shortened(row[-1], WIDTH - len(start))).rstrip())
        if gpu.torch_reserved is not None:
            lines.append(_torch(gpu))
    return lines


def render_json(listing: GpuListing) -> bytes:
    """Write the list as one document."""
    return msgspec.json.encode(
        {"schema": SCHEMA, "gpus": listing.gpus, "notes": listing.notes}
    )


def _cells(gpu: Gpu) -> tuple[str, str, str, str, str, str]:
    name = shortened(printable(short_name(gpu.name)), _LONGEST_NAME)
    share = "" if gpu.memory_percent is None else f"{gpu.memory_percent:.0f} %"
    memory = memory_words(gpu.memory_used, gpu.memory_total)
    return str(gpu.index), name, memory, share, _busy(gpu), _who(gpu)


def _busy(gpu: Gpu) -> str:
    if gpu.utilization is None:
        return ""
    return f"busy {gpu.utilization:.0f} %" if gpu.utilization else "idle"


def _who(gpu: Gpu) -> str:
    """Say who is on it: mine first, the rest as a number."""
    occupants = gpu.occupants
    if occupants is None:
        return _HIDDEN
    if not occupants:
        if (gpu.memory_used or 0) > _LITTLE or gpu.utilization:
            return _HIDDEN
        return "allocated, not used" if gpu.allocated else "free"
    first = max(occupants, key=lambda one: (one.mine is True, one.memory or 0))
    more = f" +{len(occupants) - 1}" if len(occupants) > 1 else ""
    return f"{_owner(first)}: {_command(first)}{first.pid}{more}"


def _owner(occupant: GpuOccupant) -> str:
    return "mine" if occupant.mine else printable(occupant.user or "other")


def _command(occupant: GpuOccupant) -> str:
    if occupant.command is None:
        return ""
    return f"{shortened(printable(occupant.command), _LONGEST_COMMAND)} "


def _torch(gpu: Gpu) -> str:
    """Write torch's own peaks beside NVML's figure, and name the difference."""
    which = f"cuda:{gpu.cuda_index}{', current' if gpu.torch_current else ''}"
    text = f"torch {which}: peak {format_size(gpu.torch_allocated or 0)}"
    text += f", reserved {format_size(gpu.torch_reserved or 0)}"
    if gpu.outside_torch is not None:
        text += f"; outside {format_size(gpu.outside_torch)}"
    return f"     {text}"
