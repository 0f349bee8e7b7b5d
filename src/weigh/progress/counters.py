"""Counters inside counters (steps in epochs in folds): how far each one is.

A `Counter` has its label, what is done, the total and the history of its positions.
`NestedCounters` holds all counters of a run, and finds out which ones are inside which:
the outer one wins, an inner one starts over.
"""

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

from weigh.progress.pace import FEWEST, ProgressHistory, StepPace, pace
from weigh.progress.parser import CounterRank, StepCount
from weigh.units import Seconds

PATIENCE: Seconds = 2.0  # without a count, before a counter is over
MOST_COUNTERS = 16  # of one kind and run: memory stays bounded whatever is printed
_OF_PARTS = 1.5  # the logarithm of a factor, if all time went to parts (hf_datasets)


class CounterLink:
    """How an inner counter moved while the outer one did."""

    def __init__(self, raw: float, child: "Counter") -> None:
        # steps of the outer one, passes of the inner one, and the seconds it counted
        self.first = self.last = raw, child.passes, child.spent

    def move(self, raw: float, child: "Counter") -> None:
        """Note that the outer counter has moved to *raw*."""
        self.last = raw, child.passes, child.spent

    def spent(self) -> Seconds:
        """Return how long the inner counter counted in the outer one's steps so far."""
        return self.last[2] - self.first[2]

    def passes(self) -> float | None:
        """Return the inner passes per outer step; None before the first step."""
        steps = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / steps if steps > 0 else None

    def is_outlasting(self) -> bool:
        """Return whether the inner counter lasts longer than a step of the outer."""
        passes = self.passes()
        return passes is not None and 2 * passes < 1


class ChosenCounter(NamedTuple):
    """The counter that spans the run, and its pace once that is known.

    ``total`` is None if it is not printed, or if the counter started over and it is
    unknown how often it will.
    """

    source: str
    done: float
    total: float | None
    time: Seconds
    pace: StepPace | None

    def end(self) -> Seconds:
        """Return when the run ends, as far as that is known."""
        return self.time + (self.pace.remaining if self.pace else 0.0)


