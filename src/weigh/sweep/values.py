"""The values of a parameter, as one grammar writes them for ``scan`` and ``sweep``.

NAME=V1,V2,...         one by one, each as typed
NAME='a,b',"it''s"     in quotes: text, commas and all; a quote doubled is a quote
NAME=1..5              integers, both ends included; 01..10 keeps its zeros
NAME=0.1..0.5:0.1      by step, exact in decimals
NAME=1e-5..1e-1:log5   so many geometric values, ends included
NAME=1,2,5..8          any mixture of these
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from weigh.errors import FormatError
from weigh.sweep.ranges import MOST_VALUES, NUMBER, expand, is_range

Value: TypeAlias = int | float | str

NAME = r"[^\W\d][\w.-]*"

_NAME = re.compile(NAME)
_NUMBER = re.compile(NUMBER)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # those that every JSON reader holds
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
    if _INTEGER.fullmatch(text):
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
