"""What is off in a job script, and what has to be known to tell."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from weigh.model.limits import Limits

SCHEMA = "weigh.lint/1"

Severity: TypeAlias = Literal["error", "warning", "note"]
PathKind: TypeAlias = Literal["directory", "file", "missing"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about a script: where, what will happen, what to do instead.

    ``line`` is None where it is about the whole script, ``text`` the part of the line
    that it is about. ``accepted`` is False where the scheduler refuses the script for
    it. A note is no problem: it says what will be taken for granted.
    """

    code: str
    severity: Severity
    line: int | None
    text: str
    effect: str
    cure: str = ""
    accepted: bool = True


class CommandPlace(msgspec.Struct, frozen=True):
    """Where a command was found.

    ``path`` is None where it is not on the PATH here; ``bare_path`` is what a PATH as
    bare as a fresh job's finds, ``on_nodes`` whether the nodes have it, if known.
    """

    path: str | None = None
    bare_path: str | None = None
    on_nodes: bool | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up. A mapping without an entry: that was not looked up.

    ``cwd`` is where the script would be submitted from. ``paths``, ``lines`` (how many
    a file has) and ``files`` (the numbers N for which a path with ``{}`` in the place
    of N exists) go by absolute paths. ``jobs`` holds states by id, None for an id that
    the scheduler does not know. The mappings may look things up when they are asked.
    """

    cwd: str = "/"
    home: str | None = None
    user: str | None = None
    paths: Mapping[str, PathKind] = {}
    lines: Mapping[str, int] = {}
    files: Mapping[str, tuple[int, ...]] = {}
    commands: Mapping[str, CommandPlace] = {}
    jobs: Mapping[str, str | None] = {}
    limits: Limits | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A script that was read: for which scheduler, and what was found in it."""

    script: str
    scheduler: str
    directives: int
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Return what is off, without the notes."""
        return tuple(one for one in self.findings if one.severity != "note")
