"""Remaining time of a list of tasks; that of one run is in `weigh.progress.reader`.

It follows from the running tasks and the times of finished ones.

The tasks that finish first are the short ones. A running task without progress has
taken at least its time so far, so it is simulated as one that took longer: otherwise
short tasks would stand for all (data augmentation, Tanner and Wong 1987).
"""

import heapq
import math
import random
import sys
from bisect import bisect_right, insort
from collections.abc import Sequence
from statistics import NormalDist, fmean

import msgspec

from weigh.units import Seconds


def _normal_beyond(draws: random.Random, least: float) -> float:
    """Draw from the part of the standard normal beyond *least*."""
    # from the upper tail: the share below *least* would be 1 where it lies far out. By
    # `math.erfc`: `NormalDist.cdf` is 0 from eight deviations on
    beyond = math.erfc(least / math.sqrt(2)) / 2 * (1.0 - draws.random())
    return max(least, -_NORMAL.inv_cdf(max(beyond, sys.float_info.min)))


def _spread_around(values: Sequence[float], middle: float) -> float:
    """Return the standard deviation; that of `statistics` is fifty times as slow."""
    squares = sum([(value - middle) ** 2 for value in values])
    return math.sqrt(squares / max(1, len(values) - 1))


_NORMAL = NormalDist()
_NORMAL_90 = 1.645  # standard deviations to either side that cover 90 %
# of plays: all rest on the same few times (benchmarks/progress_lists.py)
_PLAYED_90 = 1.9
_USUAL_SPREAD = 0.3  # usual standard deviation of task times, over their mean
_WORTH = 2  # tasks that the usual spread weighs as much as, against measured ones
_LAST = 40  # tasks at the end that are simulated one by one; more with many lanes
_MOST_DRAWS, _MOST_PLAYS, _FEWEST_PLAYS = 4000, 100, 12  # some 10 ms of work
_WIDEST = 1.0  # standard deviation of the logarithms, in a guess
_FEW_LONGER = 2  # so many tasks that took longer weigh as much as a guess
_OVERDUE = 0.25  # of its time so far: the rest of a task longer than all others
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


