"""Remaining time of a list of tasks; that of one run is in `weigh.progress.reader`.

It follows from the running tasks and the times of finished ones.

The tasks that finish first are the short ones. A running task without progress has
taken at least its time so far, so it is simulated as one that took longer: otherwise
short tasks would stand for all (data augmentation, Tanner and Wong 1987).
"""

import heapq
import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.model.record import ReportedProgress
from weigh.units import Seconds

if TYPE_CHECKING:
    import random
    import statistics
else:  # each is imported when it is first used: a short list of tasks needs neither
    random = lazy_module("random")
    statistics = lazy_module("statistics")

# each of these loses on benchmarks/progress_lists.py if it moves far
_USUAL_SPREAD = 0.3  # usual standard deviation of task times, over their mean
_WORTH = 2  # measured tasks that weigh as much as a guess
_LAST = 40  # tasks at the end that are simulated one by one; more with many lanes


class TimeSpan(msgspec.Struct, frozen=True):
    """Seconds until something ends: about ``value``, between ``low`` and ``high``."""

    value: Seconds
    low: Seconds
    high: Seconds


class TaskDurations(msgspec.Struct, frozen=True):
    """Times of finished tasks: ``times`` of some, ``count`` of all.

    ``begun`` are the times so far of running tasks without progress of their own.
    """

    times: tuple[Seconds, ...]
    count: int
    begun: tuple[Seconds, ...] = ()


def time_left_of(headway: ReportedProgress | None, elapsed: Seconds) -> TimeSpan | None:
    """Return what is left after *elapsed* seconds of a task with a forecast."""
    if headway is None or headway.remaining is None:
        return None
    # the forecast is as old as the last count
    passed = elapsed - headway.time
    value, low, high = (
        max(0.0, (headway.remaining if end is None else end) - passed)
        for end in (headway.remaining, headway.low, headway.high)
    )
    return TimeSpan(value, low, high)


