"""Keep tasks side by side from using the memory up: pure decisions.

When little is left, the youngest task is the one to stop, for it has the least to lose;
what it had held by then is the least that a task needs from now on. Tasks start again
when there is room for one more, all that run grown to that size.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from weigh.runner.attempt import Attempt
from weigh.runner.room import Room
from weigh.units import Bytes, Seconds

_MARGIN = 0.05  # of the limit, to be left free
_CARD_MARGIN = 0.03
# a card fills in leaps, and who finds it full is told so and not killed
_CARD_AHEAD = 0.1  # of the limit: growth is looked ahead no further
_LAST = 0.01  # of the limit: too little to wait for anybody
_AHEAD: Seconds = 0.3  # growth is looked ahead for so long
_SETTLING: Seconds = 2.0  # and so long before another task is let in
_MORE = 1.2  # what was stopped while it grew needs more than it had
_LARGER = 2  # times what it held: the share of a task that ran out of memory
_CLOSE = 0.7  # of the limit used, from which to look often
_OFTEN, _SELDOM = 0.05, 0.25  # seconds between looks


class Held(NamedTuple):
    """What an attempt holds now, held at most, and is to have kept free for it."""

    now: Bytes
    most: Bytes
    share: Bytes


def on_host(attempt: Attempt) -> Held:
    """Give what an attempt holds of the host's memory."""
    return Held(attempt.now, attempt.peak, attempt.share.memory)


def on_card(attempt: Attempt) -> Held:
    """Give what an attempt holds of its GPU's memory."""
    return Held(attempt.gpu_now, attempt.gpu_peak, attempt.share.gpu_memory)


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

    def pause(self, room: Room) -> Seconds:
        """Give the seconds until the next look."""
        return _OFTEN if room.used > _CLOSE * room.limit else _SELDOM

    def is_short(self, now: Seconds, room: Room) -> bool:
        """Tell whether memory is about to run out, growing on as it does."""
        self._growth /= 2  # one look without growth may be chance
        if self._before is not None and now > self._before[0]:
            at, used = self._before
            self._growth = max(self._growth, (room.used - used) / (now - at))
        self._before = (now, room.used)
        return room.free < max(self._margin * room.limit, self._grown(room, _AHEAD))

    def is_desperate(self, room: Room) -> bool:
        """Tell whether nobody can be given time any more."""
        return room.free < _LAST * room.limit

    def victim(self, running: Collection[Attempt]) -> Attempt | None:
        """Choose the youngest of several tasks; None while one is ending already."""
        if any(attempt.stop is not None for attempt in running) or len(running) < 2:  # noqa: PLR2004
            return None
        return max(running, key=lambda attempt: attempt.began)

    def learn(self, attempt: Attempt) -> None:
        """Take note of what a stopped task had held at most."""
        self.need = max(self.need, 1, round(self._held(attempt).most * _MORE))

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
