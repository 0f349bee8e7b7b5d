"""Rules for what a batch shell does not find, set, source, or see on its node."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from weigh.model.lint import LintFinding
from weigh.schedulers.conda_environments import conda_program, lacks_conda_environment
from weigh.schedulers.lint.case import (
    BRINGS,
    LintCase,
    Rule,
    commands_with_directories,
    most_similar_word,
    note,
    problem,
    starts_by_first_line,
)
from weigh.schedulers.script import ScriptLine
from weigh.schedulers.shell import ShellBody, ShellCommand, read_body

BARE_PATH = "/usr/local/bin:/bin:/usr/bin"

_CONDA = ("conda", "mamba", "micromamba")
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


def _conda(lint_case: LintCase) -> Iterator[LintFinding]:
    for place, command in enumerate(lint_case.body.commands):
        words = command.words
        if command.name not in _CONDA or words[1:2] != ("activate",):
            continue
        before = lint_case.body.commands[:place]
        useless = [one for one in before if _lacks(lint_case, one, _CONDA_SET_UP)]
        hooks = [one for one in before if one not in useless]
        if _is_login(lint_case) or any(map(_hooks_conda, hooks)):
            return
        if words[0] in lint_case.body.functions or any(map(_loads_conda, before)):
            return
        effect = f"{words[0]} activate fails: a batch shell reads no .bashrc"
        fix = f'eval "$({words[0]} shell.bash hook)" before it'
        if useless:
            effect, fix = _early_return_words(lint_case, useless[-1], words[0])
        # Grid Engine starts login shells at many sites
        make = (
            problem
            if lint_case.tool == "sbatch" or starts_by_first_line(lint_case.facts)
            else note
        )
        yield make(command, "conda", effect, fix)
        return


def _missing_environments(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find an environment that is not in a folder of conda, nor one that it lists.

    Nothing is known of the conda of a module, and of one whose settings name folders.
    """
    facts, commands = lint_case.facts, lint_case.body.commands
    paths = [_sourced_path(lint_case, one) for one in commands if one.name in _SOURCES]
    installed = [_INSTALLED.search(one or "") for one in (conda_program(facts), *paths)]
    roots = [found[1] for found in installed if found]
    for command in commands if roots and None not in paths else ():
        if {"create", "env"} & {*command.words} or _loads_conda(command):
            return
        for name in _ACTIVATES_NAME.findall(command.text):
            if lacks_conda_environment(name, facts, roots):
                effect, fix = f"conda has no environment {name}", "conda env create"
                yield problem(command, "conda", effect, fix)


_BRINGS_CONDA = re.compile(
    r"conda|mamba|forge|python|jupyter|pytorch|tensorflow", re.IGNORECASE
)


def _loads_conda(command: ShellCommand) -> bool:
    """Return whether a module is loaded that defines the function."""
    return command.name in _MODULES and bool(_BRINGS_CONDA.search(command.text))