def until_done(
    running: Sequence[TimeSpan | Seconds],
    waiting: int,
    task_durations: TaskDurations,
    *,
    lanes: int,
) -> TimeSpan | None:
    """Return when *running* and *waiting* tasks are done, *lanes* of them at a time.

    A running task without progress is given as its seconds so far. The list is
    simulated several times, because its last tasks seldom end together. Return None if
    the time of a task is needed and none is known.
    """
    if waiting <= 0 and not running:
        return None
    reported = [one for one in running if isinstance(one, TimeSpan)]
    if not task_durations.times and (waiting > 0 or len(reported) < len(running)):
        return None
    if waiting <= 0 and len(reported) == len(running) == 1:
        return reported[0]
    simulation = _ScheduleSimulation(
        task_durations, running, max(0, waiting), max(1, lanes)
    )
    # about as many draws in all, however many tasks: some 10 ms of work
    plays = max(12, min(100, 4000 // simulation.tasks_to_draw))
    # the error that all times share matters most: its quantiles in place of draws
    normal = statistics.NormalDist()
    shifts = [normal.inv_cdf((play + 0.5) / plays) for play in range(plays)]
    ends = [simulation.end(shift) for shift in shifts]
    value = statistics.fmean(ends)
    if value <= 0:
        return TimeSpan(0.0, 0.0, 0.0)
    # a log-normal distribution: two standard deviations, as all rest on the same times
    # the logarithm of an end at once is that of a thousandth
    logs = [math.log(max(end, value / 1000)) for end in ends]
    half = math.exp(2 * statistics.stdev(logs))
    middle = math.exp(statistics.fmean(logs))
    least = max((one.low for one in reported), default=0.0)
    return TimeSpan(
        value, min(value, max(least, middle / half)), max(value, middle * half)
    )


class _ScheduleSimulation:
    """Simulates the rest of a list, with newly drawn times each time."""

    def __init__(
        self,
        task_durations: TaskDurations,
        running: Sequence[TimeSpan | Seconds],
        waiting: int,
        lanes: int,
    ) -> None:
        self._running = running
        self._lanes = min(lanes, max(1, waiting + len(running)))
        # the last tasks decide when the list ends, so they are drawn one by one
        self._last = min(waiting, max(_LAST, 3 * self._lanes))
        self._summed = waiting - self._last
        # a side of an interval, in standard deviations
        self._side_of_interval = statistics.NormalDist().inv_cdf(0.95)
        self._draws = random.Random(1)  # the same answer each time
        self._done = self._times = sorted(task_durations.times)
        # longest first: a shorter one may be drawn from these
        self._begun = sorted(task_durations.begun, reverse=True)
        self._count = max(1, task_durations.count)
        # what a task longer than all others takes on top: running ones count, too
        spent = sum(self._done) + sum(self._begun)
        self._beyond = self._spread() * spent / max(1, len(self._done))
        self.tasks_to_draw = self._last + len(self._begun) + len(running)

    def end(self, shift: float) -> Seconds:
        """Simulate once, and return when the list ends.

        All waiting tasks but the last ones are added up in one sum. *shift*, from a
        standard normal distribution, is the error that all times share.
        """
        draws = self._draws
        beyond = self._beyond * math.exp(shift / math.sqrt(max(1, len(self._done))))
        self._times = self._done.copy()
        for elapsed in self._begun:
            insort(self._times, self._longer_than(elapsed, beyond))
        ends = sorted(self._end_of(one, beyond) for one in self._running)
        # the list ends no sooner than its running tasks
        late = max(ends, default=0.0)
        if not self._last:
            return late
        mean, spread = statistics.fmean(self._times), self._spread()
        error = spread / math.sqrt(self._count)  # of the mean
        off = (1 + 1 / self._count) * error
        # scaled so that the mean stays the same
        scale = math.exp(off * shift - off * off / 2)
        # the sum of many tasks has a normal distribution
        work = self._summed + math.sqrt(self._summed) * spread * draws.gauss()
        begin = max(0.0, work) * mean * scale / self._lanes
        free = [0.0] * max(0, self._lanes - len(ends)) + ends[: self._lanes]
        free = [end + begin for end in free]  # ordered, so a heap
        for _ in range(self._last):
            # each task waits for the lane that is free first
            varied = math.exp(error * draws.gauss() - error * error / 2)
            end = free[0] + draws.choice(self._times) * scale * varied
            late = max(late, end)
            heapq.heapreplace(free, end)
        return max(late, *free)

    def _end_of(self, one: TimeSpan | Seconds, beyond: Seconds) -> Seconds:
        """Draw the end of a running task, from its own interval if it has one."""
        if not isinstance(one, TimeSpan):
            return self._longer_than(one, beyond) - one
        normal = self._draws.gauss()
        # the interval may be lopsided: each side has a spread of its own
        side = one.high - one.value if normal > 0 else one.value - one.low
        return max(0.0, one.value + normal * side / self._side_of_interval)

    def _longer_than(self, elapsed: Seconds, beyond: Seconds) -> Seconds:
        """Draw the time of a task that has taken *elapsed* seconds already."""
        first = bisect_right(self._times, elapsed)
        longer = len(self._times) - first
        share = self._draws.random() * (longer + _WORTH)
        # from those that took longer, or beyond all of them
        if share < longer:
            return self._times[first + int(share)]
        return elapsed + self._draws.expovariate(1.0) * beyond

    def _spread(self) -> float:
        """Return the spread of the times over their mean; of few, mostly a guess."""
        mean = statistics.fmean(self._times) if self._times else 0.0
        squares = sum([(time - mean) ** 2 for time in self._times])
        guess = _WORTH * _USUAL_SPREAD**2
        relative = squares / mean**2 if mean**2 else 0.0
        return math.sqrt((relative + guess) / (len(self._times) + _WORTH - 1))


class TaskTally(msgspec.Struct):
    """Counts of tasks, kept up to date by the loop.

    ``done`` and ``failed`` include tasks of earlier runs, which ``earlier`` counts.
    ``left`` is the time until all are done.
    """

    tasks: int  # all of them; of a shared queue those that this run claimed
    slots: int  # tasks that run at once, at most
    done: int = 0
    failed: int = 0
    earlier: int = 0
    running: int = 0
    again: int = 0  # attempts that follow another one of this run
    interrupted: int = 0  # tasks that a later run has to repeat
    left: TimeSpan | None = None  # None: nothing to predict it from

    @property
    def waiting(self) -> int:
        """Return how many tasks still have to be started."""
        return max(0, self.tasks - self.done - self.failed - self.running)

    def take_back(self, *, was_done: bool) -> None:
        """Count a task that could not be written to the joblog as interrupted."""
        if was_done:
            self.done -= 1
        else:
            self.failed -= 1
        self.interrupted += 1
