"""Parse the values of a parameter: ``lr=1e-2,1e-3``, and ranges such as ``seed=1..5``.

A range (``1..5``, ``0.1..0.5:0.1``, ``1e-5..1e-1:log5``) yields text, not numbers, so
that a command never contains 0.30000000000000004.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import TypeAlias

import msgspec

from weigh.errors import FormatError

MOST_VALUES = 1_000_000  # of one parameter

# the number of digits is bounded, so that arithmetic on them is fast
NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_END = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"

_RANGE = re.compile(rf"({_END})\.\.({_END})(?::(.*))?", re.DOTALL)
_LIKE_A_RANGE = re.compile(rf"{_END}\.\..*|\.\.{_END}", re.DOTALL)
_LOG = re.compile(r"log *([0-9]{1,9})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_EXACT = Context(prec=400)
_SHORT, _LONG = 6, 15  # significant digits of a geometric value


def is_range(range_text: str) -> bool:
    """Return whether *range_text* looks like a range, valid or not."""
    return _LIKE_A_RANGE.fullmatch(range_text) is not None


def expand_range(range_text: str) -> tuple[str, ...]:
    """Return every value of a range.

    Raises:
        FormatError: *range_text* is not a range, or has more than a million values.
    """
    parts = _RANGE.fullmatch(range_text)
    if parts is None:
        raise FormatError(
            "not a range (write 1..5, 0..1:0.1 or 1..100:log5; quoted, it is text)"
        )
    first, last, way = parts[1], parts[2], parts[3]
    if way is None:
        return _counted_range(first, last)
    geometric = _LOG.fullmatch(way.strip())
    if geometric is not None:
        return _geometric_range(first, last, int(geometric[1]))
    return _stepped_range(first, last, way.strip())


def _counted_range(first_end: str, last_end: str) -> tuple[str, ...]:
    """Count by one, up or down; an end with a leading zero sets the width."""
    if not (_INTEGER.fullmatch(first_end) and _INTEGER.fullmatch(last_end)):
        raise FormatError(f"decimals need a step, such as {first_end}..{last_end}:0.1")
    start, end = int(first_end), int(last_end)
    _refuse_too_many(abs(end - start))
    down = -1 if end < start else 1
    # 01..10 counts 01, 02, ...: names of files sort then
    padded = any(re.match(r"[+-]?0[0-9]", one) for one in (first_end, last_end))
    width = max(len(first_end), len(last_end)) if padded else 0
    return tuple(f"{n:0{width}d}" for n in range(start, end + down, down))


def _stepped_range(first_end: str, last_end: str, step_text: str) -> tuple[str, ...]:
    """Count by a step, never past the end; the ends give the direction."""
    if not re.fullmatch(_END, step_text):
        raise FormatError(f"{step_text!r} is no step (a number, or log5 for 5 values)")
    start, end, by = Decimal(first_end), Decimal(last_end), Decimal(step_text)
    if not by:
        raise FormatError("a step of 0 never ends")
    if by < 0 < end - start:
        raise FormatError(f"a step of {step_text} leads away from {last_end}")
    # the ends decide on the direction, so the sign of the step can be left out
    by = abs(by).copy_sign(_EXACT.subtract(end, start))
    count = _EXACT.divide(_EXACT.subtract(end, start), by)
    _refuse_too_many(count)
    values = (
        _EXACT.add(start, _EXACT.multiply(by, Decimal(n)))
        for n in range(int(count) + 1)
    )
    # written as the ends are
    if "e" in (first_end + last_end).lower():
        return tuple(map(_scientific_text, values))
    # 0.10..0.30:0.05 keeps its two decimals
    fewest = min(_decimal_places(first_end), _decimal_places(last_end))
    return tuple(_plain_decimal_text(value, fewest) for value in values)


def _geometric_range(
    first_end: str, last_end: str, value_count: int
) -> tuple[str, ...]:
    """Count by equal factors; integer ends yield integers, each once."""
    low, high = float(first_end), float(last_end)
    # float() makes 1e-999 a zero, and 1e999 infinite
    if not (0 < low < math.inf and 0 < high < math.inf):
        raise FormatError("log needs both ends above 0")
    if value_count < 2:  # noqa: PLR2004 - two ends
        raise FormatError("log needs at least 2 values: its ends")
    _refuse_too_many(value_count - 1)
    points = [
        math.exp(
            math.log(low) + n / (value_count - 1) * (math.log(high) - math.log(low))
        )
        # the ends are taken as typed: computed, they could differ in the last digit
        for n in range(1, value_count - 1)
    ]
    if _INTEGER.fullmatch(first_end) and _INTEGER.fullmatch(last_end):
        return _distinct_between_ends(
            first_end, [str(round(point)) for point in points], last_end
        )
    # few digits are easy to read, and enough unless values are close together
    like = first_end + last_end
    short = _distinct_between_ends(
        first_end, [_rounded_number_text(p, _SHORT, like) for p in points], last_end
    )
    if len(short) == value_count:
        return short
    return _distinct_between_ends(
        first_end, [_rounded_number_text(p, _LONG, like) for p in points], last_end
    )


def _distinct_between_ends(
    first_end: str, inner: Sequence[str], last_end: str
) -> tuple[str, ...]:
    """Keep each number once, and only those between the ends: rounding may exceed."""
    # a descending range has low and high exchanged
    low, high = sorted((float(first_end), float(last_end)))
    between = {float(text): text for text in inner if low < float(text) < high}
    ends = (first_end, last_end) if low < high else (first_end,)
    return (first_end, *between.values(), *ends[1:])


def _refuse_too_many(steps: int | Decimal) -> None:
    if steps >= MOST_VALUES:
        raise FormatError(f"more than {MOST_VALUES:,} values")


def _rounded_number_text(exact_value: float, digits: int, like: str) -> str:
    number = Decimal(f"{exact_value:.{digits}g}")
    return (
        _scientific_text(number)
        if "e" in like.lower()
        else _plain_decimal_text(number, 0)
    )


def _scientific_text(decimal_value: Decimal) -> str:
    """Format 0.00002 as 2e-5."""
    return f"{decimal_value.normalize(_EXACT):e}".replace("e+", "e").removesuffix("e0")


def _plain_decimal_text(decimal_value: Decimal, fewest: int) -> str:
    """Format a number with as few decimals as possible, but at least *fewest*."""
    text = f"{decimal_value:f}"
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0").ljust(fewest, "0")
    # a small negative number may round to -0
    whole = "0" if whole == "-0" and not decimals.strip("0") else whole
    return f"{whole}.{decimals}" if decimals else whole


def _decimal_places(number_text: str) -> int:
    return len(number_text.partition(".")[2])


Value: TypeAlias = int | float | str

NAME = r"[^\W\d][\w.-]*"

_NAME = re.compile(NAME)
_NUMBER = re.compile(NUMBER)
_PATTERN = re.compile(r"[*?]")  # of files, as a shell has it
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # every JSON reader can hold these
_LONGEST_SAID = 40  # characters of a value in a message
_QUOTED = {
    "'": re.compile("'((?:[^']|'')*)'"),
    '"': re.compile('"((?:[^"]|"")*)"'),
}


class ParameterAxis(msgspec.Struct, frozen=True):
    """One parameter and its values, in order.

    ``texts`` are the values as typed, for the command; ``values`` are the same parsed:
    ``1e-3`` and 0.001.
    """

    name: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]


FindFiles: TypeAlias = Callable[[str], Sequence[str]]


def parse_axis(axis_text: str, find_files: FindFiles | None = None) -> ParameterAxis:
    """Parse ``NAME=VALUES``, such as ``seed=1..5`` or ``lr=1e-2,1e-3``.

    *find_files* returns the files that a pattern such as ``data/*.txt`` matches.
    Without it a pattern is text.

    Raises:
        FormatError: *axis_text* is not a name and values, or has more than a million.
    """
    name, equals, words = axis_text.partition("=")
    if not equals or not name.strip():
        raise FormatError(
            f"{_shortened_quote(axis_text)} is not NAME=VALUES (write it like "
            "seed=1..5 or lr=0.1,0.01)"
        )
    return parse_values(name.strip(), words, find_files)


def parse_values(
    parameter_name: str, values_text: str, find_files: FindFiles | None = None
) -> ParameterAxis:
    """Parse the values of the parameter *parameter_name*.

    Raises:
        FormatError: *parameter_name* is not a name, *values_text* are not values, or a
            pattern matches
            no file.
    """
    _check_name(parameter_name)
    values: list[Value] = []
    texts: list[str] = []
    for item, quoted in _split_items(parameter_name, values_text):
        is_text = quoted
        if quoted:
            found: Sequence[str] = (item,)
        elif find_files is not None and _PATTERN.search(item):
            found, is_text = _matching_files(parameter_name, item, find_files), True
        else:
            found = _expanded_item(parameter_name, item)
        if len(texts) + len(found) > MOST_VALUES:
            raise FormatError(f"{parameter_name} has more than {MOST_VALUES:,} values")
        texts += found
        # a quoted 1 and the name of a file are text, even if they look like numbers
        values += found if is_text else map(typed_value, found)
    return make_axis(parameter_name, values, texts)


def make_axis(
    parameter_name: str, axis_values: Sequence[Value], texts: Sequence[str]
) -> ParameterAxis:
    """Return an axis, after checking its name and values.

    Raises:
        FormatError: *parameter_name* is not a name, there is no value, or one contains
            a NUL.
    """
    _check_name(parameter_name)
    if not texts:
        raise FormatError(f"{parameter_name} has no value")
    if any("\0" in text for text in texts):
        raise FormatError(
            f"{parameter_name} has a value with a NUL byte: no command can take it"
        )
    return ParameterAxis(parameter_name, tuple(axis_values), tuple(texts))


def _check_name(parameter_name: str) -> None:
    if not _NAME.fullmatch(parameter_name):
        raise FormatError(
            f"{_shortened_quote(parameter_name)} is not a parameter's name (use "
            "letters, digits, _ . -)"
        )


def typed_value(value_text: str) -> Value:
    """Parse a value: a number if it is written like one, else text.

    What JSON cannot represent, such as nan, inf and integers of 19 digits, stays text.
    """
    if _WHOLE_NUMBER.fullmatch(value_text):
        return int(value_text)
    # an integer of more than 18 digits is left out here, too: as a float it would
    # change
    if _NUMBER.fullmatch(value_text) and not value_text.lstrip("+-").isdecimal():
        number = float(value_text)
        return number if math.isfinite(number) else value_text
    return value_text


def _expanded_item(parameter_name: str, item: str) -> tuple[str, ...]:
    if not item:
        raise FormatError(
            f"{parameter_name} has an empty value (write '' for an empty text)"
        )
    if not is_range(item):
        return (item,)
    try:
        return expand_range(item)
    except FormatError as error:
        raise FormatError(
            f"{parameter_name}: {_shortened_quote(item)}: {error}"
        ) from error


def _matching_files(
    parameter_name: str, pattern: str, find_files: FindFiles
) -> Sequence[str]:
    """Return the files that *pattern* matches.

    Raises:
        FormatError: it matches none.
    """
    files = find_files(pattern)
    if not files:
        as_text = "'" + pattern.replace("'", "''") + "'"
        raise FormatError(
            f"{parameter_name}: no file matches {_shortened_quote(pattern)} (as text: "
            f'{parameter_name}="{as_text}")'
        )
    return files


def _split_items(parameter_name: str, values_text: str) -> Iterator[tuple[str, bool]]:
    """Split at commas outside quotes; yield each item, and whether it was quoted."""
    at = 0
    while at <= len(values_text):
        # blanks may stand before a quote
        start = _past_spaces(values_text, at)
        if values_text[start : start + 1] in _QUOTED:
            item, at = _quoted_item(parameter_name, values_text, start)
            yield item, True
        else:
            end = values_text.find(",", at)
            end = len(values_text) if end < 0 else end
            yield values_text[at:end].strip(), False
            at = end
        at += 1  # the comma, or past the end


def _quoted_item(parameter_name: str, values_text: str, start: int) -> tuple[str, int]:
    """Return a quoted item, and the place of the comma or end after it."""
    quote = values_text[start]
    item = _QUOTED[quote].match(values_text, start)
    if item is None:
        raise FormatError(
            f"{parameter_name}: no closing {quote} in "
            f"{_shortened_quote(values_text[start:])}"
        )
    end = _past_spaces(values_text, item.end())
    if values_text[end : end + 1] not in {"", ","}:
        raise FormatError(
            f"{parameter_name}: a comma must follow {_shortened_quote(item[0])} "
            f"(a {quote} inside is written twice)"
        )
    return item[1].replace(quote * 2, quote), end


def _past_spaces(values_text: str, start_place: int) -> int:
    while values_text[start_place : start_place + 1].isspace():
        start_place += 1
    return start_place


def _shortened_quote(long_text: str) -> str:
    """Quote *long_text* for a message, on one line and shortened."""
    return repr(
        long_text
        if len(long_text) <= _LONGEST_SAID
        else long_text[:_LONGEST_SAID] + "..."
    )
