"""The script that rules are asked about, and the words to say what they found."""

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
    """Anything that stands on a line: an option, a command, a line itself."""

    @property
    def line(self) -> int:
        """Count from 1."""

    @property
    def text(self) -> str:
        """Give it as it is written."""


class Option(msgspec.Struct, frozen=True):
    """One option as the scheduler reads it: its long name, its value, where it is.

    ``resource`` is the name within Grid Engine's ``-l``; ``written`` is how it begins.
    """

    name: str
    value: str
    line: int
    text: str
    written: str = ""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A script taken apart: what the scheduler reads of it, and what a shell runs.

    ``tool`` submits it: ``sbatch`` or ``qsub``; ``start`` is where the job starts,
    None where that cannot be told; ``element`` is the variable with the array's index.
    """

    tool: str
    script: Script
    options: tuple[Option, ...]
    body: Body
    facts: Facts
    start: str | None
    element: str

    def option(self, *names: str) -> Option | None:
        """Give the last option of these names: the one that counts."""
        found = [one for one in self.options if one.name in names]
        return found[-1] if found else None

    def absolute(self, path: str, base: str | None) -> str | None:
        """Give *path* seen from *base*, or None where a variable hides it."""
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
        """Tell what is at *path*, None where that is not known."""
        return None if path is None else self.facts.paths.get(path)

    def is_missing(self, path: str | None) -> bool:
        """Tell whether there is surely nothing at *path*."""
        return self.kind(path) == "missing"


Rule: TypeAlias = Callable[[Case], Iterator[Finding]]
Say: TypeAlias = Callable[[Spot | None, str, str, str], Finding]


def error(
    spot: Spot | None, code: str, effect: str, cure: str = "", *, refused: bool = False
) -> Finding:
    """Say what makes the job fail, or do something else than is written."""
    return Finding(
        code=code,
        severity="error",
        line=None if spot is None else spot.line,
        text="" if spot is None else spot.text.strip(),
        effect=effect,
        cure=cure,
        accepted=not refused,
    )


def refused(spot: Spot | None, code: str, effect: str, cure: str = "") -> Finding:
    """Say what the scheduler would not take."""
    return error(spot, code, effect, cure, refused=True)


def warning(spot: Spot | None, code: str, effect: str, cure: str = "") -> Finding:
    """Say what is likely meant otherwise."""
    return msgspec.structs.replace(error(spot, code, effect, cure), severity="warning")


def note(spot: Spot | None, code: str, effect: str, cure: str = "") -> Finding:
    """Say what is taken for granted."""
    return msgspec.structs.replace(error(spot, code, effect, cure), severity="note")


def nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Give the known word that *word* is likely meant to be, or nothing."""
    import difflib  # noqa: PLC0415 - only for a word that is off

    by_case = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), by_case, n=1, cutoff=0.6)
    return by_case[near[0]] if near else ""


def did_you_mean(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Say which word was likely meant, or which there are."""
    near = nearest(word, known)
    if near:
        return f"did you mean {near}?"
    return f"there are {', '.join(known[:6])}" if known else ""


def open_case(
    script: Script,
    options: tuple[Option, ...],
    facts: Facts,
    *,
    tool: str,
    element: str,
) -> Case:
    """Take a script apart; where the job starts is left to the dialect."""
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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and the option that did, by the same name in ``by``.

    ``memory``, ``cpus`` and ``gpus`` are one node's, None where nothing was said;
    ``slot_memory`` is what a queue's limit is on, where that is a slot's memory;
    ``elements`` and ``last_index`` are an array's; ``no_end`` is a time without limit.
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
# what brings files or programs that are not there yet
BRINGS = frozenset(
    {"source", ".", "module", "ml", "conda", "mamba", "micromamba", "spack", "eval"}
    | {"use", "setpkgs", "guix", "nix-shell", "poetry", "uv", "pixi"}
)


def journey(case: Case) -> Iterator[tuple[Command, str | None]]:
    """Yield each command with the directory it runs in, None once that is not known."""
    place = case.start
    for command in case.body.commands:
        yield command, place
        if command.name in _MOVES:
            place = destination(case, command, place)


def destination(case: Case, command: Command, place: str | None) -> str | None:
    """Tell where a ``cd`` leads."""
    targets = [word for word in command.words[1:] if word not in ("-P", "-L", "--")]
    target = targets[0] if targets else "~"
    if target in _SUBMITTED_FROM:
        return case.facts.cwd
    return case.absolute(target, place)


def is_shared(case: Case, written: str, path: str) -> bool:
    """Tell whether the nodes are sure to see *path* as this machine does.

    A path that is written from where one stands, or in the home, is; what another
    absolute path leads to may be there on the nodes alone, as their scratch is.
    """
    home = case.facts.home
    return not written.startswith("/") or bool(home and path.startswith(home + "/"))
