"""Array elements as both schedulers write them: ``2-9%2``, ``1,4``, ``3-12:1``."""

import re

_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")


def count_elements(expression: str) -> int:
    """Count the elements of *expression*; of one that was cut short, those shown."""
    listed = expression.partition("%")[0]
    return sum(map(_count, listed.split(","))) or 1


def _count(part: str) -> int:
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        return 0
    first, last, step = match.groups()
    if last is None:
        return 1
    return max(0, int(last) - int(first)) // max(1, int(step or 1)) + 1
