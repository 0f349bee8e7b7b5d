"""The directory of a plan: one task file per element, and the plan as JSON."""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from glob import escape, glob

import msgspec
from msgspec.structs import replace

from weigh.errors import (
    FormatError,
    StoreError,
    UsageError,
    WeighError,
    cannot_write,
    close_names,
)
from weigh.model.job import AGAIN, SubmittedJob
from weigh.model.plan import (
    PLAN_FILE,
    QUEUE_TASKS,
    SCHEMA,
    SCHEMA_OF_QUEUES,
    Plan,
    PlannedQueue,
)
from weigh.regular_file import only_regular
from weigh.store.identity import new_id
from weigh.store.lines import UNREADABLE
from weigh.store.location import make_private_folder, open_privately
from weigh.sweep.quoting import bash_quoted

FOLDER = "plan"  # in the working directory: the plans
FILE = PLAN_FILE
# how names of task files and of queues begin
_OURS = "tasks_"
_QUEUE = "queue_"
_DIGEST = 16  # letters
SENT = "sent"  # in a plan's directory: what was submitted


def check_free(directory: str, task_file: str, *, replace: bool) -> None:
    """Check that writing a plan to *directory* overwrites nothing by accident.

    A plan of the same *task_file* that lacks figures gives way to one with more.

    Raises:
        UsageError: *directory* holds something else, or a plan and not *replace*.
    """
    # lexists: a broken link is in the way as well
    if not os.path.lexists(directory):
        return
    if _is_unfinished(directory):
        return
    is_plan = os.path.isfile(os.path.join(directory, FILE))
    if not is_plan:
        raise UsageError(
            f"{directory} exists and is not a plan (choose another --name)"
        )
    if not replace and not _lacks_figures(directory, task_file):
        raise UsageError(
            f"{os.path.relpath(directory)} exists already "
            "(type this command again with --replace, or with another --name)"
        )


def _lacks_figures(directory: str, task_file: str) -> bool:
    """Return whether its plan is only good to be made again, as weigh advised."""
    with suppress(WeighError):
        plan = read_plan(directory)
        is_complete = None not in {plan.request.memory, plan.request.time_limit}
        is_same = plan.task_file == task_file and not was_submitted(directory)
        return is_same and not is_complete
    return False


def reserve(directory: str) -> bool:
    """Create the directory of a future plan; return False where it exists already.

    Raises:
        OSError: it cannot be created.
    """
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    try:
        os.mkdir(directory)
    except FileExistsError:
        return False
    return True


def release(directory: str) -> None:
    """Remove the reserved directory of a plan that was not written."""
    with suppress(OSError):  # it holds the plan, or there are other plans
        os.rmdir(directory)
        os.rmdir(os.path.dirname(directory))


def remove_unsent(directory: str) -> None:
    """Remove a plan that this process has made, and that nobody has begun to submit."""
    if not os.path.lexists(os.path.join(directory, SENT)):
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # there are other plans
            os.rmdir(os.path.dirname(directory))


def write(
    directory: str,
    plan: Plan,
    text_of: Callable[[int], bytes],
    check: Callable[[], object] = lambda: None,
) -> Plan:
    """Write *plan* and its task files; return it with their digests.

    They are written next to *directory* and moved into it once all are there: on a full
    disk an earlier plan stays as it was. *text_of* returns the line of a task by its
    number. Where another process has written a plan there meanwhile, *check* is asked
    again whether it may be replaced.

    Raises:
        StoreError: a file cannot be written.
        UsageError: of *check*.
    """
    above, name = os.path.split(directory)
    # not the process: another machine may have one of the same number
    written = os.path.join(above, f".{name}.{new_id()}")
    try:
        # commands may hold what is private: only the user may read them
        make_private_folder(written)
        if plan.queue is not None:
            plan = _write_queue(written, plan, plan.queue, text_of)
        else:
            plan = _write_elements(written, plan, text_of)
        with open(os.path.join(written, FILE), "wb", opener=open_privately) as file:
            file.write(plan_document(plan))
        # of several processes that plan at once one gets a name that is free
        with suppress(OSError):
            os.rename(written, directory)
        if os.path.lexists(written):
            check()
            _move_plan_files(written, directory)
    except OSError as error:
        raise StoreError(cannot_write(error.filename or directory, error)) from error
    finally:
        shutil.rmtree(written, ignore_errors=True)
        with suppress(OSError):  # it has a plan, or was never made
            os.rmdir(above)
    return plan


