"""Lines that only bash understands, under ``#!/bin/sh``.

What dash(1) of Debian 12 does with each was seen; where sh is bash they work.
"""

import re
from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, Spot, error
from weigh.dialect.script import Line
from weigh.dialect.shell import Command
from weigh.dialect.shell_tokens import Token
from weigh.model.lint import Finding

_PLAIN = frozenset({"sh", "dash", "ash"})
_CURE = "write #!/bin/bash"

_GOES_ON = "is not found there, and the script goes on"
_ENDS = "is a syntax error there: the script ends"

_BUILTINS = frozenset(
    {"source", "declare", "typeset", "let", "shopt", "pushd", "popd"}
    | {"mapfile", "readarray", "disown", "enable"}
)
_OPERATORS = {
    "<<<": f"<<< {_ENDS}",
    "<(": f"<( ) {_ENDS}",
    ">(": f">( ) {_ENDS}",
    "&>": "&> sends the command to the background there",
    "&>>": "&>> sends the command to the background there",
}
_WORDS = (
    (re.compile(r"\w\+?=\("), f"an array {_ENDS}"),
    (re.compile(r"\$\{\w+\["), f"an array {_ENDS}"),
    (re.compile(r"\{\w+\.\.\w+\}"), "{1..3} stays one word there"),
    (re.compile(r"\$\{\w+(//?|:\d|:\s|\^|,)"), "this ${...} ends the script there"),
    (re.compile(r"\$RANDOM\b|\$\{RANDOM\}"), "RANDOM is empty there"),
    (re.compile(r"\$\{?BASH_\w+|\$\{?PIPESTATUS"), "bash's variables are empty there"),
)


def _bash_only(case: Case) -> Iterator[Finding]:
    if case.script.program not in _PLAIN:
        return
    said: set[str] = set()
    found: list[tuple[Spot, str]] = [*_of_commands(case), *_of_tokens(case)]
    for spot, effect in found:
        if effect not in said:
            said.add(effect)
            yield error(spot, "bash-only", f"sh is often dash: {effect}", _CURE)


def _of_commands(case: Case) -> Iterator[tuple[Command, str]]:
    for command in case.body.commands:
        words = command.words
        if command.name in _BUILTINS and command.name not in case.body.functions:
            yield command, f"{command.name} {_GOES_ON}"
        elif command.name == "[[":
            yield command, "[[ is not found there, and the test is false"
        elif command.name in ("[", "test") and "==" in words:
            yield command, "== in [ ] is an error there, and the test is false"
        elif command.name == "set" and "pipefail" in words:
            yield command, "set -o pipefail ends the script there"


def _of_tokens(case: Case) -> Iterator[tuple[Line, str]]:
    last = ""
    for token in case.body.tokens:
        spot = Line(token.line, token.text)
        if token.kind == "operator" and token.text in _OPERATORS:
            yield spot, _OPERATORS[token.text]
        elif token.kind == "operator" and token.text.startswith("(("):
            yield spot, f"for (( )) {_ENDS}" if last == "for" else "(( )) is none there"
        elif token.kind == "word":
            if token.text == "function" and last in ("", "\n", ";"):
                yield spot, f"function {_ENDS}"
            yield from _of_word(token)
        last = token.text


def _of_word(token: Token) -> Iterator[tuple[Line, str]]:
    if token.text.startswith("'"):
        return
    for pattern, effect in _WORDS:
        if pattern.search(token.text):
            yield Line(token.line, token.text), effect


RULES: tuple[Rule, ...] = (_bash_only,)
