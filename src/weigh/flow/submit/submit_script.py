"""Write a job script, submit it and record the job."""

import os
import shlex
import time
from collections.abc import Iterator

import msgspec

from weigh.errors import StoreError
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site.schedulers import kind_of_cluster_name
from weigh.flow.submit.job_parts import JobOrigin
from weigh.flow.submit.rounds import SubmissionRound, freeze
from weigh.model.job import JobScript, SubmittedJob
from weigh.model.plan import Plan
from weigh.schedulers.backend import Scheduler
from weigh.store import location
from weigh.store.location import open_privately

SCRIPT = "job.sh"
LOGS = "log"
# of all tasks: the job script looks each of them up before the first task
_MOST_PROGRAMS = 5
# letters of a name that needs no expansion by the shell: others are only known when the
# task runs
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-"
)
# words in front of the program of a task
_STARTERS = frozenset({"time", "exec", "nice", "env", "command"})


def script_path(job_script: JobScript) -> str:
    """Return the path of a script; each part of a long array has its own file."""
    name = f"job_{job_script.first}.sh" if job_script.first else SCRIPT
    return os.path.join(job_script.folder, name)


def programs_of(plan: Plan) -> tuple[str, ...]:
    """Return the first words of the tasks' commands, where they are plain names."""
    found = dict.fromkeys(
        word for kind in plan.kinds for word in _programs_in_line(kind.example)
    )
    # only the first word of a line is its program
    return tuple(found)[:_MOST_PROGRAMS]


def _programs_in_line(line: str) -> Iterator[str]:
    try:
        words = shlex.split(line)
    # a quote is not closed here: bash may read the line differently
    except ValueError:
        return
    for word in words:
        is_assignment = "=" in word and word.partition("=")[0].isidentifier()
        if is_assignment or word in _STARTERS:
            continue
        if word and _PLAIN.issuperset(word) and word[0] != "-":
            yield word
        return


def ship(
    scheduler: Scheduler,
    job_script: JobScript,
    plan: Plan,
    sending: SubmissionRound,
    *,
    origin: JobOrigin | None = None,
) -> SubmittedJob:
    """Write a script, make its log directory, submit the script and record the job.

    Raises:
        StoreError: a file cannot be written.
        UsageError: the scheduler would never start the job.
        SchedulerError: the scheduler refused the job.
        SubmissionUnknownError: whether the job was accepted is not known.
    """
    path = script_path(job_script)
    ours = plan.elements[job_script.first : job_script.first + job_script.elements]
    token, sent = sending.new_token()
    job_script = msgspec.structs.replace(job_script, token=token, sent=sent)
    if (
        job_script.folder == sending.folder and not job_script.tasks
    ):  # weigh plan --replace may write there
        kept = plan.files if plan.queue is None else (plan_directory.FILE,)
        tasks = freeze(job_script.folder, sending.path("plan"), kept)
        job_script = msgspec.structs.replace(job_script, tasks=tasks)
    if job_script.staging is not None:
        from weigh.flow.submit.staging import staged  # noqa: PLC0415 - only with staging

        text = scheduler.render(
            staged(job_script, kind_of_cluster_name(scheduler.name))
        )
    else:
        text = scheduler.render(job_script)
    make_log_folder(job_script)
    write_script(path, text)
    # the plan's copy is for people and may be replaced; the scheduler reads this one,
    # whose path carries the token
    as_sent = os.path.join(sent, SCRIPT)
    write_script(as_sent, text)
    checked = job_script.setup.checks
    expected = scheduler.predict_start(path, cwd=job_script.cwd) if checked else None
    location.make_folder(sending.sender.store)
    draft = SubmittedJob(
        scheduler=scheduler.name,
        id="",  # the scheduler's answer fills it in
        name=job_script.name,
        folder=job_script.folder,
        cwd=job_script.cwd,
        script=path,
        elements=job_script.elements,
        tasks=len(plan.queue.tasks) if plan.queue else sum(len(o.tasks) for o in ours),
        submitted=round(time.time(), 3),
        request=job_script.request,
        first=job_script.first,
        setup=job_script.setup,
        staging=job_script.staging,
        requeue=job_script.requeue,
        resumes=None if origin is None else origin.job,
        reason=None if origin is None else origin.reason,
        expected=expected,
        token=token,
        plan=job_script.tasks,
        round=1 if origin is None else origin.round,
        heal=sending.heal,
        needs=job_script.needs,
    )
    return sending.send(scheduler, draft, as_sent)


def make_numbered(above: str, stem: str) -> str:
    """Create and return the next free directory ``above/stemN``.

    Raises:
        StoreError: it cannot be created.
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


def make_log_folder(job_script: JobScript) -> None:
    """Create the directory of the logs.

    Raises:
        StoreError: it cannot be created.
    """
    try:
        os.makedirs(job_script.log, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {job_script.log}: {error.strerror}") from error


def write_script(path: str, text: str) -> None:
    """Write an executable file for its owner alone.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        with open(path, "wb", opener=open_privately) as file:
            # file names may hold bytes that are not UTF-8
            file.write(text.encode("utf-8", "surrogateescape"))
        os.chmod(path, os.stat(path).st_mode | 0o100)  # make it executable
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
