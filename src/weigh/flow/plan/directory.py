"""The plan directory: a task file for each element, and the plan itself."""

import os
from collections.abc import Callable

import msgspec

from weigh.errors import StoreError, UsageError
from weigh.model.plan import PLAN_FILE, Plan
from weigh.store.location import make_private_folder, private

FILE = PLAN_FILE
LEFT_OUT = "left_out.txt"
_NEW = f"{FILE}.new"
_OURS = "tasks_"


def check_free(directory: str, *, replace: bool) -> None:
    """Make sure that no plan is lost.

    Raises:
        UsageError: something is there, and is no plan to replace.
    """
    if not os.path.lexists(directory):
        return
    if _is_unfinished(directory):
        return
    is_plan = os.path.isfile(os.path.join(directory, FILE))
    if not is_plan:
        raise UsageError(f"{directory} is there and is no plan (choose another --name)")
    if not replace:
        raise UsageError(
            f"{directory} exists already (--replace plans anew; or another --name)"
        )


def reserve(directory: str) -> bool:
    """Make the folder of a plan to come; False where something is there.

    Raises:
        OSError: it cannot be made.
    """
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    try:
        os.mkdir(directory)
    except FileExistsError:
        return False
    with open(os.path.join(directory, _NEW), "xb"):
        return True


def release(directory: str) -> None:
    """Remove the folder of a plan that was not written after all."""
    if os.listdir(directory) == [_NEW]:
        os.remove(os.path.join(directory, _NEW))
        os.rmdir(directory)


def write(directory: str, plan: Plan, text_of: Callable[[int], bytes]) -> None:
    """Write *plan*, the tasks' lines by their numbers; ``plan.json`` comes last.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        make_private_folder(directory)
        _remove_old(directory)
        for element in plan.elements:
            _write_tasks(os.path.join(directory, element.file), element.tasks, text_of)
        if plan.left_out:
            tasks = tuple(short.task for short in plan.left_out)
            _write_tasks(os.path.join(directory, LEFT_OUT), tasks, text_of)
        path = os.path.join(directory, FILE)
        new = os.path.join(directory, _NEW)
        with open(new, "wb", opener=private) as file:
            file.write(document(plan))
        os.replace(new, path)
    except OSError as error:
        where = error.filename or directory
        raise StoreError(f"cannot write {where}: {error.strerror}") from error


def document(plan: Plan) -> bytes:
    """Write *plan* as JSON; bytes of a command that are no UTF-8 as backslashes."""
    try:
        encoded = msgspec.json.encode(plan)
    except UnicodeEncodeError:
        kinds = tuple(
            msgspec.structs.replace(
                kind, example=kind.example.encode("utf-8", "backslashreplace").decode()
            )
            for kind in plan.kinds
        )
        encoded = msgspec.json.encode(msgspec.structs.replace(plan, kinds=kinds))
    return msgspec.json.format(encoded, indent=1) + b"\n"


def _remove_old(directory: str) -> None:
    """Remove what a plan wrote before; logs and results of its jobs stay."""
    for name in os.listdir(directory):
        if _is_ours(name):
            os.remove(os.path.join(directory, name))


def _is_ours(name: str) -> bool:
    number = name.removeprefix(_OURS).removesuffix(".txt")
    is_tasks = name == f"{_OURS}{number}.txt" and number.isdecimal()
    return is_tasks or name in {FILE, _NEW, LEFT_OUT}


def _is_unfinished(directory: str) -> bool:
    """Return whether the writing of a plan broke off here, on a full disk say."""
    if not os.path.isdir(directory):
        return False
    names = os.listdir(directory)
    return bool(names) and FILE not in names and all(map(_is_ours, names))


def _write_tasks(
    path: str, tasks: tuple[int, ...], text_of: Callable[[int], bytes]
) -> None:
    with open(path, "wb", opener=private) as file:
        file.writelines(text_of(task) + b"\n" for task in tasks)
