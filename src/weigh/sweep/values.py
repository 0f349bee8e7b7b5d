"""Parse the values of a parameter: ``lr=1e-2,1e-3``, and ranges such as ``seed=1..5``.

A range (``1..5``, ``0.1..0.5:0.1``, ``1e-5..1e-1:log5``) yields text, not numbers, so
that a command never contains 0.30000000000000004.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal, localcontext
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
    first, last, way = parts.groups()
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
    with localcontext(_EXACT):
        # the ends decide on the direction, so the sign of the step can be left out
        by = abs(by).copy_sign(end - start)
        count = (end - start) / by
        _refuse_too_many(count)
        values = [start + by * n for n in range(int(count) + 1)]
    # 0.10..0.30:0.05 keeps its two decimals
    fewest = min(len(one.partition(".")[2]) for one in (first_end, last_end))
    return tuple(_number_text(value, first_end + last_end, fewest) for value in values)


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
    step = (math.log(high) - math.log(low)) / (value_count - 1)
    points = [math.exp(math.log(low) + n * step) for n in range(1, value_count - 1)]
    like = first_end + last_end
    are_integers = _INTEGER.fullmatch(first_end) and _INTEGER.fullmatch(last_end)
    inner = (
        str(round(point))
        if are_integers
        else _number_text(Decimal(f"{point:.6g}"), like)
        for point in points
    )
    # each number once, and only those between the ends: rounding may exceed
    between = {
        float(text): text
        for text in inner
        if min(low, high) < float(text) < max(low, high)
    }
    # the ends are as typed: computed, they could differ in the last digit
    return (first_end, *between.values(), *([last_end] if low != high else []))


def _refuse_too_many(steps: int | Decimal) -> None:
    if steps >= MOST_VALUES:
        raise FormatError(f"more than {MOST_VALUES:,} values")


def _number_text(decimal_value: Decimal, like: str, fewest: int = 0) -> str:
    """Write a number as the ends are, *like*: 2e-5, or 0.10 with *fewest* decimals."""
    if "e" in like.lower():
        text = f"{decimal_value.normalize(_EXACT):e}"
        return text.replace("e+", "e").removesuffix("e0")
    whole, _, decimals = f"{decimal_value:f}".partition(".")
    decimals = decimals.rstrip("0").ljust(fewest, "0")
    # a small negative number may round to -0
    whole = "0" if whole == "-0" and not decimals.strip("0") else whole
    return f"{whole}.{decimals}" if decimals else whole


Value: TypeAlias = int | float | str

NAME = r"[^\W\d][\w.-]*"

_NAME = re.compile(NAME)
_NUMBER = re.compile(NUMBER)
_PATTERN = re.compile(r"[*?]")  # of files, as a shell has it
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # every JSON reader can hold these
_LONGEST_SAID = 40  # characters of a value in a message
# an item and what ends it: in quotes, of which one inside is written twice, or plain
_ITEM = re.compile(
    r"""\s*(?:(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")\s*|(?!['"\s])(?P<plain>[^,]*)|)"""
    r"""(?P<end>,|\Z)""",
    re.DOTALL,
)


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
        FormatError: *axis_text* is not a name and values, a pattern matches no file, or
            there are more than a million values.
    """
    name, equals, values_text = axis_text.partition("=")
    parameter_name = name.strip()
    if not equals or not parameter_name:
        raise FormatError(
            f"{_shortened_quote(axis_text)} is not NAME=VALUES (write it like "
            "seed=1..5 or lr=0.1,0.01)"
        )
    if not _NAME.fullmatch(parameter_name):
        raise FormatError(
            f"{_shortened_quote(parameter_name)} is not a parameter's name (use "
            "letters, digits, _ . -)"
        )
    values: list[Value] = []
    texts: list[str] = []
    for item, quoted in _split_items(parameter_name, values_text):
        is_text = quoted
        if quoted:
            found: Sequence[str] = (item,)
        elif find_files is not None and _PATTERN.search(item):
            found, is_text = find_files(item), True
            if not found:
                as_text = "'" + item.replace("'", "''") + "'"
                raise FormatError(
                    f"{parameter_name}: no file matches {_shortened_quote(item)} "
                    f'(as text: {parameter_name}="{as_text}")'
                )
        else:
            found = _expanded_item(parameter_name, item)
        if len(texts) + len(found) > MOST_VALUES:
            raise FormatError(f"{parameter_name} has more than {MOST_VALUES:,} values")
        texts += found
        # a quoted 1 and the name of a file are text, even if they look like numbers
        values += found if is_text else map(typed_value, found)
    if any("\0" in text for text in texts):
        raise FormatError(
            f"{parameter_name} has a value with a NUL byte: no command can take it"
        )
    return ParameterAxis(parameter_name, tuple(values), tuple(texts))


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


def parse_parameters(texts: Sequence[str]) -> dict[str, Value]:
    """Parse words like ``batch_size=50``.

    Raises:
        FormatError: one has no name or no equals sign.
    """
    parameters: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise FormatError(
                f"{text!r} is not NAME=VALUE (write it like batch_size=50)"
            )
        parameters[name.strip()] = typed_value(value)
    return parameters


def _expanded_item(parameter_name: str, item: str) -> tuple[str, ...]:
    if not item:
        raise FormatError(
            f"{parameter_name} has an empty value (write '' for an empty text)"
        )
    if not _LIKE_A_RANGE.fullmatch(item):
        return (item,)
    try:
        return expand_range(item)
    except FormatError as error:
        raise FormatError(
            f"{parameter_name}: {_shortened_quote(item)}: {error}"
        ) from error


def _split_items(parameter_name: str, values_text: str) -> Iterator[tuple[str, bool]]:
    """Split at commas outside quotes; yield each item, and whether it was quoted."""
    at = 0
    while (item := _ITEM.match(values_text, at)) is not None:
        quoted = item["quoted"]
        if quoted is None:
            yield (item["plain"] or "").strip(), False
        else:
            yield quoted[1:-1].replace(quoted[0] * 2, quoted[0]), True
        if not item["end"]:
            return
        at = item.end()
    rest = values_text[at:].strip()
    raise FormatError(
        f"{parameter_name}: {_shortened_quote(rest)}: a quote must end before the "
        f"next comma (a {rest[0]} inside is written twice)"
    )


def _shortened_quote(long_text: str) -> str:
    """Quote *long_text* for a message, on one line and shortened."""
    is_long = len(long_text) > _LONGEST_SAID
    return repr(long_text[:_LONGEST_SAID] + "..." if is_long else long_text)


_SEED = re.compile(r"(.*[_.-])?(seeds?|random_state)([_.-].*)?", re.IGNORECASE)


def is_seed(parameter_name: str) -> bool:
    """Return whether a parameter is a seed, by its name."""
    return _SEED.fullmatch(parameter_name) is not None
