"""Ranges of numbers as text: ``1..5``, ``0.1..0.5:0.1``, ``1e-5..1e-1:log5``.

A range gives texts, not numbers: what stands in a command is then what was counted,
never 0.30000000000000004.
"""

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import TypeAlias

import msgspec

from weigh.errors import FormatError

MOST_VALUES = 1_000_000

# the digits are bounded so that no arithmetic on them can take long
NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_END = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"

_RANGE = re.compile(rf"({_END})\.\.({_END})(?::(.*))?", re.DOTALL)
_LIKE_A_RANGE = re.compile(rf"{_END}\.\..*|\.\.{_END}", re.DOTALL)
_LOG = re.compile(r"log *([0-9]{1,9})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_EXACT = Context(prec=400)
_SHORT, _LONG = 6, 15  # significant digits of a geometric value


def is_range(text: str) -> bool:
    """Return whether *text* is written like a range, be it a right one or not."""
    return _LIKE_A_RANGE.fullmatch(text) is not None


def expand(text: str) -> tuple[str, ...]:
    """Write out every value of a range.

    Raises:
        FormatError: *text* is no range, or one of more than a million values.
    """
    parts = _RANGE.fullmatch(text)
    if parts is None:
        raise FormatError(
            "not a range (write 1..5, 0..1:0.1 or 1..100:log5; quoted, it is text)"
        )
    first, last, way = parts[1], parts[2], parts[3]
    if way is None:
        return _counted(first, last)
    geometric = _LOG.fullmatch(way.strip())
    if geometric is not None:
        return _geometric(first, last, int(geometric[1]))
    return _stepped(first, last, way.strip())


def _counted(first: str, last: str) -> tuple[str, ...]:
    """Count by one, up or down; an end with a leading zero sets the width."""
    if not (_INTEGER.fullmatch(first) and _INTEGER.fullmatch(last)):
        raise FormatError(f"decimals need a step, such as {first}..{last}:0.1")
    start, end = int(first), int(last)
    _refuse_too_many(abs(end - start))
    down = -1 if end < start else 1
    padded = any(re.match(r"[+-]?0[0-9]", one) for one in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return tuple(f"{n:0{width}d}" for n in range(start, end + down, down))


def _stepped(first: str, last: str, step: str) -> tuple[str, ...]:
    """Go by a step, never past the end; the direction is that of the ends."""
    if not re.fullmatch(_END, step):
        raise FormatError(f"{step!r} is no step (a number, or log5 for 5 values)")
    start, end, by = Decimal(first), Decimal(last), Decimal(step)
    if not by:
        raise FormatError("a step of 0 never gets there")
    if by < 0 < end - start:
        raise FormatError(f"a step of {step} leads away from {last}")
    by = abs(by).copy_sign(_EXACT.subtract(end, start))
    count = _EXACT.divide(_EXACT.subtract(end, start), by)
    _refuse_too_many(count)
    values = (
        _EXACT.add(start, _EXACT.multiply(by, Decimal(n)))
        for n in range(int(count) + 1)
    )
    if "e" in (first + last).lower():
        return tuple(map(_scientific, values))
    fewest = min(_decimals(first), _decimals(last))
    return tuple(_plain(value, fewest) for value in values)


def _geometric(first: str, last: str, count: int) -> tuple[str, ...]:
    """Go by equal factors; integer ends give integers, each once."""
    low, high = float(first), float(last)
    if not (0 < low < math.inf and 0 < high < math.inf):
        raise FormatError("log needs both ends above 0")
    if count < 2:  # noqa: PLR2004 - two ends
        raise FormatError("log needs 2 values at least: its ends")
    _refuse_too_many(count - 1)
    points = [
        math.exp(math.log(low) + n / (count - 1) * (math.log(high) - math.log(low)))
        for n in range(1, count - 1)
    ]
    if _INTEGER.fullmatch(first) and _INTEGER.fullmatch(last):
        return _distinct(first, [str(round(point)) for point in points], last)
    # few digits are easy to read, and enough unless values lie close together
    like = first + last
    short = _distinct(first, [_rounded(p, _SHORT, like) for p in points], last)
    if len(short) == count:
        return short
    return _distinct(first, [_rounded(p, _LONG, like) for p in points], last)


def _distinct(first: str, inner: Sequence[str], last: str) -> tuple[str, ...]:
    """Keep each number once, and those between the ends: rounding may leave them."""
    low, high = sorted((float(first), float(last)))
    between = {float(text): text for text in inner if low < float(text) < high}
    ends = (first, last) if low < high else (first,)
    return (first, *between.values(), *ends[1:])


def _refuse_too_many(steps: int | Decimal) -> None:
    if steps >= MOST_VALUES:
        raise FormatError(f"more than {MOST_VALUES:,} values")


def _rounded(value: float, digits: int, like: str) -> str:
    number = Decimal(f"{value:.{digits}g}")
    return _scientific(number) if "e" in like.lower() else _plain(number, 0)


def _scientific(value: Decimal) -> str:
    """Write 0.00002 as 2e-5."""
    return f"{value.normalize(_EXACT):e}".replace("e+", "e").removesuffix("e0")


def _plain(value: Decimal, fewest: int) -> str:
    """Write *value* with no more decimals than it needs, but *fewest* at least."""
    text = f"{value:f}"
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0").ljust(fewest, "0")
    whole = "0" if whole == "-0" and not decimals.strip("0") else whole
    return f"{whole}.{decimals}" if decimals else whole


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


Value: TypeAlias = int | float | str

NAME = r"[^\W\d][\w.-]*"

_NAME = re.compile(NAME)
_NUMBER = re.compile(NUMBER)
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # those that every JSON reader holds
_LONGEST_SAID = 40
_QUOTED = {
    "'": re.compile("'((?:[^']|'')*)'"),
    '"': re.compile('"((?:[^"]|"")*)"'),
}


class Axis(msgspec.Struct, frozen=True):
    """One parameter and its values, in order: as typed for a command, and as meant.

    ``texts`` and ``values`` go side by side: ``1e-3`` in the command is 0.001 here.
    """

    name: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]


def parse_axis(text: str) -> Axis:
    """Read ``NAME=VALUES``, such as ``seed=1..5`` or ``lr=1e-2,1e-3``.

    Raises:
        FormatError: *text* is no name and values, or more than a million of them.
    """
    name, equals, words = text.partition("=")
    if not equals or not name.strip():
        raise FormatError(
            f"{_cut(text)} is not NAME=VALUES (write it like seed=1..5 or lr=0.1,0.01)"
        )
    return parse_values(name.strip(), words)


def parse_values(name: str, words: str) -> Axis:
    """Read the values of *name* in the grammar above.

    Raises:
        FormatError: *name* is no name, or *words* are not values.
    """
    _check_name(name)
    values: list[Value] = []
    texts: list[str] = []
    for item, quoted in _items(name, words):
        found = (item,) if quoted else _expanded(name, item)
        if len(texts) + len(found) > MOST_VALUES:
            raise FormatError(f"{name} has more than {MOST_VALUES:,} values")
        texts += found
        values += found if quoted else map(typed, found)
    return make_axis(name, values, texts)


def make_axis(name: str, values: Sequence[Value], texts: Sequence[str]) -> Axis:
    """Put an axis together, having looked at its name and at what cannot be passed on.

    Raises:
        FormatError: *name* is no name, there is no value, or one holds a NUL.
    """
    _check_name(name)
    if not texts:
        raise FormatError(f"{name} has no value")
    if any("\0" in text for text in texts):
        raise FormatError(f"{name} has a value with a NUL byte: no command can take it")
    return Axis(name, tuple(values), tuple(texts))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise FormatError(
            f"{_cut(name)} is no parameter's name (letters, digits, _ . - in it)"
        )


def typed(text: str) -> Value:
    """Read a value as a person means it: a number where it is written like one.

    What JSON cannot hold, such as nan, inf and integers of 19 digits, stays text.
    """
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not text.lstrip("+-").isdecimal():
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _expanded(name: str, item: str) -> tuple[str, ...]:
    if not item:
        raise FormatError(f"{name} has an empty value (write '' for an empty text)")
    if not is_range(item):
        return (item,)
    try:
        return expand(item)
    except FormatError as error:
        raise FormatError(f"{name}: {_cut(item)}: {error}") from error


def _items(name: str, words: str) -> Iterator[tuple[str, bool]]:
    """Cut at commas outside of quotes; tell of each item whether it was quoted."""
    at = 0
    while at <= len(words):
        start = _past_spaces(words, at)
        if words[start : start + 1] in _QUOTED:
            item, at = _quoted(name, words, start)
            yield item, True
        else:
            end = words.find(",", at)
            end = len(words) if end < 0 else end
            yield words[at:end].strip(), False
            at = end
        at += 1  # the comma, or past the end


def _quoted(name: str, words: str, start: int) -> tuple[str, int]:
    """Read one quoted item; give it and where its comma, or the end, is."""
    quote = words[start]
    item = _QUOTED[quote].match(words, start)
    if item is None:
        raise FormatError(f"{name}: no closing {quote} in {_cut(words[start:])}")
    end = _past_spaces(words, item.end())
    if words[end : end + 1] not in {"", ","}:
        raise FormatError(
            f"{name}: a comma has to follow {_cut(item[0])} "
            f"(a {quote} inside is written twice)"
        )
    return item[1].replace(quote * 2, quote), end


def _past_spaces(words: str, at: int) -> int:
    while words[at : at + 1].isspace():
        at += 1
    return at


def _cut(text: str) -> str:
    """Quote *text* for a message, on one line and not too long."""
    return repr(text if len(text) <= _LONGEST_SAID else text[:_LONGEST_SAID] + "...")
