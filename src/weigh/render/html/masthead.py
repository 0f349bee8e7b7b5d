"""The head of a page: facts, states, hours held."""

from collections.abc import Iterator
from datetime import UTC, datetime

from weigh.model.report import JobReport
from weigh.render.printable import count_with_commas, printable_text, shortened_text
from weigh.schedulers import find_kind
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.units import Seconds, format_duration

_WH, _KWH = 3600.0, 3.6e6  # joules
_COMMAND = 60  # columns of a command below the title, which is a label


def state_as_words(state: str) -> str:
    """Write a state as words: ``out of memory``."""
    return state.replace("_", " ").lower()


def utc_time_text(seconds: Seconds) -> str:
    """Write seconds since the epoch in UTC: pages are read in other time zones."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
    return f"{at:%Y-%m-%d %H:%M} UTC"


def page_facts(report: JobReport) -> Iterator[str]:
    """Yield what stands below the title: job or command, elements, times."""
    if report.job is not None:
        yield printable_text(f"job {report.job}{_on_scheduler_text(report.scheduler)}")
    # the title is the label then, so the command is still to be stated
    elif len(report.rows) == 1 and report.rows[0].label and report.rows[0].command:
        yield shortened_text(printable_text(report.rows[0].command), _COMMAND)
    if report.elements is not None:
        yield (
            f"{count_with_commas(report.elements)} "
            f"element{'s' * (report.elements != 1)}"
        )
    if report.started is not None:
        yield f"started {utc_time_text(report.started)}"
        # clocks of nodes differ: a job cannot end before it started
        if report.ended is not None and report.ended >= report.started:
            yield f"took {format_duration(report.ended - report.started)}"


def _on_scheduler_text(scheduler: str | None) -> str:
    if scheduler is None:
        return ""
    kind = find_kind(scheduler)
    title = "this machine" if scheduler == LOCAL else scheduler
    return f" on {title if kind is None else kind.title}"


def held_totals(report: JobReport) -> Iterator[tuple[str, str]]:
    """Yield the hours and the energy that were held, and their units."""
    held = (
        (report.gpu_hours, "GPU hours"),
        (report.cpu_hours, "CPU hours"),
        (report.memory_hours, "GiB hours of memory"),
    )
    for value, unit in held:
        if value is not None:
            yield _few_digits(value), unit
    if report.energy is not None:
        is_large = report.energy >= _KWH
        unit = "kWh" if is_large else "Wh"
        yield (
            _few_digits(report.energy / (_KWH if is_large else _WH)),
            f"{unit} of GPUs",
        )


def _few_digits(total_value: float) -> str:
    if total_value < 0.01:  # noqa: PLR2004 - nobody pays for less
        return "< 0.01"
    return f"{total_value:,.0f}" if total_value >= 10 else f"{total_value:.2g}"  # noqa: PLR2004
