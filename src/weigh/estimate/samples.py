"""Measured points: one per size, with the spread of its repeated runs."""

import math
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Literal

import msgspec

from weigh.errors import UsageError
from weigh.units import Bytes

LARGEST_SIZE = 1e18  # larger figures would overflow a 64-bit integer
_MOST_SIZES = 100  # pairwise slopes grow with the square


class SizePoint(msgspec.Struct, frozen=True):
    """The measurement at one size, between ``low`` and ``high`` over its runs."""

    x: float  # the size
    # bytes or seconds: the largest run or the median, see `gather_size_points`
    y: float
    low: float
    high: float
    runs: int = 1


class MemoryFailure(msgspec.Struct, frozen=True):
    """The smallest size that ran out of memory; ``room`` is how much was available."""

    size: float
    room: Bytes | None = None  # None: not known


def gather_size_points(
    pairs: Iterable[tuple[float, float]], *, keep: Literal["most", "middle"]
) -> tuple[SizePoint, ...]:
    """Group runs of the same size, in order of size.

    *keep* is ``most`` for memory, because a request has to cover the largest run, and
    ``middle`` (the median) for times.

    Raises:
        UsageError: a size or a measurement is not finite and positive.
    """
    sizes: dict[float, list[float]] = {}
    for x, y in pairs:
        check_size(x)
        if not (math.isfinite(y) and y > 0):
            raise UsageError(f"size {x:g}: {y!r} cannot have been measured")
        sizes.setdefault(float(x), []).append(float(y))
    chosen = max if keep == "most" else median
    points = tuple(
        SizePoint(x=x, y=float(chosen(ys)), low=min(ys), high=max(ys), runs=len(ys))
        for x, ys in sorted(sizes.items())
    )
    return points if len(points) <= _MOST_SIZES else _thinned(points)


def check_size(size: float) -> float:
    """Return *size* unchanged.

    Raises:
        UsageError: *size* is not a number above 0, or too large.
    """
    if not 0 < size <= LARGEST_SIZE:
        raise UsageError(f"a size must be a number above 0, not {size!r}")
    return size


def size_text(size: float) -> str:
    """Format a size as a person writes it: ``300``, ``0.5``, never ``1e+06``."""
    return f"{size:.0f}" if float(size).is_integer() else f"{size:g}"


def _thinned(points: tuple[SizePoint, ...]) -> tuple[SizePoint, ...]:
    """Keep the ends and the point with the largest y of each stretch between them."""
    inner = points[1:-1]
    stretches = _MOST_SIZES - 2
    edges = [len(inner) * i // stretches for i in range(stretches + 1)]
    kept = (max(inner[a:b], key=lambda point: point.y) for a, b in pairwise(edges))
    return (points[0], *kept, points[-1])
