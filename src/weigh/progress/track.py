"""One counter as it goes on: where it is, how often it began again."""

from bisect import bisect_left
from typing import NamedTuple

from weigh.progress.count import Mark
from weigh.units import Seconds

MOST = 512


class Point(NamedTuple):
    """*position*, in steps, was reached at *time*."""

    time: Seconds
    position: float


class History:
    """Points that rise in time and in position."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def add(self, time: Seconds, position: float) -> None:
        """Note a point; one that is no further on says nothing and is left out.

        Of points at the same time the last counts: output that was held back in a
        buffer comes all at once, and only its end is of that moment.
        """
        points = self.points
        if points and position <= points[-1].position:
            return
        if points and time <= points[-1].time:
            points.pop()
        points.append(Point(time, position))
        if len(points) > MOST:
            del points[1:-1:2]


def time_at(points: list[Point], position: float) -> Seconds:
    """Read off when *position*, which lies between the points, was reached."""
    index = bisect_left(points, position, key=lambda point: point.position)
    if index == 0:
        return points[0].time
    before, after = points[index - 1], points[min(index, len(points) - 1)]
    if after.position == before.position:
        return after.time
    share = (position - before.position) / (after.position - before.position)
    return before.time + share * (after.time - before.time)


_NESTED = 0.9  # passes of an inner counter a step of the outer, at least
_RESET = 0.5  # a count that falls below half of itself began again
_INSIST = 5  # so did one that stays lower for so many counts: a run taken up again


class Link:
    """How a counter inside moved while this one did."""

    def __init__(self, raw: float, count: float) -> None:
        self.first = (raw, count)
        self.last = (raw, count)

    def moved(self, raw: float, count: float) -> None:
        """Note that the outer counter is at *raw* as the inner made *count* passes."""
        self.last = (raw, count)

    def passes(self) -> float | None:
        """Give the passes of the inner one a step of the outer; None before a step."""
        steps = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / steps if steps > 0 else None

    def is_outlasting(self) -> bool:
        """Tell whether the inner one goes on through whole steps of the outer."""
        passes = self.passes()
        return passes is not None and passes < _NESTED

    def since(self, count: float) -> float:
        """Give the passes since the outer one moved: it may print a little later."""
        return max(0.0, count - round(self.last[1]))


class Track:
    """A counter, known by its source, label and line on the display."""

    def __init__(self, mark: Mark, time: Seconds, birth: int) -> None:
        self.mark = mark
        self.birth = birth
        self.begun = time
        self.seen = time
        self.cycles = 0
        self.history = History()
        self.links: dict[int, Link] = {}
        self.share = 0.0  # of the step under way, done by the counters inside
        self.count = 0.0  # passes made, the one under way as a fraction
        self.is_heading = mark.is_heading
        self.may_begin_again = False  # a counter around it went on
        self._first = mark.done
        self._before = 0.0
        self._lower = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort what contains before what is contained."""
        return self.mark.rank, self.mark.position, self.birth

    @property
    def raw(self) -> float:
        """Give the steps counted, those before each new beginning included."""
        return self._before + self.mark.done

    @property
    def is_finished(self) -> bool:
        """Tell whether the last count was the total."""
        total = self.mark.total
        return (
            not self.mark.is_ordinal and total is not None and self.mark.done >= total
        )

    @property
    def total(self) -> float | None:
        """Give the total; "Epoch 0/24" is taken for the first of twenty-five."""
        total = self.mark.total
        if total is None or not self.mark.is_ordinal or self._first:
            return total
        is_round = (total + 1) % 5 == 0
        return total + 1 if is_round or self.mark.is_of_last else total

    def take(self, mark: Mark, time: Seconds) -> bool:
        """Go on to *mark*; tell whether anything moved."""
        self.seen = time
        was = self.mark
        if mark.done < was.done:
            self._lower += 1
            if not self._begins_again(mark):
                return False
            self.cycles += 1
            self._before += was.done
        self._lower = 0
        self.may_begin_again = False
        self.mark = mark
        return mark.done != was.done

    def _begins_again(self, mark: Mark) -> bool:
        """Tell a new pass from a count that lags behind, as of another process."""
        was = self.mark.done
        is_low = mark.done <= was * _RESET and (not mark.done or was - mark.done > 1)
        return is_low or self.may_begin_again or self._lower >= _INSIST

    def settle(self, *, share: float, is_heading: bool) -> None:
        """Take over what the counters inside say."""
        self.share, self.is_heading = share, is_heading
        self.count = float(self.cycles)
        if self.total:
            self.count += min(1.0, self.inside / self.total)

    @property
    def inside(self) -> float:
        """Give the steps done in this pass, the one under way as a fraction."""
        done = self.mark.done
        if self.mark.is_ordinal:
            done += (0 if self.is_heading else 1) - min(self._first, 1.0)
        return done + self.share

    @property
    def through(self) -> float:
        """Give the steps done, the one under way as a whole."""
        is_begun = self.mark.is_ordinal and self.is_heading
        return self.inside - self.share + 1 if is_begun else self.inside

    def is_same(self, mark: Mark) -> bool:
        """Tell whether *mark* is of this counter, its total aside."""
        ours = self.mark
        return (ours.source, ours.label, ours.rank, ours.position) == (
            mark.source,
            mark.label,
            mark.rank,
            mark.position,
        )

    def is_renamed(self, mark: Mark) -> bool:
        """Tell whether *mark* goes on where this one is, under another name."""
        ours = self.mark
        return (
            (ours.source, ours.total, ours.rank, ours.position)
            == (mark.source, mark.total, mark.rank, mark.position)
            and 0 < ours.done <= mark.done
            and not self.is_finished
        )
