"""Figures of records and reports as words: memory, growth, GPUs, states, amounts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from weigh.model.gpu import GPU_FAULTS, GpuUsage
from weigh.model.progress import MemoryExtrapolation, MemoryGrowth
from weigh.model.record import State
from weigh.model.report import NOT_RUN, JobReport, ReportMeasure, Unit
from weigh.render.printable import printable_text, range_text, three_digit_text
from weigh.units import (
    GIB,
    HOUR,
    MIB,
    MINUTE,
    Bytes,
    Seconds,
    count_with_noun,
    format_duration,
    format_limit,
    format_size,
)

if TYPE_CHECKING:
    from weigh.model.job import JobRequest
    from weigh.model.plan import PlanRequest

STATE_WORDS: dict[State, str] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "out of memory",
    "TIMEOUT": "out of time",
    "STUCK": "stuck",
    "DIVERGED": "diverged",
    "NODE_FAIL": "lost with a node",
    "PREEMPTED": "preempted",
    "CANCELLED": "cancelled",
    "INTERRUPTED": "interrupted",
    "RUNNING": "running",
    "PENDING": "waiting",
    "UNKNOWN": "unknown",
}


def state_text(state: str) -> str:
    """Write a state of a record in words; an unknown one as it is."""
    return STATE_WORDS.get(cast("State", state), state)


_EARLY = 0.9  # of the run: a later plateau is not trusted
_UNITS = ((1, "s"), (MINUTE, "min"), (HOUR, "h"))


def growth_words(growth: MemoryGrowth, peak_time: Seconds | None) -> str:
    """Describe whether memory was rising at the end; nothing if unknown."""
    if growth.growing:
        rate = "" if growth.trend is None else f": {rate_words(growth.trend.rate)}"
        return f"still rising at the end{rate}"
    if growth.growing is None or growth.since is None:
        return ""
    if peak_time is None or growth.since > _EARLY * min(peak_time, growth.end):
        return "then flat" if peak_time is not None else ""
    return f"flat since {format_duration(growth.since)}"


def rate_words(rate: float) -> str:
    """Write bytes per second, in the shortest unit of time that yields 1 MiB."""
    # a rate below 1 MiB per hour is still written per hour
    enough = (pair for pair in _UNITS if round(rate * pair[0]) >= MIB)
    seconds, unit = next(enough, _UNITS[-1])
    return f"{format_size(round(rate * seconds))}/{unit}"


def extrapolation_words(ahead: MemoryExtrapolation) -> str:
    """Write predicted memory and its interval."""
    low, high = format_size(ahead.low), format_size(ahead.high)
    if low == high:
        return low
    span = f"between {range_text(low, high, 'and')}"
    return f"{format_size(ahead.value)} ({span}, {100 * ahead.level:.0f} % confidence)"


_MAKERS = ("NVIDIA ", "Tesla ")
_BAD_ADDRESS = 31  # NVIDIA's XID for a page fault of the program
_SHOWN = 3  # different numbers that are listed
_HOT = 1.0  # per cent of readings that are worth a line


def short_name(gpu_name: str) -> str:
    """Return a GPU's name without its maker: ``V100-SXM2-32GB``."""
    for maker in _MAKERS:
        gpu_name = gpu_name.removeprefix(maker)
    return gpu_name


def memory_words(used: Bytes | None, total: Bytes | None) -> str:
    """Write how full a GPU is: ``7.1 of 32.0 GiB``."""
    if total is None:
        return "memory unknown" if used is None else f"{used / GIB:.1f} GiB used"
    known = "?" if used is None else f"{used / GIB:.1f}"
    return f"{known} of {total / GIB:.1f} GiB"


def listed_numbers(numbers: Sequence[int | None]) -> str:
    """Write a list of numbers: ``1, 2 and 3``."""
    words = ["?" if number is None else str(number) for number in numbers]
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def gpu_trouble_words(gpu_usage: GpuUsage) -> Iterator[tuple[int, str]]:
    """Yield the weight and the words of each trouble of a GPU; 90 is a lost job."""
    if gpu_usage.xids:
        yield 92, xid_words(gpu_usage.xids)
    if gpu_usage.ecc_errors:
        errors = count_with_noun(gpu_usage.ecc_errors, "uncorrected memory error")
        yield 91, f"{errors}: report to the admins"
    hot = (gpu_usage.slowed or {}).get("thermal", 0.0)
    if hot >= _HOT:
        yield 48, f"slowed down by heat in {hot:.0f} % of readings"


def xid_words(xids: Sequence[int]) -> str:
    """Write the driver's error numbers and their likely cause."""
    different = sorted(set(xids))
    words = f"driver XID {listed_numbers(different[:_SHOWN])}"
    words += ", ..." if len(different) > _SHOWN else ""
    if any(xid in GPU_FAULTS for xid in different):
        return f"{words}: GPU fault, report to the admins"
    if different == [_BAD_ADDRESS]:
        return f"{words}: invalid address in the program"
    return f"{words}: most likely a bug of the program"


