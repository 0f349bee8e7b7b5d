"""Bytes and seconds: integers (or float seconds) inside, text at the edge.

Sizes are binary throughout: 1 KiB is 1024 bytes, and so are K, KB and kB where a
person types them. The schedulers' own size syntaxes live in their dialects.
"""

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
_DURATION_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_MAX_CLOCK_FIELDS = 3
_LONGEST_DURATION = 40
_LONGEST_HOURS = 1000 * 366 * 24


def parse_size(text: str) -> Bytes:
    """Read a size as people write it: ``4GiB``, ``4G``, ``4 GB``, ``1.5g``, ``300``.

    Raises:
        FormatError: *text* is not a size, or is negative.
    """
    number = text.strip().lower().removesuffix("b")
    if number[-2:-1].upper() in _SIZE_PREFIXES:
        number = number.removesuffix("i")
    factor = 1
    if number and number[-1].upper() in _SIZE_PREFIXES:
        factor = 1 << 10 * (_SIZE_PREFIXES.index(number[-1].upper()) + 1)
        number = number[:-1].strip()
    try:
        value = float(number) * factor if _is_plain(number) else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise FormatError(f"not a size: {text!r} (write it like 500M or 4GiB)")
    return round(value)


def format_size(size: Bytes) -> str:
    """Write *size* in the largest binary unit that keeps it at least one."""
    if size < KIB:
        return f"{size} B"
    scaled, power = size / KIB, 0
    while round(scaled) >= KIB and power < len(_SIZE_PREFIXES) - 1:
        scaled, power = scaled / KIB, power + 1
    return f"{_three_digits(scaled)} {_SIZE_PREFIXES[power]}iB"


def format_duration(seconds: Seconds) -> str:
    """Write a time as a person reads it: ``0.25 s``, ``12.4 s``, ``3 m 20 s``."""
    if seconds < MINUTE - 0.05:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE:02d} s"
    minutes = round(seconds / MINUTE)
    if minutes < 2 * DAY // MINUTE:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    hours = round(seconds / HOUR)
    if hours > _LONGEST_HOURS:
        return "over 1000 years"  # a clock or a product gone wrong: no digits to trust
    return f"{hours // 24} d {hours % 24:02d} h"


def format_brief(seconds: Seconds) -> str:
    """Write a time that may be very short: ``820 ns``, ``12.3 us``, ``9.81 ms``."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if round(seconds * factor) < 1000:  # noqa: PLR2004 - three digits
            return f"{_three_digits(seconds * factor)} {unit}"
    return format_duration(seconds)


def parse_duration(text: str) -> int:
    """Read a time as people write it: ``90m``, ``1h30m``, ``1-12:00:00``, ``02:00:00``.

    Two clock fields are refused, because ``24:00`` is minutes to one scheduler and
    hours to its reader. A bare number is seconds.

    Raises:
        FormatError: *text* is not a time.
    """
    word = text.strip().lower()
    seconds = None
    if len(word) <= _LONGEST_DURATION:  # int() refuses thousands of digits its own way
        seconds = _clock_seconds(word) if ":" in word else _unit_seconds(word)
    if seconds is None:
        raise FormatError(f"not a time: {text!r} (write it like 90m or 01:30:00)")
    return seconds


def _clock_seconds(word: str) -> int | None:
    days, dash, clock = word.rpartition("-")
    fields = clock.split(":")
    if len(fields) != _MAX_CLOCK_FIELDS or not all(f.isdecimal() for f in fields):
        return None
    if dash and not days.isdecimal():
        return None
    hours, minutes, seconds = (int(field) for field in fields)
    return int(days or 0) * DAY + hours * HOUR + minutes * MINUTE + seconds


def _unit_seconds(word: str) -> int | None:
    if word.isdecimal():
        return int(word)
    total, digits = 0, ""
    for character in word.replace(" ", ""):
        if character.isdecimal():
            digits += character
        elif digits and character in _DURATION_UNITS:
            total += int(digits) * _DURATION_UNITS[character]
            digits = ""
        else:
            return None
    return None if digits or not word else total


def _is_plain(number: str) -> bool:
    """Tell whether *number* keeps clear of the forms that only Python reads."""
    return number.isascii() and "_" not in number


def _three_digits(value: float) -> str:
    """Write a number below 1024 with three significant digits, no trailing zeros."""
    if value >= 99.95:  # noqa: PLR2004 - from here on one decimal no longer fits
        return str(round(value))
    if value >= 9.995:  # noqa: PLR2004
        return f"{value:.1f}"
    return f"{value:.2f}"
