"""Early warnings about a run: it will exceed its time limit, or it hangs."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from weigh.model.progress import EndForecast
from weigh.units import HOUR, KIB, MINUTE, Seconds, count_with_noun, format_duration

Outlook: TypeAlias = Literal["fits", "doubtful", "too late"]

MARGIN = 0.15  # share of the whole predicted time that is added to it
_ROUND_TO = 5 * MINUTE  # what people write into a job script
_BEGUN = 0.02  # of the steps, before which a young run is not judged
_YOUNG = 10 * MINUTE  # seconds


def outlook(
    forecast: EndForecast | None, *, current_time: Seconds, limit: Seconds
) -> Outlook | None:
    """Return whether the run ends before *limit*; None while that is unknown.

    *current_time* and *limit* are seconds since the run began. "too late" means that
    even the early end of the interval lies past the limit, "fits" that the late end
    lies before it. The first 2 % of the steps do not count in the first ten minutes of
    a run: they are often slow, and an early prediction would be wrong.
    """
    if forecast is None or forecast.low is None or forecast.high is None:
        return None
    is_begun = forecast.done >= _BEGUN * (forecast.total or 0.0)
    if not is_begun and current_time < _YOUNG:
        return None
    # the forecast is as old as the last count
    passed = current_time - forecast.time
    # even the early end is too late
    if current_time + max(0.0, forecast.low - passed) > limit:
        return "too late"
    return (
        "fits"
        if current_time + max(0.0, forecast.high - passed) <= limit
        else "doubtful"
    )


def limit_to_ask(forecast: EndForecast | None) -> Seconds | None:
    """Return the time limit to request for another run like this one.

    That is the late end of the interval plus 15 %, rounded up to five minutes.
    """
    if forecast is None or forecast.high is None:
        return None
    whole = (forecast.time + forecast.high) * (1 + MARGIN)
    return float(math.ceil(whole / _ROUND_TO) * _ROUND_TO)


_PATIENCE = 0.005  # of the limit, in which every forecast is too late
_IDLE_CORES = 0.005  # heartbeats and watchdogs of a hung program use less
_BUSY_CORES = 0.3  # a job meant for a GPU is then at work on the CPU
_POINTS = 20  # samples kept over the time of a stall


class LimitWatch:
    """Warns once that a run will not end before its time limit.

    *limit* is seconds since the run began; *ask* formats a longer limit as the
    scheduler's option.
    """

    def __init__(self, limit: Seconds, ask: Callable[[Seconds], str]) -> None:
        self.limit = limit
        self._ask = ask
        self._late_since: Seconds | None = None
        self._has_spoken = False

    def look(self, current_time: Seconds, forecast: EndForecast | None) -> str | None:
        """Return the warning, in one line or two, once it is certain."""
        if self._has_spoken or forecast is None:
            return None
        if outlook(forecast, current_time=current_time, limit=self.limit) != "too late":
            # one forecast that fits: the warning would be doubtful
            self._late_since = None
            return None
        if self._late_since is None:
            self._late_since = current_time
        if current_time - self._late_since < _PATIENCE * self.limit:
            return None
        self._has_spoken = True
        return self._words(current_time, forecast)

    def _words(self, current_time: Seconds, forecast: EndForecast) -> str:
        share = f"{forecast.done / forecast.total:.0%} done, " if forecast.total else ""
        more = max(0.0, (forecast.remaining or 0.0) - (current_time - forecast.time))
        longer = limit_to_ask(forecast)
        ask = "" if longer is None else f"\nrequest {self._ask(longer)} next time"
        return (
            f"will not end before the time limit: {share}"
            f"{format_duration(more)} to go, "
            f"{format_duration(max(0.0, self.limit - current_time))} left{ask}"
        )


class StallWatch:
    """Warns once that a run does nothing, or does not use its GPUs.

    It warns after *after* seconds; *gpus* is the number of allocated GPUs.
    """

    def __init__(self, after: Seconds, *, gpus: int = 0) -> None:
        self._after = after
        self._gpus = gpus
        self._seen: deque[tuple[Seconds, Seconds]] = deque()  # time and CPU time
        self._has_said_gpu = self._has_said_stalled = False

    def look(
        self,
        current_time: Seconds,
        *,
        cpu_time: Seconds | None,
        wrote_at: Seconds | None,
        gpu_idle: Seconds | None = None,
    ) -> str | None:
        """Return the warning if the run has been idle for too long.

        *wrote_at* is when it last wrote, *gpu_idle* for how many seconds no GPU was
        busy; None if unknown.
        """
        cores = self._cores(current_time, cpu_time)
        is_silent = wrote_at is not None and current_time - wrote_at >= self._after
        silence = ", no output" if is_silent else ""
        since = _round_time(self._after)
        if gpu_idle is not None and gpu_idle >= self._after and self._gpus:
            if self._has_said_gpu:
                return None
            self._has_said_gpu = self._has_said_stalled = True
            why = _what_runs(cores)
            return f"0 % GPU for {since}{silence}{why}"
        # a job that computes or writes is no stall
        if cores is None or cores >= _IDLE_CORES or not is_silent:
            return None
        if self._has_said_stalled:
            return None
        self._has_said_stalled = True
        return f"no output and no CPU time for {since}: it may hang"

    def _cores(self, current_time: Seconds, cpu_time: Seconds | None) -> float | None:
        """Return the cores busy over the time of a stall; None if it is too early."""
        if cpu_time is None:
            return None
        seen = self._seen
        # few points are enough, and they are kept small for long runs
        if not seen or current_time - seen[-1][0] >= self._after / _POINTS:
            seen.append((current_time, cpu_time))
        # the oldest that is as old as a stall, and not older
        while len(seen) > 1 and current_time - seen[1][0] >= self._after:
            seen.popleft()
        since, before = seen[0]
        if current_time - since < self._after:
            return None
        return max(0.0, cpu_time - before) / (current_time - since)


def _what_runs(cores: float | None) -> str:
    if cores is None:
        return ""
    if cores >= _BUSY_CORES:
        return f", {cores:.1f} CPUs busy: is it on the CPU?"
    return ", no CPU time: it may hang" if cores < _IDLE_CORES else ""


def _round_time(seconds: Seconds) -> str:
    if seconds % MINUTE or seconds >= HOUR:
        return format_duration(seconds)
    return count_with_noun(round(seconds / MINUTE), "minute")


_STUCK_TRAFFIC = KIB  # bytes per second: less is no copy and no download
_MOST_BETWEEN: Seconds = 10.0  # looks; weigh itself was stopped for the rest of a gap


class StuckWatch:
    """Finds that a task is stuck: for *after* seconds it has shown no sign of life.

    Signs are output, CPU time, traffic of files and pipes, a busy GPU, and progress. A
    hung collective keeps a GPU busy: then progress that has stopped half-way decides.
    Time in which the task or weigh itself is suspended does not count.
    """

    def __init__(self, after: Seconds) -> None:
        self._after = after
        self._clock: Seconds = 0.0  # seconds in which the task could have worked
        self._looked_at: Seconds = 0.0
        self._signs: dict[str, float | None] = {}  # the latest value of each
        self._changed: dict[str, Seconds] = {}  # when, on the clock

    def look(
        self,
        current_time: Seconds,
        signs: Mapping[str, float | None],
        *,
        is_suspended: bool,
        forecast: EndForecast | None,
    ) -> str | None:
        """Return what the task lacks if it is stuck, at each look while it is.

        *signs* are the sums of ``output``, ``work`` (CPU seconds) and ``traffic`` so
        far, and when a GPU was busy, ``gpu``; None if unknown.
        """
        gap, self._looked_at = current_time - self._looked_at, current_time
        self._clock += 0.0 if is_suspended else min(gap, _MOST_BETWEEN)
        progress = None if forecast is None else forecast.done
        self._note("output", signs["output"], 0.0)
        self._note("progress", progress, 0.0)
        self._note("work", signs["work"], _IDLE_CORES * self._after)
        self._note("traffic", signs["traffic"], _STUCK_TRAFFIC * self._after)
        self._note("gpu", signs["gpu"], 0.01)
        # output that cannot be read may be written
        is_quiet = signs["output"] is not None and self._stopped("output", "progress")
        span = _round_time(self._after)
        if is_quiet and self._stopped("work", "traffic", "gpu"):
            idle = "no output, no CPU time" + ", no GPU work" * bool(signs["gpu"])
            return f"{idle} and no progress for {span}"
        is_gpu_busy = signs["gpu"] is not None and not self._stopped("gpu")
        if not is_quiet or forecast is None or not is_gpu_busy:
            return None
        # after its last step a program may well work in silence
        if forecast.total and forecast.done >= forecast.total:
            return None
        total = f" of {forecast.total:g}" if forecast.total else ""
        return f"no output for {span}, and no progress after {forecast.done:g}{total}"

    def _note(self, name: str, value: float | None, least: float) -> None:
        """Note when a sign of life has changed by more than *least*."""
        known = self._signs.get(name)
        if name not in self._changed or (
            value is not None and (known is None or abs(value - known) > least)
        ):
            self._signs[name], self._changed[name] = value, self._clock

    def _stopped(self, *names: str) -> bool:
        return all(self._clock - self._changed[one] >= self._after for one in names)
