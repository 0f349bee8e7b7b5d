"""Simple rules that predict a run from earlier ones, and the ledger of their errors.

The rules are two constants, then per size (a parameter that varies) a least-squares
line, a Theil-Sen line, a line through the logarithms, and the mean and largest of the 5
runs nearest in that size. A rule that does not apply (the size is unknown, or fewer
than two runs have it) predicts NaN.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from weigh.errors import UsageError

Risk: TypeAlias = Literal["low", "normal", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)

MARGIN = 0.1

# (quantile of a rule's own errors, margin on top); the last is that of `low` risk
LEVELS = (
    (0.75, 0.0),
    (0.9, 0.0),
    (0.95, 0.0),
    (0.975, 0.0),
    (1.0, 0.0),
    (1.0, 0.02),
    (1.0, 0.05),
    (1.0, MARGIN),
)
RUNS_FOR_QUANTILE = 39  # runs, for a quantile of 97.5 %: 1 / (1 - .975) - 1


class Appetite(msgspec.Struct, frozen=True):
    """The meaning of a risk: its lowest level, and the price of a kill in runs.

    ``early`` is the least margin while there are fewer runs than RUNS_FOR_QUANTILE: one
    run in 11 exceeds the largest of 10.
    """

    lowest: int
    kill_price: float
    early: float = 0.0


APPETITES: dict[Risk, Appetite] = {
    "low": Appetite(lowest=len(LEVELS) - 1, kill_price=8.0),
    "normal": Appetite(lowest=3, kill_price=2.0, early=0.05),
    "high": Appetite(lowest=2, kill_price=1.0, early=0.02),
}


def known_risk(word: str) -> Risk:
    """Return *word* as a risk.

    Raises:
        UsageError: there is no such risk.
    """
    for risk in RISKS:
        if word == risk:
            return risk
    raise UsageError(f"no such risk: {word!r} (one of {', '.join(RISKS)})")


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
LINES_PER_SIZE = 3  # the first three extrapolate; neighbours cannot
NEAREST = 5
WINDOW = 256  # runs that a rule looks back on: older ones are of another program
_PAIRED = 32  # runs whose pairs make a Theil-Sen line: 496 slopes
_ENOUGH = 2
_MOST_EXPONENT = 700.0  # of e, in a double


def names(sizes: Sequence[str]) -> tuple[str, ...]:
    """Return every candidate's name in words, in the order of `candidates`."""
    return CONSTANTS + tuple(rule.format(size) for size in sizes for rule in PER_SIZE)


def are_lines(sizes: int) -> npt.NDArray[np.bool_]:
    """Return for every candidate whether it extrapolates beyond measured sizes."""
    each = [place < LINES_PER_SIZE for place in range(len(PER_SIZE))]
    return np.array([False] * len(CONSTANTS) + each * sizes)


def candidates(values: Floats, sizes: Floats, at: Floats) -> Floats:
    """Predict the run of sizes *at* from *values* and *sizes* (one row per run)."""
    rules = [np.array([values.max(), np.median(values)])]
    if at.size:
        rules.append(_of_sizes(values, sizes, at).T.ravel())
    return np.concatenate(rules)


def _of_sizes(values: Floats, sizes: Floats, at: Floats) -> Floats:
    """Return one row per rule, one column per size."""
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
    """Fit a least-squares line to each column, and return its value at *at*."""
    known = np.isfinite(sizes)
    count = known.sum(axis=0)
    middle = np.where(known, sizes, 0).sum(axis=0) / count
    height = np.where(known, values[:, None], 0).sum(axis=0) / count
    off = np.where(known, sizes - middle, 0)
    spread = (off * off).sum(axis=0)
    rise = (off * (values[:, None] - height)).sum(axis=0)
    # one distinct size has no slope: use the mean
    slope = np.where(spread > 0, rise / spread, 0)
    away = at - middle
    result: Floats = np.where(count >= _ENOUGH, height + slope * away, np.nan)
    return result