def _modules(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find ``module`` in a shell that does not have it: a bash function.

    dash does not import functions from the environment; bash run as sh does.
    """
    in_sh = _is_plain_sh(lint_case)
    # bash has it from the submitting shell, which qsub passes on by -V only
    is_passed_on = lint_case.tool == "sbatch" or lint_case.option("V") is not None
    if (is_passed_on and not in_sh) or _is_login(lint_case):
        return
    for place, command in enumerate(lint_case.body.commands):
        if command.name not in _MODULES or command.name in lint_case.body.functions:
            continue
        starts = filter(_starts_shell, lint_case.body.commands[:place])
        if not all(_lacks(lint_case, one, _MODULES_SET_UP) for one in starts):
            return
        where, fix = "in a batch shell", "source /etc/profile before it"
        if in_sh:
            where, fix = "where sh is dash", "write #!/bin/bash"
        make = problem if starts_by_first_line(lint_case.facts) and not in_sh else note
        yield make(command, "module", f"{command.name} is not found {where}", fix)
        return


def _is_plain_sh(lint_case: LintCase) -> bool:
    """Return whether /bin/sh runs the script: so does ``unix_behavior`` without #!."""
    return lint_case.script.program in _PLAIN or (
        not lint_case.script.interpreter and starts_by_first_line(lint_case.facts)
    )


def _programs(lint_case: LintCase) -> Iterator[LintFinding]:
    reported: set[str] = set()
    brought = _is_login(lint_case)
    for command in lint_case.body.commands:
        name = _searched_program(command)
        if name and name not in reported and name not in lint_case.body.functions:
            reported.add(name)
            yield from _program_findings(lint_case, command, name, brought=brought)
        # from here on programs may come from a module or an environment
        if command.name in BRINGS or _sets_path(command):
            brought = True


def _program_findings(
    lint_case: LintCase, command: ShellCommand, name: str, *, brought: bool
) -> Iterator[LintFinding]:
    place = lint_case.facts.commands.get(name)
    if place is None or brought:
        return
    if place.path is None:
        if name not in _OF_THE_NODES:
            yield _not_found(command, name)
    # the submitting shell finds it, but the job starts with another PATH
    elif not _keeps_environment(lint_case):
        if place.bare_path is None:
            effect = f"the job's PATH is {BARE_PATH}: {name} is not found"
            keep = "#$ -V" if lint_case.tool == "qsub" else "remove --export=NONE"
            yield note(command, "bare-path", effect, f"activate it here, or {keep}")
        elif place.bare_path != place.path:
            effect = f"the job's PATH has a different {name}: {place.bare_path}"
            yield note(command, "bare-path", effect, f"yours is {place.path}")


def _not_found(command: ShellCommand, name: str) -> LintFinding:
    is_known = name.rstrip("0123456789.") in {one.rstrip("3") for one in _COMMON}
    # python3.11 and python are spelled right, even if they are not here
    near = "" if is_known else most_similar_word(name, _COMMON, alike=0.8)
    if near:
        effect = f"{name} is not found: the script continues without it"
        return problem(command, "command-not-found", effect, f"did you mean {near}?")
    effect = f"{name} is not found here, and the script does not load it"
    return note(command, "command-not-found", effect)


def _searched_program(command: ShellCommand) -> str:
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


def _keeps_environment(lint_case: LintCase) -> bool:
    """Return whether the job inherits the variables of the submitting shell."""
    if lint_case.tool == "qsub":
        return lint_case.option("V") is not None
    export = lint_case.option("export")
    return export is None or export.value.upper() not in ("NONE", "NIL")


_LOGIN = re.compile(r"--?login|-[a-z]*[li][a-z]*")


def _is_login(lint_case: LintCase) -> bool:
    flags = lint_case.script.interpreter[1:]
    shell = lint_case.option("S") if lint_case.tool == "qsub" else None
    words = (*flags, *(shell.value.split()[1:] if shell else ()))
    return any(_LOGIN.fullmatch(word) for word in words)


def _starts_shell(command: ShellCommand) -> bool:
    named = " ".join(command.words[1:])
    is_read = command.name in ("source", ".")
    return is_read and (
        any(name in named for name in _STARTS_SHELL)
        or any(part in named for part in ("modul", "lmod", "init"))
    )


def _hooks_conda(command: ShellCommand) -> bool:
    text = command.text
    if command.name == "eval":
        return "hook" in text
    if command.name in ("source", "."):
        # any file but that of a virtual environment may define it
        return not text.endswith("/bin/activate") or bool(_BRINGS_CONDA.search(text))
    return False


def _sets_path(command: ShellCommand) -> bool:
    return any("PATH=" in word for word in (*command.assigned, *command.words))


_NAME_IN_WORD = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}?|([A-Za-z_]\w*))")
_SINGLE_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")
_OF_PARTS = re.compile(r"_(?:PACK|HET)_(?:GROUP_\d+|SIZE)$")
_TOO_SHORT = 5  # the user's own N, OUT or DIR is no misspelt variable
_VARIABLES_OF = {
    "PBS": r"PBS_(?:O_\w+|JOBID|JOBNAME|NODEFILE|NP|NCPUS|NUM_\w+|ARRAY\w+)",
    "Grid Engine": r"SGE_O_\w+|SGE_TASK_ID|NSLOTS|NHOSTS|PE_HOSTFILE",
    "LSF": r"LSB_\w+|LS_SUBCWD",
    "Slurm": r"SLURM_\w+",
}
_SCHEDULER_OF = {"sbatch": "Slurm", "qsub": "Grid Engine"}


def _variable_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find variables that are empty: misspelled, another scheduler's, not requested."""
    whole = " ".join(token.text for token in lint_case.body.tokens)
    tests = [one.text for one in lint_case.body.named("[", "[[", "test")]
    reported: set[str] = set()
    for command in lint_case.body.commands:
        if command.name in ("echo", "printf", "[", "[[", "test"):
            continue
        pieces = (command.text, *command.inputs, *command.outputs)
        # no shell expands what is in single quotes
        text = _SINGLE_QUOTED.sub(
            lambda one: "" if one[0][0] == "'" else one[0], " ".join(pieces)
        )
        for found in _NAME_IN_WORD.finditer(text):
            name = found[1] or found[2]
            if name in reported or _has_a_value(name, whole, tests):
                continue
            reported.add(name)
            spot = ScriptLine(command.line, found[0])
            yield from _empty_variable(lint_case, spot, name, is_bare=bool(found[2]))


