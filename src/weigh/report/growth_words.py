"""How memory moved towards the end of a run, in words."""

from weigh.model.growth import Extrapolation, Growth
from weigh.units import HOUR, MIB, MINUTE, Seconds, format_duration, format_size

_EARLY = 0.9  # of the run: what levels out later may not have
_UNITS = ((1, "s"), (MINUTE, "min"), (HOUR, "h"))


def growth_words(growth: Growth, peak_time: Seconds | None) -> str:
    """Say what memory did when the run ended; nothing where that is not known."""
    if growth.growing:
        rate = "" if growth.trend is None else f": {rate_words(growth.trend.rate)}"
        return f"still rising at the end{rate}"
    if growth.growing is None or growth.since is None:
        return ""
    if peak_time is None or growth.since > _EARLY * min(peak_time, growth.end):
        return "then flat" if peak_time is not None else ""
    return f"flat since {format_duration(growth.since)}"


def rate_words(rate: float) -> str:
    """Write bytes a second in the shortest unit of time that makes it 1 MiB."""
    enough = (pair for pair in _UNITS if round(rate * pair[0]) >= MIB)
    seconds, unit = next(enough, _UNITS[-1])
    return f"{format_size(round(rate * seconds))}/{unit}"


def extrapolation_words(ahead: Extrapolation) -> str:
    """Write what memory comes to, and between what it lies."""
    low, high = format_size(ahead.low), format_size(ahead.high)
    if low == high:
        return low
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    value = format_size(ahead.value)
    return f"{value} (between {low} and {high}, {100 * ahead.level:.0f} % sure)"
