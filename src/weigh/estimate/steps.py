"""Growth by a few large steps: a table that doubles, an epoch that leaves its share."""

from collections.abc import Sequence
from itertools import pairwise

from weigh.units import Bytes, Seconds

_FEWEST = 3  # steps, below which a rhythm is a guess
_LATE = 1.5  # of the longest gap, after which no next step is to be expected
_UNEVEN = 2.0  # the longest gap over the shortest, and so the heights


def still_stepping(
    times: Sequence[Seconds], tops: Sequence[Bytes], end: Seconds, least: float
) -> bool:
    """Tell whether what was held at most rose by even steps and is due for the next.

    *tops* never fall; *least* is how many bytes are worth a step. Steps further and
    further apart are how a program warms up, and do not count.
    """
    steps = _steps(times, tops, least, (end - times[0]) / 20)
    if len(steps) < _FEWEST:
        return False
    gaps = [after - before for (before, _), (after, _) in pairwise(steps)]
    heights = [height for _, height in steps]
    if max(gaps) > _UNEVEN * min(gaps) or max(heights) > _UNEVEN * min(heights):
        return False
    return end - steps[-1][0] <= _LATE * max(gaps)


def _steps(
    times: Sequence[Seconds], tops: Sequence[Bytes], least: float, width: Seconds
) -> list[tuple[Seconds, Bytes]]:
    """Give the rises of *least* bytes or more, each drawn together over *width*."""
    steps: list[tuple[Seconds, Bytes]] = []
    base, since = tops[0], None
    for time, top in zip(times, tops, strict=True):
        if since is None and top > base:
            since = time
        if since is not None and time - since > width:
            if top - base >= least:
                steps.append((since, top - base))
            base, since = top, None
    return steps
