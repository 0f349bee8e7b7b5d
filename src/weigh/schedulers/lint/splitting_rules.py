"""A command line that is run by word splitting: no shell reads its quotes and pipes."""

import re
from collections.abc import Iterator

import msgspec

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    LintCase,
    Rule,
    commands_with_directories,
    problem,
)
from weigh.schedulers.shell import ShellCommand, tokens, unquoted

# what may stand before the command itself, with options of its own
_STARTERS = frozenset(
    {"command", "env", "exec", "mpiexec", "mpirun", "nice", "nohup", "numactl"}
    | {"singularity", "apptainer", "srun", "stdbuf", "taskset", "time", "timeout"}
)
_WITHOUT_VALUE = frozenset(
    {"--exclusive", "--exact", "--overlap", "--pty", "--label", "-l", "--unbuffered"}
    | {"-u", "-O", "-v", "-Q", "-p", "--oversubscribe", "--bind-to-core", "--nv", "-e"}
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(\[[^]]*\])?\}|(\w+))")
_SUBSTITUTION = re.compile(r"\$\((.*)\)|`(.*)`", re.DOTALL)
_LIST = re.compile(r"(\w+)\+?=\((.*)\)", re.DOTALL)
# what only a shell understands, with the words for it
_NEEDS_A_SHELL = (
    (re.compile(r"""['"]"""), "quotes"),
    (re.compile(r"\|"), "a pipe"),
    (re.compile(r"[<>]"), "a redirection"),
    (re.compile(r"&&|;|&\s*$"), "several commands"),
    (re.compile(r"\$[\w{(]|`"), "a variable"),
    (re.compile(r"^\s*\w+="), "an assignment"),
)


class CommandLines(msgspec.Struct, frozen=True):
    """The texts that a variable may hold, and what holds them."""

    name: str
    lines: tuple[str, ...]

    def that_needs_a_shell(self) -> tuple[int, str] | None:
        """Return the number of the first such line, and what it has."""
        for number, line in enumerate(self.lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            for pattern, what in _NEEDS_A_SHELL:
                if pattern.search(line):
                    return number, what
        return None


def _split_lines(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find lines with quotes, pipes or redirections that are run word by word."""
    known: dict[str, CommandLines] = {}
    loops = [
        one.inputs for one in lint_case.body.commands if not one.words and one.inputs
    ]
    for command, place in commands_with_directories(lint_case):
        raw = [one.text for one in tokens(command.text) if one.kind == "word"]
        at = _expanded_command(raw, len(command.assigned))
        held = None if at is None else _held_by(lint_case, raw[at], place, known)
        found = held.that_needs_a_shell() if held else None
        if at is not None and held is not None and found is not None:
            number, what = found
            effect = f"{held.name}:{number} has {what}, and no shell reads that here"
            rest = (word.replace('"', '\\"') for word in raw[at + 1 :])
            line = " ".join((raw[at], *rest))
            cure = " ".join((*raw[:at], f'bash -c "{line}"'))
            yield problem(command, "word-splitting", effect, cure)
            return
        known |= _assigned(lint_case, command, place, loops, known)


def _expanded_command(raw: list[str], assigned: int) -> int | None:
    """Return the place of the unquoted expansion that is what a command runs."""
    is_value, is_first = False, True
    for at, word in enumerate(raw[assigned:], assigned):
        name = word.rpartition("/")[2]
        if word[:1] in {"$", "`"}:
            is_plain = _VARIABLE.fullmatch(word) or _SUBSTITUTION.fullmatch(word)
            return at if is_plain and not is_value else None
        if word[:1] == "-":
            is_value = "=" not in word and word not in _WITHOUT_VALUE
        elif name in _STARTERS:
            is_value = name == "timeout"
        elif (is_value and not is_first) or "=" in word:
            is_value = False
        else:
            return None  # it is the program
        is_first = False
    return None


def _held_by(
    lint_case: LintCase, word: str, place: str | None, known: dict[str, CommandLines]
) -> CommandLines | None:
    """Return the command lines that an expansion may give, if they are known."""
    variable = _VARIABLE.fullmatch(word)
    if variable is not None:
        return known.get(variable[1] or variable[3])
    inner = _SUBSTITUTION.fullmatch(word)
    return (
        _of_file(lint_case, (inner[1] or inner[2] or ""), place, known)
        if inner
        else None
    )


def _of_file(
    lint_case: LintCase, text: str, place: str | None, known: dict[str, CommandLines]
) -> CommandLines | None:
    """Return the lines of the file among the words of a substitution."""
    for token in tokens(text):
        name = unquoted(token.text)
        variable = _VARIABLE.fullmatch(name)
        if variable is not None:
            named = known.get(variable[1] or variable[3])
            name = named.lines[0] if named and len(named.lines) == 1 else name
        path = lint_case.absolute(name, place) if token.kind == "word" else None
        lines = lint_case.facts.texts.get(path) if path else None
        if lines is not None:
            return CommandLines(name, tuple(lines.splitlines()))
    return None


def _assigned(
    lint_case: LintCase,
    command: ShellCommand,
    place: str | None,
    loops: list[tuple[str, ...]],
    known: dict[str, CommandLines],
) -> dict[str, CommandLines]:
    """Return what a command assigns, as far as it is a line or a list of lines."""
    found: dict[str, CommandLines] = {}
    words = (
        *command.assigned,
        *(command.words[1:] if command.name == "export" else ()),
    )
    for word in words:
        name, _, value = word.partition("=")
        listed = _LIST.fullmatch(word)
        if listed is not None:
            parts = (one.text for one in tokens(listed[2]) if one.kind == "word")
            texts = tuple(_without_outer_quotes(part) for part in parts)
            found[name.rstrip("+")] = CommandLines(name.rstrip("+"), texts)
            continue
        plain = _without_outer_quotes(value)
        inner = _SUBSTITUTION.fullmatch(plain)
        held = (
            _of_file(lint_case, inner[1] or inner[2] or "", place, known)
            if inner
            else None
        )
        if inner is None and plain:
            line = plain.replace('\\"', '"')
            held = CommandLines(name, (re.sub(r"\$(?:\w+|\{\w+\})", "x", line),))
        if held is not None:
            found[name] = held
    if command.name in {"read", "mapfile", "readarray"} and len(command.words) > 1:
        sources = command.inputs or next(iter(loops), ())
        text = " ".join(sources) or command.text
        held = _of_file(lint_case, text, place, known)
        if held is not None:
            found[command.words[-1]] = held
    return found


def _without_outer_quotes(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


RULES: tuple[Rule, ...] = (_split_lines,)
