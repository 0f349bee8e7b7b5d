"""Rules for programs that a batch shell does not find, and for bash run by sh."""

import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    BRINGS,
    LintCase,
    Rule,
    most_similar_word,
    note,
    problem,
)
from weigh.schedulers.lint.startup_rules import (
    early_return_words,
    gives_conda,
    is_left_early,
    sourced_path,
)
from weigh.schedulers.script import ScriptLine
from weigh.schedulers.shell import ShellCommand

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


def _conda(lint_case: LintCase) -> Iterator[LintFinding]:
    for place, command in enumerate(lint_case.body.commands):
        words = command.words[:_ACTIVATE]
        if len(words) < _ACTIVATE or words[0] not in _CONDA or words[1] != "activate":
            continue
        before = lint_case.body.commands[:place]
        useless = [one for one in before if _is_without_conda(lint_case, one)]
        hooks = [one for one in before if one not in useless]
        if _is_login(lint_case) or any(map(_hooks_conda, hooks)):
            return
        if words[0] in lint_case.body.functions or any(map(_loads_conda, before)):
            return
        effect = f"{words[0]} activate fails: a batch shell reads no .bashrc"
        fix = f'eval "$({words[0]} shell.bash hook)" before it'
        if useless:
            effect, fix = early_return_words(lint_case, useless[-1], words[0])
        # Grid Engine starts login shells at many sites
        make = problem if lint_case.tool == "sbatch" or _is_plain(lint_case) else note
        yield make(command, "conda", effect, fix)
        return


def _is_without_conda(lint_case: LintCase, command: ShellCommand) -> bool:
    """Return whether a command sources a file that certainly defines no conda."""
    return gives_conda(lint_case, sourced_path(lint_case, command)) is False


_BRINGS_CONDA = re.compile(
    r"conda|mamba|forge|python|jupyter|pytorch|tensorflow", re.IGNORECASE
)
_OF_PARTS = re.compile(r"_(?:PACK|HET)_(?:GROUP_\d+|SIZE)$")


def _loads_conda(command: ShellCommand) -> bool:
    """Return whether a module is loaded that defines the function."""
    return command.name in _MODULES and bool(_BRINGS_CONDA.search(command.text))


def _modules(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find ``module`` in a shell that does not have it: a bash function.

    dash does not import functions from the environment; bash run as sh does.
    """
    if lint_case.tool == "sbatch" and not _is_plain_sh(lint_case):
        return
    if (
        lint_case.tool == "qsub"
        and lint_case.option("V") is not None
        and not _is_plain_sh(lint_case)
    ):
        return
    for place, command in enumerate(lint_case.body.commands):
        if command.name not in _MODULES or command.name in lint_case.body.functions:
            continue
        before = lint_case.body.commands[:place]
        starts = [one for one in before if _starts_shell(one)]
        reached = (
            not is_left_early(lint_case, sourced_path(lint_case, one)) for one in starts
        )
        if not _is_login(lint_case) and not any(reached):
            is_sure = (
                lint_case.facts.plain_shell == "dash"
                if _is_plain_sh(lint_case)
                else False
            )
            where = "in dash, which is sh here" if is_sure else "where sh is dash"
            if not _is_plain_sh(lint_case):
                is_sure, where = _is_plain(lint_case), "in a batch shell"
            make = problem if is_sure else note
            effect = f"{command.name} is not found {where}"
            fix = "source /etc/profile before it"
            if _is_plain_sh(lint_case):
                fix = "write #!/bin/bash"
            yield make(command, "module", effect, fix)
        return


def _is_plain_sh(lint_case: LintCase) -> bool:
    """Return whether /bin/sh runs the script: so does ``unix_behavior`` without #!."""
    return lint_case.script.program in _PLAIN or (
        not lint_case.script.interpreter and _is_plain(lint_case)
    )


def _is_plain(lint_case: LintCase) -> bool:
    """Return whether the queue certainly starts no login shell."""
    limits = lint_case.facts.limits
    return limits is not None and limits.start_mode == "unix_behavior"


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
    if place.on_nodes is False:
        effect = f"{name} is only on this machine's PATH: not found on the nodes"
        yield problem(command, "login-only", effect)
    elif place.path is None and place.on_nodes is None:
        if name not in _OF_THE_NODES:
            yield _not_found(command, name)
    # the submitting shell finds it, but the job starts with another PATH
    elif place.path is not None and not _keeps_environment(lint_case):
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


_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}?|([A-Za-z_]\w*))")


_TOO_SHORT = 5


def _variables(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find variables of the scheduler that it never sets: misspelled, or run on."""
    if not lint_case.words.own:
        return
    text = " ".join(one.text for one in lint_case.body.commands)
    pairs = zip(lint_case.body.tokens, lint_case.body.tokens[1:], strict=False)
    loops = {after.text for one, after in pairs if one.text in ("for", "select")}
    for token in lint_case.body.tokens:
        if token.kind != "word" or token.text.startswith("'"):
            continue
        for found in _NAME.finditer(token.text):
            name = found[1] or found[2]
            if _OF_PARTS.sub("", name) in lint_case.words.variables or name in loops:
                continue
            # set by the script itself, or with a default
            if re.search(rf"\b{name}=|read .*\b{name}\b|\{{{name}:", text):
                continue
            finding = _never_set(
                lint_case, ScriptLine(token.line, found[0]), name, found[2]
            )
            if finding is not None:
                yield finding
                return


def _never_set(
    lint_case: LintCase, spot: ScriptLine, name: str, bare: str | None
) -> LintFinding | None:
    """Report a variable if it looks like one of the scheduler's, and is none."""
    known, is_own = lint_case.words.variables, re.fullmatch(lint_case.words.own, name)
    heads = (one for one in known if name.startswith(one + "_"))
    begun = max(heads, key=len, default="")
    # $SLURM_JOB_ID_out: the underscore belongs to the name
    if begun and bare and is_own:
        effect = f"is the variable {name}, which is empty"
        rest = name.removeprefix(begun)
        return problem(spot, "variable", effect, f"${{{begun}}}{rest}")
    near = lint_case.words.meant.get(name, "")
    if not near and is_own:
        near = most_similar_word(name, sorted(known), alike=0.85)
    elif not near and name.isupper() and len(name) >= _TOO_SHORT:
        near = most_similar_word(name, sorted(known), alike=0.9)
        near = "" if near.replace("_", "") == name.replace("_", "") else near
    if not near:
        return None
    effect = f"{lint_case.tool} sets no {name}: it is empty"
    return problem(spot, "variable", effect, f"did you mean {near}?")


_PLAIN = frozenset({"sh", "dash", "ash"})


RULES: tuple[Rule, ...] = (
    _conda,
    _modules,
    _programs,
    _variables,
)
