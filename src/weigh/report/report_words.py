"""The figures of a report in words: the one place where they become text."""

from weigh.dialect.slurm import format_time
from weigh.model.report import Measure, Report
from weigh.report.printable import count
from weigh.report.state_words import STATE_WORDS
from weigh.units import format_duration, format_size

NAMES = {
    "memory": "memory",
    "gpu_memory": "GPU mem",
    "cpus": "CPUs",
    "time": "time",
    "gpu_utilization": "GPU busy",
}


_LEAST = 0.001  # hours: less of them is a few seconds, and no digits to read


def state_words(report: Report) -> str:
    """Count the runs by how they ended: ``99 completed, 1 failed``."""
    known = ((report.states.get(state, 0), word) for state, word in STATE_WORDS.items())
    return ", ".join(f"{count(number)} {word}" for number, word in known if number)


def held_words(report: Report) -> str:
    """Say what was held, in the resource that counts most."""
    if report.gpu_hours:
        return f"{three(report.gpu_hours)} GPU hours"
    if report.cpu_hours:
        return f"{three(report.cpu_hours)} CPU hours"
    return ""


def amount(measure: Measure, value: float | None) -> str:
    """Write a figure of a measure in its unit; a dash where there is none."""
    if value is None:
        return "-"
    if measure.unit == "bytes":
        return format_size(round(value))
    if measure.unit == "seconds":
        return format_duration(value)
    if measure.unit == "share":
        return f"{100 * value:.0f} %"
    return _plain(value)


def asked_words(measure: Measure) -> str:
    """Write what was asked for; nothing where that cannot be asked for."""
    if measure.asked is None:
        return "" if measure.name == "gpu_utilization" else "-"
    if measure.unit == "seconds":
        return format_time(measure.asked)
    return amount(measure, measure.asked)


def percent(share: float) -> str:
    """Write a share of what was asked for; a far larger one as a factor."""
    if share > 9.99:  # noqa: PLR2004 - three digits
        return f"{share:.0f} x"
    return f"{100 * share:.0f} %"


def three(value: float) -> str:
    """Write a number with three digits or, from a hundred on, none behind the point."""
    if 0 < value < _LEAST:
        return f"<{_LEAST}"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _plain(value: float) -> str:
    if value == int(value):
        return f"{value:.0f}"
    behind = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 - three digits
    return f"{value:.{behind}f}"
