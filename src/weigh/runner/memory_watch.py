"""Look at the memory now and then, and stop a task where it is about to run out."""

import signal
from collections.abc import Callable, Collection

from weigh.runner.attempt import Attempt
from weigh.runner.guard import Guard
from weigh.runner.room import MemoryGauge, Room
from weigh.runner.stopping import Stopper
from weigh.units import Seconds, format_size

_GRACE = 2.0  # seconds that a task has to end when memory is short
_NEVER = float("inf")


class MemoryWatch:
    """Guards the memory that all tasks share. ``due`` is when to look next."""

    def __init__(
        self, gauge: MemoryGauge, stopper: Stopper, say: Callable[[str], None]
    ) -> None:
        self.due: Seconds = 0.0
        self._gauge = gauge
        self._stopper = stopper
        self._say = say
        self._guard = Guard()

    def has_room(self, running: Collection[Attempt]) -> bool:
        """Tell whether one more task fits, once memory has been short."""
        if not self._guard.need:
            return True
        return self._guard.may_start(self._room(running), running)

    def learn(self, attempt: Attempt) -> None:
        """Take note of what a task that was stopped to make room had held."""
        self._guard.learn(attempt)

    def look(self, now: Seconds, running: Collection[Attempt]) -> None:
        """Stop the youngest task where memory is about to run out."""
        room = self._room(running)
        if room is None:
            self.due = _NEVER
            return
        self.due = now + self._guard.pause(room)
        if not self._guard.is_short(now, room):
            return
        if self._guard.is_desperate(room):
            self._stopper.hurry("memory")
        victim = self._guard.victim(running)
        if victim is not None:
            self._stop(victim, room)

    def _stop(self, victim: Attempt, room: Room) -> None:
        self._guard.learn(victim)
        self._stopper.stop(victim, "memory", signal.SIGTERM, grace=_GRACE)
        self._say(
            f"memory is running out ({format_size(max(0, room.free))} left): task "
            f"{victim.seq} is stopped, to run later with fewer beside it"
        )

    def _room(self, running: Collection[Attempt]) -> Room | None:
        return self._gauge.tightest(sum(attempt.now for attempt in running))
