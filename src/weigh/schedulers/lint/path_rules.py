"""Rules for encoding, first line, interpreter, missing paths and placeholders."""

import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    BRINGS,
    LintCase,
    Rule,
    commands_with_directories,
    is_shared,
    note,
    problem,
    program_place,
    refused,
    starts_by_first_line,
)
from weigh.schedulers.script import ScriptLine
from weigh.schedulers.shell import ShellCommand

_SBATCH = "sbatch"


def _byte_order_mark(lint_case: LintCase) -> Iterator[LintFinding]:
    if not lint_case.script.bom:
        return
    spot = ScriptLine(1, "")
    fix = "sed -i '1s/^\\xef\\xbb\\xbf//' removes it"
    if lint_case.tool == _SBATCH:
        yield refused(spot, "bom", "begins with a byte order mark: refused", fix)
    else:
        effect = "begins with a byte order mark: '#!' is ignored, sh runs the script"
        yield problem(spot, "bom", effect, fix)


def _carriage_returns(lint_case: LintCase) -> Iterator[LintFinding]:
    number = lint_case.script.carriage_returns
    if number is None:
        return
    spot = ScriptLine(number, "")
    fix = "sed -i 's/\\r$//' removes them"
    if lint_case.tool == _SBATCH:
        effect = "Windows line endings (CRLF): refused"
        yield refused(spot, "carriage-returns", effect, fix)
    elif number == 1 and lint_case.script.interpreter:
        effect = (
            "Windows line endings (CRLF): interpreter not found, the job stays in Eqw"
        )
        yield problem(spot, "carriage-returns", effect, fix)
    else:
        effect = "Windows line endings (CRLF): the last word of a line ends in \\r"
        yield problem(spot, "carriage-returns", effect, fix)


def _first_line_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    lines = lint_case.script.lines
    if lint_case.script.interpreter or not any(one.text.strip() for one in lines):
        return
    later = next((one for one in lines if one.text.lstrip().startswith("#!")), None)
    where = "the first line must be '#!/bin/bash'"
    if later is not None:
        where = "'#!' counts only at the start of the first line"
    spot = later or lines[0]
    if lint_case.tool == _SBATCH:
        yield refused(spot, "no-shebang", f"{where}: refused")
        return
    is_plain = starts_by_first_line(lint_case.facts)
    if lint_case.option("S") is None or is_plain:
        fix = "put #!/bin/bash first"
        effect = "no '#!': the queue's shell or /bin/sh runs it, maybe not bash"
        if is_plain:
            effect = "no '#!': /bin/sh runs it on this cluster, not bash"
            if lint_case.option("S") is not None:
                effect += ", and -S has no effect"
        else:
            fix += ", and #$ -S /bin/bash"
        yield note(spot, "no-shebang", effect, fix)


def _interpreter_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    words = lint_case.script.interpreter
    if not words:
        return
    spot, path = lint_case.script.lines[0], words[0]
    after = (
        "the job fails at once" if lint_case.tool == _SBATCH else "the job stays in Eqw"
    )
    if not path.startswith("/"):
        effect = f"{path} is not an absolute path: {after}"
        yield problem(spot, "interpreter", effect, "write #!/bin/bash")
    elif lint_case.is_missing(path):
        yield problem(spot, "interpreter", f"{path} does not exist: {after}")
    elif path.endswith("/env"):
        yield from _through_env(lint_case, spot)


def _through_env(lint_case: LintCase, spot: ScriptLine) -> Iterator[LintFinding]:
    words = lint_case.script.interpreter[1:]
    if words[1:] and not words[0].startswith("-"):
        effect = f"env looks for one program named '{' '.join(words)}': not found"
        fix = f"write #!/usr/bin/env -S {' '.join(words)}"
        yield problem(spot, "interpreter", effect, fix)
        return
    place = lint_case.facts.commands.get(lint_case.script.program)
    if place is not None and place.path is None:
        effect = (
            f"no {lint_case.script.program} on the PATH here: the job fails at once"
        )
        yield problem(spot, "interpreter", effect)


_READERS = ("python", "python3", "bash", "sh", "Rscript", "perl", "julia", "torchrun")
_MAKERS = BRINGS | {"git", "tar", "unzip", "wget", "curl", "rsync", "cp", "mv", "ln"}


def _missing_file_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    made: set[str] = set()
    for command, place in commands_with_directories(lint_case):
        for word, outcome in _needed(command):
            path = lint_case.absolute(word, place)
            if path is None or not lint_case.is_missing(path) or _is_made(path, made):
                continue
            # a path that may exist on the nodes only is not reported
            if is_shared(lint_case, word, path):
                effect = f"{word} does not exist: {outcome}"
                yield problem(command, "missing-path", effect, _fix(lint_case, word))
                made.add(_leaf(path))  # report each path once
        yield from _not_executable(lint_case, command, place, made)
        made.update(_mentioned(command))


