"""Early warnings about a run: it will exceed its time limit, or it hangs."""

import math
from collections import deque
from collections.abc import Callable, Mapping

from weigh.model.record import ReportedProgress
from weigh.units import (
    HOUR,
    KIB,
    MINUTE,
    Bytes,
    Seconds,
    count_with_noun,
    format_duration,
)

_MARGIN = 0.15  # of the predicted time, on top of a limit to request
_DOUBTFUL = 0.005  # of the limit, in which every forecast has to be too late
_IDLE_CORES = 0.005  # heartbeats and watchdogs of a hung program use less
_BUSY_CORES = 0.3  # a job meant for a GPU is then at work on the CPU
_STUCK_TRAFFIC: Bytes = KIB  # per second: less is no copy and no download
_LONGEST_GAP: Seconds = 10.0  # of two looks; weigh itself was stopped for the rest


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

    def look(
        self, current_time: Seconds, forecast: ReportedProgress | None
    ) -> str | None:
        """Return the warning, in one line or two, once it is certain.

        That is when even the early end of the interval has been past the limit for a
        while: a single forecast that fits makes it doubtful.
        """
        if self._has_spoken or forecast is None:
            return None
        # the forecast is as old as the last count
        passed = current_time - forecast.time
        early = max(0.0, (forecast.low or 0.0) - passed)
        if current_time + early <= self.limit or forecast.low is None:
            self._late_since = None
            return None
        if self._late_since is None:
            self._late_since = current_time
        if current_time - self._late_since < _DOUBTFUL * self.limit:
            return None
        self._has_spoken = True
        share = f"{forecast.done / forecast.total:.0%} done, " if forecast.total else ""
        more = max(0.0, (forecast.remaining or 0.0) - passed)
        left = max(0.0, self.limit - current_time)
        words = (
            f"will not end before the time limit: {share}"
            f"{format_duration(more)} to go, {format_duration(left)} left"
        )
        if forecast.high is None:
            return words
        # the late end and a margin, as another run like this one would need
        longest = (forecast.time + forecast.high) * (1 + _MARGIN)
        # people write multiples of five minutes into a job script
        limit = math.ceil(longest / (5 * MINUTE)) * 5.0 * MINUTE
        return f"{words}\nrequest {self._ask(limit)} next time"


class StallWatch:
    """Warns once that a run does nothing, or does not use its GPUs.

    It warns after *after* seconds; *gpus* is the number of allocated GPUs.
    """

    def __init__(self, after: Seconds, *, gpus: int) -> None:
        self._after = after
        self._gpus = gpus
        self._seen: deque[tuple[Seconds, Seconds]] = deque()  # time and CPU time
        self._has_spoken = False

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
        cores = None if cpu_time is None else self._cores(current_time, cpu_time)
        is_silent = wrote_at is not None and current_time - wrote_at >= self._after
        is_idle = cores is not None and cores < _IDLE_CORES
        words = None
        if self._gpus and gpu_idle is not None and gpu_idle >= self._after:
            words = f"0 % GPU for {_round_time(self._after)}"
            words += ", no output" * is_silent + ", no CPU time: it may hang" * is_idle
            if cores is not None and cores >= _BUSY_CORES:
                words += f", {cores:.1f} CPUs busy: is it on the CPU?"
        elif is_idle and is_silent:
            # a job that computes or writes is no stall
            since = _round_time(self._after)
            words = f"no output and no CPU time for {since}: it may hang"
        if self._has_spoken or words is None:
            return None
        self._has_spoken = True
        return words

    def _cores(self, current_time: Seconds, cpu_time: Seconds) -> float | None:
        """Return the cores busy over the time of a stall; None if it is too early."""
        seen = self._seen
        # twenty points are enough, and they are kept small for long runs
        if not seen or current_time - seen[-1][0] >= self._after / 20:
            seen.append((current_time, cpu_time))
        # the oldest that is as old as a stall, and not older
        while len(seen) > 1 and current_time - seen[1][0] >= self._after:
            seen.popleft()
        since, before = seen[0]
        if current_time - since < self._after:
            return None
        return max(0.0, cpu_time - before) / (current_time - since)


def _round_time(seconds: Seconds) -> str:
    if seconds % MINUTE or seconds >= HOUR:
        return format_duration(seconds)
    return count_with_noun(round(seconds / MINUTE), "minute")


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
        # a change that is no more is none
        self._least = {
            "work": _IDLE_CORES * after,
            "traffic": _STUCK_TRAFFIC * after,
            "gpu": 0.01,
        }

    def look(
        self,
        current_time: Seconds,
        signs: Mapping[str, float | None],
        *,
        is_suspended: bool,
        forecast: ReportedProgress | None,
    ) -> str | None:
        """Return what the task lacks if it is stuck, at each look while it is.

        *signs* are the sums of ``output``, ``work`` (CPU seconds) and ``traffic`` so
        far, and when a GPU was busy, ``gpu``; None if unknown.
        """
        gap, self._looked_at = current_time - self._looked_at, current_time
        self._clock += 0.0 if is_suspended else min(gap, _LONGEST_GAP)
        progress = None if forecast is None else forecast.done
        for name, value in {**signs, "progress": progress}.items():
            known = self._signs.get(name)
            is_new = value is not None and (
                known is None or abs(value - known) > self._least.get(name, 0.0)
            )
            if is_new or name not in self._changed:
                self._signs[name], self._changed[name] = value, self._clock
        # output that cannot be read may be written
        if signs["output"] is None or not self._stopped("output", "progress"):
            return None
        span = _round_time(self._after)
        if self._stopped("work", "traffic", "gpu"):
            idle = "no output, no CPU time" + ", no GPU work" * bool(signs["gpu"])
            return f"{idle} and no progress for {span}"
        # after its last step a program may well work in silence
        is_done = forecast is None or forecast.done >= (forecast.total or math.inf)
        if forecast is None or is_done or self._stopped("gpu") or signs["gpu"] is None:
            return None
        total = f" of {forecast.total:g}" if forecast.total else ""
        return f"no output for {span}, and no progress after {forecast.done:g}{total}"

    def _stopped(self, *names: str) -> bool:
        return all(self._clock - self._changed[one] >= self._after for one in names)
