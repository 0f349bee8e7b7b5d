"""Remaining time of a list of tasks; that of one run is in `weigh.progress.reader`.

It follows from the running tasks and the times of finished ones.

The tasks that finish first are the short ones. A running task without progress has
taken at least its time so far, so it is simulated as one that took longer: otherwise
short tasks would stand for all (data augmentation, Tanner and Wong 1987).
"""

import heapq
import math
import random
from bisect import bisect_right, insort
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import msgspec

from weigh.model.progress import EndForecast
from weigh.model.record import ReportedProgress
from weigh.units import Seconds

_NORMAL = NormalDist()
_NORMAL_90 = 1.645  # standard deviations to either side that cover 90 %
# each of these loses on benchmarks/progress_lists.py if it moves far
_PLAYED_90 = 2.0  # of plays: all rest on the same few times
_USUAL_SPREAD = 0.3  # usual standard deviation of task times, over their mean
_WORTH = 2  # tasks that the usual spread weighs as much as, against measured ones
_LAST = 40  # tasks at the end that are simulated one by one; more with many lanes
_MOST_DRAWS, _MOST_PLAYS, _FEWEST_PLAYS = 4000, 100, 12  # some 10 ms of work
_FEW_LONGER = 2  # so many tasks that took longer weigh as much as a guess
_SHORTEST = 1e-3  # of the mean: the least time of which a logarithm is taken


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


def time_left_of(
    headway: EndForecast | ReportedProgress | None, elapsed: Seconds
) -> TimeSpan | None:
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
    waiting = max(0, waiting)
    simulation = _ScheduleSimulation(
        task_durations, max(1, min(lanes, waiting + len(running)))
    )
    # the last tasks decide when the list ends, so they are drawn one by one
    last = min(waiting, max(_LAST, 3 * simulation.lanes))
    each = last + len(task_durations.begun) + len(running)
    # about as many draws in all, however many tasks
    plays = max(_FEWEST_PLAYS, min(_MOST_PLAYS, _MOST_DRAWS // each))
    # the error that all times share matters most: its quantiles in place of draws
    shifts = [_NORMAL.inv_cdf((play + 0.5) / plays) for play in range(plays)]
    ends = [simulation.end(running, waiting, last, shift) for shift in shifts]
    return _interval_of_ends(ends, max((one.low for one in reported), default=0.0))


def _interval_of_ends(ends: Sequence[Seconds], least: Seconds) -> TimeSpan:
    """Return the interval of simulated *ends*, assuming a log-normal distribution."""
    value = fmean(ends)
    if value <= 0:
        return TimeSpan(0.0, 0.0, 0.0)
    logs = [math.log(max(end, _SHORTEST * value)) for end in ends]
    half = math.exp(_PLAYED_90 * stdev(logs))
    middle = math.exp(fmean(logs))
    return TimeSpan(
        value, min(value, max(least, middle / half)), max(value, middle * half)
    )


class _ScheduleSimulation:
    """Simulates the rest of a list, with newly drawn times each time."""

    def __init__(self, task_durations: TaskDurations, lanes: int) -> None:
        self.lanes = lanes
        self._draws = random.Random(1)  # noqa: S311 - the same answer each time
        self._done = self._times = sorted(task_durations.times)
        self._begun = sorted(task_durations.begun, reverse=True)
        self._count = max(1, task_durations.count)
        # what a task longer than all others takes on top: running ones count, too
        self._beyond = 0.0
        if self._done:
            self._fit()
            spent = sum(self._done) + sum(self._begun)
            self._beyond = self._spread * spent / len(self._done)
        # each draw depends on the ones before, so the first are not representative
        for _ in range(8 if self._done else 0):
            self._renew(0.0)

    def end(
        self,
        running: Sequence[TimeSpan | Seconds],
        waiting: int,
        last: int,
        shift: float,
    ) -> Seconds:
        """Simulate once, and return when the list ends.

        All waiting tasks but the *last* ones are added up in one sum. *shift*, from a
        standard normal distribution, is the error that all times share.
        """
        draws = self._draws
        if self._done:
            self._renew(shift)
        ends = sorted(self._end_of(one) for one in running)
        # the list ends no sooner than its running tasks
        late = max(ends, default=0.0)
        if waiting <= 0:
            return late
        mean = fmean(self._times)
        error = self._spread / math.sqrt(self._count)  # of the mean
        off = (1 + 1 / self._count) * error
        # scaled so that the mean stays the same
        scale = math.exp(off * shift - off * off / 2)
        summed = waiting - last
        # the sum of many tasks has a normal distribution
        work = summed + math.sqrt(summed) * self._spread * draws.gauss()
        begin = max(0.0, work) * mean * scale / self.lanes
        free = [0.0] * max(0, self.lanes - len(ends)) + ends[: self.lanes]
        free = [end + begin for end in free]  # ordered, so a heap
        for _ in range(last):
            # each task waits for the lane that is free first
            varied = math.exp(error * draws.gauss() - error * error / 2)
            end = free[0] + draws.choice(self._times) * scale * varied
            late = max(late, end)
            heapq.heapreplace(free, end)
        return max(late, *free)

    def _end_of(self, one: TimeSpan | Seconds) -> Seconds:
        """Draw the end of a running task, from its own interval if it has one."""
        if not isinstance(one, TimeSpan):
            return self._longer_than(one) - one
        normal = self._draws.gauss()
        # the interval may be lopsided: each side has a spread of its own
        side = one.high - one.value if normal > 0 else one.value - one.low
        return max(0.0, one.value + normal * side / _NORMAL_90)

    def _renew(self, shift: float) -> None:
        """Draw new times for the running tasks, and how far all times spread."""
        self._unsure = math.exp(shift / math.sqrt(len(self._done)))
        self._times = self._done.copy()
        # longest first: a shorter one may be drawn from these
        for elapsed in self._begun:
            insort(self._times, self._longer_than(elapsed))
        self._fit()

    def _fit(self) -> None:
        """Update the spread of the times over their mean; with few, mostly a guess."""
        mean = fmean(self._times)
        squares = sum([(time - mean) ** 2 for time in self._times])
        guess = _WORTH * _USUAL_SPREAD**2
        relative = squares / mean**2 if mean >= _SHORTEST**2 else 0.0
        self._spread = math.sqrt((relative + guess) / (len(self._times) + _WORTH - 1))

    def _longer_than(self, elapsed: Seconds) -> Seconds:
        """Draw the time of a task that has taken *elapsed* seconds already."""
        first = bisect_right(self._times, elapsed)
        longer = len(self._times) - first
        share = self._draws.random() * (longer + _FEW_LONGER)
        # from those that took longer, or beyond all of them
        if share < longer:
            return self._times[first + int(share)]
        return elapsed + self._draws.expovariate(1.0) * self._beyond * self._unsure


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
    again: int = 0  # attempts that are followed by another one
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
