"""A run that pulls from a shared queue, for which the test answers."""

import random
from collections.abc import Mapping, Sequence

from weigh.runner.events import TaskLeft
from weigh.runner.shared_queue import PullingRun, QueueOwner


class PretendedRun(PullingRun):
    """A run without a journal; ``ended`` and ``left`` are about all other runs."""

    def __init__(self, place: int = 0, *, seed: int = 0) -> None:
        self.place = place
        self.limit: float | None = None
        self.ended: Mapping[int, bool] = {}
        self.left: Mapping[int, TaskLeft] = {}
        self.rng = random.Random(seed)

    def sync(self) -> None:
        """Write nothing."""

    def time_left(self) -> float | None:
        return self.limit

    def note_claimed(self, _count: int) -> None:
        """Count nothing."""

    def choose_unit(self, units: Sequence[int]) -> int:
        return self.rng.choice(units)

    def tasks_ended_by(self, _owner: QueueOwner) -> Mapping[int, bool]:
        return self.ended

    def tasks_left_by(self, _owner: QueueOwner) -> Mapping[int, TaskLeft]:
        return self.left
