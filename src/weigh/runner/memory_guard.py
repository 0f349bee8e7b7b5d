"""Keep tasks side by side from using the memory up: pure decisions.

Where a plan says how much each task needs, memory is short only if some task holds
more than its plan, or if what the plans may still grow exceeds what is free; the task
that is furthest over its plan is stopped. Without plans the youngest task is stopped
when little memory is left, for it has the least to lose; what it had held by then is
the least that a task needs from then on. Tasks start again when there is room for one
more, with all that run grown to their full size.
"""

import signal
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from weigh.runner.attempt import Attempt, Stop
from weigh.runner.memory_limits import CardRoom, MemoryGauge, Room
from weigh.runner.retry import Ending
from weigh.runner.slots import NO_SHARE, Share, Slot
from weigh.runner.stopping import Stopper
from weigh.units import MIB, Bytes, Seconds, format_size

_MARGIN = 0.05  # of the limit, to be left free
_CARD_MARGIN = 0.03
# a card fills in leaps, and who finds it full is told so and not killed
_CARD_AHEAD = 0.1  # of the limit: growth is looked ahead no further
_LAST = 0.01  # of the limit: too little to wait for anybody
_AHEAD: Seconds = 0.3  # growth is looked ahead for so long
_SETTLING: Seconds = 2.0  # and so long before another task is let in
_MORE = 1.2  # what was stopped while it grew needs more than it had
_OLDEST: Seconds = 1.0  # how far what a task holds may lag behind what is used
_LATELY: Seconds = 10.0  # long beside that lag
_PATIENCE: Seconds = 2.5  # that a task stopped to make room holds up the next one
_LARGER = 2  # times what it held: the share of a task that ran out of memory
_MADE_ROOM = ("memory", "gpu_memory")
_CLOSE = 0.7  # of the limit used, from which to look often
_OFTEN, _SELDOM = 0.05, 0.25  # seconds between looks


class Held(NamedTuple):
    """What an attempt holds now, held at most, and may hold; 0: not known."""

    now: Bytes
    most: Bytes
    share: Bytes

    @property
    def excess(self) -> Bytes:
        """Return how far it is over what it may hold; 0 where that is not known."""
        return max(0, self.now - self.share) if self.share else 0


def on_host(attempt: Attempt) -> Held:
    """Return what an attempt holds of the host's memory."""
    share = max(attempt.share.memory, attempt.plan.memory)
    return Held(attempt.now, attempt.peak, share)


def on_card(attempt: Attempt) -> Held:
    """Return what an attempt holds of its GPU's memory."""
    share = max(attempt.share.gpu_memory, attempt.plan.gpu_memory)
    return Held(attempt.gpu_now, attempt.gpu_peak, share)