def _move_plan_files(written: str, directory: str) -> None:
    """Replace the plan in *directory* by the files *written*."""
    make_private_folder(directory)
    # the old files first: a shorter plan would leave some of them
    _remove_old(directory)
    # plan.json comes last: it names all others
    for name in sorted(os.listdir(written), key=FILE.__eq__):
        os.replace(os.path.join(written, name), os.path.join(directory, name))


def _write_queue(
    directory: str, plan: Plan, queue: PlannedQueue, text_of: Callable[[int], bytes]
) -> Plan:
    """Write what elements read: these files of a queue never change."""
    make_private_folder(os.path.join(directory, queue.folder))
    digest = _write_tasks(os.path.join(directory, queue.file), queue.tasks, text_of)
    plan = replace(plan, queue=replace(queue, digest=digest))
    path = os.path.join(directory, queue.folder, FILE)
    with open(path, "wb", opener=open_privately) as new:
        new.write(plan_document(plan))
    return plan


def _write_elements(
    directory: str, plan: Plan, text_of: Callable[[int], bytes]
) -> Plan:
    elements = []
    for element in plan.elements:
        path = os.path.join(directory, element.file)
        digest = _write_tasks(path, element.tasks, text_of)
        elements.append(replace(element, digest=digest))
    return replace(plan, elements=tuple(elements))


def plan_document(plan: Plan) -> bytes:
    """Return *plan* as JSON; bytes that are not UTF-8 become backslash escapes."""
    try:
        encoded = msgspec.json.encode(plan)
    except UnicodeEncodeError:
        kinds = tuple(
            replace(
                kind, example=kind.example.encode("utf-8", "backslashreplace").decode()
            )
            for kind in plan.kinds
        )
        encoded = msgspec.json.encode(replace(plan, kinds=kinds))
    return msgspec.json.format(encoded, indent=1) + b"\n"


def _remove_old(directory: str) -> None:
    """Remove the files of an earlier plan; logs and results of its jobs stay.

    A queue stays once an element has pulled from it, or may because it was submitted.
    """
    was_sent = was_submitted(directory)
    for name in os.listdir(directory):
        # an element of a submitted queue may still read it
        if name.startswith(_QUEUE):
            if not was_sent:
                _remove_unused(os.path.join(directory, name))
        elif _is_plan_file(name):
            os.remove(os.path.join(directory, name))


def planned_in(directory: str) -> str | None:
    """Return where weigh plan made the plan in *directory*: its tasks name files there.

    None if the plan was moved elsewhere since.
    """
    # plan/NAME below the folder in which the tasks run
    above, name = os.path.split(os.path.dirname(directory))
    return above if name == FOLDER and os.path.isdir(above) else None


def was_submitted(directory: str) -> bool:
    """Return whether the plan in *directory*, or the one before, was submitted."""
    return os.path.isdir(os.path.join(directory, SENT))


def _remove_unused(queue: str) -> None:
    # anything else in it is a claim of a run
    if set(os.listdir(queue)) <= {FILE, QUEUE_TASKS}:
        shutil.rmtree(queue)


def _is_plan_file(name: str) -> bool:
    number = name.removeprefix(_OURS).removesuffix(".txt")
    is_tasks = name == f"{_OURS}{number}.txt" and number.isdecimal()
    is_tasks = is_tasks or name.startswith(_QUEUE)
    return is_tasks or name == FILE


def _is_unfinished(directory: str) -> bool:
    """Return whether a plan was interrupted, e.g. by a full disk, or is to come."""
    if not os.path.isdir(directory):
        return False
    names = os.listdir(directory)
    # what an interrupted plan leaves are files of a plan, without plan.json
    return FILE not in names and all(map(_is_plan_file, names))


def _write_tasks(
    path: str, tasks: tuple[int, ...], text_of: Callable[[int], bytes]
) -> str:
    """Write a task file, and return its digest."""
    digest = hashlib.sha256()
    with open(path, "wb", opener=open_privately) as file:
        for task in tasks:
            line = text_of(task) + b"\n"
            digest.update(line)
            file.write(line)
    return digest.hexdigest()[:_DIGEST]


