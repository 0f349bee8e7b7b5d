"""Measured points: one for each size, with what its repeats say of the spread."""

import math
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Literal

import msgspec

from weigh.errors import UsageError
from weigh.units import Bytes

LARGEST_SIZE = 1e18  # beyond, a figure would leave the numbers there are
_MOST_SIZES = 100  # pairwise slopes grow with the square


class Point(msgspec.Struct, frozen=True):
    """What was measured at one size; ``low`` and ``high`` over its runs."""

    x: float
    y: float
    low: float
    high: float
    runs: int = 1


class Failure(msgspec.Struct, frozen=True):
    """The smallest size that ended out of memory; *room* is how much there was."""

    size: float
    room: Bytes | None = None


def gather(
    pairs: Iterable[tuple[float, float]], *, keep: Literal["most", "middle"]
) -> tuple[Point, ...]:
    """Bring runs of the same size together, in order of size.

    *keep* ``most`` for memory, where the largest run is what a request has to hold;
    ``middle`` (the median) for times.

    Raises:
        UsageError: a size or a measurement is not finite, or is zero or below.
    """
    sizes: dict[float, list[float]] = {}
    for x, y in pairs:
        check_size(x)
        if not (math.isfinite(y) and y > 0):
            raise UsageError(f"size {x:g}: {y!r} cannot have been measured")
        sizes.setdefault(float(x), []).append(float(y))
    chosen = max if keep == "most" else median
    points = tuple(
        Point(x=x, y=float(chosen(ys)), low=min(ys), high=max(ys), runs=len(ys))
        for x, ys in sorted(sizes.items())
    )
    return points if len(points) <= _MOST_SIZES else _thinned(points)


def check_size(x: float) -> float:
    """Return *x*.

    Raises:
        UsageError: it is no number above 0, or larger than any size.
    """
    if not 0 < x <= LARGEST_SIZE:
        raise UsageError(f"a size has to be a number above 0, not {x!r}")
    return x


def size_text(size: float) -> str:
    """Write a size as a person would: ``300``, ``0.5``, never ``1e+06``."""
    return f"{size:.0f}" if float(size).is_integer() else f"{size:g}"


def _thinned(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Keep the ends and, of equal stretches between, the point with the largest y."""
    inner = points[1:-1]
    stretches = _MOST_SIZES - 2
    edges = [len(inner) * i // stretches for i in range(stretches + 1)]
    kept = (max(inner[a:b], key=lambda point: point.y) for a, b in pairwise(edges))
    return (points[0], *kept, points[-1])
