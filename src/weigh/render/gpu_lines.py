"""The list of GPUs, and the GPU rows of the summary after ``weigh run``."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.gpu import HEALTHY, GpuState, GpuUsage
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import WIDTH, printable_text, shortened_text
from weigh.render.request_lines import folded_lines, lines_behind_name
from weigh.render.words import (
    gpu_trouble_words,
    listed_numbers,
    memory_words,
    short_name,
)
from weigh.units import GIB, format_size

SCHEMA = "weigh.gpus/1"
_LONGEST_NAME = 26  # columns
_LONGEST_COMMAND = 15  # as the kernel keeps it
_LITTLE = GIB  # memory that the driver may hold itself, without any process
_HIDDEN = "processes hidden"


class GpuListing(msgspec.Struct, frozen=True):
    """The user's GPUs; ``notes`` are warnings, or why there are none."""

    gpus: tuple[GpuState, ...]
    notes: tuple[str, ...] = ()


def gpu_list(gpu_states: tuple[GpuState, ...]) -> list[str]:
    """Write one line per GPU, and a second if torch uses it in this process."""
    lines: list[str] = []
    _titles, *rows = table_lines(gpu_states, _GPU_COLUMNS)
    for gpu, row in zip(gpu_states, rows, strict=True):
        lines.append(row)
        # None outside of a process that uses torch
        if gpu.torch_reserved is not None:
            lines.append(_torch_peaks_text(gpu))
    return lines


def gpu_list_document(listing: GpuListing) -> bytes:
    """Write the list as one document."""
    return msgspec.json.encode(
        {"schema": SCHEMA, "gpus": listing.gpus, "notes": listing.notes}
    )


def _gpu_name_text(gpu_state: GpuState) -> str:
    return shortened_text(printable_text(short_name(gpu_state.name)), _LONGEST_NAME)


def _gpu_memory_share_text(gpu_state: GpuState) -> str:
    share = gpu_state.memory_percent
    return "" if share is None else f"{share:.0f} %"


def _gpu_load_text(gpu_state: GpuState) -> str:
    if gpu_state.utilization is None:
        return ""
    # one that a program holds is not idle: weigh exec would not claim it
    if _is_unused_gpu(gpu_state):
        return "idle"
    return f"busy {gpu_state.utilization:.0f} %"


def _is_unused_gpu(gpu_state: GpuState) -> bool:
    # a process of another user or container is not listed, but its memory and load are
    is_held = gpu_state.occupants or (gpu_state.memory_used or 0) > _LITTLE
    return gpu_state.occupants is not None and not is_held and not gpu_state.utilization


def _first_occupant_text(gpu_state: GpuState) -> str:
    """Write who uses the GPU: the user's own process first, the others counted."""
    occupants = gpu_state.occupants
    if _is_unused_gpu(gpu_state):
        return "allocated, not used" if gpu_state.allocated else "free"
    if not occupants:
        return _HIDDEN
    # the user's own first, then the one with the most memory
    first = max(occupants, key=lambda one: (one.mine is True, one.memory or 0))
    more = f" +{len(occupants) - 1}" if len(occupants) > 1 else ""
    owner = "mine" if first.mine else printable_text(first.user or "other")
    command = shortened_text(printable_text(first.command or ""), _LONGEST_COMMAND)
    process = f"{command} {first.pid}".lstrip()
    return f"{owner}: {process}{more}"


# their titles are not shown
_GPU_COLUMNS = (
    TableColumn("", lambda gpu: str(gpu.index)),
    TableColumn("", _gpu_name_text, right=False),
    TableColumn("", lambda gpu: memory_words(gpu.memory_used, gpu.memory_total)),
    TableColumn("", _gpu_memory_share_text),
    TableColumn("", _gpu_load_text, right=False),
    TableColumn("", _first_occupant_text, right=False, flexible=True),
)


