"""The commands of a shell script in their order, as far as a lint needs."""

import re
from collections.abc import Iterator

import msgspec

from weigh.dialect.shell_tokens import Token, tokens

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
    """A simple command: its words without quotes, the files it is redirected from.

    Variables stand as they are written. ``background`` is True where ``&`` ends it,
    ``piped`` where its output is another's input.
    """

    line: int
    text: str
    words: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    background: bool = False
    piped: bool = False

    @property
    def name(self) -> str:
        """Give the command's own word, empty for an assignment."""
        return self.words[0] if self.words else ""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a shell would run; ``documents`` are the lines of here-documents."""

    commands: tuple[Command, ...] = ()
    functions: frozenset[str] = frozenset()
    documents: frozenset[int] = frozenset()
    tokens: tuple[Token, ...] = ()

    def named(self, *names: str) -> Iterator[Command]:
        """Yield the commands of these names."""
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
    """Take the quotes off a word; variables stay."""
    return word.replace("'", "").replace('"', "")


def _document_lines(found: tuple[Token, ...]) -> Iterator[int]:
    for token in found:
        if token.kind == "document":
            rows = token.text.count("\n") + (not token.text.endswith("\n"))
            yield from range(token.line, token.line + rows)


class _Reader:
    """Puts tokens together to commands; knows just enough grammar to find them."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self._words: list[Token] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []
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
        """End the command at hand."""
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
                    background=ending == "&",
                    piped=ending in ("|", "|&"),
                )
            )
        self._words, self._inputs, self._outputs = [], [], []
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
        self._target = ""
