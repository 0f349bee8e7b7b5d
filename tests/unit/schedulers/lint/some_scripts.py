"""Scripts for the lint, and a short way to ask what it found."""

from pathlib import Path
from typing import Any

from weigh.flow.check.script import check_here
from weigh.flow.here import here_of
from weigh.model.lint import CheckedScript, LintFinding, ScriptFacts
from weigh.schedulers.gridengine.lint import LINT as GRIDENGINE
from weigh.schedulers.kind import SchedulerLint
from weigh.schedulers.slurm.lint import LINT as SLURM

HOME = "/home/me"
CWD = "/home/me/work"


def facts(**known: Any) -> ScriptFacts:
    return ScriptFacts(**({"cwd": CWD, "home": HOME, "user": "me"} | known))


def first_findings(
    lint: SchedulerLint, text: str, **known: Any
) -> dict[str, LintFinding]:
    """Return the first finding of each rule."""
    return {one.rule: one for one in reversed(lint.lint(text, facts(**known)))}


def sbatch(
    *lines: str, body: str = "hostname\n", **known: Any
) -> dict[str, LintFinding]:
    """Ask about ``#SBATCH`` *lines* in a script that is right otherwise."""
    return first_findings(SLURM, script("#SBATCH", *lines, body=body), **known)


def qsub(*lines: str, body: str = "hostname\n", **known: Any) -> dict[str, LintFinding]:
    """Ask about ``#$`` *lines* in a script that is right otherwise."""
    return first_findings(GRIDENGINE, script("#$", *lines, body=body), **known)


def script(prefix: str, *lines: str, body: str = "hostname\n") -> str:
    """Write a script of bash."""
    return "\n".join(("#!/bin/bash", *(f"{prefix} {one}" for one in lines), body))


def stated(
    found: dict[str, LintFinding], rule: str, severity: str, words: str
) -> LintFinding:
    """Return what a rule found: so severe, with these words in its effect or cure."""
    finding = found[rule]
    assert severity in {"", finding.severity if finding.accepted else "refused"}
    assert words in f"{finding.effect}; {finding.cure}"
    return finding


def checked_in(
    folder: Path, text: str | bytes, form: str | None = None, **env: str
) -> CheckedScript:
    """Return what `weigh check` finds in a script of a folder."""
    (folder / "run.sh").write_bytes(text if isinstance(text, bytes) else text.encode())
    here = here_of(str(folder), {"HOME": str(folder), **env})
    return check_here(here, "run.sh", form=form)
