"""Findings about a job script, and the facts that the checks need."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from weigh.model.cluster import ClusterLimits

SCHEMA = "weigh.lint/2"

Severity: TypeAlias = Literal["problem", "note"]
PathKind: TypeAlias = Literal["directory", "file", "missing"]


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about a script: where, what will happen, what to do instead.

    ``rule`` is the name that acknowledges it. ``line`` is None if it concerns the whole
    script; ``text`` is the part of the line it concerns. ``accepted`` is False if the
    scheduler refuses the script for it. A *problem* will fail or is silently wrong; a
    note states a default, an assumption, or what may be meant otherwise.
    """

    rule: str
    severity: Severity
    line: int | None
    text: str
    effect: str
    cure: str = ""
    accepted: bool = True


class CommandPlace(msgspec.Struct, frozen=True):
    """Where a command was found.

    ``path`` is None if it is not on the PATH here; ``bare_path`` is where the PATH of a
    fresh job finds it.
    """

    path: str | None = None
    bare_path: str | None = None


class ScriptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the files, commands and jobs that a script names.

    A key missing from a mapping was not looked up. ``cwd`` is the folder of submission.
    The keys of ``paths``, ``lines`` (their number in a file), ``texts`` (the beginning
    of a file) and ``files`` (the numbers N for which the path with ``{}`` replaced by N
    exists) and ``executable`` are
    absolute paths. ``jobs`` holds states by id, None for an id that the scheduler does
    not know. ``defaults`` are the files of options that the scheduler reads before
    the script: (name to show, text). ``syntax`` is what bash reports about a text that
    it cannot read, empty if nothing. ``local_disks`` is whether a path's disk is a
    machine's own. The mappings may be lazy. ``required`` are the options that the site
    wants in each job: ``account``, ``qos``; ``per_cpu``: it refuses memory per node.
    ``variables`` is the environment of the shell that submits.
    """

    cwd: str = "/"
    home: str | None = None
    user: str | None = None
    paths: Mapping[str, PathKind] = {}
    lines: Mapping[str, int] = {}
    texts: Mapping[str, str] = {}
    files: Mapping[str, tuple[int, ...]] = {}
    executable: Mapping[str, bool] = {}
    local_disks: Mapping[str, bool] = {}
    commands: Mapping[str, CommandPlace] = {}
    variables: Mapping[str, str] = {}
    jobs: Mapping[str, str | None] = {}
    limits: ClusterLimits | None = None
    syntax: Mapping[str, str] = {}
    defaults: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    per_cpu: bool = False


class CheckedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A checked script: its scheduler, and the findings.

    ``acknowledged`` are the findings that the script or the settings ignore.
    ``lacks_shellcheck`` is whether it is a shell's, and shellcheck is not installed.
    """

    script: str
    scheduler: str
    directives: int
    findings: tuple[LintFinding, ...]
    acknowledged: tuple[LintFinding, ...] = ()
    lacks_shellcheck: bool = False

    @property
    def problems(self) -> tuple[LintFinding, ...]:
        """Return the problems: all findings but the notes."""
        return tuple(one for one in self.findings if one.severity == "problem")
