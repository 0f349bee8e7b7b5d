"""Keep tasks side by side from using the memory up: pure decisions.

When little is left, the youngest task is the one to stop, for it has the least to lose;
what it had held by then is the least that a task needs from now on. Tasks start again
when there is room for one more, all that run grown to that size.
"""

from collections.abc import Collection

from weigh.runner.attempt import Attempt
from weigh.runner.room import Room
from weigh.units import Bytes, Seconds

_MARGIN = 0.05  # of the limit, to be left free
_LAST = 0.01  # of the limit: too little to wait for anybody
_AHEAD: Seconds = 0.3  # growth is looked ahead for so long
_SETTLING: Seconds = 2.0  # and so long before another task is let in
_MORE = 1.2  # what was stopped while it grew needs more than it had
_CLOSE = 0.7  # of the limit used, from which to look often
_OFTEN, _SELDOM = 0.05, 0.25  # seconds between looks


class Guard:
    """What is known of the tasks' needs. ``need`` is 0 until memory was short."""

    def __init__(self) -> None:
        self.need: Bytes = 0
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
        return room.free < max(_MARGIN * room.limit, self._growth * _AHEAD)

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
        self.need = max(self.need, 1, round(attempt.peak * _MORE))

    def may_start(self, room: Room | None, running: Collection[Attempt]) -> bool:
        """Tell whether one more fits, with those that run at their full size."""
        if not self.need or not running or room is None:
            return True
        # tasks of one file are alike: what the largest needs, the next will
        largest = max(attempt.peak for attempt in running)
        need = max(self.need, round(largest * _MORE))
        growth = sum(max(0, need - attempt.now) for attempt in running)
        margin = _MARGIN * room.limit + self._growth * _SETTLING
        return room.free - margin >= growth + need
