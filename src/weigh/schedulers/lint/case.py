"""The parsed script that lint rules check, and functions that create findings."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import msgspec

from weigh.model.lint import Facts, Finding, PathKind
from weigh.schedulers.script import Script
from weigh.schedulers.shell import Body, Command, read_body
from weigh.units import Bytes

_LONGEST_PATH = 4096  # PATH_MAX of Linux
_HOME = ("~", "$HOME", "${HOME}")
_USER = ("$USER", "${USER}", "$LOGNAME", "${LOGNAME}")


class Spot(Protocol):
    """Anything with a line number: an option, a command, or a line itself."""

    @property
    def line(self) -> int:
        """Return the line number, from 1."""

    @property
    def text(self) -> str:
        """Return the text as written."""


class Option(msgspec.Struct, frozen=True):
    """One option as the scheduler reads it: its long name, its value, its line.

    ``text`` is the option as written, ``written`` its name as written.
    """

    name: str
    value: str
    line: int
    text: str
    written: str = ""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed script: the options that the scheduler reads, the commands of the shell.

    ``tool`` is ``sbatch`` or ``qsub``; ``start`` is the job's working directory,
    None if unknown; ``element`` is the variable that holds the array task index.
    """

    tool: str
    script: Script
    options: tuple[Option, ...]
    body: Body
    facts: Facts
    start: str | None
    element: str

    def option(self, *names: str) -> Option | None:
        """Return the last option with one of these names: the one that counts."""
        found = [one for one in self.options if one.name in names]
        return found[-1] if found else None

    def absolute(self, path: str, base: str | None) -> str | None:
        """Return the absolute path; None if it depends on an unknown variable."""
        for home in _HOME:
            if path == home or path.startswith(home + "/"):
                if self.facts.home is None:
                    return None
                path = self.facts.home + path.removeprefix(home)
        for user in _USER:
            if user in path and self.facts.user:
                path = path.replace(user, self.facts.user)
        if any(mark in path for mark in "$`*?{[~\0") or not path:
            return None
        if not path.startswith("/") and base is None:
            return None
        whole = posixpath.normpath(posixpath.join(base or "/", path))
        return whole if len(whole) <= _LONGEST_PATH else None

    def kind(self, path: str | None) -> PathKind | None:
        """Return what is at *path*; None if not known."""
        return None if path is None else self.facts.paths.get(path)

    def is_missing(self, path: str | None) -> bool:
        """Return whether *path* is known not to exist."""
        return self.kind(path) == "missing"


Rule: TypeAlias = Callable[[Case], Iterator[Finding]]
MakeFinding: TypeAlias = Callable[[Spot | None, str, str, str], Finding]


def error(
    spot: Spot | None, code: str, effect: str, fix: str = "", *, refused: bool = False
) -> Finding:
    """Report what makes the job fail, or do something unintended."""
    return Finding(
        code=code,
        severity="error",
        line=None if spot is None else spot.line,
        text="" if spot is None else spot.text.strip(),
        effect=effect,
        cure=fix,
        accepted=not refused,
    )


def refused(spot: Spot | None, code: str, effect: str, fix: str = "") -> Finding:
    """Report what the scheduler would reject."""
    return error(spot, code, effect, fix, refused=True)


def warning(spot: Spot | None, code: str, effect: str, fix: str = "") -> Finding:
    """Report what is probably unintended."""
    return msgspec.structs.replace(error(spot, code, effect, fix), severity="warning")


def note(spot: Spot | None, code: str, effect: str, fix: str = "") -> Finding:
    """Report a default or an assumption."""
    return msgspec.structs.replace(error(spot, code, effect, fix), severity="note")


def nearest(word: str, known: tuple[str, ...] | list[str], cutoff: float = 0.6) -> str:
    """Return the known word that is most similar to *word*; empty if none is.

    *cutoff* is the share of letters that they have in common, in order.
    """
    import difflib  # noqa: PLC0415 - only for an unknown word

    by_case = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), by_case, n=1, cutoff=cutoff)
    return by_case[near[0]] if near else ""


def did_you_mean(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Suggest the word that was probably meant, or list the known ones."""
    near = nearest(word, known)
    if near:
        return f"did you mean {near}?"
    return f"known: {', '.join(known[:6])}" if known else ""


def open_case(
    script: Script,
    options: tuple[Option, ...],
    facts: Facts,
    *,
    tool: str,
    element: str,
) -> Case:
    """Parse a script; the scheduler's own lint fills in where the job starts."""
    plain = "\n".join(line.text for line in script.lines)
    return Case(
        tool=tool,
        script=script,
        options=options,
        body=read_body(plain) if script.is_shell else Body(),
        facts=facts,
        start=None,
        element=element,
    )


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """The request in a script; ``by`` has the option that set each field, by its name.

    ``memory``, ``cpus`` and ``gpus`` are per node, None if not requested;
    ``slot_memory`` is set where a queue limits the memory of a slot;
    ``elements`` and ``last_index`` describe an array; ``no_end`` is an unlimited time.
    """

    queues: tuple[str, ...] = ()
    memory: Bytes | None = None
    slot_memory: Bytes | None = None
    cpus: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str = ""
    time: int | None = None
    no_end: bool = False
    account: str | None = None
    qos: str | None = None
    features: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    parallel: str | None = None
    project: str | None = None
    node_names: tuple[str, ...] = ()
    elements: int | None = None
    last_index: int | None = None
    by: dict[str, Option] = {}


_SUBMITTED_FROM = frozenset(
    f"{mark}{name}{end}"
    for name in ("SLURM_SUBMIT_DIR", "SGE_O_WORKDIR", "PBS_O_WORKDIR")
    for mark, end in (("$", ""), ("${", "}"))
)
_MOVES = frozenset({"cd", "pushd"})
# commands that provide files or programs which do not exist yet
BRINGS = frozenset(
    {"source", ".", "module", "ml", "conda", "mamba", "micromamba", "spack", "eval"}
    | {"use", "setpkgs", "guix", "nix-shell", "poetry", "uv", "pixi"}
)


def commands_with_directories(case: Case) -> Iterator[tuple[Command, str | None]]:
    """Yield each command with its working directory, None once it is not known."""
    place = case.start
    for command in case.body.commands:
        yield command, place
        if command.name in _MOVES:
            place = destination(case, command, place)


def destination(case: Case, command: Command, place: str | None) -> str | None:
    """Return the directory that a ``cd`` leads to."""
    targets = [word for word in command.words[1:] if word not in ("-P", "-L", "--")]
    target = targets[0] if targets else "~"
    if target in _SUBMITTED_FROM:
        return case.facts.cwd
    return case.absolute(target, place)


def is_shared(case: Case, written: str, path: str) -> bool:
    """Return whether *path* is certainly the same on the nodes as on this machine.

    A relative path and one in the home directory are; another absolute path may exist
    on the nodes only, such as their scratch.
    """
    home = case.facts.home
    return not written.startswith("/") or bool(home and path.startswith(home + "/"))
