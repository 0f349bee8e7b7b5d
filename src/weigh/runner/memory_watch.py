"""Look at the memory now and then, and stop a task where it is about to run out.

What the tasks share is the host's memory, all of them, and that of each GPU, those in
its slots.
"""

import signal
from collections.abc import Callable, Collection

from weigh.runner.attempt import Attempt, Stop
from weigh.runner.card_watch import CardWatch
from weigh.runner.ending import Ending
from weigh.runner.guard import Guard, with_excess
from weigh.runner.room import MemoryGauge, Room
from weigh.runner.share import NO_SHARE, Share
from weigh.runner.slots import Slot
from weigh.runner.stopping import Stopper
from weigh.units import MIB, Seconds, format_size

_GRACE = 2.0  # seconds that a task has to end when memory is short
_NEVER = float("inf")
_NOISE = MIB  # how far beyond weigh's own size a peak says something


class MemoryWatch:
    """Guards the memory that tasks share. ``due`` is when to look next."""

    def __init__(
        self,
        gauge: MemoryGauge,
        cards: CardWatch,
        stopper: Stopper,
        say: Callable[[str], None],
    ) -> None:
        self._due: Seconds = 0.0
        self._gauge = gauge
        self._cards = cards
        self._stopper = stopper
        self._say = say
        self._guard = Guard()
        self._is_calm = True

    @property
    def due(self) -> Seconds:
        """Give when to look next."""
        return min(self._due, self._cards.due)

    def fits(
        self,
        slot: Slot,
        running: Collection[Attempt],
        share: Share,
        plan: Share = NO_SHARE,
    ) -> bool:
        """Return whether one more task fits into *slot*, with *share* for it alone.

        What its *plan* says matters once memory has been short.
        """
        if not running or (self._is_calm and not (share.memory or share.gpu_memory)):
            return True
        share = Share(
            max(share.memory, plan.memory), max(share.gpu_memory, plan.gpu_memory)
        )
        room = self._room(running) if self._minds(running, share) else None
        return self._guard.may_start(room, running, share.memory) and self._cards.fits(
            slot, running, share.gpu_memory
        )

    def _minds(self, running: Collection[Attempt], share: Share) -> bool:
        """Tell whether the host's memory has to be looked at before a start."""
        shares = any(attempt.share.memory for attempt in running)
        return bool(self._guard.need or share.memory or shares)

    def learn(self, attempt: Attempt) -> None:
        """Take note of what a task that was stopped to make room had held."""
        self._is_calm = False
        if attempt.stop == "gpu_memory":
            self._cards.learn(attempt)
        else:
            self._guard.learn(attempt)

    def share_after_stop(self, attempt: Attempt) -> Share | None:
        """Return what to keep free for a planned task that was stopped to make room."""
        if attempt.stop == "gpu_memory":
            share = Share(gpu_memory=self._cards.more(attempt))
        else:
            share = Share(self._guard.more(attempt))
        return None if share == NO_SHARE else share

    def larger_share(self, attempt: Attempt, ending: Ending) -> Share | None:
        """Give what a task needs that ran out of memory; None where that is unknown."""
        self._is_calm = False
        if ending.on_gpu:
            return self._cards.larger_share(attempt)
        room = self._gauge.tightest(attempt.now)
        if room is None:
            return None
        reaped = attempt.max_rss if attempt.max_rss > attempt.floor + _NOISE else 0
        return Share(self._guard.larger(max(attempt.peak, reaped), room))

    def ended(self, attempt: Attempt) -> None:
        """Take note of an attempt that holds nothing any more."""
        self._cards.ended(attempt)

    def look(self, now: Seconds, running: Collection[Attempt]) -> None:
        """Stop a task where memory is about to run out."""
        if now >= self._due:
            self._look_at_host(now, running)
        if now >= self._cards.due:
            for victim, words in self._cards.look(now, running):
                self._stop(victim, "gpu_memory", words)

    def _look_at_host(self, now: Seconds, running: Collection[Attempt]) -> None:
        room = self._room(running)
        if room is None:
            self._due = _NEVER
            return
        self._due = now + self._guard.pause(room)
        if not self._guard.is_short(now, room, running):
            return
        if self._guard.is_desperate(room):
            self._stopper.hurry("memory")
            self._stopper.hurry("timeout")
        victim = self._guard.victim(running, now)
        if victim is not None:
            words = f"{format_size(max(0, room.free))} of memory left"
            excess = self._guard.excess(victim)
            self._stop(victim, "memory", with_excess(words, excess))

    def _stop(self, victim: Attempt, why: Stop, words: str) -> None:
        self._stopper.stop(victim, why, signal.SIGTERM, grace=_GRACE)
        self.learn(victim)
        self._say(f"{words}: task {victim.seq} is stopped, to run later beside fewer")

    def _room(self, running: Collection[Attempt]) -> Room | None:
        return self._gauge.tightest(sum(attempt.now for attempt in running))