class Guard:
    """What is known of the tasks' needs. ``need`` is 0 until memory was short."""

    def __init__(
        self,
        held: Callable[[Attempt], Held] = on_host,
        *,
        margin: float = _MARGIN,
        ahead: float = 1.0,
    ) -> None:
        """Take what to guard; *margin* and the most to look *ahead* are of a limit."""
        self.need: Bytes = 0
        self._held = held
        self._margin = margin
        self._ahead = ahead
        self._before: tuple[Seconds, Bytes] | None = None
        self._growth = 0.0  # bytes a second
        self._misfit_at: Seconds | None = None
        self._others: list[tuple[Seconds, Bytes, Bytes]] = []
        self._patient_until: Seconds = 0.0

    def pause(self, room: Room) -> Seconds:
        """Give the seconds until the next look."""
        return _OFTEN if room.used > _CLOSE * room.limit else _SELDOM

    def is_short(
        self, now: Seconds, room: Room, running: Collection[Attempt] = ()
    ) -> bool:
        """Return whether a task has to be stopped: memory is about to run out.

        It is not while all that are *running* keep within plans that fit.
        """
        is_tight = self._is_tight(now, room)
        fits = self._fits_by_plan(now, room, running)
        return is_tight and not fits

    def _fits_by_plan(
        self, now: Seconds, room: Room, running: Collection[Attempt]
    ) -> bool:
        held = [self._held(attempt) for attempt in running]
        if not held or any(one.excess or not one.share for one in held):
            self._misfit_at = None
            return False
        # what has just grown is in what is used, and not yet in what a task holds
        others = max(0, room.used - sum(one.now for one in held))
        least = self._least_lately(now, room.limit, others)
        planned = sum(max(one.share, one.now) for one in held)
        if planned + least > room.limit * (1 + self._margin):
            return False
        if not self.is_desperate(room) or planned + others <= room.limit:
            self._misfit_at = None
            return True
        if self._misfit_at is None:
            self._misfit_at = now
        return now - self._misfit_at < _OLDEST

    def _least_lately(self, now: Seconds, limit: Bytes, others: Bytes) -> Bytes:
        """Return the least that was used beside the tasks, of late."""
        self._others = [
            one for one in self._others if one[0] > now - _LATELY and one[1] == limit
        ]
        self._others.append((now, limit, others))
        return min(one[2] for one in self._others)

    def _is_tight(self, now: Seconds, room: Room) -> bool:
        """Return whether memory is about to run out, growing on as it does."""
        self._growth /= 2  # one look without growth may be chance
        if self._before is not None and now > self._before[0]:
            at, used = self._before
            self._growth = max(self._growth, (room.used - used) / (now - at))
        self._before = (now, room.used)
        return room.free < max(self._margin * room.limit, self._grown(room, _AHEAD))

    def is_desperate(self, room: Room) -> bool:
        """Tell whether nobody can be given time any more."""
        return room.free < _LAST * room.limit

    def victim(
        self, running: Collection[Attempt], now: Seconds = 0.0
    ) -> Attempt | None:
        """Choose the task to stop: the one furthest over its plan, else the youngest.

        None where a task is alone, and for a moment after one was stopped to make
        room. Tasks that are ending for another reason are left out.
        """
        makes_room = any(attempt.stop in _MADE_ROOM for attempt in running)
        if makes_room and now < self._patient_until:
            return None
        left = [attempt for attempt in running if attempt.stop is None]
        over = [attempt for attempt in left if self._held(attempt).excess]
        if over and len(running) > 1:
            self._patient_until = now + _PATIENCE
            return max(over, key=lambda attempt: self._held(attempt).excess)
        if len(left) < 2:  # noqa: PLR2004
            return None
        self._patient_until = now + _PATIENCE
        unplanned = [attempt for attempt in left if not self._held(attempt).share]
        return max(unplanned or left, key=lambda attempt: attempt.began)

    def excess(self, attempt: Attempt) -> Bytes:
        """Return how far a task is over its plan; 0 without one."""
        return self._held(attempt).excess

    def learn(self, attempt: Attempt) -> None:
        """Take note of what a stopped task had held at most, if it has no plan."""
        if self._held(attempt).share:
            self.need = max(self.need, 1)
            return
        self.need = max(self.need, 1, round(self._held(attempt).most * _MORE))

    def more(self, attempt: Attempt) -> Bytes:
        """Return what to keep free for a planned task that was stopped; 0 without."""
        held = self._held(attempt)
        return max(held.share, round(held.most * _MORE)) if held.share else 0

    def larger(self, held: Bytes, room: Room) -> Bytes:
        """Give the share of a task that ran out of memory when it *held* so much."""
        share = _LARGER * held if held else room.limit // 2
        return max(1, min(share, room.limit))

    def may_start(
        self, room: Room | None, running: Collection[Attempt], share: Bytes = 0
    ) -> bool:
        """Tell whether one more fits, with those that run at their full size.

        It needs *share*, or else as much as the others.
        """
        if not running or room is None:
            return True
        held = [self._held(attempt) for attempt in running]
        if not (self.need or share or any(one.share for one in held)):
            return True
        # tasks of one file are alike: what the largest needs, the next will
        largest = max((one.most for one in held if not one.share), default=0)
        need = max(self.need, round(largest * _MORE))
        growth = sum(max(0, (one.share or need) - one.now) for one in held)
        margin = self._margin * room.limit + self._grown(room, _SETTLING)
        return room.free - margin >= growth + (share or need)

    def _grown(self, room: Room, time: Seconds) -> float:
        return min(self._growth * time, self._ahead * room.limit)


