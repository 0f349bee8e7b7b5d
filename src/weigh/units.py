"""Parse and format sizes and times: bytes and seconds inside, text at the edge.

Sizes are binary: 1 KiB is 1024 bytes, and so are K, KB and kB as people type them. All
options, settings and variables of weigh are parsed here; the texts of schedulers are
parsed in weigh.schedulers.
"""

import math
import re
import time
from functools import lru_cache
from typing import TypeAlias

from weigh.errors import FormatError

Bytes: TypeAlias = int
Seconds: TypeAlias = float

KIB: Bytes = 1 << 10
MIB: Bytes = 1 << 20
GIB: Bytes = 1 << 30
MINUTE = 60
HOUR = 3600
DAY = 86400

_SIZE_PREFIXES = "KMGTP"
_DURATION_UNITS = {"ms": 0.001, "s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.ASCII)
_TIME_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(ms|[smhd])", re.ASCII)
_LONGEST_DURATION = 40  # characters
_LONGEST_QUOTED = 15  # characters of a number in a message
_LONGEST_HOURS = 1000 * 366 * 24  # a thousand years: more is a typing error


def parse_size(size_text: str) -> Bytes:
    """Parse a size such as ``4GiB``, ``4G``, ``4 GB``, ``1.5g`` or ``300B`` to bytes.

    A number without a unit is refused, except 0: some schedulers read it as mebibytes,
    others as bytes.

    Raises:
        FormatError: *size_text* is not a size, is negative, or has no unit.
    """
    number = size_text.strip().lower()
    has_unit = number[-1:].isalpha()
    # "4GiB" -> "4", "G": drop "b", then the "i" behind a prefix
    number = number.removesuffix("b")
    if number[-2:-1].upper() in _SIZE_PREFIXES:
        number = number.removesuffix("i")
    factor = 1
    if number and number[-1].upper() in _SIZE_PREFIXES:
        factor = 1 << 10 * (_SIZE_PREFIXES.index(number[-1].upper()) + 1)
        number = number[:-1]
    value = _parsed_number(number)
    is_lone = value and not has_unit
    if (
        value is None
        or value * factor == float("inf")
        or (is_lone and _is_long(number))
    ):
        raise FormatError(f"not a size: {size_text!r} (write it like 500M or 4GiB)")
    if is_lone:
        # a number from 1024 on is hardly meant in gibibytes
        large = f"{number}G, " if value < KIB else ""
        raise FormatError(
            f"{number} has no unit: write {large}{number}M or {number}B (bytes)"
        )
    return round(value * factor)


def format_size(memory_size: Bytes) -> str:
    """Format *memory_size* in the largest binary unit in which it is at least 1."""
    if memory_size < KIB:
        return f"{memory_size} B"
    scaled, power = memory_size / KIB, 0
    # rounded first: else 1023.96 KiB would be shown as 1024 KiB
    while round(scaled) >= KIB and power < len(_SIZE_PREFIXES) - 1:
        scaled, power = scaled / KIB, power + 1
    return f"{_three_digits(scaled)} {_SIZE_PREFIXES[power]}iB"


def format_duration(seconds: Seconds) -> str:
    """Format a time for people: ``0.25 s``, ``12.4 s``, ``3 m 20 s``."""
    if seconds < MINUTE - 0.05:  # below the least time that rounds to 60.0 s
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE:02d} s"
    minutes = round(seconds / MINUTE)
    if minutes < 2 * DAY // MINUTE:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    hours = round(seconds / HOUR)
    if hours > _LONGEST_HOURS:
        return "over 1000 years"  # a wrong clock or an overflow: no digit is right
    return f"{hours // 24} d {hours % 24:02d} h"


