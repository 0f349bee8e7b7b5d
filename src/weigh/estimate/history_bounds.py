"""What is known of runs that did not end well: bounds from below, and the retry."""

from collections.abc import Sequence

import msgspec

DOUBLED = 2.0
_KEPT = 64  # of many, the largest say it all


class LowerBound(msgspec.Struct, frozen=True):
    """A run of *sizes* needed more than *value*.

    ``factor`` is what to ask for next, times *value*: 2 where the run was stopped for
    just this, 1 where it was only seen to use so much.
    """

    value: float
    sizes: tuple[float, ...] = ()
    factor: float = DOUBLED

    @property
    def next_try(self) -> float:
        """What the next try should be given."""
        return self.value * self.factor


def escalate(killed_at: float, said: float = 0.0, *, cap: float | None = None) -> float:
    """Give what to ask for after a run was killed at *killed_at*.

    That doubled, or what the history *said* where that is more, and no more than the
    *cap*: what a node has.
    """
    asked = max(killed_at * DOUBLED, said)
    return asked if cap is None else min(asked, cap)


def bear_on(bounds: Sequence[LowerBound], sizes: Sequence[float]) -> float:
    """Give the least to ask for, for a run of *sizes*; 0 where nothing bears on it.

    A bound is left out only where the run is smaller by every size that is known of
    both.
    """
    return max((b.next_try for b in bounds if not _smaller(sizes, b.sizes)), default=0)


def still_open(
    bounds: Sequence[LowerBound], value: float, sizes: Sequence[float]
) -> list[LowerBound]:
    """Keep the bounds that a run of *sizes*, completed with *value*, leaves open.

    It settles those it used as much as, and those of runs that were no larger by any
    size, where all the sizes are known.
    """
    left = [b for b in bounds if b.value > value and not _covers(sizes, b.sizes)]
    return sorted(left, key=lambda b: b.next_try)[-_KEPT:]


def _smaller(sizes: Sequence[float], than: Sequence[float]) -> bool:
    # NaN, an unknown size, is equal to nothing
    known = [(a, b) for a, b in zip(sizes, than, strict=True) if a == a and b == b]  # noqa: PLR0124
    return bool(known) and all(a < b for a, b in known)


def _covers(sizes: Sequence[float], others: Sequence[float]) -> bool:
    pairs = list(zip(sizes, others, strict=True))
    return bool(pairs) and all(a >= b for a, b in pairs)
