"""Array task indices as schedulers write them: ``0-3,7,10-20:5%3``."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from weigh.model.job import Submitted
from weigh.schedulers import find_kind

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


def indices_of(job: Submitted) -> Sequence[int]:
    """Return the array indices of a job's elements as its user writes them.

    The elements of a job that weigh wrote count from 0, and so does a plain job.
    """
    if job.own is None or not job.own.indices:
        return range(job.elements)
    return _indices(job.own.indices)


def numbers_of(job: Submitted) -> Sequence[int]:
    """Return the numbers of a job's elements in the answers of its scheduler."""
    if job.own is None or not job.own.indices:
        return range(job.elements)
    kind = find_kind(job.scheduler)
    return _numbers_from(job.own.indices, kind.traits.first_element if kind else 0)


@lru_cache(maxsize=64)
def _indices(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(parse_ranges(text))))


@lru_cache(maxsize=64)
def _numbers_from(text: str, first: int) -> tuple[int, ...]:
    return tuple(index - first for index in _indices(text))
