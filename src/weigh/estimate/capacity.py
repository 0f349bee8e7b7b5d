"""Why the data do not carry one number, in words; and the size to measure next."""

import math
from collections.abc import Iterator

import msgspec

from weigh.estimate.curve import Constant
from weigh.estimate.fit import FEWEST_SIZES, STEADY_BEND, TRUSTED_RATIO, Fit
from weigh.estimate.samples import size_text

_STEP = 2  # a size is trusted to foretell its double
_DIGITS = 2
_WHOLE = 10


def doubts(fit: Fit, x: float | None = None) -> tuple[str, ...]:
    """Say what keeps *fit* from carrying one number, at size *x* where one is asked.

    Nothing to say means: three sizes or more, one slope, no farther than 4 times the
    largest size, and no more held at size 0 than was measured before the batches.
    """
    return tuple(_doubts(fit, x))


def next_size(
    fit: Fit, *, wanted: float | None = None, fits: float | None = None
) -> int:
    """Name the size to measure next: the double of the largest, or half of *wanted*.

    *fits* is a size known to fit: the one named is not beyond it. After a failure it
    lies between the largest that ran and the smallest that did not.
    """
    largest = fit.largest_size
    if fit.failed is not None and fit.failed > largest:
        return _rounded(math.sqrt(largest * fit.failed))
    size = _STEP * largest
    if wanted is not None and wanted > size:
        size = max(size, wanted / _STEP)
    elif wanted is not None and wanted > largest:
        size = wanted
    if fits is not None and largest < fits < size:
        size = fits
    return _rounded(size)


def _doubts(fit: Fit, x: float | None) -> Iterator[str]:
    sizes = len(fit.points)
    if sizes < FEWEST_SIZES:
        plural = "" if sizes == 1 else "s"
        yield f"only {sizes} size{plural} measured: it takes three to see a bend"
    if fit.power is not None:
        yield (
            "memory grows faster than the size: a line would start below "
            f"{'what the model alone holds' if fit.base else 'zero'}"
        )
    elif abs(fit.bend) > STEADY_BEND and not isinstance(fit.curve, Constant):
        way = "grows" if fit.bend > 0 else "falls"
        yield f"the slope {way} by {abs(fit.bend) * 100:.0f} % along the sizes measured"
    if x is not None and x > TRUSTED_RATIO * fit.largest_size:
        ratio = x / fit.largest_size
        times = f"{ratio:.1f}" if ratio < _WHOLE else f"{ratio:.0f}"
        yield f"{size_text(x)} is {times} times the largest size measured"


def _rounded(size: float) -> int:
    """Round to two digits, as a person would choose it, and at least to one."""
    if size < 1:
        return 1
    digits = _DIGITS - 1 - math.floor(math.log10(size))
    return max(1, int(round(size, min(0, digits))))


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
