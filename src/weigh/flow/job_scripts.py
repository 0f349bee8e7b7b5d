"""Job scripts inside commands: the scheduler never reads their directives."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from weigh.errors import UsageError
from weigh.render.printable import shortened
from weigh.schedulers import KINDS
from weigh.schedulers.launched import (
    SUBMITS,
    Launched,
    directives_of,
    launched,
    launched_by_line,
)

_MOST_READ = 1 << 16
_MOST_TASKS = 1000  # of a long task file only so many lines are looked at
_MOST_SHOWN = 60  # characters
ACKNOWLEDGED = "--ignore-directives"


def refuse_job_script(command: Sequence[str], *, cwd: str, path: str | None) -> None:
    """Refuse a command that runs a job script whose directives would be lost.

    *path* are the folders that programs are searched in.

    Raises:
        UsageError: it does; names the directives and the way out.
    """
    for why in _losses(launched(command), cwd, path):
        raise UsageError(f"{why} ({ACKNOWLEDGED} goes on without them)")


def lost_in(command: Sequence[str], *, cwd: str) -> str | None:
    """Return that the directives of a script were not in force, if it has any."""
    for one in launched(command):
        for file in one.files:
            options = _directives(os.path.join(cwd, file))
            if options:
                number = f"{len(options)} directive{'s' * (len(options) != 1)}"
                return (
                    f"{number} of {file} not in force (weigh submit {file} --measure)"
                )
    return None


def refuse_job_scripts(lines: Iterable[str], *, cwd: str, path: str | None) -> None:
    """Refuse the *lines* of a task file of which one runs a job script.

    Raises:
        UsageError: one does; names the directives and the way out.
    """
    why = lost_directives(lines, cwd=cwd, path=path)
    if why is not None:
        raise UsageError(f"{why} ({ACKNOWLEDGED} goes on without them)")


def lost_directives(
    lines: Iterable[str], *, cwd: str, path: str | None, most: int = _MOST_TASKS
) -> str | None:
    """Return what is lost when the first *most* of *lines* run; None for nothing."""
    for _, line in zip(range(most), lines, strict=False):
        for why in _losses(launched_by_line(line), cwd, path):
            return why
    return None


def _losses(found: Iterable[Launched], cwd: str, path: str | None) -> Iterator[str]:
    for one in found:
        if one.runner in SUBMITS and not one.files:
            yield _of_a_submission(one.runner)
        for file in one.files:
            place = os.path.join(cwd, file)
            if not one.runner and "/" not in file:
                place = shutil.which(file, path=path) or ""
            options = _directives(place)
            if one.runner in SUBMITS and os.path.isfile(place):
                yield _of_a_submission(one.runner, file)
            elif options:
                yield _lost(file, options)
            if os.access(place, os.X_OK) and os.path.isfile(place):
                break  # what follows are its arguments


def _lost(file: str, options: Sequence[str]) -> str:
    number = len(options)
    is_long = options[0].startswith("--")
    tool = " or ".join(
        kind.submits
        for kind in KINDS.values()
        if kind.text.PREFIX and (not is_long or kind.text.OPTIONS.time.startswith("--"))
    )
    return (
        f"{file} has {number} directive{'s' * (number != 1)} that would be lost: "
        f"{shortened(' '.join(options), _MOST_SHOWN)}: pass them as options, or "
        f"weigh submit {file} (by {tool})"
    )


def _of_a_submission(runner: str, file: str = "") -> str:
    """Return what to do in place of a line, or a loop, that submits jobs."""
    if not file:
        return (
            f"{runner} submits a job of its own: write the jobs' commands as task "
            "lines, for one array (weigh sweep writes them)"
        )
    return (
        f"{runner} {file} submits a job of its own: weigh submit {file}, or write the "
        "jobs' commands as task lines, for one array (weigh sweep writes them)"
    )


@lru_cache(maxsize=1000)
def _directives(path: str) -> tuple[str, ...]:
    """Return the directives of a file; none where it cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ()
        with open(path, "rb") as file:
            text = file.read(_MOST_READ)
    except (OSError, ValueError):
        return ()
    if b"\0" in text:
        return ()
    return directives_of(text.decode("utf-8", "surrogateescape"))
