"""Counters inside counters (steps in epochs in folds): how far each one is.

A `CounterTrack` follows one counter: its position, and how often it started over. A
`NestedCounters` holds all counters of a run, and finds out which ones are inside which.
"""

from itertools import chain

from weigh.progress.parser import EPOCH, FOLD, PATTERN, StepCount
from weigh.progress.rate import FEWEST, PATIENCE, ProgressHistory
from weigh.units import Seconds

_NESTED = 0.9  # least passes of an inner counter per step of the outer
_RESET = 0.5  # a count that falls below half has started over
_INSIST = 5  # so has one that stays lower for so many counts: a resumed run


class CounterLink:
    """How an inner counter moved while the outer one did."""

    def __init__(self, raw: float, count: float) -> None:
        self.first = (raw, count)  # steps of the outer counter, passes of the inner one
        self.last = (raw, count)

    def moved(self, raw: float, count: float) -> None:
        """Record that the outer counter is at *raw* after *count* inner passes."""
        self.last = (raw, count)

    def passes(self) -> float | None:
        """Return the inner passes per outer step; None before the first step."""
        steps = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / steps if steps > 0 else None

    def is_outlasting(self) -> bool:
        """Return whether the inner counter lasts longer than a step of the outer."""
        passes = self.passes()
        return passes is not None and passes < _NESTED

    def since(self, count: float) -> float:
        """Return the inner passes since the outer one moved (it may print later)."""
        # the outer one may print just before or after the inner one has passed
        return max(0.0, count - round(self.last[1]))


class CounterTrack:
    """One counter, identified by its source, label and line on the display."""

    def __init__(self, step_count: StepCount, time: Seconds, birth: int) -> None:
        self.count = step_count
        self.birth = birth
        self.begun = time
        self.seen = time
        self.cycles = 0  # how often it has started over
        self.history = ProgressHistory()
        self.links: dict[int, CounterLink] = {}  # by the inner counter's birth
        self.share = 0.0  # of the current step, done by the inner counters
        self.passes_made = 0.0  # including the current one as a fraction
        self.is_heading = step_count.is_heading
        self.may_begin_again = False  # an outer counter moved
        self._first = step_count.done  # 0 for a program that counts from zero
        self._before = 0.0  # steps of the passes before this one
        self._lower = 0  # lower counts in a row

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
        total = self.count.total
        return (
            not self.count.is_ordinal and total is not None and self.count.done >= total
        )

    @property
    def total(self) -> float | None:
        """Return the total; "Epoch 0/24" is read as the first of twenty-five."""
        total = self.count.total
        if total is None or not self.count.is_ordinal or self._first:
            return total
        is_of_last = self.count.is_of_last
        if is_of_last is None:
            # a last number such as 24 or 99 is one less than a round total
            is_of_last = (total + 1) % 5 == 0
        return total + 1 if is_of_last else total

    def take(self, step_count: StepCount, time: Seconds) -> bool:
        """Advance to *step_count*, and return whether anything moved."""
        self.seen = time
        was = self.count
        if step_count.done < was.done:
            self._lower += 1
            if not self._begins_again(step_count):
                return False
            self.cycles += 1
            self._before += was.done
        self._lower = 0
        self.may_begin_again = False
        if step_count.total is None and was.total is not None:
            step_count = step_count._replace(
                total=was.total
            )  # "epoch 1 average loss: 0.4"
        self.count = step_count
        return step_count.done != was.done

    def _begins_again(self, step_count: StepCount) -> bool:
        """Return whether a count is a new pass, not a lagging count of another rank."""
        was = self.count.done
        is_low = step_count.done <= was * _RESET and (
            not step_count.done or was - step_count.done > 1
        )
        return is_low or self.may_begin_again or self._lower >= _INSIST

    def settle(self, *, share: float, is_heading: bool) -> None:
        """Apply the progress of the inner counters."""
        self.share, self.is_heading = share, is_heading
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

    def continues(self, step_count: StepCount) -> bool:
        """Return whether *step_count* is of this counter, under another name."""
        ours = self.count
        return (
            ours._replace(label="").place == step_count._replace(label="").place
            and ours.total == step_count.total
            and 0 < ours.done <= step_count.done
            and not self.is_finished
        )


MOST_COUNTERS = 16
_MANY = 6  # with more counters, all pairs are compared
_SELDOM: Seconds = 0.1  # no more often than this


