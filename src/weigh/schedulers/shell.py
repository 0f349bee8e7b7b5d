"""A shell script cut into tokens and commands, as precisely as lint needs."""

import re
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
    """Yield the tokens of *text*, without comments and line continuations."""
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
    """Return where the next piece ends and its kind; None for space and comments."""
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
    """Return where the operator at *place* ends, zero if there is none."""
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
    """Return the end of one character of a word, or of the quotes that begin there."""
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
    """Return the end of a pair of brackets; *place* is the opening one."""
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


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_PASSED = frozenset(
    {"if", "then", "elif", "else", "fi", "do", "done", "while", "until"}
    | {"esac", "{", "}", "!", "time", "coproc"}
)
_HEADS = frozenset({"for", "select", "case", "function"})
_INTO = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_FROM = frozenset({"<", "<>"})
_OTHER_TARGETS = frozenset({"<<", "<<-", "<<<", "<&"})
_REDIRECTS = _INTO | _FROM | _OTHER_TARGETS


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A simple command: its words without quotes, its redirections.

    Variables are not expanded. ``background`` is True if ``&`` ends it, ``piped`` if
    its output is piped to another command. ``appended`` are those of the outputs that
    are not overwritten.
    """

    line: int
    text: str
    words: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    appended: tuple[str, ...] = ()
    background: bool = False
    piped: bool = False

    @property
    def name(self) -> str:
        """Return the command's name, empty for an assignment."""
        return self.words[0] if self.words else ""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that a shell would run.

    ``documents`` are the lines of here-documents, and those within quotes or ``$( )``.
    """

    commands: tuple[Command, ...] = ()
    functions: frozenset[str] = frozenset()
    documents: frozenset[int] = frozenset()
    tokens: tuple[Token, ...] = ()

    def named(self, *names: str) -> Iterator[Command]:
        """Yield the commands with one of these names."""
        return (one for one in self.commands if one.name in names)


def read_body(text: str) -> Body:
    """Read the commands of a shell script."""
    found = tuple(tokens(text))
    reader = _Reader()
    for place, token in enumerate(found):
        following = found[place + 1].text if place + 1 < len(found) else ""
        reader.take(token, following)
    reader.close("")
    return Body(
        commands=tuple(reader.commands),
        functions=frozenset(reader.functions),
        documents=frozenset(_document_lines(found)),
        tokens=found,
    )


def unquoted(word: str) -> str:
    """Return a word without its quotes; variables stay."""
    return word.replace("'", "").replace('"', "")


def _document_lines(found: tuple[Token, ...]) -> Iterator[int]:
    for token in found:
        if token.kind == "document":
            rows = token.text.count("\n") + (not token.text.endswith("\n"))
            yield from range(token.line, token.line + rows)
        elif token.kind == "word":
            yield from range(token.line + 1, token.line + token.text.count("\n") + 1)


class _Reader:
    """Assembles tokens into commands, with just enough shell grammar to do so."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self._words: list[Token] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._appended: list[str] = []
        self._target = ""
        self._head = ""
        self._pattern = False

    def take(self, token: Token, following: str) -> None:
        if token.kind == "document":
            return
        if token.kind == "newline":
            if not self._pattern and self._head != "case":
                self.close("")
        elif token.kind == "operator":
            self._operator(token, following)
        else:
            self._word(token)

    def close(self, ending: str) -> None:
        """Finish the current command."""
        words = self._words
        count = 0
        while count < len(words) and _ASSIGNMENT.match(words[count].text):
            count += 1
        if words and not self._head:
            self.commands.append(
                Command(
                    line=words[0].line,
                    text=" ".join(word.text for word in words),
                    words=tuple(unquoted(word.text) for word in words[count:]),
                    assigned=tuple(word.text for word in words[:count]),
                    inputs=tuple(self._inputs),
                    outputs=tuple(self._outputs),
                    appended=tuple(self._appended),
                    background=ending == "&",
                    piped=ending in ("|", "|&"),
                )
            )
        self._words, self._inputs = [], []
        self._outputs, self._appended = [], []
        self._target = self._head = ""

    def _operator(self, token: Token, following: str) -> None:
        operator = token.text
        if self._pattern:
            self._pattern = operator != ")"
        elif operator in _REDIRECTS:
            if self._words and self._words[-1].text.isdecimal():
                self._words.pop()  # the descriptor in 2>file
            self._target = operator
        elif operator == "(" and following == ")" and len(self._words) == 1:
            self.functions.add(self._words.pop().text)
        elif operator.startswith("((") or operator in ("<(", ">("):
            pass
        else:
            self.close(operator)
            self._pattern = operator in (";;", ";&", ";;&")

    def _word(self, token: Token) -> None:
        word = token.text
        if self._pattern:
            if word == "esac":
                self._pattern = False
        elif self._target:
            self._redirect(unquoted(word))
        elif self._head == "function":
            self.functions.add(word)
            self._head = ""
        elif self._head:
            if self._head == "case" and word == "in":
                self._head, self._pattern = "", True
        elif not self._words and word in _HEADS:
            self._head = word
        elif self._words or word not in _PASSED:
            self._words.append(token)

    def _redirect(self, path: str) -> None:
        if self._target in _FROM:
            self._inputs.append(path)
        elif self._target in _INTO and not path.isdecimal():
            self._outputs.append(path)
            if self._target in (">>", "&>>"):
                self._appended.append(path)
        self._target = ""
