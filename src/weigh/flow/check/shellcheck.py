"""What shellcheck reports about a job script, where it is installed."""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import note, problem
from weigh.schedulers.script import ScriptLine, ScriptText
from weigh.schedulers.shell import read_body

_SHELLS = {"bash": "bash", "sh": "sh", "dash": "dash", "": "bash"}
# errors of shellcheck that end no job: quotes around "${a[@]}", `for a in $(ls)`; and
# what `bash -n` finds as well
_HARMLESS = frozenset({2045, 2068, 1009, 1071, 1072, 1073})
# below its errors: {1..$n}, ssh that reads a loop's input, rm -r
# "$unset/", an option as a command behind a broken line, what is never reached
_NEVER_REACHED = 2317
_HARMFUL = frozenset({2051, 2095, 2115, 2215, _NEVER_REACHED})
_ONLY_IN_BASH = range(3000, 4000)
_PATIENCE = 20.0  # seconds


class ShellcheckComment(msgspec.Struct, frozen=True):
    """One comment of ``shellcheck -f json1``."""

    line: int
    level: Literal["error", "warning", "info", "style"]
    code: int
    message: str


class ShellcheckReport(msgspec.Struct, frozen=True):
    """The document of ``shellcheck -f json1``."""

    comments: tuple[ShellcheckComment, ...]


def shellcheck_program(env: Mapping[str, str]) -> str | None:
    """Return the path of shellcheck, None if it is not installed."""
    return shutil.which("shellcheck", path=env.get("PATH", ""))


def shellcheck_findings(script: ScriptText, program: str) -> tuple[LintFinding, ...]:
    """Return what shellcheck finds that ends a job or changes what it does.

    An error is a problem, the rest are notes; style is left to shellcheck itself. There
    are none if the program fails: the scheduler's rules do without it.
    """
    shell = _SHELLS.get(script.program)
    if shell is None:
        return ()
    text = "\n".join(line.text for line in script.lines) + "\n"
    try:
        ran = subprocess.run(
            # --norc: a user's settings do not decide what ends a job
            [program, "--norc", "--format=json1", f"--shell={shell}", "-"],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        report = msgspec.json.decode(ran.stdout, type=ShellcheckReport)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return ()
    harmful = _harmful(report.comments)
    if any(one.code == _NEVER_REACHED for one in harmful) and read_body(text).functions:
        # shellcheck does not follow a function that a trap or another one calls
        harmful = [one for one in harmful if one.code != _NEVER_REACHED]
    return tuple(_shellcheck_finding(script, one) for one in harmful)


def _harmful(comments: Iterable[ShellcheckComment]) -> list[ShellcheckComment]:
    return [
        comment
        for comment in comments
        if (comment.level == "error" and comment.code not in _HARMLESS)
        or comment.code in _HARMFUL
        or comment.code in _ONLY_IN_BASH
    ]


def _shellcheck_finding(script: ScriptText, comment: ShellcheckComment) -> LintFinding:
    # a comment may name the line behind the last one
    line = script.lines[min(comment.line, len(script.lines)) - 1]
    make = problem if comment.level == "error" else note
    effect = f"{comment.message.rstrip('.')} (SC{comment.code})"
    return make(ScriptLine(line.line, line.text.strip()), "shellcheck", effect, "")