def _not_executable(
    lint_case: LintCase, command: ShellCommand, place: str | None, made: set[str]
) -> Iterator[LintFinding]:
    """Find a program by its path whose file nobody may run."""
    word = _program_by_path(command)
    path = lint_case.absolute(word, place) if word else None
    if path is None or path in made or _is_made(path, made):
        return
    is_off = (
        lint_case.kind(path) == "file" and lint_case.facts.executable.get(path) is False
    )
    if is_off and is_shared(lint_case, word, path):
        effect = f"{word} is not executable: permission denied"
        yield problem(command, "not-executable", effect, f"chmod +x {word}")
        made.add(path)


def _program_by_path(command: ShellCommand) -> str:
    """Return the path of the program that a command runs, empty if none."""
    place = program_place(command.words)
    word = "" if place is None else command.words[place]
    return word if "/" in word else ""


def _fix(lint_case: LintCase, word: str) -> str:
    """Suggest a fix if the job starts in another directory than it is submitted in."""
    is_there = lint_case.kind(lint_case.absolute(word, lint_case.facts.cwd))
    return "add #$ -cwd" if is_there in ("file", "directory") else ""


def _needed(command: ShellCommand) -> Iterator[tuple[str, str]]:
    words = command.words
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if command.name == "cd" and arguments:
        yield arguments[0], "the script continues in the same directory"
    elif command.name in ("source", ".") and arguments:
        if "/" in arguments[0]:  # otherwise bash searches PATH
            yield arguments[0], "nothing is activated, and the script continues"
    elif command.name in _READERS and len(words) > 1 and "." in words[1]:
        if not words[1].startswith("-"):
            yield words[1], f"{command.name} cannot open it"
    elif _program_by_path(command).startswith("./"):
        yield _program_by_path(command), "there is nothing to run"
    for name in command.inputs:
        yield name, "there is nothing to read"


def _mentioned(command: ShellCommand) -> Iterator[str]:
    """Yield the names that a command may have created."""
    # what only reads creates nothing
    only_reads = command.name in ("cd", "source", ".", *_READERS)
    makes_venv = {"venv", "virtualenv"} & {*command.words}
    if only_reads and not command.outputs and not makes_venv:
        return
    for word in (*command.words[1:], *command.outputs):
        yield _leaf(word)
        # any part of the name may be a folder that the command creates
        yield from word.split("/")
    if command.name in _MAKERS - BRINGS:
        yield "*"  # an archive or a clone may contain anything


def _is_made(path: str, made: set[str]) -> bool:
    return "*" in made or any(part in made for part in path.split("/") if part)


def _leaf(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


# words that templates leave to be filled in
_ANYWHERE = re.compile(
    r"""TO_?FILL\w* | FILL_?(?:ME|IN)\w* | CHANGE_?ME\w* | REPLACE_?(?:ME|THIS)\w*
      | INSERT_\w+ | \bYOUR[_-]\w+ | \bTODO\b | \bxxx+\b | path/to(?=/|\b)
      | \bmy[_-]?(?:account|project)\b
      | [\w.+-]{1,64}@(?:domain|example|university|your\w*)\.\w+
      | (?<![$\w{])(?:someone|somebody|your[\w.]*|user(?:name)?|me|name)@[\w.-]+""",
    re.VERBOSE | re.IGNORECASE,
)
# in a directive these cannot be redirections or shell tests
_ANGLES = re.compile(
    r"<(?:[A-Za-z][\w .-]*|\.\.\.)>|\[(?:your|account|user|email)[\w .-]*\]",
    re.IGNORECASE,
)


def holds_placeholder(text: str) -> bool:
    """Return whether the directive *text* still has a placeholder of a template."""
    return _placeholder(text) is not None


def _placeholder(text: str) -> re.Match[str] | None:
    return _ANGLES.search(text) or _ANYWHERE.search(text)


def _placeholder_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find placeholders in the values of options."""
    for option in lint_case.options:
        found = _placeholder(option.value)
        if found:
            effect = f"{found[0]} is a placeholder of a template"
            yield problem(option, "placeholder", effect)


RULES: tuple[Rule, ...] = (
    _byte_order_mark,
    _carriage_returns,
    _first_line_findings,
    _interpreter_findings,
    _placeholder_findings,
    _missing_file_findings,
)