def card_guard() -> Guard:
    """Make the guard of a card's memory."""
    return Guard(on_card, margin=_CARD_MARGIN, ahead=_CARD_AHEAD)


def with_excess(words: str, excess: Bytes) -> str:
    """Add to *words* how far a task is over its plan, if it is."""
    return f"{words}, {format_size(excess)} over plan" if excess else words


_STALE: Seconds = 10.0  # a driver that is silent for so long hangs
_UNKNOWN: Seconds = 0.5  # until it is asked again what was not read yet
_NEVER = float("inf")


class CardWatch:
    """Guards the cards called *names*, None being the only one that is here.

    *room_of* gives what was read of a card last. ``due`` is when to look next.
    """

    def __init__(
        self,
        names: Sequence[str | None],
        room_of: Callable[[str | None], CardRoom | None],
    ) -> None:
        self.due: Seconds = 0.0 if names else _NEVER
        self._room_of = room_of
        self._guards: dict[str | None, Guard] = {name: card_guard() for name in names}
        self._ends: dict[str | None, Seconds] = {}

    def fits(self, slot: Slot, running: Collection[Attempt], share: Bytes) -> bool:
        """Tell whether one more task fits on the card of *slot*."""
        guard = self._guards.get(slot.gpu)
        if guard is None:
            return True
        card = self._room_of(slot.gpu)
        room = None if card is None else card.room
        return guard.may_start(room, _on(slot.gpu, running), share)

    def learn(self, attempt: Attempt) -> None:
        """Take note of what a task that was stopped had held: the others are alike."""
        for guard in self._guards.values():
            guard.learn(attempt)

    def larger_share(self, attempt: Attempt) -> Share | None:
        """Give what a task needs that ran out of memory; None where that is unknown."""
        guard, card = (
            self._guards.get(attempt.slot.gpu),
            self._room_of(attempt.slot.gpu),
        )
        if guard is None or card is None:
            return None
        held = on_card(attempt).most
        return Share(gpu_memory=guard.larger(held, card.room))

    def more(self, attempt: Attempt) -> Bytes:
        """Return what to keep free for a planned task that was stopped; 0 without."""
        guard = self._guards.get(attempt.slot.gpu)
        return 0 if guard is None else guard.more(attempt)

    def ended(self, attempt: Attempt) -> None:
        """Take note of an attempt that holds nothing any more: readings are older."""
        self._ends[attempt.slot.gpu] = attempt.ended

    def look(
        self, now: Seconds, running: Collection[Attempt]
    ) -> list[tuple[Attempt, str]]:
        """Return the tasks to stop where a GPU's memory is short, and why."""
        victims, pauses = [], []
        for name, guard in self._guards.items():
            card = self._room_of(name)
            if card is None or now - card.at > _STALE:
                continue
            pauses.append(guard.pause(card.room))
            here = _on(name, running)
            is_short = guard.is_short(card.at, card.room, here)
            if not is_short or card.at <= self._ends.get(name, 0.0):
                continue
            victim = guard.victim(here, now)
            if victim is not None:
                left = format_size(max(0, card.room.free))
                words = f"{left} left on {card.label}"
                victims.append((victim, with_excess(words, guard.excess(victim))))
        self.due = now + min(pauses, default=_UNKNOWN)
        return victims


def _on(name: str | None, running: Collection[Attempt]) -> list[Attempt]:
    return [attempt for attempt in running if attempt.slot.gpu == name]


_GRACE = 2.0  # seconds that a task has to end when memory is short
_NEVER_DUE = float("inf")
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
            self._due = _NEVER_DUE
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
