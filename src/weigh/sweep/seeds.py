"""Parameters that look like something else: seeds, and one value like a range."""

import re
from collections.abc import Iterable

from weigh.sweep.values import ParameterAxis

FEW = 3  # so few seeds do not show the spread between them

_SEED = re.compile(r"(.*[_.-])?(seeds?|random_state)([_.-].*)?", re.IGNORECASE)


def few_seeds(axes: Iterable[ParameterAxis]) -> ParameterAxis | None:
    """Return the parameter that is a seed by its name and has 3 values or fewer."""
    seeds = [axis for axis in axes if is_seed(axis.name)]
    few = [axis for axis in seeds if len(axis.texts) <= FEW]
    # if one of several seeds has enough values, runs do differ by chance
    return few[0] if few and len(few) == len(seeds) else None


def is_seed(parameter_name: str) -> bool:
    """Return whether a parameter is a seed, by its name."""
    return _SEED.fullmatch(parameter_name) is not None


_LIKE_COUNTING = re.compile(r"([0-9]{1,9})[-:]([0-9]{1,9})", re.ASCII)


def like_counting(axes: Iterable[ParameterAxis]) -> tuple[str, str] | None:
    """Return the name of a parameter whose only value is ``1-5`` or ``1:5``, as 1..5.

    That is how a range is written elsewhere; it may still be meant as it is.
    """
    for axis in axes:
        # only a lone value: 1-5,7-9 is a list of what it looks like
        ends = _LIKE_COUNTING.fullmatch(axis.texts[0]) if len(axis.texts) == 1 else None
        if ends is not None:
            return axis.name, f"{ends[1]}..{ends[2]}"
    return None
