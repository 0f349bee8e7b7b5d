"""Job scripts inside commands: the scheduler never reads their directives."""

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from weigh.errors import UsageError
from weigh.model.plan import HIDES_FAILURES
from weigh.render.printable import shortened_text
from weigh.schedulers import KINDS
from weigh.schedulers.hidden_exit import hidden_exit
from weigh.schedulers.launched import (
    SUBMIT_COMMANDS,
    LaunchedScript,
    directives_of,
    launched,
    launched_by_line,
)
from weigh.sweep.quoting import bash_quoted

_MOST_READ = 1 << 16  # bytes of a script; directives stand at its head
_MOST_TASKS = 1000  # of a long task file only so many lines are looked at
_MOST_SHOWN = 60  # characters
# "for ... done" on one line is a whole task; a lone "do" or an open "for" is a piece
_PIECE_OF_A_LOOP = re.compile(r"\s*(?:do|done|(?:for|while|until)\b(?!.*\bdone))\b")


def refuse_job_script(command: Sequence[str], *, cwd: str, path: str | None) -> None:
    """Refuse a command that runs a job script whose directives would be lost.

    *path* are the folders that programs are searched in.

    Raises:
        UsageError: it does; names the directives and the way out.
    """
    for why in _losses(launched(command), cwd, path):
        raise UsageError(why)


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


def refuse_job_scripts(
    task_file: str, lines: Iterable[str], *, cwd: str, path: str | None
) -> None:
    """Refuse a task file of which a line submits a job or runs a job script.

    Raises:
        UsageError: one does; names it and the way out.
    """
    first = list(islice(lines, _MOST_TASKS))
    refuse_submissions(task_file, first)
    why = lost_directives(first, cwd=cwd, path=path)
    if why is not None:
        raise UsageError(why)


def refuse_submissions(task_file: str, lines: Sequence[str]) -> None:
    """Refuse a task file that does nothing but submit jobs, by lines or in a loop.

    A task that submits the next job at its end is none. Any other loop over several
    lines is refused, too: each of its lines would be a task.

    Raises:
        UsageError: it is one; names the way out.
    """
    lines = lines[:_MOST_TASKS]
    submitting = [
        one
        for line in lines
        if (one := next(filter(_is_submission, launched_by_line(line)), None))
    ]
    loop = next(filter(_PIECE_OF_A_LOOP.match, lines), None)
    # one submission among other tasks may be the last step of a chain
    if submitting and (loop is not None or len(submitting) == len(lines)):
        raise UsageError(
            f"{task_file} submits jobs itself, by {submitting[0].runner}: bash "
            f"{bash_quoted(task_file)} submits them; for one array write what the jobs "
            "run as task lines (weigh sweep)"
        )
    if loop is not None:
        raise UsageError(
            f"{task_file} has a loop over several lines ({loop.strip()[:40]}), but "
            "each line is a task: write what it runs as task lines (weigh sweep)"
        )


def _is_submission(launched_script: LaunchedScript) -> bool:
    return launched_script.runner in SUBMIT_COMMANDS


def lost_directives(lines: Iterable[str], *, cwd: str, path: str | None) -> str | None:
    """Return what is lost when the first of *lines* run; None for nothing."""
    for line in islice(lines, _MOST_TASKS):
        for why in _losses(launched_by_line(line), cwd, path):
            return why
    return None


def hidden_exit_note(lines: Iterable[str]) -> str | None:
    """Return the first line of a task file whose exit code hides failures, if any."""
    for number, line in enumerate(islice(lines, _MOST_TASKS), 1):
        hidden = hidden_exit(line)
        if hidden is not None:
            return f"task {number} {HIDES_FAILURES}: {hidden.effect} ({hidden.cure})"
    return None


def _losses(
    launched_scripts: Iterable[LaunchedScript], cwd: str, path: str | None
) -> Iterator[str]:
    for one in launched_scripts:
        if _is_submission(one):
            yield _of_a_submission(one, cwd)
            continue
        for file in one.files:
            place = os.path.join(cwd, file)
            # a bare word is searched on PATH, as the shell does
            if not one.runner and "/" not in file:
                place = shutil.which(file, path=path) or ""
            options = _directives(place)
            if options:
                yield _lost(file, options)
            if os.access(place, os.X_OK) and os.path.isfile(place):
                break  # what follows are its arguments


def _lost(file: str, options: Sequence[str]) -> str:
    number = len(options)
    # a long option's name shows which scheduler is meant; Grid Engine has short ones
    # only
    is_long = options[0].startswith("--")
    tool = " or ".join(
        kind.submits
        for kind in KINDS.values()
        if kind.text.PREFIX and (not is_long or kind.text.OPTIONS.time.startswith("--"))
    )
    return (
        f"{file} has {number} directive{'s' * (number != 1)} that would be lost: "
        f"{shortened_text(' '.join(options), _MOST_SHOWN)}: remove them, or weigh "
        f"submit {file} (by {tool})"
    )


def _of_a_submission(submission: LaunchedScript, cwd: str) -> str:
    """Return what to do in place of a command that submits a job."""
    # words that may be files: the value of an option is one of them
    there = (one for one in submission.files if os.path.isfile(os.path.join(cwd, one)))
    script = next(there, None)
    way_out = "run it without weigh" if script is None else f"weigh submit {script}"
    return f"{submission.runner} submits a job of its own: {way_out}"


@lru_cache(maxsize=1000)
def _directives(path: str) -> tuple[str, ...]:
    """Return the directives of a file; none where it cannot be read."""
    try:
        # a FIFO or device would be waited for
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ()
        with open(path, "rb") as file:
            text = file.read(_MOST_READ)
    except (OSError, ValueError):
        return ()
    # a NUL byte shows a binary: it has no directives
    if b"\0" in text:
        return ()
    return directives_of(text.decode("utf-8", "surrogateescape"))