def _theil_sen(values: Floats, sizes: Floats, at: float) -> float:
    """Fit a Theil-Sen line to the latest runs, and return its value at *at*."""
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
    known = np.flatnonzero(np.isfinite(sizes))[::-1]  # the newest of equals first
    if known.size < _ENOUGH or not np.isfinite(at):
        return float("nan"), float("nan")
    order = np.argsort(np.abs(sizes[known] - at), kind="stable")[:NEAREST]
    near = values[known[order]]
    return float(near.mean()), float(near.max())


def _median(values: Floats) -> float:
    """Return the median, without the overhead of np.median."""
    ordered = np.sort(values)
    half = ordered.size // 2
    if ordered.size % 2:
        return float(ordered[half])
    return float(ordered[half - 1] + ordered[half]) / 2


_PAIRS = [np.triu_indices(count, 1) for count in range(_PAIRED + 1)]


REPLAYED = 300  # latest runs, over which rules are compared

_QUANTILES = np.array([quantile for quantile, _ in LEVELS])
_MARGINS = np.array([margin for _, margin in LEVELS])
_OFTEN = 0.5  # share of the replayed runs that a rule must have predicted


class Ledger:
    """The errors and costs of all rules on the latest runs, in order."""

    def __init__(self, rules: int) -> None:
        self._errors = np.full((rules, WINDOW), np.nan)
        # wasted, used, killed, tried: one row per rule, one column per level
        self._costs = np.zeros((REPLAYED, 4, rules, len(LEVELS)))
        self._runs = 0

    def lift(self, predicted: Floats) -> Floats:
        """Raise each rule's prediction by its past errors, one column per level."""
        lifted: Floats = predicted[:, None] * quantiles(self._errors) * (1 + _MARGINS)
        return lifted

    def enter(
        self,
        value: float,
        weight: float,
        *,
        predicted: Floats,
        lifted: Floats,
        most: float,
    ) -> None:
        """Enter a run of *value*, with the rules' predictions and the lifted ones.

        A kill wastes the whole request; the second try is twice that, or the *most*
        used before.
        """
        able = np.isfinite(lifted)
        killed = able & (lifted < value)
        second = np.maximum(np.maximum(lifted * 2, most), value)
        wasted = np.where(killed, lifted + second, lifted) - value
        costs = self._costs[self._runs % REPLAYED]
        costs[0] = np.where(able, wasted * weight, 0)
        costs[1], costs[2], costs[3] = able * (value * weight), killed, able
        self._errors[:, self._runs % WINDOW] = value / predicted
        self._runs += 1

    def prices(self, lifted: Floats, appetite: Appetite) -> Floats:
        """Return the price of each rule and level in runs; infinite if not allowed."""
        wasted, used, kills, tries = self._costs[: self._runs].sum(axis=0)
        allowed = np.isfinite(lifted) & (tries >= max(1, _OFTEN * tries.max()))
        allowed[:, : appetite.lowest] = False
        if self._runs + 1 < RUNS_FOR_QUANTILE:
            allowed[:, appetite.early > _MARGINS] = False
        with np.errstate(all="ignore"):
            price = wasted / used + appetite.kill_price * kills / tries
        result: Floats = np.where(allowed, price, np.inf)
        return result


def claims(values: Floats) -> Floats:
    """Return what each level takes to cover *values*: its quantile and margin."""
    claimed: Floats = quantiles(values[None, :])[0] * (1 + _MARGINS)
    return claimed


def quantiles(rows: Floats) -> Floats:
    """Return the quantiles of each row that also cover a next value.

    Of m values that is the one of rank ceil((m + 1) q), or else the largest: the
    quantile of split conformal prediction. NaN are not counted.
    """
    ordered = np.sort(rows, axis=1)
    count = np.isfinite(ordered).sum(axis=1)[:, None]
    rank = np.clip(np.ceil((count + 1) * _QUANTILES - 1e-9), 1, np.maximum(count, 1))
    result: Floats = np.take_along_axis(ordered, rank.astype(int) - 1, axis=1)
    return result
