"""What a process tree holds at one moment, and how sure that is."""

import math

import msgspec

from weigh.model.record import Certainty
from weigh.units import MIB, Bytes

_MATERIAL = 0.01  # of a size


def material_change(size: Bytes) -> Bytes:
    """Return the change of *size* that matters: 1 % of a job of 2 MiB is jitter."""
    return round(_MATERIAL * size) + MIB


class MemoryHolding(msgspec.Struct, frozen=True, gc=False):
    """Memory of a tree at one moment, without what its processes share twice.

    ``kernel`` are page tables, stacks and the like, which count for the job too.
    ``guess`` is the part of the total that is assumed to be copies of shared pages.
    A count just made found ``confirmed`` of such guesses right; None without a count.
    For a moment since the look before, the tree may have held ``passed`` more than at
    either look: copies of processes that have ended, and what others gave back.
    ``unmapped`` is the part of ``shared`` that no process maps. A count that the budget
    does not allow now leaves the bounds wide (``is_open``): it may be made once the
    processes rest.

    From the kernel's own account (``is_account``), ``spike`` is by how much the tree
    exceeded the total since the look before, at least, and ``most_spike`` at most: in
    bytes, whatever the marks of processes show.
    """

    anonymous: Bytes
    shared: Bytes
    file: Bytes
    low: Bytes
    high: Bytes
    kernel: Bytes = 0
    certainty: Certainty = "exact"
    guess: Bytes = 0
    confirmed: float | None = None
    passed: Bytes = 0
    unmapped: Bytes = 0
    is_open: bool = False
    is_account: bool = False
    spike: Bytes = 0
    most_spike: float = math.inf

    @property
    def total(self) -> Bytes:
        """Everything that is resident, mapped files included."""
        return self.anonymous + self.shared + self.file + self.kernel


class PageEstimate(msgspec.Struct, frozen=True, gc=False):
    """Bytes of distinct pages, with bounds."""

    value: Bytes
    low: Bytes
    high: Bytes


def nearest_within(value: float, low: Bytes, high: Bytes) -> Bytes:
    """Return the integer between *low* and *high* that is nearest to *value*."""
    return min(high, max(low, round(value)))
