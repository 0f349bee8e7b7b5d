"""The memory of each GPU, which the tasks in its slots share: who fits, who goes."""

from collections.abc import Callable, Collection, Sequence

from weigh.runner.attempt import Attempt
from weigh.runner.guard import Guard, card_guard, on_card, with_excess
from weigh.runner.room import CardRoom
from weigh.runner.share import Share
from weigh.runner.slots import Slot
from weigh.units import Bytes, Seconds, format_size

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
