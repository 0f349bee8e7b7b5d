"""How much of a risk to take: the levels there are, and what `low` to `high` stand for.

The constants are round figures with a reason, none is fitted: the most seen + 10 %
killed .9 % of 18,000 public workflow tasks; at a level of 97.5 %, 2.5 % are killed,
which is what is aimed at; a kill is priced at two runs' use on top of what it wastes,
for the queue is waited for again. `high` halves that price and doubles that share.
"""

from typing import Literal, TypeAlias, get_args

import msgspec

from weigh.errors import UsageError

Risk: TypeAlias = Literal["low", "normal", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)

MARGIN = 0.1

# (quantile of its own errors, margin on top); the last is `low`'s
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
TOLD = 39  # runs from which a quantile of 97.5 % is one: 1 / (1 - .975) - 1


class Appetite(msgspec.Struct, frozen=True):
    """What a risk stands for: its lowest level, and the price of a kill in runs.

    ``early`` is the least margin while the runs are fewer than TOLD: the most of 10
    is passed by one in 11.
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
    """Take *word* for a risk.

    Raises:
        UsageError: it is none.
    """
    for risk in RISKS:
        if word == risk:
            return risk
    raise UsageError(f"no such risk: {word!r} (one of {', '.join(RISKS)})")
