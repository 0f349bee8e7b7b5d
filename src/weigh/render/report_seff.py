"""A report in the format of ``seff``, which users paste into tickets."""

from collections.abc import Iterator

from weigh.model.report import Measure, Report
from weigh.render.printable import printable
from weigh.units import DAY, GIB, HOUR, KIB, MIB, MINUTE, Seconds

_SHORTEST: Seconds = 0.001  # shares of a shorter time mean nothing


def render_seff(report: Report) -> str:
    """Write seff's keys in its order; an array is one job with its largest element.

    Memory is the peak that weigh measured, in binary units.
    """
    return "\n".join(f"{key}: {printable(value)}" for key, value in _lines(report))


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    measures = {one.name: one for one in report.measures}
    rows = report.rows
    job = report.job or (rows[0].record if rows else None) or report.title
    yield "Job ID", job
    yield "Cluster", report.cluster or report.scheduler or "none"
    yield "User/Group", report.whose or "unknown"
    yield "State", _state(report)
    cpus = measures.get("cpus")
    requested = cpus.requested if cpus else None
    yield "Cores", "unknown" if requested is None else f"{requested:.0f}"
    used = report.cpu_time
    yield "CPU Utilized", "unknown" if used is None else _clock(used)
    yield "CPU Efficiency", _cpu_efficiency(report, used)
    time = measures.get("time")
    yield "Job Wall-clock time", _clock(time.most) if time and time.most else "unknown"
    memory = measures.get("memory")
    yield "Memory Utilized", _size(memory.most if memory else None)
    yield "Memory Efficiency", _memory_efficiency(memory)


def _state(report: Report) -> str:
    if len(report.rows) == 1:
        row = report.rows[0]
        code = row.exit_code if row.exit_code is not None else "?"
        signal = f", signal {row.signal}" if row.signal else ""
        return f"{row.state} (exit code {code}{signal})"
    counted = ", ".join(f"{number} {state}" for state, number in report.states.items())
    return f"{counted} of {len(report.rows)} tasks"


def _cpu_efficiency(report: Report, used: Seconds | None) -> str:
    if used is None or not report.cpu_hours or report.cpu_hours * HOUR < _SHORTEST:
        return "unknown"
    held = report.cpu_hours * HOUR
    return f"{100 * used / held:.2f}% of {_clock(held)} core-walltime"


def _memory_efficiency(memory: Measure | None) -> str:
    if memory is None or not memory.requested or memory.most is None:
        return "unknown"
    return f"{100 * memory.most / memory.requested:.2f}% of {_size(memory.requested)}"


def _clock(seconds: Seconds) -> str:
    whole = round(seconds)
    days, rest = divmod(whole, DAY)
    clock = f"{rest // HOUR:02d}:{rest % HOUR // MINUTE:02d}:{rest % MINUTE:02d}"
    return f"{days}-{clock}" if days else clock


def _size(size: float | None) -> str:
    if size is None:
        return "unknown"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size / KIB:.2f} KiB"