def format_brief(seconds: Seconds) -> str:
    """Format a time that may be very short: ``820 ns``, ``12.3 us``, ``9.81 ms``."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if round(seconds * factor) < 1000:  # noqa: PLR2004 - three digits
            return f"{_three_digits(seconds * factor)} {unit}"
    return format_duration(seconds)


def size_or_dash(memory_size: float | None, missing: str = "-") -> str:
    """Write a size, or *missing* where it is not known."""
    return missing if memory_size is None else format_size(round(memory_size))


def duration_or_dash(seconds: Seconds | None, missing: str = "-") -> str:
    """Write a duration, or *missing* where it is not known."""
    return missing if seconds is None else format_duration(seconds)


def count_with_noun(thing_count: int, noun: str) -> str:
    """Write a number of things: ``1 task``, ``1,200 tasks``."""
    return f"{thing_count:,} {noun}{'' if thing_count == 1 else 's'}"


def format_three_digits(figure: float) -> str:
    """Write a number rounded to three digits, below a million without an exponent."""
    return f"{float(f'{figure:.3g}'):,g}"


def is_number(number_text: str) -> bool:
    """Return whether *number_text* is a number as Python writes one."""
    try:
        float(number_text)
    except ValueError:
        return False
    return True


def parse_duration(duration_text: str, *, bare_unit: Seconds | None = None) -> Seconds:
    """Parse a time such as ``90m``, ``1.5h``, ``1h30m`` or ``01:30:00`` to seconds.

    Clock forms are those of Slurm: ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` and
    ``D-HH:MM:SS``. A number without a unit is refused, except 0: Slurm reads it as
    minutes, Grid Engine as seconds. With *bare_unit* it is multiplied by that many
    seconds.

    Raises:
        FormatError: *duration_text* is not a time, or has no unit.
    """
    word = duration_text.strip().lower()
    seconds = None
    if len(word) <= _LONGEST_DURATION:  # int() refuses thousands of digits its own way
        is_clock = ":" in word or "-" in word
        seconds = _clock_seconds(word) if is_clock else _unit_seconds(word, bare_unit)
    if seconds is None:
        raise FormatError(
            f"not a time: {duration_text!r} (write it like 90m or 01:30:00)"
        )
    return seconds


def parse_limit(limit_text: str) -> int:
    """Parse a time limit to whole seconds, rounded up; see `parse_duration`.

    Raises:
        FormatError: *limit_text* is not a time, or has no unit.
    """
    return math.ceil(parse_duration(limit_text))


def format_limit(seconds: Seconds) -> str:
    """Format a time limit as clock time: ``00:05:00``, ``1-12:00:00``; at least 1 s."""
    days, rest = divmod(max(1, math.ceil(seconds)), DAY)
    clock = f"{rest // HOUR:02d}:{rest % HOUR // MINUTE:02d}:{rest % MINUTE:02d}"
    return f"{days}-{clock}" if days else clock


def _clock_seconds(clock_text: str) -> int | None:
    days, dash, clock = clock_text.rpartition("-")
    units = (HOUR, MINUTE, 1)
    fields = clock.split(":")
    counts = [int(field) for field in fields if _is_whole(field)]
    if len(counts) < len(fields) or len(fields) > len(units):
        return None
    if dash and not _is_whole(days):
        return None
    # behind days the first field is hours (D-HH), without days the last one is seconds
    # (MM:SS)
    used = units[: len(fields)] if dash else units[-len(fields) :]
    seconds = sum(count * unit for count, unit in zip(counts, used, strict=True))
    return int(days or 0) * DAY + seconds


def _unit_seconds(duration_text: str, bare_unit: Seconds | None) -> Seconds | None:
    number = _parsed_number(duration_text)
    if number is not None:
        if number and bare_unit is None:
            if _is_long(duration_text) or not _TIME_PART.fullmatch(f"{duration_text}m"):
                return None  # with a unit it would be no time either
            raise FormatError(
                f"{duration_text} has no unit: write {duration_text}m (minutes) or "
                f"{duration_text}s (seconds)"
            )
        return number * (bare_unit or 0)
    parts = _TIME_PART.findall(duration_text)
    # the parts have to make up the whole text: nothing stands between them
    if not duration_text or "".join(map("".join, parts)) != "".join(
        duration_text.split()
    ):
        return None
    # a unit that stands twice is a mistake, such as 1h30h
    if len({unit for _, unit in parts}) < len(parts):
        return None
    return sum(float(digits) * _DURATION_UNITS[unit] for digits, unit in parts)


def _is_long(number_text: str) -> bool:
    """Return whether a number is too long to be repeated in a message."""
    return len(number_text) > _LONGEST_QUOTED


def _is_whole(number_text: str) -> bool:
    return number_text.isascii() and number_text.isdecimal()


def _parsed_number(number_text: str) -> float | None:
    """Parse a number: digits, with a point or an exponent; None if it is not one."""
    return float(number_text) if _NUMBER.fullmatch(number_text.strip()) else None


def _three_digits(exact_value: float) -> str:
    """Format a number below 1024 with three significant digits."""
    if exact_value >= 99.95:  # noqa: PLR2004 - from here on one decimal no longer fits
        return str(round(exact_value))
    if exact_value >= 9.995:  # noqa: PLR2004
        return f"{exact_value:.1f}"
    return f"{exact_value:.2f}"


def record_time_text(seconds: Seconds) -> str:
    """Write seconds since the epoch in the format of records: UTC in ISO 8601."""
    return f"{_whole_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=8)  # many short tasks share a second
def _whole_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