class Counter:
    """One counter, identified by its source, label and line on the display."""

    def __init__(self, step_count: StepCount, time: Seconds, birth: int = 0) -> None:
        self.count = step_count
        self.birth = birth
        self.begun = self.seen = time
        self.restarts = 0
        self.history = ProgressHistory()
        self._links: WeakKeyDictionary[Counter, CounterLink] = WeakKeyDictionary()
        self.before: Seconds = 0.0  # until then others counted that were over
        self.share = 0.0  # of the current step, done by the inner counters
        self.passes = 0.0  # including the current one as a fraction
        self.is_heading = step_count.is_heading
        self.has_outer_moved = False  # since this one did
        self._first = step_count.done  # 0 for a program that counts from zero
        self._passed = 0.0  # steps of the passes before this one
        self._surplus = 0  # changes of the total, less those of what is done
        self.spent: Seconds = 0.0  # between the counts before its own and these

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the sort key: outer counters come before inner ones."""
        return self.count.rank, self.count.position, self.birth

    @property
    def raw(self) -> float:
        """Return the steps counted, including those before each restart."""
        return self._passed + self.count.done

    @property
    def is_finished(self) -> bool:
        """Return whether the last count was the total."""
        count = self.count
        is_last = count.total is not None and count.done >= count.total
        return is_last and not count.is_ordinal

    @property
    def is_left_behind(self) -> bool:
        """Return whether it was met at its end, as tqdm draws an inner bar again."""
        return self.is_finished and self.count.done == self._first

    @property
    def total(self) -> float | None:
        """Return the total; "Epoch 0/24" is read as the first of twenty-five."""
        total = self.count.total
        is_one_less = self.count.is_of_last and not self._first
        return total + 1 if total is not None and is_one_less else total

    @property
    def will_end(self) -> bool:
        """Return whether the total is known, and of all passes."""
        is_known = self.count.total is not None and self._surplus <= FEWEST
        return is_known and not self.restarts

    @property
    def inside(self) -> float:
        """Return the steps done in this pass, with the current one as a fraction."""
        done = self.count.done
        if self.count.is_ordinal:
            # a heading stands before its step, a result after it
            done += (0 if self.is_heading else 1) - min(self._first, 1.0)
        return done + self.share

    def take(self, step_count: StepCount, time: Seconds) -> bool:
        """Advance to *step_count*, and return whether anything moved."""
        self.seen = time
        was = self.count
        if step_count.done < was.done:
            # a count that is a little lower is of a process that lags behind
            fallen = was.done - step_count.done
            is_low = not step_count.done or fallen > max(1, was.done / 2)
            if not is_low and not self.has_outer_moved:
                return False
            self.restarts += 1
            self._passed += was.done
        self.has_outer_moved = False
        if step_count.total is None:  # "epoch 1 average loss: 0.4"
            step_count = step_count._replace(total=was.total)
        self.count = step_count
        has_moved = step_count.done != was.done
        self._surplus += (step_count.total != was.total) - has_moved
        return has_moved

    def settle(self, inner: "list[Counter]") -> None:
        """Apply the progress of the counters *inner* to this one."""
        shares: list[tuple[Seconds, float]] = []
        for child in inner:
            link = self.link(child)
            # the outer one may print just before or after the inner one has passed
            since = max(0.0, child.passes - round(link.last[1]))
            shares.append((link.spent(), since / max(1.0, link.passes() or 0.0)))
        if whole := sum(seconds for seconds, _ in shares):
            # those that count in turn, for the time that each took in the steps before
            self.share = sum(seconds * share for seconds, share in shares) / whole
        else:
            self.share = min(1.0, shares[0][1]) if shares else 0.0
        # a line that is printed before its steps are counted is their heading
        self.is_heading = self.count.is_heading
        if inner and inner[0].birth > self.birth:
            self.is_heading = True
        self.passes = float(self.restarts)
        if self.total:
            self.passes += min(1.0, self.inside / self.total)

    def link(self, child: "Counter") -> CounterLink:
        """Return how *child* moved while this counter did, since both were there."""
        return self._links.setdefault(child, CounterLink(self.raw, child))

    def chosen(self, done: float, *, has_cycles: bool = False) -> ChosenCounter:
        """Return this counter with *done* steps, and its pace if that is known.

        *has_cycles* means that inner counters start over with each of its steps.
        """
        total = self.total if self.will_end else None
        points, source = self.history.points, self.count.source
        # without a total only the time of a step is known
        ahead = 1.0 if total is None else max(0.0, total - done)
        time = points[-1].time
        is_even = source not in ("percentages", "figures")
        known = pace(points, ahead=ahead, has_cycles=has_cycles, is_even=is_even)
        # a first step that was printed before it can have been done is a heading
        if known and total and self._first == 1 and not self.count.is_ordinal:
            ahead += self.begun - self.before < known.step_time / 2
            known = pace(points, ahead=ahead, has_cycles=has_cycles, is_even=is_even)
        if not ahead:
            # of nothing, it is known without a history
            known = StepPace(known.step_time if known else 0.0, 0.0, 0.0, 0.0, 0.0)
        elif known and self.before:
            # the more of the time went to earlier parts, the less this part shows
            factor = math.exp(_OF_PARTS * min(1.0, self.before / time))
            low, high = known.low / factor, known.high * factor + self.before
            known = known._replace(low=low, high=high)
        return ChosenCounter(source, done, total, time, known)


class NestedCounters:
    """All counters of a run, the outer ones first."""

    def __init__(self) -> None:
        self.counters: list[Counter] = []
        self._births = 0
        self._time: Seconds = 0.0
        self._gap: Seconds = 0.0  # from the counts before to those of this moment

    def take(self, step_count: StepCount, time: Seconds) -> None:
        """Add *step_count*, read at *time*."""
        # all counts of one moment are taken before any position is read
        if time > self._time:
            self.settle()
            self._gap, self._time = time - self._time, time
        counter = self._find(step_count)
        if counter is None:
            self._bear(step_count, time)
            return
        # once of each moment, in which a bar may be drawn several times
        counter.spent += self._gap if counter.seen < time else 0.0
        if counter.take(step_count, time):
            self._refresh()
            if self._is_in_unknown_step(counter):
                del counter.history.points[1:]
            for child in self._after(counter):
                link = counter.link(child)
                link.move(counter.raw, child)
                child.has_outer_moved = True

    def settle(self) -> None:
        """Add the current position of every counter to its history."""
        self._refresh()
        for counter in self.counters:
            counter.history.add(self._time, counter.raw + counter.share)

    def is_moving(self) -> bool:
        """Return whether a counter has moved often enough for a pace."""
        return any(len(one.history.points) >= FEWEST for one in self.counters)

    def has_bars_below(self) -> bool:
        """Return whether bars are drawn below each other."""
        return any(counter.count.position for counter in self.counters)

    def has_outer(self) -> bool:
        """Return whether an epoch, or another part of the run, is under way."""
        return any(counter.count.is_ordinal for counter in self._alive())

    def chosen(self, *, is_through: bool = False) -> ChosenCounter | None:
        """Return the counter that ends last among those that still move.

        *is_through* means that the run has completed, including its current step. A
        counter with a total is ignored inside one that has none.
        """
        alive = self._alive()
        # an inner counter ends many times inside one of unknown length
        ending = [
            self._chosen(counter, is_through=is_through)
            for counter in alive
            if counter.will_end
            and not any(_is_open_around(other, counter) for other in alive)
        ]
        if not ending:
            return self._chosen(alive[0]) if alive else None
        # the outermost has no pace yet: its count is all there is; nor does it show the
        # end while the counters of its last step have none
        outermost = ending[0]
        is_last = outermost.total is not None and outermost.total - outermost.done <= 1
        if outermost.pace is None or (is_last and ending[-1].pace is None):
            return outermost._replace(pace=None)
        return max(ending, key=ChosenCounter.end)

    def end_of_part(self) -> Seconds:
        """Return when the counters end that do, those of the current part, too."""
        ends = (self._chosen(one).end() for one in self._alive() if one.will_end)
        return max(ends, default=0.0)

    def _chosen(self, counter: Counter, *, is_through: bool = False) -> ChosenCounter:
        inside = self._inside(counter)
        over = [one for one in self.counters if one.seen <= counter.begun]
        counter.before = max(
            (one.seen for one in over if len(one.history.points) > 1), default=0.0
        )
        done = counter.raw + counter.share if counter.restarts else counter.inside
        if is_through and counter.count.is_ordinal and counter.is_heading:
            done = min(done - counter.share + 1, counter.total or done)
        found = counter.chosen(done, has_cycles=bool(inside))
        is_open = found.total is not None and done < found.total
        if is_open and self._is_in_unknown_step(counter):
            return found._replace(pace=None)
        return found

    def _is_in_unknown_step(self, counter: Counter) -> bool:
        """Return whether the first step of *counter* has an unknown rest.

        That is so once an inner counter has begun again, or another one has begun: how
        many rounds and counters make a step is known when it is over.
        """
        inside = self._inside(counter)
        links = [counter.link(child) for child in inside]
        return all(link.passes() is None for link in links) and (
            len(inside) > 1
            or any(child.restarts > counter.link(child).first[1] for child in inside)
        )

    def _alive(self) -> list[Counter]:
        """Return the counters that still move; only the user's own if any."""
        alive = [counter for counter in self.counters if not self._is_over(counter)]
        own = [one for one in alive if one.count.rank == CounterRank.PATTERN]
        return own or alive

    def _after(self, counter: Counter) -> list[Counter]:
        return self.counters[self.counters.index(counter) + 1 :]

    def _inside(self, counter: Counter) -> list[Counter]:
        """Return the counters whose rounds make up a step of *counter*.

        What is further inside (batches, of folds and epochs) is counted by those.
        """
        inner = [child for child in self._after(counter) if _is_nested(counter, child)]
        return [child for child in inner if not _is_deeper_inside(inner, child)]

    def _refresh(self) -> None:
        # inner ones first, since the outer ones add up what these did
        for counter in reversed(self.counters):
            counter.settle(self._inside(counter))

    def _find(self, step_count: StepCount) -> Counter | None:
        """Return the counter that *step_count* is most likely of."""
        source, label, rank, position, done, total = step_count[:6]
        peers = [
            one
            for one in self.counters
            if (one.count.source, one.count.rank, one.count.position)
            == (source, rank, position)
        ]
        same = [one for one in peers if one.count.label == label]
        lower = [one for one in peers if one.count.done <= done and not one.is_finished]
        likely = [
            *(one for one in same if one.count.total == total),
            # otherwise one that grew or was renamed
            *(one for one in lower if one in same),
            *(one for one in lower if one.count.total == total and one.count.done),
            # the next round below an outer bar may be longer or shorter
            *(reversed(same) if position else ()),
        ]
        return likely[0] if likely else None

    def _bear(self, step_count: StepCount, time: Seconds) -> None:
        # the counter that was seen longest ago makes room
        if len(self.counters) == MOST_COUNTERS:
            self.counters.remove(min(self.counters, key=lambda counter: counter.seen))
        self._births += 1
        self.counters.append(Counter(step_count, time, self._births))
        self.counters.sort(key=lambda counter: counter.order)
        for counter in self.counters:
            for child in self._after(counter):
                counter.link(child)

    def _is_over(self, counter: Counter) -> bool:
        """Return whether other counters continued after *counter* stopped."""
        patience = PATIENCE + (counter.seen - counter.begun) / 2
        count = counter.count
        for other in self.counters:
            if other.seen <= counter.seen:
                continue
            is_next = other.begun >= counter.seen and (
                counter.is_finished
                or (count.is_ordinal and count[:4] == other.count[:4])
            )
            is_deeper = other.order[:2] > counter.order[:2]
            if is_next or (not is_deeper and other.seen - counter.seen > patience):
                return True
        return False


def _is_nested(counter: Counter, child: Counter) -> bool:
    """Return whether *child* counts inside *counter*, rather than after it.

    Of two in the same place, the outer one keeps being updated while the inner moves.
    """
    link = counter.link(child)
    if counter.is_left_behind or child.is_left_behind:
        return False
    if child.passes <= link.first[1]:
        return False
    is_alongside = counter.order[:2] < child.order[:2] or counter.seen >= child.begun
    return is_alongside and not link.is_outlasting()


def _is_deeper_inside(inner: "list[Counter]", child: Counter) -> bool:
    return any(
        other.order[:2] < child.order[:2] and _is_nested(other, child)
        for other in inner
    )


def _is_open_around(other: Counter, counter: Counter) -> bool:
    """Return whether *counter* may count inside *other*, which has no end."""
    is_outer = not other.will_end and other.order < counter.order
    return is_outer and not other.link(counter).is_outlasting()
