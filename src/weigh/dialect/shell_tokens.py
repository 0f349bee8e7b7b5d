"""Shell text cut into words and operators, as far as a lint needs: never run.

What cannot be read is passed over: a lint must not stumble over a script that the
shell itself would take.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

_OPERATORS = (
    *("<<<", "<<-", "&>>", ";;&"),
    *("&&", "||", ";;", ";&", "|&", "<<", "<(", ">(", "<&", ">&", "&>", ">>", "<>"),
    *(">|", "((", "<", ">", "|", "&", ";", "(", ")"),
)
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_CLOSING = {"(": ")", "{": "}"}


class Token(msgspec.Struct, frozen=True):
    """A word, an operator, the end of a line or the text of a here-document."""

    kind: Literal["word", "operator", "newline", "document"]
    text: str
    line: int


def tokens(text: str, first_line: int = 1) -> Iterator[Token]:
    """Cut *text* into tokens; comments and line continuations are left out."""
    place, line = 0, first_line
    delimiters: list[tuple[str, bool]] = []
    await_delimiter = ""
    while place < len(text):
        end, kind = _next(text, place)
        piece = text[place:end]
        if kind == "word" and await_delimiter:
            delimiters.append((_plain(piece), await_delimiter == "<<-"))
            await_delimiter = ""
        elif kind == "operator" and piece in ("<<", "<<-"):
            await_delimiter = piece
        if kind:
            yield Token(kind, piece, line)
        line += piece.count("\n")
        place = end
        if kind == "newline":
            for delimiter, indented in delimiters:
                end = _document_end(text, place, delimiter, indented=indented)
                yield Token("document", text[place:end], line)
                line += text.count("\n", place, end)
                place = end
            delimiters, await_delimiter = [], ""


def _next(
    text: str, place: int
) -> tuple[int, Literal["word", "operator", "newline"] | None]:
    """Give where the next piece ends, and what it is; None is nothing to a shell."""
    character = text[place]
    if character == "\n":
        return place + 1, "newline"
    if character in " \t\r":
        return place + 1, None
    if text.startswith("\\\n", place):
        return place + 2, None
    if character == "#":
        end = text.find("\n", place)
        return (len(text) if end < 0 else end), None
    end = _operator_end(text, place)
    return (end, "operator") if end else (_word_end(text, place), "word")


def _operator_end(text: str, place: int) -> int:
    """Give where the operator at *place* ends, zero where there is none."""
    for operator in _OPERATORS:
        if text.startswith(operator, place):
            if operator == "((":
                closed = text.find("))", place)
                return len(text) if closed < 0 else closed + 2
            return place + len(operator)
    return 0


def _word_end(text: str, place: int) -> int:
    start = place
    while place < len(text):
        character = text[place]
        if character == "(" and place > start and text[place - 1] == "=":
            place = _nested_end(text, place)
        elif character in _ENDS_WORD:
            break
        elif character == "$" and text[place + 1 : place + 2] in _CLOSING:
            place = _nested_end(text, place + 1)
        else:
            place = _step(text, place)
    return place


def _step(text: str, place: int) -> int:
    """Pass one character of a word, or the quotes that begin there."""
    character = text[place]
    if character == "\\":
        return min(place + 2, len(text))
    if character in "'`":
        closed = text.find(character, place + 1)
        return len(text) if closed < 0 else closed + 1
    if character == '"':
        return _double_quotes_end(text, place)
    return place + 1


def _double_quotes_end(text: str, place: int) -> int:
    place += 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return min(place + 1, len(text))


def _nested_end(text: str, place: int) -> int:
    """Pass a pair of brackets with what is in it; *place* is the first."""
    opening, depth = text[place], 0
    closing = _CLOSING[opening]
    while place < len(text):
        if text[place] in "'\"\\`":
            place = _step(text, place)
            continue
        depth += (text[place] == opening) - (text[place] == closing)
        place += 1
        if not depth:
            break
    return place


def _document_end(text: str, place: int, delimiter: str, *, indented: bool) -> int:
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end + 1
        row = text[place:end].rstrip("\r\n")
        place = end
        if (row.lstrip("\t") if indented else row) == delimiter:
            break
    return place


def _plain(word: str) -> str:
    return word.replace("'", "").replace('"', "").replace("\\", "")
