"""Choose a few tasks that differ as much as possible: extremes first, then the gaps.

Numbers are scaled between the minimum and maximum of their parameter (by logarithm if
they span orders of magnitude); words are equal or not. The first task has the largest
numbers, where memory runs out. Each further one is as far as possible from the nearest
chosen task (greedy max-min distance).
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weigh.sweep.values import Value, is_seed, typed_value

Parameters: TypeAlias = Mapping[str, Value]

_ORDERS = 30.0  # maximum over minimum from which logarithms are used
_SEED_WEIGHT = 0.1  # seeds hardly change what a task needs
_FLAG = re.compile(r"-{1,2}([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_SETTING = re.compile(r"([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)


def choose_diverse(tasks: Sequence[Parameters], task_count: int) -> tuple[int, ...]:
    """Return the indices of *task_count* tasks; of all tasks if there are no more.

    The choice is deterministic, the most informative task first. Identical tasks are
    chosen only when no others are left.
    """
    if task_count <= 0 or not tasks:
        return ()
    space = _TaskSpace(tasks)
    # the smallest index among equal ones keeps the choice deterministic
    chosen = [max(range(len(tasks)), key=lambda at: (space.size(at), -at))]
    nearest = [math.inf] * len(tasks)
    while len(chosen) < min(task_count, len(tasks)):
        last = chosen[-1]
        # below every distance, so it is not chosen again
        nearest[last] = -1.0
        for at, before in enumerate(nearest):
            # 0 cannot become less: it equals a chosen task
            if before > 0:
                nearest[at] = min(before, space.distance(at, last))
        chosen.append(max(range(len(tasks)), key=lambda at: (nearest[at], -at)))
    return tuple(chosen)


def varying_task_parameters(tasks: Sequence[Parameters]) -> tuple[str, ...]:
    """Return the names of the parameters that differ between tasks.

    In order, but those with several values before those that only some tasks have.
    """
    names = dict.fromkeys(name for task in tasks for name in task)
    # a parameter that is missing in some task differs, too
    values = {name: {task.get(name) for task in tasks} for name in names}
    varying = (name for name in names if len(values[name]) > 1)
    return tuple(sorted(varying, key=lambda name: len(values[name] - {None}) <= 1))


def read_parameters(task_line: str) -> dict[str, Value]:
    """Parse the parameters of a command line: flags, settings, other words.

    ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` are ``lr``; a word without a name is named
    by its place, ``#3``.
    """
    found: dict[str, Value] = {}
    flag = ""
    for place, word in enumerate(task_line.split()):
        is_flag = _FLAG.fullmatch(word)
        named = is_flag or _SETTING.fullmatch(word)
        if named is not None and named[2] is not None:
            found[named[1]] = typed_value(named[2])
        elif is_flag is not None:
            found[is_flag[1]] = ""
        else:
            found[flag or f"#{place}"] = typed_value(word)
        # a flag without a value takes the next word as its value
        flag = is_flag[1] if is_flag is not None and is_flag[2] is None else ""
    return found


class _TaskSpace:
    """Tasks as points: numbers are coordinates from 0 to 1, words differ or not."""

    def __init__(self, tasks: Sequence[Parameters]) -> None:
        names = varying_task_parameters(tasks)
        self._weights = [_SEED_WEIGHT if is_seed(name) else 1.0 for name in names]
        columns = [_scaled_values([task.get(name) for task in tasks]) for name in names]
        # without a varying parameter zip() yields no points at all
        self._points = list(zip(*columns, strict=True)) or [()] * len(tasks)

    def size(self, value_place: int) -> float:
        """Return the sum of a task's numbers, each from 0 to 1."""
        places = zip(self._points[value_place], self._weights, strict=True)
        return sum(p * weight for p, weight in places if isinstance(p, float))

    def distance(self, task_index: int, other_index: int) -> float:
        """Return the squared distance, so that corners are further than centres."""
        total = 0.0
        here, there = self._points[task_index], self._points[other_index]
        for a, b, weight in zip(here, there, self._weights, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                total += weight * (a - b) ** 2
            elif a != b:
                total += weight  # words differ as much as the ends of a range
        return total


def _scaled_values(values: Sequence[Value | None]) -> list[float | str | None]:
    """Scale the numbers of one parameter to 0 to 1; words stay as they are."""
    numbers = [value for value in values if isinstance(value, int | float)]
    least, most = min(numbers, default=0), max(numbers, default=0)
    by_factor = least > 0 and most / least >= _ORDERS
    scale = math.log if by_factor else float
    low = scale(least)
    # all values equal: any span but 0 puts them at 0
    span = (scale(most) - low) or 1.0
    return [
        (scale(value) - low) / span if isinstance(value, int | float) else value
        for value in values
    ]
