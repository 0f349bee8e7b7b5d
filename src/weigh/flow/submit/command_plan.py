"""``weigh submit -- COMMAND``: write a plan of one task for the command."""

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from weigh.errors import StoreError, UsageError
from weigh.flow.here import Here
from weigh.flow.job_scripts import refuse_job_script
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import FOLDER
from weigh.flow.plan.plan import plan_task_file
from weigh.model.plan import Plan
from weigh.planning.make_plan import line_run_on_nodes
from weigh.planning.options import PlanOptions
from weigh.regular_file import only_regular
from weigh.store.location import open_privately
from weigh.sweep.quoting import bash_quoted, shell_line
from weigh.sweep.task_file import INTERPRETERS

if TYPE_CHECKING:  # it imports this one
    from weigh.flow.submit.submit import SubmitOptions

# a job of `python train.py` is called train, not python
_ENDINGS = (".py", ".sh", ".R", ".jl", ".pl")


def plan_command(
    here: Here, options: "SubmitOptions", submitted: Collection[str]
) -> tuple[str, Plan]:
    """Plan a command from records of similar commands; return the directory and plan.

    A plan of the same command is replaced, unless it is among those *submitted*.

    Raises:
        UsageError: the name is taken, the command runs a job script, or is a file.
        StoreError: the plan cannot be written.
    """
    command = options.command
    _refuse_a_file(command[0], here.cwd, here.env.get("PATH"))
    top = os.path.join(here.cwd, FOLDER)
    line = shell_line(command).encode("utf-8", "surrogateescape") + b"\n"
    # the line as the plan's writer stores it, to recognise an earlier plan
    written = line_run_on_nodes(line[:-1], options.nodes or 1, sys.executable) + b"\n"
    if not options.ignore_directives:
        refuse_job_script(command, cwd=here.cwd, path=here.env.get("PATH"))
    try:
        folder, is_new = _command_plan_folder(top, options, written, submitted)
    except OSError as error:
        raise StoreError(f"cannot write {top}: {error.strerror}") from error
    name = os.path.basename(folder)
    # weigh plan reads a task file; the process id keeps submitters apart
    path = os.path.join(top, f".{name}.{os.getpid()}.txt")
    plan_options = PlanOptions(
        task_file=path,
        name=name,
        dry_run=options.dry_run,
        replace=True,  # it is new, or of this very command
        nodes=options.nodes,
        ignore_directives=True,  # the command was checked above
    )
    try:
        os.makedirs(top, exist_ok=True)
        with open(path, "wb", opener=open_privately) as file:
            file.write(line)
        try:
            made = plan_task_file(here, plan_options).plans[0]
        finally:
            os.unlink(path)
            # where planning failed the reserved directory is still empty
            if is_new:
                plan_directory.release(folder)
            if not os.listdir(top):
                os.rmdir(top)  # a dry run leaves nothing behind
    except OSError as error:
        where = error.filename or path
        raise StoreError(f"cannot write {where}: {error.strerror}") from error
    return folder, made


def _refuse_a_file(word: str, cwd: str, path: str | None) -> None:
    """Refuse a program that a shell would not find: a file of this folder.

    Raises:
        UsageError: it is one.
    """
    is_file = os.path.dirname(word) == "" and os.path.isfile(os.path.join(cwd, word))
    if not is_file or shutil.which(word, path=path) is not None:
        return
    program = INTERPRETERS.get(os.path.splitext(word)[1].lower())
    meant = f"{program} {bash_quoted(word)}" if program else f"./{bash_quoted(word)}"
    raise UsageError(f"command not found: {word} (did you mean {meant}?)")


def _stem(command: Sequence[str]) -> str:
    """Return a name for a command: that of its script, else of its program."""
    for word in command:
        if word.endswith(_ENDINGS):
            command = (word,)
            break
    stem = os.path.splitext(os.path.basename(command[0]))[0]
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem).strip(".")
    return kept or "job"


def _command_plan_folder(
    top: str, options: "SubmitOptions", line: bytes, submitted: Collection[str]
) -> tuple[str, bool]:
    """Return the plan's directory, and whether this call created it.

    Several processes may submit commands at the same moment: each gets its own.

    Raises:
        UsageError: the typed name is taken.
    """
    stem, number = options.name or _stem(options.command), 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        folder = os.path.join(top, name)
        if _is_plan_of_command(folder, line, submitted):
            return folder, False
        # a dry run reserves nothing
        if options.dry_run and not os.path.lexists(folder):
            return folder, False
        if not options.dry_run and plan_directory.reserve(folder):
            return folder, True
        if options.name is not None:
            raise UsageError(_why_taken(folder, name, submitted))
        number += 1


def _why_taken(folder: str, name: str, submitted: Collection[str]) -> str:
    if folder in submitted:
        way_out = f"weigh resume {name} runs what did not finish"
        return (
            f"{FOLDER}/{name} was submitted before: choose another --name ({way_out})"
        )
    if not os.path.lexists(os.path.join(folder, plan_directory.FILE)):
        return f"{folder} exists already (choose another --name)"
    return (
        f"{FOLDER}/{name} is the plan of another command: "
        f"choose another --name (or delete {FOLDER}/{name})"
    )


def _is_plan_of_command(folder: str, line: bytes, submitted: Collection[str]) -> bool:
    """Return whether a plan is of this very command and was never submitted."""
    if folder in submitted:
        return False
    try:
        with open(
            os.path.join(folder, "tasks_0.txt"), "rb", opener=only_regular
        ) as file:
            return file.read() == line
    except OSError:
        return False