def _torch_peaks_text(gpu_state: GpuState) -> str:
    """Write torch's peaks, and the memory that NVML counts outside torch."""
    which = (
        f"cuda:{gpu_state.cuda_index}{', current' if gpu_state.torch_current else ''}"
    )
    text = f"torch {which}: peak {format_size(gpu_state.torch_allocated or 0)}"
    text += f", reserved {format_size(gpu_state.torch_reserved or 0)}"
    if gpu_state.outside_torch is not None:
        text += f"; outside {format_size(gpu_state.outside_torch)}"
    return shortened_text(f"     {text}", WIDTH)


_TEXT_WIDTH = 67  # columns of a row's text, behind its name
_FIGURE_NAME = 20  # columns of the name of a figure
_MB = 1_000_000  # as NVIDIA's tools count rates
_PER_PROCESS = "NVML per process"
# name, unit, scale, field of the mean, and what its maximum and minimum begin with
_SAMPLED_FIGURES = (
    ("power", "W", 1, "power_mean", "power"),
    ("SM clock", "MHz", 1, "sm_clock_mean", "sm_clock"),
    ("memory clock", "MHz", 1, "memory_clock_mean", "memory_clock"),
    ("busy", "%", 1, "utilization_mean", "utilization"),
    ("memory busy", "%", 1, "memory_utilization_mean", "memory_utilization"),
    ("PCIe in", "MB/s", _MB, "pcie_rx", "pcie_rx"),
    ("PCIe out", "MB/s", _MB, "pcie_tx", "pcie_tx"),
)
# name, and the fields of what is counted
_COUNTED_FIGURES = (
    (
        "ECC errors",
        {"single-bit": "corrected_ecc_errors", "double-bit": "ecc_errors"},
    ),
    ("PCIe replays, XIDs", {"replays": "pcie_replays", "XIDs": "xid_errors"}),
)


