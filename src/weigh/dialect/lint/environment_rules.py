"""Programs that a batch shell would not find: conda, modules, the login node's PATH."""

from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, Say, error, nearest, warning
from weigh.dialect.lint.travel import BRINGS
from weigh.dialect.shell import Command
from weigh.model.lint import Finding

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
        cure = f'eval "$({words[0]} shell.bash hook)" before it'
        say: Say = warning if any(one.name in _MODULES for one in before) else error
        yield say(command, "conda", effect, cure)
        return


def _modules(case: Case) -> Iterator[Finding]:
    # module is a function, which dash does not take from the environment
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
    said: set[str] = set()
    brought = _is_login(case)
    for command in case.body.commands:
        name = _program(command)
        if name and name not in said and name not in case.body.functions:
            said.add(name)
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
        effect = f"{name} is on this machine's PATH only: not found on the nodes"
        yield error(command, "login-only", effect)
    elif place.path is None and place.on_nodes is None:
        if name not in _OF_THE_NODES:
            yield _not_found(command, name)
    elif place.path is not None and not _keeps_environment(case):
        if place.bare_path is None:
            effect = f"the job's PATH is {BARE_PATH}: {name} is not found"
            yield error(command, "bare-path", effect, "activate it here, or #$ -V")
        elif place.bare_path != place.path:
            effect = f"the job's PATH has another {name}: {place.bare_path}"
            yield warning(command, "bare-path", effect, f"yours is {place.path}")


def _not_found(command: Command, name: str) -> Finding:
    near = nearest(name, _COMMON)
    if near:
        effect = f"{name} is not found: the script goes on without it"
        return error(command, "command-not-found", effect, f"did you mean {near}?")
    effect = f"{name} is not found here, and nothing in the script brings it"
    return warning(command, "command-not-found", effect)


def _program(command: Command) -> str:
    """Name the program that a command runs, empty where no PATH is asked."""
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
    """Tell whether the job gets the variables of the shell that submits it."""
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
