"""Counts of the tasks of a run: done, failed, running, waiting."""

import msgspec

from weigh.progress.eta import TimeSpan
from weigh.units import Seconds


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
