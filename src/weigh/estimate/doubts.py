"""Why the data do not carry one number, in words; and the size to measure next."""

import math
from collections.abc import Iterator

from weigh.estimate.curve import Constant
from weigh.estimate.fit import FEWEST_SIZES, STEADY_BEND, TRUSTED_RATIO, Fit
from weigh.estimate.points import size_text

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
