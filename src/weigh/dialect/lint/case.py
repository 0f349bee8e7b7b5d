"""The script that rules are asked about, and the words to say what they found."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import msgspec

from weigh.dialect.script import Script
from weigh.dialect.shell import Body, read_body
from weigh.model.lint import Facts, Finding, PathKind

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
