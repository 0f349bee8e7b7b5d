"""The pool of candidates: what each simple rule says of a run from those before it.

Two constants, then for each size (a parameter that varies) a least-squares line, a
Theil-Sen line, a line through the logarithms, and the 5 runs nearest in that size, by
their mean and by their largest. A rule that cannot speak (a size is not known, fewer
than two runs have it) says NaN.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

MOST_SEEN = "the most seen"
CONSTANTS = (MOST_SEEN, "the median")
PER_SIZE = (
    "a line in {}",
    "a robust line in {}",
    "a power of {}",
    "the mean of the 5 nearest in {}",
    "the largest of the 5 nearest in {}",
)
LINES_PER_SIZE = 3  # the first three go beyond what was measured; neighbours cannot
NEAREST = 5
WINDOW = 256  # runs that a rule looks back on: older ones tell of another program
_PAIRED = 32  # runs whose pairs a Theil-Sen line is through: 496 slopes
_ENOUGH = 2
_MOST_EXPONENT = 700.0  # of e, in a double


def names(sizes: Sequence[str]) -> tuple[str, ...]:
    """Give every candidate's name in words, in the order of `candidates`."""
    return CONSTANTS + tuple(rule.format(size) for size in sizes for rule in PER_SIZE)


def are_lines(sizes: int) -> npt.NDArray[np.bool_]:
    """Tell of every candidate whether it goes on beyond what was measured."""
    each = [place < LINES_PER_SIZE for place in range(len(PER_SIZE))]
    return np.array([False] * len(CONSTANTS) + each * sizes)


def candidates(values: Floats, sizes: Floats, at: Floats) -> Floats:
    """Predict the run of sizes *at* from runs of *values* and *sizes* (a row each)."""
    rules = [np.array([values.max(), np.median(values)])]
    if at.size:
        rules.append(_of_sizes(values, sizes, at).T.ravel())
    return np.concatenate(rules)


def _of_sizes(values: Floats, sizes: Floats, at: Floats) -> Floats:
    """Give a row a rule, a column a size."""
    columns = range(at.size)
    with np.errstate(all="ignore"):
        known = np.isfinite(sizes)
        logs = np.where(known & (sizes > 0), np.log(sizes), np.nan)
        power = _line(np.log(values), logs, np.where(at > 0, np.log(at), np.nan))
        power = np.exp(np.minimum(power, _MOST_EXPONENT))
        near = [_nearest(values, sizes[:, c], at[c]) for c in columns]
        robust = [_theil_sen(values, sizes[:, c], at[c]) for c in columns]
        line = _line(values, sizes, at)
    return np.vstack([line, robust, power, np.array(near).T])


def _line(values: Floats, sizes: Floats, at: Floats) -> Floats:
    """Draw a least-squares line through each column; read it at *at*."""
    known = np.isfinite(sizes)
    count = known.sum(axis=0)
    middle = np.where(known, sizes, 0).sum(axis=0) / count
    height = np.where(known, values[:, None], 0).sum(axis=0) / count
    off = np.where(known, sizes - middle, 0)
    spread = (off * off).sum(axis=0)
    rise = (off * (values[:, None] - height)).sum(axis=0)
    # one distinct size has no slope: its mean is all that is known
    slope = np.where(spread > 0, rise / spread, 0)
    away = at - middle
    result: Floats = np.where(count >= _ENOUGH, height + slope * away, np.nan)
    return result


def _theil_sen(values: Floats, sizes: Floats, at: float) -> float:
    """Draw the line of the median slope through the latest runs; read it at *at*."""
    known = np.flatnonzero(np.isfinite(sizes))[-_PAIRED:]
    if known.size < _ENOUGH or not np.isfinite(at):
        return float("nan")
    x, y = sizes[known], values[known]
    first, second = _PAIRS[known.size]
    run = x[second] - x[first]
    apart = run != 0
    rise = (y[second] - y[first])[apart] / run[apart]
    slope = float(_median(rise)) if rise.size else 0.0
    return float(_median(y - slope * x)) + slope * at


def _nearest(values: Floats, sizes: Floats, at: float) -> tuple[float, float]:
    known = np.flatnonzero(np.isfinite(sizes))[::-1]  # of equals the newest first
    if known.size < _ENOUGH or not np.isfinite(at):
        return float("nan"), float("nan")
    order = np.argsort(np.abs(sizes[known] - at), kind="stable")[:NEAREST]
    near = values[known[order]]
    return float(near.mean()), float(near.max())


def _median(values: Floats) -> float:
    """Give the median without np.median's care for what cannot be here."""
    ordered = np.sort(values)
    half = ordered.size // 2
    if ordered.size % 2:
        return float(ordered[half])
    return float(ordered[half - 1] + ordered[half]) / 2


_PAIRS = [np.triu_indices(count, 1) for count in range(_PAIRED + 1)]
