"""The files, or the shared memory, that several processes map; no machine access.

Each process's resident bytes are known, and that pages overlap; by how much, only a
count shows. Until then, all are assumed to map the same.
"""

from collections.abc import Sequence

from weigh.measure.memory.model import Estimate
from weigh.units import Bytes

_ERROR = 0.015  # of a count
_SAME = 0.01  # relative growth of the sum that needs no new count


class Overlap:
    """Estimates the union of one kind of memory."""

    def __init__(self) -> None:
        self._counted: tuple[Bytes, Bytes] | None = None  # (sum, union)

    def correct(self, sizes: Sequence[Bytes], distinct: float | None) -> None:
        """Note a count: *distinct* is the part of the sum that remains."""
        most, least = sum(sizes), max(sizes, default=0)
        if distinct is not None:
            self._counted = (most, min(most, max(least, round(distinct * most))))

    def estimate(self, sizes: Sequence[Bytes]) -> Estimate:
        """Return the union now, from each process's own bytes."""
        most, least = sum(sizes), max(sizes, default=0)
        if self._counted is None or most == least:
            return Estimate(least, least, most)
        before, union = self._counted
        if most < before:
            shrunk = max(least, min(most, round(union * most / before)))
            return Estimate(shrunk, least, most)
        # what came since may be new pages, or those that others map already
        value = min(most, max(least, union))
        grown = most - before
        sure = grown <= _SAME * before
        low = round(value * (1 - _ERROR)) if sure else least
        high = min(most, round(value * (1 + _ERROR)) + grown)
        return Estimate(value, min(value, max(least, low)), max(value, high))
