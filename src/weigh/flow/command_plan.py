"""One command as a plan of one task, so that it is followed and resumed like any."""

import os
from collections.abc import Mapping, Sequence

from weigh.errors import StoreError
from weigh.flow.plan import FOLDER, Wishes, plan
from weigh.model.plan import Plan
from weigh.sweep.quoting import shell_line

_ENDINGS = (".py", ".sh", ".R", ".jl", ".pl")


def plan_command(
    command: Sequence[str],
    *,
    name: str | None,
    cwd: str,
    env: Mapping[str, str],
    dry_run: bool,
) -> tuple[str, Plan]:
    """Plan *command*, from records of commands like it; give the folder and the plan.

    Raises:
        UsageError: a plan of that name is there.
        StoreError: it cannot be written.
    """
    top = os.path.join(cwd, FOLDER)
    name = name or _free_name(top, _stem(command))
    path = os.path.join(top, f".{name}.{os.getpid()}.txt")
    try:
        os.makedirs(top, exist_ok=True)
        with open(path, "wb") as file:
            file.write(shell_line(command).encode("utf-8", "surrogateescape") + b"\n")
        try:
            wishes = Wishes(task_file=path, name=name, dry_run=dry_run)
            made = plan(wishes, cwd=cwd, env=env).plans[0]
        finally:
            os.unlink(path)
    except OSError as error:
        where = error.filename or path
        raise StoreError(f"cannot write {where}: {error.strerror}") from error
    return os.path.join(top, name), made


def _stem(command: Sequence[str]) -> str:
    """Name a command by its script, or else by its program."""
    for word in command:
        if word.endswith(_ENDINGS):
            command = (word,)
            break
    stem = os.path.splitext(os.path.basename(command[0]))[0]
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem).strip(".")
    return kept or "job"


def _free_name(top: str, stem: str) -> str:
    name, number = stem, 1
    while os.path.lexists(os.path.join(top, name)):
        number += 1
        name = f"{stem}-{number}"
    return name