def gpu_rows(
    usages: Sequence[GpuUsage], *, allocated: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield the GPUs of a run as the fields of record rows.

    A summary has the GPUs that were used, and their trouble.

    *allocated*: a scheduler granted them, so unused ones need not be requested.
    """
    idle = [usage for usage in usages if usage.was_used is False]
    # None: not known, so its row is shown as well
    used = [usage for usage in usages if usage.was_used is not False]
    for number, usage in enumerate(usages):
        index = number if usage.index is None else usage.index
        name = f"gpu {index}" if len(usages) > 1 else "gpu"
        is_used = usage in used
        yield name, _gpu_usage_line(usage), is_used
        for text in _gpu_trouble_lines(usage):
            yield "", text, is_used
        for text in _gpu_detail_texts(usage):
            yield "", text, False
    for text in _memory_source_lines(used):
        yield "", text, True
    # a machine's own GPUs cannot be left out of a request
    if idle and (used or allocated):
        name = "" if used else "gpu"
        yield name, _idle_gpu_text(used, idle, allocated), True


def _gpu_detail_texts(gpu_usage: GpuUsage) -> Iterator[str]:
    """Yield where its memory is from, and what else was measured of a GPU.

    The figures are those that schedulers' prologues print into a job's log.
    """
    if gpu_usage.process_peak_memory is not None:
        before = gpu_usage.memory_before
        held = "" if before is None else f", {format_size(before)} held before"
        yield f"of this job's {format_size(gpu_usage.process_peak_memory)}{held}"
    if gpu_usage.source is not None:
        yield f"source: {gpu_usage.source}"
    for name, words in _gpu_figures(gpu_usage):
        lines = folded_lines(words, _TEXT_WIDTH - _FIGURE_NAME)
        yield from lines_behind_name(name, lines, indent=0, name_width=_FIGURE_NAME)


def _gpu_figures(gpu_usage: GpuUsage) -> Iterator[tuple[str, str]]:
    if gpu_usage.energy is not None:
        yield "energy", f"{gpu_usage.energy:.0f} J"
    for name, unit, scale, mean_field, stem in _SAMPLED_FIGURES:
        fields = {"mean": mean_field, "max": f"{stem}_max", "min": f"{stem}_min"}
        values = {word: getattr(gpu_usage, field) for word, field in fields.items()}
        known = [
            f"{word} {value / scale:.4g}"
            for word, value in values.items()
            if value is not None
        ]
        if known:
            yield name, f"{', '.join(known)} {unit}"
    for name, counted in _COUNTED_FIGURES:
        counts = {word: getattr(gpu_usage, field) for word, field in counted.items()}
        words = [
            f"{word} {count}" for word, count in counts.items() if count is not None
        ]
        if words:
            yield name, ", ".join(words)
    if gpu_usage.slowed is not None:
        slowed = gpu_usage.slowed.items()
        words = [f"{reason} in {share:.0f} % of readings" for reason, share in slowed]
        yield "slowed down by", ", ".join(words) or "nothing"
    if gpu_usage.health is not None:
        yield "health", gpu_usage.health


def _gpu_usage_line(gpu_usage: GpuUsage) -> str:
    """Write peak, total, utilization and model on one line."""
    words = f"{_gpu_peak_of_total_text(gpu_usage):<20}  {_average_use(gpu_usage)}"
    room = _TEXT_WIDTH - len(words)
    return words + shortened_text(printable_text(short_name(gpu_usage.name)), room)


def _gpu_peak_of_total_text(gpu_usage: GpuUsage) -> str:
    total = gpu_usage.memory_total
    of = f" of {format_size(total)}" if total else ""
    if gpu_usage.peak_memory is not None:
        return f"{format_size(gpu_usage.peak_memory)}{of}"
    if gpu_usage.device_peak_memory:
        return f"up to {format_size(gpu_usage.device_peak_memory)}{of}"
    return "memory unknown"


def _average_use(gpu_usage: GpuUsage) -> str:
    if gpu_usage.utilization_mean is None:
        return ""
    words = f"busy {gpu_usage.utilization_mean:.0f} %"
    if gpu_usage.utilization_max is not None:
        words += f", peak {gpu_usage.utilization_max:.0f} %"
    return f"{words:<25}  "


def _gpu_trouble_lines(gpu_usage: GpuUsage) -> Iterator[str]:
    """Yield what qualifies the memory, errors and thermal throttling, if any."""
    for _, words in gpu_trouble_words(gpu_usage):
        yield from folded_lines(words, _TEXT_WIDTH)
    # memory of a process outside the run, such as a notebook
    if gpu_usage.other_memory and not gpu_usage.job_peak:
        size = format_size(gpu_usage.other_memory)
        yield f"another process of yours holds {size} of it: not counted"
    # an error is stated already: one line is enough
    is_stated = gpu_usage.xids or gpu_usage.ecc_errors
    if not is_stated and not (gpu_usage.health or HEALTHY).startswith(HEALTHY):
        yield f"{gpu_usage.health}: report to the admins"


def _memory_source_lines(used_gpus: Sequence[GpuUsage]) -> Iterator[str]:
    """Yield how memory was measured, unless it was NVML's figure per process."""
    sources = {row.source for row in used_gpus} - {None, _PER_PROCESS}
    if sources:
        yield "the driver hides processes: the GPU's memory minus what was in use"
        yield "before the run, so other users' changes since are included"
    if any(row.peak_memory is None and row.device_peak_memory for row in used_gpus):
        yield "the driver hides processes: memory of the whole GPU, others included"


def _idle_gpu_text(
    used_gpus: Sequence[GpuUsage],
    idle_gpus: Sequence[GpuUsage],
    allocated: bool,  # noqa: FBT001
) -> str:
    total = len(used_gpus) + len(idle_gpus)
    if used_gpus:
        text = f"{len(used_gpus)} of {total} GPUs used"
        if allocated:
            which = listed_numbers([usage.index for usage in idle_gpus])
            text += f": request {len(used_gpus)} ({which} never used)"
        return shortened_text(text, _TEXT_WIDTH)
    if total == 1:
        return "the GPU was never used: request none"
    return f"none of the {total} GPUs was used: request none"
