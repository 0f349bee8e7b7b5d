"""Chooses the counter that spans the run, and asks when it is through."""

from typing import NamedTuple

from weigh.progress.nest import Nest
from weigh.progress.pace import Pace, pace
from weigh.progress.track import Track
from weigh.units import Seconds


class Chosen(NamedTuple):
    """Where the counter that spans the run is, and its pace, once that is known.

    ``total`` is None where it is not printed, or where the counter began again and
    nobody says how often it will.
    """

    source: str
    done: float
    total: float | None
    time: Seconds
    pace: Pace | None


def chosen(nest: Nest, *, is_through: bool = False) -> Chosen | None:
    """Choose among the counters that still move: the one that ends last.

    *is_through*: the run has ended well, and with it the step that it was at.
    A counter with an end of its own does not count where one around it has none.
    """
    alive = nest.alive()
    endless = [track for track in alive if not _ends(track)]
    ending = [
        track
        for track in alive
        if _ends(track) and not any(_is_around(nest, other, track) for other in endless)
    ]
    if not ending:
        return _endless(nest, alive[0]) if alive else None
    found = [_ending(nest, track, is_through=is_through) for track in ending]
    if found[0].pace is None:
        return found[0]
    return max(found, key=_remaining)


def _ends(track: Track) -> bool:
    return track.total is not None and not track.cycles


def _is_around(nest: Nest, other: Track, track: Track) -> bool:
    """Tell whether *other*, which has no end, may go on when *track* is through."""
    if other.order[:2] > track.order[:2] or nest.is_inside(other, track):
        return False
    link = other.links.get(track.birth)
    return link is None or not link.is_outlasting()


def _ending(nest: Nest, track: Track, *, is_through: bool) -> Chosen:
    done = track.inside
    total = track.total or done
    if is_through:
        done = min(track.through, total)
    ahead = max(0.0, total - done)
    found = _pace(nest, track, ahead)
    if not ahead:
        found = Pace(found.step_time if found else 0.0, 0.0, 0.0, 0.0)
    return Chosen(track.mark.source, done, total, _time(track), found)


def _endless(nest: Nest, track: Track) -> Chosen:
    done = track.inside if not track.cycles else track.raw + track.share
    found = _pace(nest, track, 1.0)
    return Chosen(track.mark.source, done, None, _time(track), found)


def _pace(nest: Nest, track: Track, ahead: float) -> Pace | None:
    has_cycles = nest.contains(track)
    return pace(track.history.points, ahead=ahead, has_cycles=has_cycles)


def _time(track: Track) -> Seconds:
    return track.history.points[-1].time


def _remaining(found: Chosen) -> Seconds:
    return found.pace.remaining if found.pace else -1.0