def still_to_run(elapsed: Seconds, task_durations: TaskDurations) -> TimeSpan | None:
    """Return the remaining time of a task without progress after *elapsed* seconds.

    It takes as long as the tasks that took longer than that; if there are none, a
    little longer than all.
    """
    if not task_durations.times:
        return None
    longer = sorted(time - elapsed for time in task_durations.times if time > elapsed)
    if not longer:
        return TimeSpan(_OVERDUE * elapsed, 0.0, elapsed)
    value = fmean(longer)
    # one in twenty ends before the low end
    return TimeSpan(value, longer[len(longer) // 20], max(longer[-1], 1.3 * value))


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
    # the same draws each time may be lopsided by chance: these matter most, so scale
    draws = [simulation.draws.gauss() for _ in range(plays)]
    middle = fmean(draws)
    spread = _spread_around(draws, middle)
    ends = [
        simulation.end(running, waiting, last, (draw - middle) / spread)
        for draw in draws
    ]
    return _interval_of_ends(ends, max((one.low for one in reported), default=0.0))


def _interval_of_ends(ends: Sequence[Seconds], least: Seconds) -> TimeSpan:
    """Return the interval of simulated *ends*, assuming a log-normal distribution."""
    value = fmean(ends)
    if value <= 0:
        return TimeSpan(0.0, 0.0, 0.0)
    logs = [math.log(max(end, _SHORTEST * value)) for end in ends]
    middle = fmean(logs)
    half = _PLAYED_90 * _spread_around(logs, middle)
    low, high = math.exp(middle - half), math.exp(middle + half)
    return TimeSpan(value, min(value, max(least, low)), max(value, high))


class _DurationPool:
    """The times of tasks, including estimates for those that are running."""

    def __init__(self, task_durations: TaskDurations, draws: random.Random) -> None:
        self._draws = draws
        self._done = self.times = sorted(task_durations.times)
        self._begun = sorted(task_durations.begun, reverse=True)
        self._least = _SHORTEST * fmean(self._done) or _SHORTEST
        self._fit()
        # each draw depends on the ones before, so the first are not representative
        for _ in range(8 if self._begun else 0):
            self.renew()

    def renew(self) -> None:
        """Draw new times for the running tasks."""
        self.times = self._done.copy()
        # longest first: a shorter one may be drawn from these
        for elapsed in self._begun:
            insort(self.times, self.longer_than(elapsed))
        self._fit()

    def longer_than(self, elapsed: Seconds) -> Seconds:
        """Draw the time of a task that has taken *elapsed* seconds already."""
        first = bisect_right(self.times, elapsed)
        longer = len(self.times) - first
        share = self._draws.random() * (longer + _FEW_LONGER)
        # from those that took longer, or beyond all of them
        if share < longer:
            return self.times[first + int(share)]
        least = (math.log(max(elapsed, self._least)) - self._middle) / self._width
        log = self._middle + self._width * _normal_beyond(self._draws, least)
        return max(elapsed, math.exp(log))

    def _fit(self) -> None:
        """Draw a log-normal distribution that the times may come from."""
        count = len(self.times)
        self.mean = sum(self.times) / count
        # of the times over their mean; with few times, mostly a guess
        guess = _WORTH * _USUAL_SPREAD**2
        squares = 0.0
        if self.mean >= _SHORTEST**2:
            relative = _spread_around(self.times, self.mean) / self.mean
            squares = (count - 1) * relative**2
        self.spread = math.sqrt((squares + guess) / (count + _WORTH - 1))
        logs = [math.log(max(time, self._least)) for time in self.times]
        middle = sum(logs) / count
        around = guess + (count - 1) * _spread_around(logs, middle) ** 2
        # of chi-square, which is twice a gamma distribution
        chi_square = max(
            0.01, 2 * self._draws.gammavariate((count - 1 + _WORTH) / 2, 1.0)
        )
        self._width = min(_WIDEST, math.sqrt(around / chi_square))
        self._middle = middle + self._width / math.sqrt(count) * self._draws.gauss()


class _ScheduleSimulation:
    """Simulates the rest of a list, with newly drawn times each time."""

    def __init__(self, task_durations: TaskDurations, lanes: int) -> None:
        self.draws = random.Random(1)  # noqa: S311 - the same answer each time
        self.lanes = lanes
        self._pool = (
            _DurationPool(task_durations, self.draws) if task_durations.times else None
        )
        self._count = max(1, task_durations.count)

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
        draws, pool = self.draws, self._pool
        if pool is not None:
            pool.renew()
        ends = sorted(self._end_of(one) for one in running)
        # the list ends no sooner than its running tasks
        late = max(ends, default=0.0)
        if pool is None or waiting <= 0:
            return late
        error = pool.spread / math.sqrt(self._count)  # of the mean
        off = (1 + 1 / self._count) * error
        # scaled so that the mean stays the same
        scale = math.exp(off * shift - off * off / 2)
        summed = waiting - last
        # the sum of many tasks has a normal distribution
        work = summed + math.sqrt(summed) * pool.spread * draws.gauss()
        begin = max(0.0, work) * pool.mean * scale / self.lanes
        free = [0.0] * max(0, self.lanes - len(ends)) + ends[: self.lanes]
        free = [end + begin for end in free]  # ordered, so a heap
        for _ in range(last):
            # each task waits for the lane that is free first
            varied = math.exp(error * draws.gauss() - error * error / 2)
            time = pool.times[int(draws.random() * len(pool.times))]
            end = free[0] + time * scale * varied
            late = max(late, end)
            heapq.heapreplace(free, end)
        return max(late, *free)

    def _end_of(self, one: TimeSpan | Seconds) -> Seconds:
        """Draw the end of a running task, from its own interval if it has one."""
        if not isinstance(one, TimeSpan):
            return self._pool.longer_than(one) - one if self._pool else 0.0
        normal = self.draws.gauss()
        # the interval may be lopsided: each side has a spread of its own
        side = one.high - one.value if normal > 0 else one.value - one.low
        return max(0.0, one.value + normal * side / _NORMAL_90)


class TaskTally(msgspec.Struct):
    """Counts of tasks, kept up to date by the loop.

    ``done`` and ``failed`` include tasks of earlier runs, which ``earlier`` counts.
    ``ended`` counts those of this run and ``spent`` the seconds they ran; ``begun`` is
    the sum of the start times of running tasks, on the monotonic clock. ``left`` is the
    time until all are done. ``slowest`` are the running tasks with the latest end, as
    (number, seconds).
    """

    tasks: int  # all of them; of a shared queue those that this run claimed
    slots: int  # tasks that run at once, at most
    done: int = 0
    failed: int = 0
    earlier: int = 0
    running: int = 0
    begun: Seconds = 0.0
    ended: int = 0
    spent: Seconds = 0.0  # wall time, added up
    again: int = 0  # attempts that are followed by another one
    interrupted: int = 0  # tasks that a later run has to repeat
    left: TimeSpan | None = None  # None: nothing to predict it from
    slowest: tuple[tuple[int, Seconds], ...] = ()

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

    def time_left(self, current_time: Seconds) -> Seconds | None:
        """Estimate the seconds to the end from the mean of the tasks that ended.

        If those running have taken longer by *current_time*, their mean counts. Return
        None before any task has ended.
        """
        if not self.ended:
            return None
        mean = self.spent / self.ended
        # tasks that run longer than the mean show that it is too short
        if self.running:
            mean = max(mean, current_time - self.begun / self.running)
        # running tasks are taken to be half done, as their ends are not known
        lanes = max(1, min(self.slots, self.waiting + self.running))
        return (self.waiting + self.running / 2) * mean / lanes