def _has_a_value(name: str, whole: str, tests: list[str]) -> bool:
    """Return whether the script sets or tests a variable, or has a default for it."""
    sets = rf"\b{name}=|\bread\b.*\b{name}\b|\{{{name}:?[-=+?]|\bfor {name}\b"
    return re.search(sets, whole) is not None or any(name in one for one in tests)


def _empty_variable(
    lint_case: LintCase, spot: ScriptLine, name: str, *, is_bare: bool
) -> Iterator[LintFinding]:
    words = lint_case.words
    # a `case` may choose by scheduler: then variables of all are in their place
    chooses = any(one.text == "case" for one in lint_case.body.tokens)
    for owner, pattern in _VARIABLES_OF.items():
        if owner == _SCHEDULER_OF.get(lint_case.tool) or not re.fullmatch(
            pattern, name
        ):
            continue
        is_element = name in words.foreign
        if not chooses and not (is_element and lint_case.uses(lint_case.element)):
            effect = f"{name} is empty here: only {owner} sets it"
            fix = f"${lint_case.element}" if is_element else ""
            yield problem(spot, "variable", effect, fix)
        return
    if name in words.only_with:
        options = words.only_with[name]
        if lint_case.options and lint_case.option(*options) is None:
            effect = f"{name} is empty without --{options[0]}"
            fix = f"add --{options[0]}, or ${{{name}:-1}}"
            yield note(spot, "variable", effect, fix)
    elif words.own and _OF_PARTS.sub("", name) not in words.variables:
        yield from _never_set(lint_case, spot, name, is_bare=is_bare)


def _never_set(
    lint_case: LintCase, spot: ScriptLine, name: str, *, is_bare: bool
) -> Iterator[LintFinding]:
    """Find a variable that looks like one of the scheduler's, and is none."""
    known = lint_case.words.variables
    is_own = re.fullmatch(lint_case.words.own, name) is not None
    heads = (one for one in known if name.startswith(one + "_"))
    begun = max(heads, key=len, default="")
    near = lint_case.words.meant.get(name, "")
    # $SLURM_JOB_ID_out: the underscore belongs to the name
    if begun and is_bare and is_own:
        effect = f"is the variable {name}, which is empty"
        fix = f"${{{begun}}}{name.removeprefix(begun)}"
        yield problem(spot, "variable", effect, fix)
        return
    if not near and (is_own or (name.isupper() and len(name) >= _TOO_SHORT)):
        alike = 0.85 if is_own else 0.9
        near = most_similar_word(name, sorted(known), alike=alike)
    # a name with other underscores only is likely the user's own
    if near and (is_own or near.replace("_", "") != name.replace("_", "")):
        effect = f"{lint_case.tool} sets no {name}: it is empty"
        yield problem(spot, "variable", effect, f"did you mean {near}?")


_PLAIN = frozenset({"sh", "dash", "ash"})


_TESTS = frozenset({"[", "[[", "test", "tty", "shopt"})
_ASKS_FOR_TERMINAL = re.compile(r"\$-|\bPS1\b|\btty\b|-t\s+[012]\b|login_shell")
_HOOK = re.compile(
    r"shell\.\w+\s+hook|shell\s+hook|__conda_setup|profile\.d/(?:conda|mamba)"
)
_OF_CONDA = re.compile(r"conda|mamba|forge", re.IGNORECASE)
_INSTALLED = re.compile(
    r"(/[\w./-]+)/(?:(?:conda)?bin/conda|etc/profile\.d/conda\.sh)\b"
)
_ACTIVATES_NAME = re.compile(r"^(?:conda|mamba|source)\s+activate\s+([\w.-]+)$")
_SOURCES = frozenset({"source", "."})
_LEAVES = frozenset({"return", "exit"})
_MOST_FILES = 8  # that source each other: a circle of two must end


def _sourced_path(lint_case: LintCase, command: ShellCommand) -> str | None:
    """Return the absolute path of the file that a command sources, if it is known."""
    if command.name not in _SOURCES or len(command.words) == 1:
        return None
    return lint_case.absolute(command.words[1], lint_case.start)


class _SetUp(NamedTuple):
    """What sets up a program in a file of a shell, and what a file without it lacks."""

    hook: re.Pattern[str]
    mention: re.Pattern[str]


