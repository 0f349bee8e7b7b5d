"""Rules for what a script sources, for `set -u`, and for paths of one machine only."""

import itertools
import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    LintCase,
    Rule,
    commands_with_directories,
    note,
)
from weigh.schedulers.shell import ShellBody, ShellCommand, read_body

_TESTS = frozenset({"[", "[[", "test", "tty", "shopt"})
_ASKS_FOR_TERMINAL = re.compile(r"\$-|\bPS1\b|\btty\b|-t\s+[012]\b|login_shell")
_HOOK = re.compile(
    r"shell\.\w+\s+hook|shell\s+hook|__conda_setup|profile\.d/(?:conda|mamba)"
)
_OF_CONDA = re.compile(r"conda|mamba|forge", re.IGNORECASE)
_INSTALLED = re.compile(r"(/[\w./-]+)/(?:bin/conda|etc/profile\.d/conda\.sh)\b")
_SOURCES = frozenset({"source", "."})
_LEAVES = frozenset({"return", "exit"})
_MOST_FILES = 8


def sourced_path(lint_case: LintCase, command: ShellCommand) -> str | None:
    """Return the absolute path of the file that a command sources, if it is known."""
    if command.name not in _SOURCES or len(command.words) == 1:
        return None
    return lint_case.absolute(command.words[1], lint_case.start)


def is_left_early(lint_case: LintCase, path: str | None) -> bool:
    """Return whether a sourced file returns at its start where there is no terminal.

    Distributions begin ~/.bashrc so: what follows is for people who type.
    """
    text = lint_case.facts.texts.get(path) if path else None
    if text is None:
        return False
    body = read_body(text)
    for place, command in enumerate(body.commands):
        if command.name in _LEAVES:
            return _is_guard(body, place)
        # a command that does something: a return behind it is no guard at the start
        if command.name not in {*_TESTS, "", "export", "umask", "shopt", "set"}:
            return False
    return False


def gives_conda(lint_case: LintCase, path: str | None, depth: int = 0) -> bool | None:
    """Return whether sourcing a file defines `conda`; None where that is not known."""
    text = lint_case.facts.texts.get(path) if path else None
    if text is None or depth > _MOST_FILES:
        return None
    body = read_body(text)
    # its grammar is not clear
    if not body.commands and text.strip():
        return None
    is_known = True
    for place, command in enumerate(body.commands):
        if command.name in _LEAVES and _is_guard(body, place):
            return False if is_known else None
        if _HOOK.search(command.text):
            return True
        if command.name in _SOURCES:
            nested = gives_conda(lint_case, sourced_path(lint_case, command), depth + 1)
            if nested:
                return True
            is_known = is_known and nested is not None
        # these may define anything
        elif command.name in {"eval", "module", "ml"}:
            is_known = False
    return False if is_known and not _OF_CONDA.search(text) else None


def early_return_words(
    lint_case: LintCase, command: ShellCommand, program: str
) -> tuple[str, str]:
    """Return why a sourced file leaves *program* undefined, and what defines it."""
    name, path = command.words[1], sourced_path(lint_case, command)
    text = lint_case.facts.texts.get(path or "") or ""
    why = f"{name} defines no {program}"
    if _OF_CONDA.search(text):
        why = f"{name} returns before the hook in a shell that is not interactive"
    installed = _INSTALLED.search(text)
    fix = f'eval "$({program} shell.bash hook)" before it'
    if installed:
        fix = f"source {installed[1]}/etc/profile.d/conda.sh before it"
    return f"{program} activate fails: {why}", fix


def _is_guard(shell_body: ShellBody, place: int) -> bool:
    """Return whether the command there leaves a file where there is no terminal."""
    command = shell_body.commands[place]
    before = shell_body.commands[place - 1] if place else None
    if before is not None and before.name in _TESTS:
        return bool(_ASKS_FOR_TERMINAL.search(before.text))
    words = [one for one in shell_body.tokens if one.line <= command.line]
    cases = [n for n, one in enumerate(words) if one.text == "case"]
    ended = {one.text for one in words[cases[-1] :]} & {"esac"} if cases else {"esac"}
    # the `case` around the command has not been closed before it
    is_open = not ended or words[-1].line == command.line
    subject = words[cases[-1] + 1].text if cases and is_open else ""
    return bool(_ASKS_FOR_TERMINAL.search(subject))


