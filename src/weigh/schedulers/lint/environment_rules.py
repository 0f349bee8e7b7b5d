"""Rules for programs that a batch shell does not find, and for bash run by sh."""

import re
from collections.abc import Iterator

from weigh.model.lint import Finding
from weigh.schedulers.lint.case import (
    BRINGS,
    Case,
    MakeFinding,
    Rule,
    Spot,
    error,
    nearest,
    warning,
)
from weigh.schedulers.script import Line
from weigh.schedulers.shell import Command, Token

BARE_PATH = "/usr/local/bin:/bin:/usr/bin"

_CONDA = ("conda", "mamba", "micromamba")
_ACTIVATE = 2
_MODULES = ("module", "ml")
_STARTS_SHELL = ("/etc/profile", ".bashrc", ".bash_profile", ".profile")
_BEFORE = frozenset({"exec", "nohup", "command", "time"})
_SHELLS_OWN = """
    . : [ [[ alias bg break builtin cd command continue declare dirs disown echo enable
    eval exec exit export false fg getopts hash jobs kill let local mapfile module ml
    popd printf pushd pwd read readarray readonly return set shift shopt source test
    times trap true type typeset ulimit umask unalias unset wait
"""
_OF_THE_NODES = frozenset({"nvidia-smi", "nvcc", "rocm-smi", "srun", "mpirun"})
_COMMON = (
    *("python", "python3", "parallel", "rsync", "torchrun", "accelerate", "Rscript"),
    *("conda", "module", "mkdir", "apptainer", "singularity", "julia", "hostname"),
)
_BUILTINS = frozenset(_SHELLS_OWN.split())


def _conda(case: Case) -> Iterator[Finding]:
    for place, command in enumerate(case.body.commands):
        words = command.words[:_ACTIVATE]
        if len(words) < _ACTIVATE or words[0] not in _CONDA or words[1] != "activate":
            continue
        before = case.body.commands[:place]
        if _is_login(case) or any(map(_hooks_conda, before)):
            return
        effect = f"{words[0]} activate fails: a batch shell reads no .bashrc"
        fix = f'eval "$({words[0]} shell.bash hook)" before it'
        make: MakeFinding = (
            warning if any(one.name in _MODULES for one in before) else error
        )
        yield make(command, "conda", effect, fix)
        return


def _modules(case: Case) -> Iterator[Finding]:
    # module is a bash function, which dash does not import from the environment
    if _keeps_environment(case) and case.script.program != "sh":
        return
    for place, command in enumerate(case.body.commands):
        if command.name not in _MODULES:
            continue
        before = case.body.commands[:place]
        if not _is_login(case) and not any(map(_starts_shell, before)):
            effect = f"{command.name} is not found in a batch shell"
            yield error(command, "module", effect, "source /etc/profile before it")
        return


def _programs(case: Case) -> Iterator[Finding]:
    reported: set[str] = set()
    brought = _is_login(case)
    for command in case.body.commands:
        name = _program(command)
        if name and name not in reported and name not in case.body.functions:
            reported.add(name)
            yield from _program_findings(case, command, name, brought=brought)
        if command.name in BRINGS or _sets_path(command):
            brought = True


def _program_findings(
    case: Case, command: Command, name: str, *, brought: bool
) -> Iterator[Finding]:
    place = case.facts.commands.get(name)
    if place is None or brought:
        return
    if place.on_nodes is False:
        effect = f"{name} is only on this machine's PATH: not found on the nodes"
        yield error(command, "login-only", effect)
    elif place.path is None and place.on_nodes is None:
        if name not in _OF_THE_NODES:
            yield _not_found(command, name)
    elif place.path is not None and not _keeps_environment(case):
        if place.bare_path is None:
            effect = f"the job's PATH is {BARE_PATH}: {name} is not found"
            yield error(command, "bare-path", effect, "activate it here, or #$ -V")
        elif place.bare_path != place.path:
            effect = f"the job's PATH has a different {name}: {place.bare_path}"
            yield warning(command, "bare-path", effect, f"yours is {place.path}")


def _not_found(command: Command, name: str) -> Finding:
    near = nearest(name, _COMMON)
    if near:
        effect = f"{name} is not found: the script continues without it"
        return error(command, "command-not-found", effect, f"did you mean {near}?")
    effect = f"{name} is not found here, and the script does not load it"
    return warning(command, "command-not-found", effect)


def _program(command: Command) -> str:
    """Return the program that a command searches on PATH, empty if none."""
    words = [word for word in command.words if word not in _BEFORE]
    name = words[0] if words and not words[0].startswith("-") else ""
    plain = (
        name.isascii()
        and name.replace("-", "")
        .replace("_", "")
        .replace(".", "")
        .replace("+", "")
        .isalnum()
    )
    return name if plain and name not in _BUILTINS else ""


def _keeps_environment(case: Case) -> bool:
    """Return whether the job inherits the variables of the submitting shell."""
    if case.tool == "qsub":
        return case.option("V") is not None
    export = case.option("export")
    return export is None or export.value.upper() not in ("NONE", "NIL")


def _is_login(case: Case) -> bool:
    flags = case.script.interpreter[1:]
    shell = case.option("S") if case.tool == "qsub" else None
    login = {"-l", "--login", "-i", "-il", "-li"}
    return bool(login & {*flags, *(shell.value.split() if shell else ())})


def _starts_shell(command: Command) -> bool:
    named = " ".join(command.words[1:])
    is_read = command.name in ("source", ".")
    return is_read and (
        any(name in named for name in _STARTS_SHELL)
        or any(part in named for part in ("modul", "lmod", "init"))
    )


def _hooks_conda(command: Command) -> bool:
    text = command.text
    if command.name == "eval":
        return "hook" in text
    if command.name in ("source", "."):
        return any(part in text for part in ("conda.sh", "mamba.sh", "profile", "rc"))
    return False


def _sets_path(command: Command) -> bool:
    return any("PATH=" in word for word in (*command.assigned, *command.words))


RULES: tuple[Rule, ...] = (_conda, _modules, _programs)


_PLAIN = frozenset({"sh", "dash", "ash"})
_FIX = "write #!/bin/bash"

_GOES_ON = "is not found there, and the script continues"
_ENDS = "is a syntax error there: the script ends"

_BASH_BUILTINS = frozenset(
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
    reported: set[str] = set()
    found: list[tuple[Spot, str]] = [*_of_commands(case), *_of_tokens(case)]
    for spot, effect in found:
        if effect not in reported:
            reported.add(effect)
            yield error(spot, "bash-only", f"sh is often dash: {effect}", _FIX)


def _of_commands(case: Case) -> Iterator[tuple[Command, str]]:
    for command in case.body.commands:
        words = command.words
        if command.name in _BASH_BUILTINS and command.name not in case.body.functions:
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
            yield (
                spot,
                f"for (( )) {_ENDS}" if last == "for" else "(( )) does not exist there",
            )
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


PLAIN_SH_RULES: tuple[Rule, ...] = (_bash_only,)
