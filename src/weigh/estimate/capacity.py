"""The largest size that a card or a limit holds."""

import math

import msgspec

from weigh.estimate.curve import Constant
from weigh.estimate.doubts import doubts, next_size
from weigh.estimate.fit import Fit

_FARTHEST = 1 << 40  # a size that nobody has: memory does not depend on it


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What *memory* bytes hold: the size whose bound fits, and the one the curve says.

    ``size`` is the largest whole size whose upper bound fits, None where not even the
    smallest size does; ``at_most`` the largest whose prediction does. Where ``why`` is
    not empty the data carry the range between them, not a number, and ``next_size``
    would narrow it. ``unbounded``: memory does not grow with the size.
    """

    memory: int
    level: float
    size: int | None
    at_most: int | None
    unbounded: bool = False
    why: tuple[str, ...] = ()
    next_size: int | None = None


def holding(fit: Fit, memory: float, level: float = 0.95) -> Holding:
    """Work out which sizes *memory* holds, by *fit*."""
    flat = isinstance(fit.curve, Constant)
    size = _largest(fit, memory, level)
    most = _largest(fit, memory, None)
    far = most if most is not None and not flat else None
    why = doubts(fit, far)
    failed = _failed_within(fit, memory)
    if failed is not None and most is not None:
        most = min(most, math.ceil(failed) - 1)
        size = most if size is None else min(size, most)
    return Holding(
        memory=round(memory),
        level=level,
        size=size,
        at_most=most,
        unbounded=flat and size is not None and failed is None,
        why=why,
        next_size=next_size(fit, wanted=far, fits=size) if why else None,
    )


def _failed_within(fit: Fit, memory: float) -> float | None:
    """Return the size that ran out of no less than *memory*."""
    if fit.failed_in is not None and memory > fit.failed_in:
        return None
    return fit.failed


def _largest(fit: Fit, memory: float, level: float | None) -> int | None:
    """Return the largest whole size that fits, by its bound or (None) as predicted."""

    def fits(x: float) -> bool:
        use = fit.predict(x) if level is None else fit.upper(x, level)
        return use <= memory

    if not fits(1):
        return None
    low, high = 1, 2
    while high < _FARTHEST and fits(high):
        low, high = high, high * 2
    if high >= _FARTHEST:
        return _FARTHEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
