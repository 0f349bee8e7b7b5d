"""A job script on its way: written, submitted, kept."""

import os
import time
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import (
    FormatError,
    SchedulerError,
    StoreError,
    UsageError,
    WeighError,
)
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site.schedulers import kind_of
from weigh.flow.submit.once import Round, freeze
from weigh.flow.submit.staging import staged
from weigh.model.job import JobScript, Submitted, Wanted
from weigh.model.plan import Plan
from weigh.schedulers.protocol import Scheduler
from weigh.store import location
from weigh.store.lines import UNREADABLE
from weigh.store.location import private
from weigh.sweep.quoting import quoted

SCRIPT = "job.sh"
LOGS = "log"
TOO_LONG = "the array was too long for one job"


class Origin(msgspec.Struct, frozen=True):
    """The job that another one goes on from, and why."""

    job: str
    reason: str


def parts_of(script: JobScript, limit: int | None) -> Iterator[JobScript]:
    """Cut an array that is too long for one job; the throttle is for all together."""
    if limit is None or script.elements <= limit:
        yield script
        return
    count = -(-script.elements // limit)
    throttle = script.wanted.throttle
    share = None if throttle is None else max(1, throttle // count)
    wanted = msgspec.structs.replace(script.wanted, throttle=share)
    for first in range(0, script.elements, limit):
        yield msgspec.structs.replace(
            script,
            first=script.first + first,
            elements=min(limit, script.elements - first),
            wanted=wanted,
        )


def script_path(script: JobScript) -> str:
    """Name the file of a script; each part of a long array has its own."""
    name = f"job_{script.first}.sh" if script.first else SCRIPT
    return os.path.join(script.folder, name)


def ship(
    scheduler: Scheduler,
    script: JobScript,
    plan: Plan,
    sending: Round,
    *,
    origin: Origin | None = None,
) -> Submitted:
    """Write a script and its log folder, submit it, and record the job.

    Raises:
        StoreError: it cannot be written.
        UsageError: the scheduler would never start it.
        SchedulerError: the scheduler refuses it.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    path = script_path(script)
    ours = plan.elements[script.first : script.first + script.elements]
    token, sent = sending.new_token()
    script = msgspec.structs.replace(script, token=token, sent=sent)
    if script.folder == sending.folder:  # weigh plan --replace may write there
        files = (plan_directory.FILE, *(one.file for one in plan.elements))
        tasks = freeze(script.folder, sending.path("plan"), files)
        script = msgspec.structs.replace(script, tasks=tasks)
    text = scheduler.render(staged(script, kind_of(scheduler.name)))
    make_log_folder(script)
    _write(path, text)
    as_sent = os.path.join(sent, SCRIPT)
    _write(as_sent, text)
    checked = script.setup.checks
    expected = scheduler.predict_start(path, cwd=script.cwd) if checked else None
    location.make_folder(sending.sender.store)
    draft = Submitted(
        scheduler=scheduler.name,
        id="",
        name=script.name,
        folder=script.folder,
        cwd=script.cwd,
        script=path,
        elements=script.elements,
        tasks=sum(len(one.tasks) for one in ours),
        submitted=round(time.time(), 3),
        wanted=script.wanted,
        first=script.first,
        setup=script.setup,
        runner=script.runner,
        staging=script.staging,
        requeue=script.requeue,
        resumes=None if origin is None else origin.job,
        reason=None if origin is None else origin.reason,
        expected=expected,
        token=token,
        plan=script.tasks,
    )
    return sending.send(scheduler, draft, as_sent)


def halfway(
    error: WeighError, made: Sequence[Submitted], parts: Sequence[JobScript]
) -> SchedulerError:
    """Name what was submitted before the part that was not accepted."""
    there, total = sum(job.elements for job in made), sum(one.elements for one in parts)
    ids = ", ".join(job.id for job in made)
    way_out = f"weigh resume {made[0].id} submits the rest"
    if pinned(made[0].wanted):
        way_out = f"weigh cancel {ids.replace(',', '')}, then weigh submit --again"
    return SchedulerError(
        f"{error}\nonly {there:,} of {total:,} elements were submitted, as job {ids}: "
        f"{way_out}"
    )


def pinned(wanted: Wanted) -> bool:
    """Return whether a job is for one node by name, as with --each-node."""
    return any(
        name == "nodelist" or (name == "l" and value.startswith("h="))
        for name, value in wanted.extra
    )


def read_plan(folder: str) -> Plan:
    """Read the plan in a folder.

    Raises:
        UsageError: there is none.
        FormatError: it is none.
    """
    path = os.path.join(folder, plan_directory.FILE)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Plan)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.isfile(folder):
            raise UsageError(
                f"{folder} is a file, and submit takes a plan: "
                f"weigh plan {quoted(folder)}"
            ) from error
        raise UsageError(f"no plan in {folder} (weigh plan TASKS makes one)") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise FormatError(f"{path} is no plan: {error}") from error


def make_numbered(above: str, stem: str) -> str:
    """Make the next folder of a numbered kind, which nobody else made.

    Raises:
        StoreError: it cannot be made.
    """
    number = 1
    while True:
        folder = os.path.join(above, f"{stem}{number}")
        try:
            os.mkdir(folder)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise StoreError(f"cannot make {folder}: {error.strerror}") from error
        else:
            return folder


def make_log_folder(script: JobScript) -> None:
    """Make the folder of the logs.

    Raises:
        StoreError: it cannot be made.
    """
    try:
        os.makedirs(script.log, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {script.log}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    try:
        with open(path, "wb", opener=private) as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.chmod(path, os.stat(path).st_mode | 0o100)  # it is meant to be run
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
