"""Compile patterns of users and projects whose time cannot explode."""

import re
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MANY = 20  # repetitions from which on nesting takes exponential time
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")


def compile_bounded(pattern: str) -> "re.Pattern[str]":
    r"""Return the compiled *pattern*.

    A repetition inside another one, like ``(\w+)*x``, may take longer than any job for
    a line that does not match.

    Raises:
        re.error: it is none, or nests repetitions.
    """
    compiled = re.compile(pattern)
    if _nests_repeats(parser.parse(pattern), inside=False):
        raise re.error("a repetition inside a repetition may never end")
    return compiled


def _nests_repeats(pattern_parts: Any, *, inside: bool) -> bool:  # noqa: ANN401 - of the parser
    for operation, argument in pattern_parts:
        # argument is (least, most, part) of a repetition
        is_repeat = str(operation) in _REPEATS
        # inside, even `{2,9}` divides a long row of one character in too many ways
        if inside and is_repeat and argument[0] != argument[1] > 1:
            return True
        repeats = is_repeat and argument[1] > _MANY
        for below in _parts_in(argument):
            if _nests_repeats(below, inside=inside or repeats):
                return True
    return False


def _parts_in(argument: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Return the parts of a pattern in the argument of an operation."""
    if isinstance(argument, parser.SubPattern):
        return [argument]
    if isinstance(argument, list | tuple):
        return [part for each in argument for part in _parts_in(each)]
    return []
