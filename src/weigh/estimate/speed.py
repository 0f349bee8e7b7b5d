"""The smallest size that is nearly as quick as any."""

import math

from weigh.estimate.curve import Inverse
from weigh.estimate.fit import Fit


def share_of_best(fit: Fit, x: float) -> float:
    """Return the speed at size *x* as a share of the best that any size would have."""
    if not isinstance(fit.curve, Inverse) or fit.curve.floor <= 0:
        return min(point.y for point in fit.points) / fit.curve.at(x)
    return fit.curve.floor / fit.curve.at(x)


def near_best(fit: Fit, near: float = 0.95) -> int | None:
    """Return the smallest size with *near* of the best speed; None where none has.

    From ``T(x) = floor + work / x``: ``x = work * near / (floor * (1 - near))``. Where
    time does not come down with the size the smallest measured one is as good as any;
    where it comes down without end, None.
    """
    curve = fit.curve
    if not isinstance(curve, Inverse):
        return math.ceil(fit.points[0].x)
    if curve.floor <= 0:
        return None
    return max(1, round(curve.work * near / (curve.floor * (1 - near))))