_CONDA_SET_UP = _SetUp(_HOOK, _OF_CONDA)
# a system's file may set up modules by the name of another file: any text counts
_MODULES_SET_UP = _SetUp(re.compile("modul|lmod"), re.compile(""))


def _lacks(lint_case: LintCase, command: ShellCommand, set_up: _SetUp) -> bool:
    """Return whether a command sources a file that certainly sets up no such thing."""
    return _sets_up(lint_case, _sourced_path(lint_case, command), set_up) is False


def _sets_up(
    lint_case: LintCase, path: str | None, set_up: _SetUp, depth: int = 0
) -> bool | None:
    """Return whether sourcing a file sets a program up; None where it is not known.

    Distributions begin ~/.bashrc with a return where there is no terminal: what follows
    is for people who type.
    """
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
        if set_up.hook.search(command.text):
            return True
        if command.name in _SOURCES:
            inner = _sourced_path(lint_case, command)
            nested = _sets_up(lint_case, inner, set_up, depth + 1)
            if nested:
                return True
            is_known = is_known and nested is not None
        # these may define anything
        elif command.name in {"eval", "module", "ml"}:
            is_known = False
    return False if is_known and not set_up.mention.search(text) else None


def _early_return_words(
    lint_case: LintCase, command: ShellCommand, program: str
) -> tuple[str, str]:
    """Return why a sourced file leaves *program* undefined, and what defines it."""
    name, path = command.words[1], _sourced_path(lint_case, command)
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


# `source activate` is conda's too; that of a venv reads no unset variable
_SCRIPT_OF_OTHERS = (
    r"/(?:\.bashrc|\.profile|\.bash_profile|setvars\.sh)$"
    r"|^activate$|(?:conda|mamba|forge)\d?/bin/activate$"
)


def _reads_scripts_of_others(command: ShellCommand) -> bool:
    words = command.words
    if command.name in _CONDA:
        return len(words) > 1 and words[1] in {"activate", "deactivate"}
    if command.name in _LOADS:
        return len(words) > 1 and words[1] not in {"list", "avail", "spider"}
    path = words[1] if command.name in _SOURCES and len(words) > 1 else ""
    return path.startswith(("/etc/", "~/.")) or bool(re.search(_SCRIPT_OF_OTHERS, path))


_OF_THE_MACHINE = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/")  # noqa: S108
_MAYBE_OF_IT = re.compile(r"/[\w-]*(?:scratch|local|nvme|ssd)[\w-]*/.", re.IGNORECASE)
_READ_FIRST = frozenset({"cd", "pushd", "source", ".", "cat", "cp", "rsync", "tar"})
_RUNS_FILE = re.compile(r"(?:python[0-9.]*|bash|sh|Rscript|perl|julia)$")


def _node_local(lint_case: LintCase) -> Iterator[LintFinding]:
    """Note a path that the script reads and that this machine has for itself."""
    made, paths = "", set[str | None]()
    for command, place in commands_with_directories(lint_case):
        for word in _read_by(command):
            path = lint_case.absolute(word, place)
            if path is None or _is_made_before(path, made, paths):
                continue
            effect = _only_here(lint_case, path)
            if effect:
                fix = "keep it on the shared disk, or copy it in the job"
                yield note(command, "node-local", effect, fix)
                return
        if command.name not in {"cd", "pushd", "source", "."}:
            # what an earlier command names it may have created
            made += f" {command.text} {' '.join(command.outputs)}"
            paths |= {lint_case.absolute(word, place) for word in command.words[1:]}


def _is_made_before(path: str, made: str, paths: set[str | None]) -> bool:
    """Return whether an earlier command names the path, or a folder above it.

    *made* is the text of those commands, *paths* what their words name: a variable in
    one of them has another spelling.
    """
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(3, len(parts) + 1)]
    return not paths.isdisjoint(above) or any(
        re.search(rf"{re.escape(one)}(?![\w.-])", made) for one in above
    )


def _read_by(command: ShellCommand) -> Iterator[str]:
    words = [word for word in command.words[1:] if not word.startswith("-")]
    if command.name in _READ_FIRST or _RUNS_FILE.match(command.name):
        # `tar xzf FILE`: its options need no dash
        is_option = command.name == "tar" and words[:1] and words[0].isalpha()
        yield from words[1:2] if is_option else words[:1]
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


RULES: tuple[Rule, ...] = (
    _conda,
    _missing_environments,
    _modules,
    _programs,
    _variable_findings,
    _strict_mode,
    _node_local,
)
