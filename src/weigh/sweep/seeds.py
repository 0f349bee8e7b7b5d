"""Seeds: how many runs of one setting a sweep makes."""

import re
from collections.abc import Iterable

from weigh.sweep.values import Axis

FEW = 3  # up to here the spread between seeds is a guess

_SEED = re.compile(r"(.*[_.-])?(seeds?|random_state)([_.-].*)?", re.IGNORECASE)


def few_seeds(axes: Iterable[Axis]) -> Axis | None:
    """Return the parameter that is a seed by its name and has 3 values or fewer."""
    seeds = [axis for axis in axes if is_seed(axis.name)]
    few = [axis for axis in seeds if len(axis.texts) <= FEW]
    # where one seed of several has enough values, runs do differ by chance
    return few[0] if few and len(few) == len(seeds) else None


def is_seed(name: str) -> bool:
    """Tell whether a parameter is a seed, by its name."""
    return _SEED.fullmatch(name) is not None
