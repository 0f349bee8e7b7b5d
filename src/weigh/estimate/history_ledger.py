"""What each rule was wrong by, and what each rule at each level would have cost."""

import numpy as np

from weigh.estimate.history_pool import WINDOW, Floats
from weigh.estimate.history_risk import LEVELS, TOLD, Appetite

REPLAYED = 300  # runs over which rules are compared; older ones are another time

_QUANTILES = np.array([quantile for quantile, _ in LEVELS])
_MARGINS = np.array([margin for _, margin in LEVELS])
_OFTEN = 0.5  # of the runs replayed a rule must have spoken on, to be compared


class Ledger:
    """The errors and the costs of *rules* rules on the latest runs, in order."""

    def __init__(self, rules: int) -> None:
        self._errors = np.full((rules, WINDOW), np.nan)
        # wasted, of what use, killed, tried: a rule a row, a level a column
        self._costs = np.zeros((REPLAYED, 4, rules, len(LEVELS)))
        self._runs = 0

    def lift(self, said: Floats) -> Floats:
        """Lift what each rule *said* over its past errors, a level a column."""
        lifted: Floats = said[:, None] * quantiles(self._errors) * (1 + _MARGINS)
        return lifted

    def enter(
        self, value: float, weight: float, *, said: Floats, asked: Floats, most: float
    ) -> None:
        """Enter a run of *value*, which rules *said* and levels would have *asked*.

        A kill wastes all that was asked for; the second try is twice that, or the
        *most* seen before.
        """
        able = np.isfinite(asked)
        killed = able & (asked < value)
        second = np.maximum(np.maximum(asked * 2, most), value)
        wasted = np.where(killed, asked + second, asked) - value
        costs = self._costs[self._runs % REPLAYED]
        costs[0] = np.where(able, wasted * weight, 0)
        costs[1], costs[2], costs[3] = able * (value * weight), killed, able
        self._errors[:, self._runs % WINDOW] = value / said
        self._runs += 1

    def prices(self, asked: Floats, appetite: Appetite) -> Floats:
        """Price each rule and level in runs' use; infinite where it has no say."""
        wasted, used, kills, tries = self._costs[: self._runs].sum(axis=0)
        allowed = np.isfinite(asked) & (tries >= max(1, _OFTEN * tries.max()))
        allowed[:, : appetite.lowest] = False
        if self._runs + 1 < TOLD:
            allowed[:, appetite.early > _MARGINS] = False
        with np.errstate(all="ignore"):
            price = wasted / used + appetite.kill_price * kills / tries
        result: Floats = np.where(allowed, price, np.inf)
        return result


def claims(values: Floats) -> Floats:
    """Give what each level claims to cover of *values*: its quantile and margin."""
    claimed: Floats = quantiles(values[None, :])[0] * (1 + _MARGINS)
    return claimed


def quantiles(rows: Floats) -> Floats:
    """Give each row's values at the levels, counted so that a next one is covered too.

    Of m values the one of rank ceil((m + 1) q), the largest where there is none such:
    the quantile of split conformal prediction. NaN are not counted.
    """
    ordered = np.sort(rows, axis=1)
    count = np.isfinite(ordered).sum(axis=1)[:, None]
    rank = np.clip(np.ceil((count + 1) * _QUANTILES - 1e-9), 1, np.maximum(count, 1))
    result: Floats = np.take_along_axis(ordered, rank.astype(int) - 1, axis=1)
    return result
