"""What is to be said of a run while there is still time: once, and early."""

import math
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from weigh.model.progress import Forecast
from weigh.units import HOUR, MINUTE, Seconds, format_duration

Outlook: TypeAlias = Literal["fits", "doubtful", "too late"]

MARGIN = 0.15
_ROUND_TO = 5 * MINUTE
_BEGUN = 0.02
_YOUNG = 10 * MINUTE


def outlook(
    forecast: Forecast | None, *, now: Seconds, limit: Seconds
) -> Outlook | None:
    """Say whether the run ends before *limit*; None while nobody can know.

    *now* and *limit* are seconds since the run began. "too late" is said only when
    even the early end of the interval lies past the limit, "fits" when the late end
    lies before it. Nothing is said in the first 2 % of the steps of a run younger than
    ten minutes: those are often slow, and what is said too early is said wrong.
    """
    if forecast is None or forecast.low is None or forecast.high is None:
        return None
    is_begun = forecast.done >= _BEGUN * (forecast.total or 0.0)
    if not is_begun and now < _YOUNG:
        return None
    passed = now - forecast.time
    if now + max(0.0, forecast.low - passed) > limit:
        return "too late"
    return "fits" if now + max(0.0, forecast.high - passed) <= limit else "doubtful"


def limit_to_ask(forecast: Forecast | None) -> Seconds | None:
    """Give the time limit to ask for next, for a whole run like this one.

    The late end of the interval and 15 % more, rounded up to five minutes.
    """
    if forecast is None or forecast.high is None:
        return None
    whole = (forecast.time + forecast.high) * (1 + MARGIN)
    return float(math.ceil(whole / _ROUND_TO) * _ROUND_TO)


_LOOKS = 3  # in a row that have to say the same
_PATIENCE = 0.005  # of the limit, from the first of these looks to the last
_IDLE_CORES = 0.01
_BUSY_CORES = 0.3
_POINTS = 20  # remembered over the time of a stall


class LimitWatch:
    """Notices that a run will not end before its time limit.

    *limit* is seconds since the run began; *ask* writes a longer one as it is asked
    for.
    """

    def __init__(self, limit: Seconds, ask: Callable[[Seconds], str]) -> None:
        self.limit = limit
        self._ask = ask
        self._late: list[Seconds] = []
        self._has_spoken = False

    def look(self, now: Seconds, forecast: Forecast | None) -> str | None:
        """Say that it will be too late, once that is sure; in one line or two."""
        if self._has_spoken or forecast is None:
            return None
        if outlook(forecast, now=now, limit=self.limit) != "too late":
            self._late.clear()
            return None
        self._late.append(now)
        if len(self._late) < _LOOKS or now - self._late[0] < _PATIENCE * self.limit:
            return None
        self._has_spoken = True
        return self._words(now, forecast)

    def _words(self, now: Seconds, forecast: Forecast) -> str:
        share = f"{forecast.done / forecast.total:.0%} done, " if forecast.total else ""
        more = max(0.0, (forecast.remaining or 0.0) - (now - forecast.time))
        longer = limit_to_ask(forecast)
        ask = "" if longer is None else f"\nask for {self._ask(longer)} next time"
        return (
            f"will not end before the time limit: {share}"
            f"{format_duration(more)} to go, "
            f"{format_duration(max(0.0, self.limit - now))} left{ask}"
        )


class StallWatch:
    """Notices that a run does nothing, or nothing with the GPUs it was given.

    It speaks after *after* seconds without, once of each. ``gpus`` are those granted.
    """

    def __init__(self, after: Seconds, *, gpus: int = 0) -> None:
        self._after = after
        self._gpus = gpus
        self._seen: deque[tuple[Seconds, Seconds]] = deque()
        self._has_said_gpu = self._has_said_stalled = False

    def look(
        self,
        now: Seconds,
        *,
        cpu_time: Seconds | None,
        wrote_at: Seconds | None,
        gpu_idle: Seconds | None = None,
    ) -> str | None:
        """Say what has been standing still for too long.

        *wrote_at* is when it wrote last, *gpu_idle* since when no GPU was busy, in
        seconds; None where that cannot be known.
        """
        cores = self._cores(now, cpu_time)
        is_silent = wrote_at is not None and now - wrote_at >= self._after
        silence = ", no output" if is_silent else ""
        since = _round_time(self._after)
        if gpu_idle is not None and gpu_idle >= self._after and self._gpus:
            if self._has_said_gpu:
                return None
            self._has_said_gpu = self._has_said_stalled = True
            why = _what_runs(cores)
            return f"0 % GPU for {since}{silence}{why}"
        if cores is None or cores >= _IDLE_CORES or not is_silent:
            return None
        if self._has_said_stalled:
            return None
        self._has_said_stalled = True
        return f"no output and no CPU time for {since}: it may hang"

    def _cores(self, now: Seconds, cpu_time: Seconds | None) -> float | None:
        """Give the cores that were busy over the time of a stall; None: too early."""
        if cpu_time is None:
            return None
        seen = self._seen
        if not seen or now - seen[-1][0] >= self._after / _POINTS:
            seen.append((now, cpu_time))
        while len(seen) > 1 and now - seen[1][0] >= self._after:
            seen.popleft()
        since, before = seen[0]
        if now - since < self._after:
            return None
        return max(0.0, cpu_time - before) / (now - since)


def _what_runs(cores: float | None) -> str:
    if cores is None:
        return ""
    if cores >= _BUSY_CORES:
        return f", {cores:.1f} CPUs busy: is it on the CPU?"
    return ", no CPU time: it may hang" if cores < _IDLE_CORES else ""


def _round_time(seconds: Seconds) -> str:
    if seconds % MINUTE or seconds >= HOUR:
        return format_duration(seconds)
    minutes = round(seconds / MINUTE)
    return f"{minutes} minute{'s' if minutes != 1 else ''}"
