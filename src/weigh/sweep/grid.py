"""Combinations of parameter values: all, those that meet conditions, or random ones.

A combination is identified by its index, so that a large grid is never in memory.
"""

import ast
import re
import warnings
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from random import Random
from typing import TypeAlias

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.sweep.values import MOST_VALUES, ParameterAxis, Value

Row: TypeAlias = Mapping[str, Value]
Condition: TypeAlias = Callable[[Row], bool]

_LONGEST = 1000  # characters
_LOGIC = "is not true or false (write it like lr < 1e-2, or seed in (1, 2))"


def parse_condition(condition_text: str, names: Collection[str]) -> Condition:
    """Parse comparisons of the parameters *names*, joined by ``and``, ``or``, ``not``.

    The returned function raises FormatError if the condition makes no sense for a row,
    for example if it compares text with a number.

    Raises:
        FormatError: *condition_text* is not a condition, or has an unknown name.
    """
    # versions of Python report a NUL differently: ValueError or SyntaxError
    if "\0" in condition_text:
        raise _condition_error(condition_text, "null bytes")
    if len(condition_text) > _LONGEST:
        raise _condition_error(condition_text, f"longer than {_LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes such as "\d"
            tree = ast.parse(condition_text.strip(), mode="eval")
        tree.body = _condition_node(tree.body, names)
        code = compile(ast.fix_missing_locations(tree), "condition", "eval")
    except SyntaxError as error:
        # a usual mistake, which Python's own words do not name
        is_assigned = re.search(r"(?<![<>=!])=(?!=)", condition_text) and error.lineno
        why = "write ==, <= or >= to compare" if is_assigned else error.msg
        raise _condition_error(condition_text, why) from error
    # thousands of nested parentheses
    except (ValueError, RecursionError, MemoryError) as error:
        raise _condition_error(condition_text, "too deep, or no text") from error

    def holds(parameter_row: Row) -> bool:
        try:
            # of the nodes below alone: no call of the user's can be among them
            return bool(eval(code, {"__builtins__": {}}, parameter_row))  # noqa: S307
        except TypeError as error:
            row = ", ".join(f"{name}={it!r}" for name, it in parameter_row.items())
            why = f"text and numbers do not mix: {row}"
            raise _condition_error(condition_text, why) from error

    return holds


def _condition_node(node: ast.expr, names: Collection[str]) -> ast.expr:
    """Return a node that is true or false, as it may be evaluated.

    Raises:
        SyntaxError: it is another one, or has a part that is not allowed.
    """
    match node:
        case ast.BoolOp(values=values):
            node.values = [_condition_node(value, names) for value in values]
        case ast.UnaryOp(op=ast.Not()):
            node.operand = _condition_node(node.operand, names)
        case ast.Compare(ops=comparisons, comparators=others):
            if any(isinstance(one, ast.Is | ast.IsNot) for one in comparisons):
                raise SyntaxError("'is' cannot stand in a condition (write ==)")
            node.left = _compared_node(node.left, names)
            node.comparators = [_compared_node(other, names) for other in others]
        case _:
            raise SyntaxError(f"{ast.unparse(node)!r} {_LOGIC}")
    return node


def _compared_node(node: ast.expr, names: Collection[str]) -> ast.expr:
    """Return a parameter, a value, or a list of them."""
    match node:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            node.elts = [_compared_node(element, names) for element in elements]
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            pass
        # a dotted name is an attribute to Python, and one parameter here
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if name not in names:
                raise SyntaxError(
                    f"{name} is not a parameter (there are: {', '.join(names)}; text "
                    "goes in quotes)"
                )
            return ast.Name(name, ast.Load())
        case _:
            raise SyntaxError(f"{ast.unparse(node)!r} cannot stand in a condition")
    return node


def _condition_error(condition_text: str, why: str) -> FormatError:
    return FormatError(f"condition {condition_text[:80]!r}: {why}")


MOST_COMBINATIONS = 10_000_000  # that are tested, one by one, in a minute


class ParameterCombination(msgspec.Struct, frozen=True):
    """One value per parameter: its text in the command, and its value."""

    texts: dict[str, str]  # by name, as typed
    values: dict[str, Value]  # by name, parsed


class GridDimension(msgspec.Struct, frozen=True):
    """Axes that advance together, value by value; usually one parameter."""

    axes: tuple[ParameterAxis, ...]  # all of the same length

    def __len__(self) -> int:
        return len(self.axes[0].texts)

    @property
    def name(self) -> str:
        """Return the parameter's name, or those of several: ``(model, size)``."""
        names = ", ".join(axis.name for axis in self.axes)
        return names if len(self.axes) == 1 else f"({names})"


class ParameterGrid(msgspec.Struct, frozen=True):
    """The product of its dimensions; the last one varies fastest."""

    dimensions: tuple[GridDimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters in order."""
        return tuple(axis.name for one in self.dimensions for axis in one.axes)

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return prod(len(dimension) for dimension in self.dimensions)

    def combination(self, index: int) -> ParameterCombination:
        """Return the combination at *index*, from 0."""
        places: list[int] = []
        # as digits of a number, of which the last dimension is the lowest
        for dimension in reversed(self.dimensions):
            index, place = divmod(index, len(dimension))
            places.append(place)
        texts: dict[str, str] = {}
        values: dict[str, Value] = {}
        for dimension in self.dimensions:
            place = places.pop()
            for axis in dimension.axes:
                texts[axis.name] = axis.texts[place]
                values[axis.name] = axis.values[place]
        return ParameterCombination(texts, values)


def make_grid(
    axes: Sequence[ParameterAxis], zips: Sequence[Sequence[str]] = ()
) -> ParameterGrid:
    """Return the grid of *axes*; each group of names in *zips* goes value by value.

    Raises:
        UsageError: a name is repeated or unknown, or lengths differ.
    """
    by_name = {axis.name: axis for axis in axes}
    if len(by_name) < len(axes):
        names = [axis.name for axis in axes]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{twice} is given twice (write {twice}=V1,V2 once)")
    group_of: dict[str, tuple[str, ...]] = {}
    for group in zips:
        _check_zip(group, by_name, group_of)
        group_of |= dict.fromkeys(group, tuple(group))
    # a group stands where its first parameter does
    groups = dict.fromkeys(group_of.get(name, (name,)) for name in by_name)
    return ParameterGrid(
        tuple(GridDimension(tuple(by_name[name] for name in group)) for group in groups)
    )


def matching_combinations(
    grid: ParameterGrid, conditions: Sequence[Condition] = ()
) -> Sequence[int]:
    """Return the indices of the combinations that meet every condition, in order.

    Raises:
        UsageError: there are too many combinations to test.
        FormatError: a condition makes no sense for a combination.
    """
    if grid.size > MOST_COMBINATIONS:
        raise UsageError(
            f"{grid.size:,} combinations are more than {MOST_COMBINATIONS:,}: "
            "draw some of them with --random N"
        )
    indices = range(grid.size)
    if not conditions:
        return indices
    # "Q" is 8 bytes per index; a list of integers takes five times that
    return array("Q", (n for n in indices if _meets_all(grid, n, conditions)))


def drawn_combinations(
    grid: ParameterGrid,
    conditions: Sequence[Condition],
    task_count: int,
    chance: Random,
) -> Sequence[int]:
    """Return the indices of *task_count* different combinations, drawn uniformly.

    There are fewer if no more combinations meet the conditions.

    Raises:
        UsageError: hardly any combination of a large grid meets the conditions, or
            *task_count* is more than a million.
    """
    if not 0 < task_count <= MOST_VALUES:
        raise UsageError(f"--random {task_count}: a number from 1 to {MOST_VALUES:,}")
    # to go through millions takes a minute; one that is drawn again does not count
    drawn: dict[int, None] = {}
    for _ in range(2 * MOST_VALUES if grid.size > MOST_VALUES else 0):
        index = chance.randrange(grid.size)
        if not conditions or _meets_all(grid, index, conditions):
            drawn[index] = None
        if len(drawn) == task_count:
            return list(drawn)
    if grid.size <= MOST_COMBINATIONS:
        kept = matching_combinations(grid, conditions)
        return chance.sample(kept, min(task_count, len(kept)))
    raise UsageError(
        f"only {len(drawn):,} of {2 * MOST_VALUES:,} combinations drawn meet the "
        "conditions (draw fewer, or narrow the values themselves)"
    )


def _meets_all(
    grid: ParameterGrid, index: int, conditions: Sequence[Condition]
) -> bool:
    values = grid.combination(index).values
    return all(holds(values) for holds in conditions)


def _check_zip(
    group: Sequence[str],
    by_name: dict[str, ParameterAxis],
    taken: dict[str, tuple[str, ...]],
) -> None:
    words = ",".join(group)
    if len(set(group)) < 2 or len(set(group)) < len(group):  # noqa: PLR2004 - a pair
        raise UsageError(f"--zip {words}: it needs at least two different parameters")
    for name in group:
        if name not in by_name:
            known = ", ".join(by_name) or "none"
            raise UsageError(f"--zip {words}: no parameter {name} (there are: {known})")
        if name in taken:
            raise UsageError(f"--zip {words}: {name} is in another --zip already")
    counts = {name: len(by_name[name].texts) for name in group}
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UsageError(f"--zip {words}: needs as many values of each ({numbers})")
