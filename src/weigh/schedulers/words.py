"""How answers of schedulers write numbers, sizes, times, ranges and pairs.

Only what all write alike: what a scheduler takes as a size or time is in its text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from weigh.errors import FormatError
from weigh.lazy_modules import lazy_module
from weigh.units import MIB, Bytes, Seconds

if TYPE_CHECKING:
    import pkgutil
else:  # a run of a job reads no lists
    pkgutil = lazy_module("pkgutil")

ParsedT = TypeVar("ParsedT")
# fits 64 bits; int() raises an error for thousands of digits
_MOST_DIGITS = 18


def whole_number(text: str | None) -> int | None:
    """Read plain digits; return None if *text* is anything else."""
    if text is None or not text.isascii() or not text.isdecimal():
        return None
    return int(text) if len(text) <= _MOST_DIGITS else None


def positive_number(text: str | None) -> int | None:
    """Read plain digits greater than zero; return None otherwise."""
    return whole_number(text) or None


def binary_size(size: Bytes) -> str:
    """Write *size* in whole GiB or else MiB, rounded up and never zero.

    Zero has a meaning of its own: ``--mem=0`` is all the memory of a node.
    """
    mebibytes = max(1, -(-size // MIB))
    if mebibytes % 1024:
        return f"{mebibytes}M"
    return f"{mebibytes // 1024}G"


def scaled_up(number: str, factor: int) -> int | None:
    """Return a decimal *number* times *factor*, rounded up; None if it is none.

    Without floats: a size must not lose its last bytes.
    """
    whole, _, fraction = number.partition(".")
    digits = whole_number(whole + fraction)
    # a division that rounds up
    return None if digits is None else -(-digits * factor // int(10 ** len(fraction)))


def parsed_or_none(
    parse: Callable[[str], ParsedT | None], text: str | None
) -> ParsedT | None:
    """Return what *parse* reads; None without a text, or if it does not parse."""
    try:
        return None if text is None else parse(text)
    except FormatError:
        return None


def mebibytes_in(text: str | None) -> Bytes | None:
    """Read a plain number of MiB, as bytes; None if *text* is anything else."""
    number = whole_number(text)
    return None if number is None else number * MIB


def epoch_seconds_in(text: str | None) -> Seconds | None:
    """Read plain seconds since the epoch; None if *text* is anything else."""
    number = whole_number(text)
    return None if number is None else float(number)


def comma_pairs(text: str) -> dict[str, str]:
    """Read ``cpu=00:00:06,mem=422734K``; a word without ``=`` has an empty value."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


# ---- array task indices: ``0-3,7,10-20:5%3``
# more than any scheduler allows: 0-999999999 in an answer must not fill the memory
_MOST_INDICES = 1_000_000


def parse_ranges(text: str) -> Iterator[int]:
    """Yield the indices, at most a million; parts that do not parse are skipped.

    Brackets around the text and a throttle behind it (``%3``) are left out.
    """
    return islice(_indices_in(text), _MOST_INDICES)


def _indices_in(text: str) -> Iterator[int]:
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
    # schedulers cut a long list off with "...", which counts as nothing
    return sum(map(_count_in_range, listed.split(","))) or 1


def _count_in_range(part: str) -> int:
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        return 0
    first, last, step = match.groups()
    if last is None:
        return 1
    return max(0, int(last) - int(first)) // max(1, int(step or 1)) + 1


# ---- words that a scheduler knows, as data
def read_sections(package: str, file: str) -> dict[str, list[str]]:
    """Return the indented lines of a data file by the line above each group."""
    found: dict[str, list[str]] = {}
    rows = list[str]()
    for line in (pkgutil.get_data(package, file) or b"").decode().splitlines():
        if line.startswith(" "):
            rows.append(line.strip())
        elif not line.startswith("#"):
            rows = found[line] = []
    return found
