"""Array task indices as schedulers write them: ``0-3,7,10-20:5%3``."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

_MOST = 1_000_000


def parse_ranges(text: str) -> Iterator[int]:
    """Yield the indices, at most a million; parts that do not parse are skipped.

    The text has no brackets and no throttle (``%``).
    """
    return islice(_numbers(text), _MOST)


def _numbers(text: str) -> Iterator[int]:
    plain = text.strip().strip("[]").partition("%")[0]
    for part in plain.split(","):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        ends = (first, last if dash else first, step or "1")
        if all(end.isascii() and end.isdecimal() and len(end) < 10 for end in ends):  # noqa: PLR2004
            low, high, by = map(int, ends)
            yield from range(low, high + 1, max(1, by))


def format_ranges(numbers: Iterable[int]) -> str:
    """Write indices as ranges, in ascending order."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")


def count_elements(expression: str) -> int:
    """Count the elements of *expression*; if it is truncated, those that it shows."""
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
