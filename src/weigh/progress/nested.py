"""Counters inside counters: how far the outer ones are, and which one spans the run."""

from weigh.progress.count import PATTERN, Mark
from weigh.progress.track import Link, Track
from weigh.units import Seconds

MOST = 16
_PATIENCE: Seconds = 2.0
_MANY = 6  # counters, from which on looking at all pairs is
_SELDOM: Seconds = 0.1  # done no more often than this


class Nest:
    """All counters of a run, the outer ones first."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self._births = 0
        self._time: Seconds = 0.0
        self._refreshed: Seconds = 0.0

    def take(self, mark: Mark, time: Seconds) -> None:
        """Take in *mark*, seen at *time*."""
        if time > self._time:
            self.settle()
            self._time = time
        track = self._find(mark)
        if track is None:
            self._bear(mark, time)
        elif track.take(mark, time) and track is not self.tracks[-1]:
            self._refresh()
            for child in self._after(track):
                link = track.links[child.birth]
                link.moved(track.raw, child.count)
                child.may_begin_again |= not link.is_outlasting()

    def settle(self) -> None:
        """Note in every counter's history where it is by now."""
        self._refresh()
        for track in self.tracks:
            track.history.add(self._time, track.raw + track.share)

    def alive(self) -> list[Track]:
        """Give the counters that still say something; the user's own, if there are."""
        alive = [track for track in self.tracks if not self._is_over(track)]
        own = [track for track in alive if track.mark.rank == PATTERN]
        return own or alive

    def contains(self, track: Track) -> bool:
        """Tell whether a counter inside *track* begins again with each of its steps."""
        return any(self.is_inside(child, track) for child in self._after(track))

    def is_inside(self, child: Track, track: Track) -> bool:
        """Tell whether *child* begins again with each step of *track*."""
        return track.order < child.order and _is_nested(track, child)

    def _after(self, track: Track) -> list[Track]:
        return self.tracks[self.tracks.index(track) + 1 :]

    def _refresh(self) -> None:
        if len(self.tracks) > _MANY and self._time - self._refreshed < _SELDOM:
            return
        self._refreshed = self._time
        for index in reversed(range(len(self.tracks))):
            track = self.tracks[index]
            children = self.tracks[index + 1 :]
            inner = next((c for c in children if _is_nested(track, c)), None)
            is_heading = track.mark.is_heading
            if inner is not None:
                is_heading = inner.birth > track.birth
            shares = (_share(track, child) for child in children)
            track.settle(share=_chosen(list(shares)), is_heading=is_heading)

    def _find(self, mark: Mark) -> Track | None:
        same = [track for track in self.tracks if track.is_same(mark)]
        for track in same:
            if track.mark.total == mark.total:
                return track
        for track in same:
            if mark.done >= track.mark.done and not track.is_finished:
                return track
        return next((track for track in self.tracks if track.is_renamed(mark)), None)

    def _bear(self, mark: Mark, time: Seconds) -> None:
        if len(self.tracks) == MOST:
            oldest = min(self.tracks, key=lambda track: track.seen)
            self.tracks.remove(oldest)
            for track in self.tracks:
                track.links.pop(oldest.birth, None)
        self._births += 1
        born = Track(mark, time, self._births)
        self.tracks.append(born)
        self.tracks.sort(key=lambda track: track.order)
        self._refresh_links(born)

    def _refresh_links(self, born: Track) -> None:
        after = self._after(born)
        for child in after:
            born.links[child.birth] = Link(born.raw, child.count)
        for track in self.tracks[: -1 - len(after)]:
            track.links[born.birth] = Link(track.raw, 0.0)

    def _is_over(self, track: Track) -> bool:
        """Tell whether others went on where *track* stopped."""
        patience = _PATIENCE + (track.seen - track.begun) / 2
        for other in self.tracks:
            if other.seen <= track.seen or other is track:
                continue
            if track.is_finished and not track.cycles and other.begun >= track.seen:
                return True
            is_deeper = other.order[:2] > track.order[:2]
            if not is_deeper and other.seen - track.seen > patience:
                return True
        return False


def _is_nested(track: Track, child: Track) -> bool:
    """Tell whether *child* is at work inside *track*; one that follows it is not.

    Of two at the same place, the one that contains the other is drawn on beside it.
    """
    link = track.links[child.birth]
    if child.count <= link.first[1]:
        return False
    is_beside = track.order[:2] < child.order[:2] or track.seen >= child.begun
    return is_beside and not link.is_outlasting()


def _share(track: Track, child: Track) -> tuple[bool, float] | None:
    """Give the part of the step under way that *child* did, and if that is known."""
    if not _is_nested(track, child):
        return None
    link = track.links[child.birth]
    passes = link.passes()
    if passes is None:
        return False, min(1.0, link.since(child.count))
    return True, link.since(child.count) / max(1.0, passes)


def _chosen(shares: list[tuple[bool, float] | None]) -> float:
    """Choose what is known; of what is only likely, the next one inside."""
    given = [share for share in shares if share is not None]
    known = [share for is_known, share in given if is_known]
    return max(known) if known else given[0][1] if given else 0.0