class NestedCounters:
    """All counters of a run, the outer ones first."""

    def __init__(self) -> None:
        self.tracks: list[CounterTrack] = []
        self._births = 0
        self._time: Seconds = 0.0
        self._refreshed: Seconds = 0.0

    def take(self, step_count: StepCount, time: Seconds) -> None:
        """Add *step_count*, read at *time*."""
        # all counts of one moment are taken before any position is read
        if time > self._time:
            self.settle()
            self._time = time
        track = self._find(step_count)
        if track is None:
            self._bear(step_count, time)
        # the innermost counter has none inside it that could begin again
        elif track.take(step_count, time) and track is not self.tracks[-1]:
            self._refresh()
            for child in self._after(track):
                link = track.links[child.birth]
                link.moved(track.raw, child.passes_made)
                child.may_begin_again |= not link.is_outlasting()

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

    def before(self, track: CounterTrack) -> Seconds:
        """Return how long other counters counted that were over when *track* began."""
        times = (
            other.seen - other.begun
            for other in self.tracks
            if other.seen <= track.begun and len(other.history.points) > 1
        )
        return min(sum(times), track.begun)

    def contains(self, track: CounterTrack) -> bool:
        """Return whether some counter starts over with each step of *track*.

        In its first step, that is one of a smaller unit: an epoch has its batches.
        """
        return any(
            self.is_inside(child, track)
            or (
                track.count.rank < child.count.rank
                and track.links[child.birth].passes() is None
                and child.seen > track.begun
            )
            for child in self._after(track)
        )

    def is_unmoved(self, track: CounterTrack) -> bool:
        """Return whether an inner counter started over in the first step of *track*.

        How often it will is unknown until *track* moves.
        """
        return any(
            child.cycles > track.links[child.birth].first[1]
            and track.links[child.birth].passes() is None
            and self.is_inside(child, track)
            for child in self._after(track)
        )

    def is_inside(self, child: CounterTrack, track: CounterTrack) -> bool:
        """Return whether *child* starts over with each step of *track*."""
        return track.order < child.order and _is_nested(track, child)

    def _after(self, track: CounterTrack) -> list[CounterTrack]:
        return self.tracks[self.tracks.index(track) + 1 :]

    def _refresh(self) -> None:
        if len(self.tracks) > _MANY and self._time - self._refreshed < _SELDOM:
            return
        self._refreshed = self._time
        # inner ones first, since the outer ones add up what these did
        for index in reversed(range(len(self.tracks))):
            track = self.tracks[index]
            children = self.tracks[index + 1 :]
            inner = next((c for c in children if _is_nested(track, c)), None)
            is_heading = track.count.is_heading
            if inner is not None:
                is_heading = track.count.is_around or inner.birth > track.birth
            track.settle(share=_share_of_step(track, children), is_heading=is_heading)

    def _find(self, step_count: StepCount) -> CounterTrack | None:
        same = [track for track in self.tracks if track.count.place == step_count.place]
        # the same total is the same counter; otherwise one that grew or was renamed
        of_total = (t for t in same if t.count.total == step_count.total)
        grown = (
            t for t in same if step_count.done >= t.count.done and not t.is_finished
        )
        renamed = (track for track in self.tracks if track.continues(step_count))
        return next(chain(of_total, grown, renamed), None)

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
        place = self.tracks.index(born)
        for child in self.tracks[place + 1 :]:
            born.links[child.birth] = CounterLink(born.raw, child.passes_made)
        # counters that contain the new one, which has not passed yet
        for track in self.tracks[:place]:
            track.links[born.birth] = CounterLink(track.raw, 0.0)

    def _is_over(self, track: CounterTrack) -> bool:
        """Return whether other counters continued after *track* stopped."""
        patience = PATIENCE + (track.seen - track.begun) / 2
        for other in self.tracks:
            if other.seen <= track.seen or other is track:
                continue
            if other.begun >= track.seen and (
                (track.is_finished and not track.cycles)
                or (track.count.is_ordinal and track.count.place == other.count.place)
            ):
                return True
            is_deeper = other.order[:2] > track.order[:2]
            if not is_deeper and other.seen - track.seen > patience:
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


def _share_of_step(track: CounterTrack, children: list[CounterTrack]) -> float:
    """Return what share of its current step the counters inside *track* did.

    That is the largest one known, else that of the next inner counter.
    """
    guesses, known = [], []
    for child in children:
        if _is_nested(track, child):
            link = track.links[child.birth]
            passes, since = link.passes(), link.since(child.passes_made)
            if passes is None:
                guesses.append(min(1.0, since))
            else:
                known.append(since / max(1.0, passes))
    return max(known) if known else guesses[0] if guesses else 0.0