def refuse_changed_plan(folder: str, plan: Plan) -> None:
    """Refuse a plan one of whose task files was edited.

    Raises:
        UsageError: one was.
    """
    if plan.queue is not None:
        refuse_changed_tasks(os.path.join(folder, plan.queue.file), plan.queue.digest)
        return
    for element in plan.elements:
        refuse_changed_tasks(os.path.join(folder, element.file), element.digest)


def refuse_changed_tasks(path: str, digest: str) -> None:
    """Refuse a task file of a plan that was edited: its tasks would be others, or lost.

    Raises:
        UsageError: it was.
    """
    if not digest:  # of an older plan
        return
    with suppress(OSError), open(path, "rb", opener=only_regular) as file:
        if hashlib.file_digest(file, "sha256").hexdigest()[:_DIGEST] != digest:
            raise UsageError(
                f"{path} was changed since weigh plan wrote it, and the plan has other "
                "tasks: undo that, or change your own task file and plan it --replace"
            )


def plan_in_folder_of(submitted_job: SubmittedJob) -> Plan:
    """Return the plan of a job.

    Raises:
        UsageError, FormatError, StoreError: it cannot be read.
    """
    return read_plan(submitted_job.plan_folder)


def replaced_since(submitted_job: SubmittedJob) -> str | None:
    """Return the directory of a job's plan if it was written after the submission."""
    # a submission with --again has a folder of its own within the plan's
    above, name = os.path.split(submitted_job.folder)
    folder = above if name.startswith(AGAIN) else submitted_job.folder
    with suppress(OSError):
        if os.stat(os.path.join(folder, FILE)).st_mtime > submitted_job.submitted:
            return folder
    return None


def tasks_of(submitted_job: SubmittedJob, queue: PlannedQueue) -> str:
    """Return the path of the file with the tasks of a job's queue."""
    return os.path.join(submitted_job.folder, queue.file)


def read_plan(folder: str) -> Plan:
    """Return the plan in a directory.

    Raises:
        UsageError: there is no plan.
        FormatError: the file is not a plan.
        StoreError: the file cannot be read.
    """
    path = os.path.join(folder, FILE)
    try:
        with open(path, "rb", opener=only_regular) as file:
            plan = msgspec.json.decode(file.read(), type=Plan)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.isfile(folder):
            raise UsageError(
                f"{folder} is a file, not the directory of a plan: "
                f"weigh plan {bash_quoted(folder)}"
            ) from error
        raise UsageError(f"no plan in {folder} ({_way_to(folder)})") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise FormatError(f"{path} is not a plan: {error}") from error
    if plan.schema not in {SCHEMA, SCHEMA_OF_QUEUES}:
        raise FormatError(
            f"{path} is in schema {plan.schema}, and this weigh reads {SCHEMA} and "
            f"{SCHEMA_OF_QUEUES}: plan it again with weigh plan --replace"
        )
    return plan


def _way_to(folder: str) -> str:
    """Return what was probably meant by a folder without a plan."""
    name = os.path.basename(folder)
    plans = glob(os.path.join(escape(folder), "*", FILE))
    if plans:
        # the newest plan in it is probably meant
        newest = os.path.dirname(max(plans, key=os.path.getmtime))
        return f"did you mean {os.path.join(name, os.path.basename(newest))}?"
    if not os.path.exists(folder) and shutil.which(name):
        return f"to submit the command: weigh submit -- {bash_quoted(name)}"
    near = _plan_of_similar_name(folder)
    return f"did you mean {near}?" if near else "weigh plan TASKS writes one"


def _plan_of_similar_name(folder: str) -> str | None:
    """Return the plan that ``plan/taks`` means, or ``tasks`` without plan/."""
    above, name = os.path.split(folder)
    # in plan/ first: it is where weigh plan writes
    for place in (os.path.join(above, "plan"), above):
        files = glob(os.path.join(escape(place), "*", FILE))
        plans = [os.path.basename(os.path.dirname(path)) for path in files]
        for near in close_names(name, plans, n=1):
            return os.path.join(os.path.basename(place), near)
    return None
