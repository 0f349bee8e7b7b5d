"""Statistics of many durations in bounded memory."""

from array import array
from collections import Counter
from collections.abc import Iterable
from math import exp, log

from weigh.units import Seconds

EXACT = 20_000  # durations kept individually; a median of more is slow
_BINS = 200  # per factor of e: half a percent wide
_FIRST = 5000  # number of the bin of 1 s, so that no bin is below 0
_SHORTEST = 1e-10  # seconds; a logarithm of 0 does not exist


class DurationSummary:
    """Durations with exact count, sum, minimum and maximum.

    The median is exact up to :data:`EXACT` durations, and within 0.5 % beyond.
    """

    __slots__ = ("bins", "count", "exact", "maximum", "minimum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Seconds = 0.0
        self.minimum: Seconds = float("inf")
        self.maximum: Seconds = 0.0
        self.exact: array[float] | None = array("d")
        self.bins: Counter[int] = Counter()

    def extend(self, times: "array[float]") -> None:
        """Add durations."""
        if not times:
            return
        self.count += len(times)
        self.total += sum(times)
        shortest, longest = min(times), max(times)
        self.minimum = min(self.minimum, shortest)
        self.maximum = max(self.maximum, longest)
        if self.exact is None:
            self._count(times)
            return
        self.exact.extend(times)
        if len(self.exact) > EXACT:
            self._count(self.exact)
            self.exact = None

    def merge(self, other: "DurationSummary") -> None:
        """Add the durations of another object."""
        if other.exact is not None:
            self.extend(other.exact)
            return
        if self.exact is not None:
            self._count(self.exact)
            self.exact = None
        self.count += other.count
        self.total += other.total
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        self.bins.update(other.bins)

    def median(self) -> Seconds | None:
        """Return the median; None without durations."""
        if not self.count:
            return None
        if self.exact is None:
            # the middle of a bin may lie outside of what was measured
            return min(max(self._binned_median(), self.minimum), self.maximum)
        ordered = sorted(self.exact)
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return (ordered[middle - 1] + ordered[middle]) / 2

    def _count(self, times: Iterable[float]) -> None:
        self.bins.update(
            [int(log(time + _SHORTEST) * _BINS + _FIRST) for time in times]
        )

    def _binned_median(self) -> Seconds:
        wanted, seen, number = (self.count + 1) // 2, 0, 0
        for number in sorted(self.bins):
            seen += self.bins[number]
            if seen >= wanted:
                break
        # the middle of the bin, back from logarithms
        return exp((number - _FIRST + 0.5) / _BINS)