def requested_amounts_text(request: Any) -> str:  # noqa: ANN401 - of any kind
    """Write what is requested: ``1 GPU, 4 CPUs, 8.00 GiB, 06:00:00``."""
    gpu_type = getattr(request, "gpu_type", None)
    gpus = f"{request.gpus} x {gpu_type}" if gpu_type else ""
    parts = [gpus or count_with_noun(request.gpus, "GPU")] if request.gpus else []
    parts += [] if request.cpus is None else [count_with_noun(request.cpus, "CPU")]
    # Grid Engine sites may limit address space in place of memory
    virtual = getattr(request, "virtual_memory", None)
    memory = virtual if request.memory is None else request.memory
    parts += [] if memory is None else [format_size(memory)]
    if request.time_limit is not None:
        parts.append(format_limit(request.time_limit))
    is_address_space = request.memory is None and virtual is not None
    return ", ".join(parts) + " (memory: address space)" * is_address_space


def element_request_text(request: "JobRequest | PlanRequest") -> str:
    """Write the request of an element: each node's, with nodes and ranks if several."""
    amounts, nodes = requested_amounts_text(request), request.nodes
    if request.ntasks:
        where = count_with_noun(nodes, "node")
        return f"{count_with_noun(request.ntasks, 'rank')} on {where} with {amounts}"
    return f"{nodes} nodes with {amounts}" if nodes > 1 else amounts


NAMES = {
    "memory": "memory",
    "gpu_memory": "GPU mem",
    "cpus": "CPUs",
    "time": "time",
    "gpu_utilization": "GPU busy",
}


def task_parameters_text(parameters: Mapping[str, int | float | str]) -> str:
    """Write the parameters in which a task differs from the others."""
    words = (
        # "#3" names a word by its place only: show the word alone
        str(value) if name.startswith("#") else f"{name}={value}".rstrip("=")
        for name, value in parameters.items()
    )
    return printable_text(" ".join(words))


def state_counts(report: JobReport) -> Iterator[tuple[State, int, str]]:
    """Yield each state with the number of its tasks, and its word."""
    not_run = sum(row.is_not_run for row in report.rows)
    for state, word in STATE_WORDS.items():
        number = report.states.get(state, 0)
        if state == "PENDING" and not_run:
            yield state, not_run, NOT_RUN
            number -= not_run
        if number:
            yield state, number, word


def state_counts_text(report: JobReport) -> str:
    """Count the runs by how they ended: ``99 completed, 1 failed``."""
    return ", ".join(f"{number:,} {word}" for _, number, word in state_counts(report))


def held_hours(report: JobReport) -> Iterator[tuple[str, str]]:
    """Yield the hours that were held, used or not, and their units."""
    held = ((report.gpu_hours, "GPU hours held"), (report.cpu_hours, "CPU hours held"))
    for value, unit in held:
        if value:
            text = three_digit_text(value)
            yield text, unit.replace("hours", "hour") if text == "1" else unit


def used_words(report: JobReport) -> str:
    """Return what the figures are: where an element runs several tasks, no task's."""
    shares = (report.elements or len(report.rows)) < len(report.rows)
    return "used per element" if shares else "used"


def unit_value_text(figure_value: float | None, unit: Unit) -> str:
    """Write a figure in its unit; a dash if it was not measured."""
    # a ratio of figures can be nan or infinite
    if figure_value is None or not math.isfinite(figure_value):
        return "-"
    if unit == "bytes":
        return format_size(round(figure_value))
    if unit == "seconds":
        return format_duration(figure_value)
    if unit == "share":
        return f"{100 * figure_value:.0f} %"
    return _plain_value_text(figure_value)


def measure_value_text(measure: ReportMeasure, value: float | None) -> str:
    """Write a figure of a measure: the median, the peak."""
    text = unit_value_text(value, measure.unit)
    is_bound = value is not None and value <= (measure.bound or -1)
    return f"up to {text}" if is_bound else text


def requested_words(measure: ReportMeasure) -> str:
    """Write what was requested; nothing for a figure that cannot be requested."""
    if measure.requested is None:
        return "" if measure.name == "gpu_utilization" else "-"
    if measure.unit == "seconds":
        return format_limit(measure.requested)
    return unit_value_text(measure.requested, measure.unit)


def share_of_request_text(share: float) -> str:
    """Write usage as a share of the request; a far larger one as a factor."""
    if share > 9.99:  # noqa: PLR2004 - three digits
        return f"{share:.0f} x"
    return f"{100 * share:.0f} %"


def _plain_value_text(figure_value: float) -> str:
    if figure_value == int(figure_value):
        return f"{figure_value:.0f}"
    behind = 2 if figure_value < 9.995 else 1 if figure_value < 99.95 else 0  # noqa: PLR2004 - three digits
    return f"{figure_value:.{behind}f}"


AS_USUAL = frozenset(("COMPLETED", "RUNNING", "PENDING"))
