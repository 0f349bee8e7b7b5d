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

MOST_VALUES = 1_000_000

# the number of digits is bounded, so that arithmetic on them is fast
NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_END = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"

_RANGE = re.compile(rf"({_END})\.\.({_END})(?::(.*))?", re.DOTALL)
_LIKE_A_RANGE = re.compile(rf"{_END}\.\..*|\.\.{_END}", re.DOTALL)
_LOG = re.compile(r"log *([0-9]{1,9})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_EXACT = Context(prec=400)
_SHORT, _LONG = 6, 15  # significant digits of a geometric value


def is_range(text: str) -> bool:
    """Return whether *text* looks like a range, valid or not."""
    return _LIKE_A_RANGE.fullmatch(text) is not None


def expand(text: str) -> tuple[str, ...]:
    """Return every value of a range.

    Raises:
        FormatError: *text* is not a range, or has more than a million values.
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
    """Count by a step, never past the end; the ends give the direction."""
    if not re.fullmatch(_END, step):
        raise FormatError(f"{step!r} is no step (a number, or log5 for 5 values)")
    start, end, by = Decimal(first), Decimal(last), Decimal(step)
    if not by:
        raise FormatError("a step of 0 never ends")
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
    """Count by equal factors; integer ends yield integers, each once."""
    low, high = float(first), float(last)
    if not (0 < low < math.inf and 0 < high < math.inf):
        raise FormatError("log needs both ends above 0")
    if count < 2:  # noqa: PLR2004 - two ends
        raise FormatError("log needs at least 2 values: its ends")
    _refuse_too_many(count - 1)
    points = [
        math.exp(math.log(low) + n / (count - 1) * (math.log(high) - math.log(low)))
        for n in range(1, count - 1)
    ]
    if _INTEGER.fullmatch(first) and _INTEGER.fullmatch(last):
        return _distinct(first, [str(round(point)) for point in points], last)
    # few digits are easy to read, and enough unless values are close together
    like = first + last
    short = _distinct(first, [_rounded(p, _SHORT, like) for p in points], last)
    if len(short) == count:
        return short
    return _distinct(first, [_rounded(p, _LONG, like) for p in points], last)


def _distinct(first: str, inner: Sequence[str], last: str) -> tuple[str, ...]:
    """Keep each number once, and only those between the ends: rounding may exceed."""
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
    """Format 0.00002 as 2e-5."""
    return f"{value.normalize(_EXACT):e}".replace("e+", "e").removesuffix("e0")


def _plain(value: Decimal, fewest: int) -> str:
    """Format *value* with as few decimals as possible, but at least *fewest*."""
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
_PATTERN = re.compile(r"[*?]")  # of files, as a shell has it
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")  # every JSON reader can hold these
_LONGEST_SAID = 40
_QUOTED = {
    "'": re.compile("'((?:[^']|'')*)'"),
    '"': re.compile('"((?:[^"]|"")*)"'),
}


class Axis(msgspec.Struct, frozen=True):
    """One parameter and its values, in order.

    ``texts`` are the values as typed, for the command; ``values`` are the same parsed:
    ``1e-3`` and 0.001.
    """

    name: str
    values: tuple[Value, ...]
    texts: tuple[str, ...]


FindFiles: TypeAlias = Callable[[str], Sequence[str]]


def parse_axis(text: str, find_files: FindFiles | None = None) -> Axis:
    """Parse ``NAME=VALUES``, such as ``seed=1..5`` or ``lr=1e-2,1e-3``.

    *find_files* returns the files that a pattern such as ``data/*.txt`` matches.
    Without it a pattern is text.

    Raises:
        FormatError: *text* is not a name and values, or has more than a million.
    """
    name, equals, words = text.partition("=")
    if not equals or not name.strip():
        raise FormatError(
            f"{_cut(text)} is not NAME=VALUES (write it like seed=1..5 or lr=0.1,0.01)"
        )
    return parse_values(name.strip(), words, find_files)


def parse_values(name: str, words: str, find_files: FindFiles | None = None) -> Axis:
    """Parse the values of the parameter *name*.

    Raises:
        FormatError: *name* is not a name, *words* are not values, or a pattern matches
            no file.
    """
    _check_name(name)
    values: list[Value] = []
    texts: list[str] = []
    for item, quoted in _items(name, words):
        is_text = quoted
        if quoted:
            found: Sequence[str] = (item,)
        elif find_files is not None and _PATTERN.search(item):
            found, is_text = _matching_files(name, item, find_files), True
        else:
            found = _expanded(name, item)
        if len(texts) + len(found) > MOST_VALUES:
            raise FormatError(f"{name} has more than {MOST_VALUES:,} values")
        texts += found
        values += found if is_text else map(typed, found)
    return make_axis(name, values, texts)


def make_axis(name: str, values: Sequence[Value], texts: Sequence[str]) -> Axis:
    """Return an axis, after checking its name and values.

    Raises:
        FormatError: *name* is not a name, there is no value, or one contains a NUL.
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
            f"{_cut(name)} is not a parameter's name (use letters, digits, _ . -)"
        )


def typed(text: str) -> Value:
    """Parse a value: a number if it is written like one, else text.

    What JSON cannot represent, such as nan, inf and integers of 19 digits, stays text.
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


def _matching_files(name: str, pattern: str, find_files: FindFiles) -> Sequence[str]:
    """Return the files that *pattern* matches.

    Raises:
        FormatError: it matches none.
    """
    files = find_files(pattern)
    if not files:
        as_text = "'" + pattern.replace("'", "''") + "'"
        raise FormatError(
            f'{name}: no file matches {_cut(pattern)} (as text: {name}="{as_text}")'
        )
    return files


def _items(name: str, words: str) -> Iterator[tuple[str, bool]]:
    """Split at commas outside quotes; yield each item, and whether it was quoted."""
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
    """Return a quoted item, and the place of the comma or end after it."""
    quote = words[start]
    item = _QUOTED[quote].match(words, start)
    if item is None:
        raise FormatError(f"{name}: no closing {quote} in {_cut(words[start:])}")
    end = _past_spaces(words, item.end())
    if words[end : end + 1] not in {"", ","}:
        raise FormatError(
            f"{name}: a comma must follow {_cut(item[0])} "
            f"(a {quote} inside is written twice)"
        )
    return item[1].replace(quote * 2, quote), end


def _past_spaces(words: str, at: int) -> int:
    while words[at : at + 1].isspace():
        at += 1
    return at


def _cut(text: str) -> str:
    """Quote *text* for a message, on one line and shortened."""
    return repr(text if len(text) <= _LONGEST_SAID else text[:_LONGEST_SAID] + "...")
