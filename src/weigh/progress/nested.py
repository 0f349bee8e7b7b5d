"""Counters inside counters (steps in epochs in folds): how far each one is.

A `CounterTrack` follows one counter: its position, and how often it started over. A
`NestedCounters` holds all counters of a run, and finds out which ones are inside which.
"""

from collections.abc import Iterator

from weigh.progress.parser import EPOCH, FOLD, PATTERN, StepCount
from weigh.progress.rate import FEWEST, PATIENCE, ProgressHistory
from weigh.units import Seconds

_NESTED = 0.9  # least passes of an inner counter per step of the outer
MOST_COUNTERS = 16  # of one run; all pairs of them are compared


class CounterLink:
    """How an inner counter moved while the outer one did."""

    def __init__(self, raw: float, count: float) -> None:
        self.first = (raw, count)  # steps of the outer counter, passes of the inner one
        self.last = (raw, count)  # the same when the outer counter moved last

    def passes(self) -> float | None:
        """Return the inner passes per outer step; None before the first step."""
        steps = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / steps if steps > 0 else None

    def is_outlasting(self) -> bool:
        """Return whether the inner counter lasts longer than a step of the outer."""
        passes = self.passes()
        return passes is not None and passes < _NESTED


class CounterTrack:
    """One counter, identified by its source, label and line on the display."""

    def __init__(self, step_count: StepCount, time: Seconds, birth: int) -> None:
        self.count = step_count
        self.birth = birth
        self.begun = self.seen = time
        self.cycles = 0  # how often it has started over
        self.history = ProgressHistory()
        self.links: dict[int, CounterLink] = {}  # by the inner counter's birth
        self.share = 0.0  # of the current step, done by the inner counters
        self.passes_made = 0.0  # including the current one as a fraction
        self.is_heading = step_count.is_heading
        self._first = step_count.done  # 0 for a program that counts from zero
        self.has_outer_moved = False  # since this one did
        self._before = 0.0  # steps of the passes before this one

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the sort key: outer counters come before inner ones."""
        return self.count.rank, self.count.position, self.birth

    @property
    def raw(self) -> float:
        """Return the steps counted, including those before each restart."""
        return self._before + self.count.done

    @property
    def is_finished(self) -> bool:
        """Return whether the last count was the total."""
        count = self.count
        if count.is_ordinal or count.total is None:
            return False
        return count.done >= count.total

    @property
    def total(self) -> float | None:
        """Return the total; "Epoch 0/24" is read as the first of twenty-five."""
        total = self.count.total
        is_of_last = self.count.is_of_last and self.count.is_ordinal and not self._first
        return total + 1 if total is not None and is_of_last else total

    @property
    def will_end(self) -> bool:
        """Return whether the total is known, and of all passes."""
        return self.count.total is not None and not self.cycles

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
            self.cycles += 1
            self._before += was.done
        self.has_outer_moved = False
        if step_count.total is None:  # "epoch 1 average loss: 0.4"
            step_count = step_count._replace(total=was.total)
        self.count = step_count
        return step_count.done != was.done

    def settle(self, inner: "list[CounterTrack]") -> None:
        """Apply the progress of the counters *inner* to this one."""
        # the largest share that is known, else that of the next inner counter
        known, guesses = [], []
        for child in inner:
            link = self.links[child.birth]
            # the outer one may print just before or after the inner one has passed
            since = max(0.0, child.passes_made - round(link.last[1]))
            if (passes := link.passes()) is None:
                guesses.append(min(1.0, since))
            else:
                known.append(since / max(1.0, passes))
        self.share = max(known) if known else guesses[0] if guesses else 0.0
        self.is_heading = self.count.is_heading
        if inner:
            self.is_heading = self.count.is_around or inner[0].birth > self.birth
        self.passes_made = float(self.cycles)
        if self.total:
            self.passes_made += min(1.0, self.inside / self.total)

    @property
    def inside(self) -> float:
        """Return the steps done in this pass, with the current one as a fraction."""
        done = self.count.done
        if self.count.is_ordinal:
            # a heading stands before its step, a result after it
            done += (0 if self.is_heading else 1) - min(self._first, 1.0)
        return done + self.share

    @property
    def through(self) -> float:
        """Return the steps done, with the current one as a whole."""
        is_begun = self.count.is_ordinal and self.is_heading
        return self.inside - self.share + 1 if is_begun else self.inside


class NestedCounters:
    """All counters of a run, the outer ones first."""

    def __init__(self) -> None:
        self.tracks: list[CounterTrack] = []
        self._births = 0
        self._time: Seconds = 0.0

    def take(self, step_count: StepCount, time: Seconds) -> None:
        """Add *step_count*, read at *time*."""
        # all counts of one moment are taken before any position is read
        if time > self._time:
            self.settle()
            self._time = time
        track = self._find(step_count)
        if track is None:
            self._bear(step_count, time)
        elif track.take(step_count, time):
            self._refresh()
            for child in self._after(track):
                link = track.links[child.birth]
                link.last = (track.raw, child.passes_made)
                child.has_outer_moved |= not link.is_outlasting()

    def settle(self) -> None:
        """Add the current position of every counter to its history."""
        self._refresh()
        for track in self.tracks:
            track.history.add(self._time, track.raw + track.share)

    def is_moving(self) -> bool:
        """Return whether a counter has moved often enough for a pace."""
        return any(len(track.history.points) >= FEWEST for track in self.tracks)

    def has_outer(self) -> bool:
        """Return whether an epoch, or another part of the run, is under way."""
        return any(track.count.rank in (FOLD, EPOCH) for track in self.alive())

    def alive(self) -> list[CounterTrack]:
        """Return the counters that still move; only the user's own if any."""
        alive = [track for track in self.tracks if not self._is_over(track)]
        own = [track for track in alive if track.count.rank == PATTERN]
        return own or alive

    def ending(self) -> list[CounterTrack]:
        """Return those that still move, have a total and end only once."""
        alive = self.alive()
        # an inner counter ends many times inside one of unknown length
        return [
            track
            for track in alive
            if track.will_end
            and not any(self._may_outlast(other, track) for other in alive)
        ]

    def before(self, track: CounterTrack) -> Seconds:
        """Return how long other counters counted that were over when *track* began."""
        times = (
            other.seen - other.begun
            for other in self.tracks
            if other.seen <= track.begun and len(other.history.points) > 1
        )
        return min(sum(times), track.begun)

    def contains(self, track: CounterTrack) -> bool:
        """Return whether some counter starts over with each step of *track*."""
        return bool(self._inside(track))

    def is_unmoved(self, track: CounterTrack) -> bool:
        """Return whether an inner counter started over in the first step of *track*.

        How often it will is unknown until *track* moves.
        """
        links = ((track.links[child.birth], child) for child in self._inside(track))
        return any(
            link.passes() is None and child.cycles > link.first[1]
            for link, child in links
        )

    def _after(self, track: CounterTrack) -> list[CounterTrack]:
        return self.tracks[self.tracks.index(track) + 1 :]

    def _inside(self, track: CounterTrack) -> list[CounterTrack]:
        return [child for child in self._after(track) if _is_nested(track, child)]

    def _refresh(self) -> None:
        # inner ones first, since the outer ones add up what these did
        for track in reversed(self.tracks):
            track.settle(self._inside(track))

    def _find(self, step_count: StepCount) -> CounterTrack | None:
        return next(self._candidates(step_count), None)

    def _candidates(self, step_count: StepCount) -> Iterator[CounterTrack]:
        """Yield the counters that *step_count* may be of, the likeliest first."""
        source, label, rank, position, done, total = step_count[:6]
        tracks = [
            track
            for track in self.tracks
            if (track.count.source, track.count.rank, track.count.position)
            == (source, rank, position)
        ]
        same = [track for track in tracks if track.count.label == label]
        yield from (track for track in same if track.count.total == total)
        # otherwise one that grew or was renamed
        lower = [t for t in tracks if t.count.done <= done and not t.is_finished]
        yield from (track for track in lower if track in same)
        yield from (t for t in lower if t.count.total == total and t.count.done)
        # the next round below an outer bar may be longer or shorter
        if position:
            yield from reversed(same)

    def _bear(self, step_count: StepCount, time: Seconds) -> None:
        # the counter that was seen longest ago makes room
        if len(self.tracks) == MOST_COUNTERS:
            oldest = min(self.tracks, key=lambda track: track.seen)
            self.tracks.remove(oldest)
            for track in self.tracks:
                track.links.pop(oldest.birth, None)
        self._births += 1
        born = CounterTrack(step_count, time, self._births)
        self.tracks.append(born)
        self.tracks.sort(key=lambda track: track.order)
        for track in self.tracks[: self.tracks.index(born)]:
            track.links[born.birth] = CounterLink(track.raw, 0.0)
        for child in self._after(born):
            born.links[child.birth] = CounterLink(born.raw, child.passes_made)

    def _may_outlast(self, other: CounterTrack, track: CounterTrack) -> bool:
        """Return whether *other*, which has no total, may continue after *track*."""
        if other.will_end or other.order[:2] > track.order[:2]:
            return False
        if track.order < other.order and _is_nested(track, other):
            return False
        link = other.links.get(track.birth)
        return link is None or not link.is_outlasting()

    def _is_over(self, track: CounterTrack) -> bool:
        """Return whether other counters continued after *track* stopped."""
        patience = PATIENCE + (track.seen - track.begun) / 2
        count = track.count
        for other in self.tracks:
            if other.seen <= track.seen:
                continue
            is_of_place = count[:4] == other.count[:4]
            is_next = other.begun >= track.seen and (
                (track.is_finished and not track.cycles)
                or (count.is_ordinal and is_of_place)
            )
            is_deeper = other.order[:2] > track.order[:2]
            if is_next or (not is_deeper and other.seen - track.seen > patience):
                return True
        return False


def _is_nested(track: CounterTrack, child: CounterTrack) -> bool:
    """Return whether *child* counts inside *track*, rather than after it.

    Of two in the same place, the outer one keeps being updated while the inner moves.
    """
    link = track.links[child.birth]
    if child.passes_made <= link.first[1]:
        return False
    is_alongside = track.order[:2] < child.order[:2] or track.seen >= child.begun
    return is_alongside and not link.is_outlasting()
