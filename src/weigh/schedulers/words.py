"""How answers of schedulers write numbers, sizes, times, ranges and pairs.

Only what all write alike: what a scheduler takes as a size or time is in its text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from weigh.errors import FormatError
from weigh.lazy_modules import lazy_module
from weigh.units import KIB, MIB, Bytes, Seconds

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


_PRINTED_SIZE = re.compile(r"([0-9.]{1,24})([KMGTP]?)B?", re.IGNORECASE | re.ASCII)


def printed_size(text: str, *, bare: str = "", unit: Bytes = 1) -> Bytes | None:
    """Read ``3768K``, ``62.50G`` or ``107.750KB``, rounded up; None if it is no size.

    Letters count by 1024, as all schedulers print them. *bare* is the letter of a
    number that has none, *unit* what one of the whole is in bytes.
    """
    if text[-1:] == "K" and len(text) < _MOST_DIGITS and text[:-1].isdecimal():
        return int(text[:-1]) * KIB * unit  # nearly all: this is twice as fast
    found = _PRINTED_SIZE.fullmatch(text.strip())
    if found is None:
        return None
    power = " KMGTP".index((found[2] or bare or " ").upper())
    return scaled_up(found[1], unit << 10 * power)


def text_pairs(text: str, separator: str) -> dict[str, str]:
    """Read lines ``name: value`` or ``name = value``; the first of two names counts."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found:
            pairs.setdefault(name.strip(), value.strip())
    return pairs


def comma_pairs(text: str) -> dict[str, str]:
    """Read ``cpu=00:00:06,mem=422734K``; a word without ``=`` has an empty value."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


# ---- array task indices: ``0-3,7,10-20:5%3``
# more than any scheduler allows: 0-999999999 in an answer must not fill the memory
_MOST_INDICES = 1_000_000
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def index_range(part: str) -> range | None:
    """Read ``3``, ``0-9`` or ``0-9:2``; None if *part* is none of these, or empty."""
    found = _RANGE.fullmatch(part.strip())
    step = int(found[3] or 1) if found else 0
    if found is None or not step:
        return None
    return range(int(found[1]), int(found[2] or found[1]) + 1, step) or None


def _ranges_in(text: str) -> Iterator[range]:
    """Yield the ranges of a list; what is none is skipped, such as ``...``.

    Brackets around the text and a throttle behind it (``%3``) are left out.
    """
    plain = text.strip().strip("[]").partition("%")[0]
    return filter(None, map(index_range, plain.split(",")))


def parse_ranges(text: str) -> Iterator[int]:
    """Yield the indices of a list such as ``[0-3,7%2]``, at most a million."""
    return islice(chain.from_iterable(_ranges_in(text)), _MOST_INDICES)


def count_elements(expression: str) -> int:
    """Count the elements of *expression*; if it is truncated, those that it shows."""
    return sum(map(len, _ranges_in(expression))) or 1


def format_ranges(numbers: Iterable[int]) -> str:
    """Write indices as ranges, in ascending order."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


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