_ACTIVATES = frozenset({"conda", "mamba", "micromamba"})
_LOADS = frozenset({"module", "ml", "spack"})


def _strict_mode(lint_case: LintCase) -> Iterator[LintFinding]:
    """Note `set -u` where scripts of others are read, which have unset variables."""
    is_strict = any(map(_has_u, lint_case.script.interpreter[1:]))
    for command in lint_case.body.commands:
        if command.name == "set":
            words = command.words[1:]
            named = {*itertools.pairwise(words)}
            is_strict |= any(map(_has_u, words)) or ("-o", "nounset") in named
            is_off = any(word[:1] == "+" and "u" in word for word in words)
            is_strict &= not (is_off or ("+o", "nounset") in named)
        elif is_strict and _reads_scripts_of_others(command):
            what = " ".join(command.words[:2])
            effect = f"set -u ends the job where {what} reads an unset variable"
            yield note(command, "strict-mode", effect, "set +u before it, set -u after")
            return


def _has_u(word: str) -> bool:
    return word[:1] == "-" and word[1:2] != "-" and "u" in word


def _reads_scripts_of_others(command: ShellCommand) -> bool:
    words = command.words
    if command.name in _ACTIVATES:
        return len(words) > 1 and words[1] in {"activate", "deactivate"}
    if command.name in _LOADS:
        return len(words) > 1 and words[1] not in {"list", "avail", "spider"}
    path = words[1] if command.name in _SOURCES and len(words) > 1 else ""
    return path.startswith(("/etc/", "~/.")) or bool(
        re.search(r"/(?:\.bashrc|\.profile|\.bash_profile|setvars\.sh)$", path)
    )


_OF_THE_MACHINE = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/")  # noqa: S108
_MAYBE_OF_IT = re.compile(r"/[\w-]*(?:scratch|local|nvme|ssd)[\w-]*/.", re.IGNORECASE)
_READ_FIRST = frozenset({"cd", "pushd", "source", ".", "cat", "cp", "rsync", "tar"})
_RUNS_FILE = re.compile(r"(?:python[0-9.]*|bash|sh|Rscript|perl|julia)$")


def _node_local(lint_case: LintCase) -> Iterator[LintFinding]:
    """Note a path that the script reads and that this machine has for itself."""
    made = ""
    for command, place in commands_with_directories(lint_case):
        for word in _read_by(command):
            path = lint_case.absolute(word, place)
            if path is None or _is_made_before(path, made):
                continue
            effect = _only_here(lint_case, path)
            if effect:
                fix = "keep it on the shared disk, or copy it in the job"
                yield note(command, "node-local", effect, fix)
                return
        if command.name not in {"cd", "pushd", "source", "."}:
            # what an earlier command names it may have created
            made += f" {command.text} {' '.join(command.outputs)}"


def _is_made_before(path: str, made: str) -> bool:
    """Return whether an earlier command names the path, or a folder above it."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(3, len(parts) + 1))
    return any(re.search(rf"{re.escape(one)}(?![\w.-])", made) for one in above)


def _read_by(command: ShellCommand) -> Iterator[str]:
    words = [word for word in command.words[1:] if not word.startswith("-")]
    if command.name in _READ_FIRST or _RUNS_FILE.match(command.name):
        yield from words[:1]
    yield from command.inputs
    if command.name.startswith("/"):
        yield command.name


def _only_here(lint_case: LintCase, path: str) -> str:
    """Return why the nodes do not have a path; empty where they may."""
    if path.startswith(_OF_THE_MACHINE):
        top = path[: path.index("/", 1)]
        if path.startswith(("/var/", "/dev/", "/run/")):
            top = "/".join(path.split("/")[:3])
        missing = ", and it is not there either" if lint_case.is_missing(path) else ""
        return f"{path}: a node has its own {top}, each job too at many sites{missing}"
    is_here = lint_case.kind(path) in ("file", "directory")
    if is_here and _MAYBE_OF_IT.match(path) and lint_case.facts.local_disks.get(path):
        return f"{path} is on this machine's own disk: the nodes do not see it"
    return ""


RULES: tuple[Rule, ...] = (_strict_mode, _node_local)
