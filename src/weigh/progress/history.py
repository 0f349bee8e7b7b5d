"""When a run was how far: points in time, thinned to a bounded number."""

from bisect import bisect_left
from typing import NamedTuple

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
