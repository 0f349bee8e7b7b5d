"""The jobs of one submission: an array cut in parts, each written, sent and recorded.

The healer is a job that starts when others have ended: it runs ``weigh resume --heal``
on a node, so no process has to wait on a login node.
"""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from shlex import quote
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import (
    SchedulerError,
    StoreError,
    UsageError,
    WeighError,
    cannot_write,
    writing,
)
from weigh.flow.here import Here
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import refuse_changed_tasks
from weigh.flow.submit.rounds import SubmissionRound
from weigh.lazy_modules import lazy_module
from weigh.model.job import JobRequest, JobScript, JobSetup, SubmittedJob
from weigh.model.plan import Plan, PlannedElement, PlannedQueue
from weigh.model.record import SiteFlags
from weigh.regular_file import is_regular_file
from weigh.render.submit_lines import SubmitAnswer
from weigh.schedulers import find_kind
from weigh.schedulers.reachable import Scheduler
from weigh.store import location
from weigh.store.location import open_privately
from weigh.sweep.quoting import bash_quoted
from weigh.units import GIB, MIB, MINUTE, Seconds

if TYPE_CHECKING:
    from weigh.flow.submit import staging as submit_staging
    from weigh.planning import make_plan
    from weigh.runner import task_source
else:  # each is imported when it is first used
    make_plan = lazy_module("weigh.planning.make_plan")
    submit_staging = lazy_module("weigh.flow.submit.staging")
    task_source = lazy_module("weigh.runner.task_source")

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


class JobOrigin(msgspec.Struct, frozen=True):
    """The job that another job continues, the reason, and which round this is."""

    job: str
    reason: str
    round: int = 1  # the submissions of a plan, from 1


def script_path(job_script: JobScript) -> str:
    """Return the path of a script; each part of a long array has its own file."""
    name = f"job_{job_script.first}.sh" if job_script.first else SCRIPT
    return os.path.join(job_script.folder, name)


def text_of_script(scheduler: Scheduler, job_script: JobScript) -> str:
    """Return a job script as the scheduler reads it, with the lines that stage."""
    staging = job_script.staging
    if staging is not None:
        job_script = submit_staging.staged(job_script, staging, scheduler.name)
    return scheduler.render(job_script)


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
    job_script = replace(job_script, token=token, sent=sent)
    if (
        job_script.folder == sending.folder and not job_script.tasks
    ):  # weigh plan --replace may write there
        kept = plan.files if plan.queue is None else (plan_directory.FILE,)
        tasks = freeze(job_script.folder, sending.path("plan"), kept)
        job_script = replace(job_script, tasks=tasks)
    text = text_of_script(scheduler, job_script)
    write_script(path, text, job_script.log)
    # the plan's copy is for people and may be replaced; the scheduler reads this one,
    # whose path carries the token
    as_sent = os.path.join(sent, SCRIPT)
    write_script(as_sent, text)
    checked = job_script.setup.checks
    expected = scheduler.predict_start(path, cwd=job_script.cwd) if checked else None
    location.make_folder(sending.sender.store)
    draft = replace(
        _draft_of(scheduler, job_script, path),
        tasks=len(plan.queue.tasks) if plan.queue else sum(len(o.tasks) for o in ours),
        resumes=None if origin is None else origin.job,
        reason=None if origin is None else origin.reason,
        expected=expected,
        round=1 if origin is None else origin.round,
        heal=sending.heal,
    )
    return sending.send(scheduler, draft, as_sent)


def _draft_of(scheduler: Scheduler, job_script: JobScript, path: str) -> SubmittedJob:
    """Return the job of a script in *path*, with no id yet and none of the tasks."""
    return SubmittedJob(
        scheduler=scheduler.name,
        id="",  # the scheduler's answer fills it in
        name=job_script.name,
        folder=job_script.folder,
        cwd=job_script.cwd,
        script=path,
        elements=job_script.elements,
        tasks=0,
        submitted=round(time.time(), 3),
        request=job_script.request,
        first=job_script.first,
        setup=job_script.setup,
        staging=job_script.staging,
        requeue=job_script.requeue,
        token=job_script.token,
        plan=job_script.tasks,
        needs=job_script.needs,
    )


def freeze(folder: str, sent: str, names: Iterable[str]) -> str:
    """Keep copies of the files *names* of *folder* in *sent*; return *sent*.

    No links: an editor may write into the file that the user sees.

    Raises:
        UsageError: one of them does not exist.
        StoreError: they cannot be written.
    """
    for name in names:
        source, target = os.path.join(folder, name), os.path.join(sent, name)
        if not os.path.exists(source):
            raise UsageError(f"the plan's {name} is gone (weigh plan TASKS --replace)")
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            # commands may hold what is private
            with (
                open(source, "rb") as file,
                open(target, "xb", opener=open_privately) as copy,
            ):
                shutil.copyfileobj(file, copy)
        except FileExistsError:  # by an earlier part of the round
            continue
        except OSError as error:
            raise StoreError(cannot_write(target, error)) from error
    return sent


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
            raise StoreError(cannot_write(folder, error)) from error
        else:
            return folder


def write_script(path: str, text: str, log_folder: str | None = None) -> None:
    """Write an executable file for its owner alone, and make the folder of its logs.

    Raises:
        StoreError: it cannot be written.
    """
    if log_folder is not None:
        with writing(log_folder):
            os.makedirs(log_folder, exist_ok=True)
    with writing(path):
        with open(path, "wb", opener=open_privately) as file:
            # file names may hold bytes that are not UTF-8
            file.write(text.encode("utf-8", "surrogateescape"))
        os.chmod(path, os.stat(path).st_mode | 0o100)  # make it executable


TOO_LONG = "the array was too long for one job"


def split_into_job_parts(
    job_script: JobScript, limit: int | None
) -> Iterator[JobScript]:
    """Cut an array that is too long for one job; the parts share the throttle."""
    if limit is None or job_script.elements <= limit:
        yield job_script
        return
    count = -(-job_script.elements // limit)
    throttle = job_script.request.throttle
    # the parts run at the same time, so each gets its part of the throttle
    share = None if throttle is None else max(1, throttle // count)
    request = replace(job_script.request, throttle=share)
    for first in range(0, job_script.elements, limit):
        yield replace(
            job_script,
            first=job_script.first + first,
            elements=min(limit, job_script.elements - first),
            request=request,
        )


def folder_of_tasks(submitted_job: SubmittedJob, plan: Plan) -> str:
    """Return where the task files of a job are."""
    # the files of a queue never change, so there is no copy of them
    return submitted_job.plan_folder if plan.queue is None else submitted_job.folder


def note_on_edited_tasks(
    plan: Plan, folder: str, cwd: str, since: Seconds, words: str
) -> Iterator[str]:
    """Yield a note if the user's task file has other tasks by now than the plan.

    *folder* has the plan's own files; relative paths start in *cwd*. *since* is in
    seconds since the epoch, *words* what happened then.
    """
    path = os.path.join(cwd, plan.task_file)
    with suppress(OSError, WeighError):
        if (
            plan.task_file != "-"  # standard input
            and os.stat(path).st_mtime > since
            # no pipe, of which nothing may come: a plan of <(...), of /dev/stdin
            and is_regular_file(path)
            and _has_other_tasks(path, plan, folder)
        ):
            yield (
                f"{path} was changed since {words} as they were "
                f"(weigh plan {bash_quoted(plan.task_file)} --replace, with its "
                "options as before)"
            )


def _has_other_tasks(path: str, plan: Plan, folder: str) -> bool:
    with closing(task_source.TaskSource(path)) as source, ExitStack() as opened:
        line_of = planned_lines(plan, folder, opened)
        return len(source) != plan.tasks or not all(
            make_plan.runs_task_line(
                line_of(number), source.text(number), plan.request.nodes
            )
            for number in range(1, plan.tasks + 1)
        )


def planned_lines(plan: Plan, folder: str, opened: ExitStack) -> Callable[[int], bytes]:
    """Return a function for the line of a task; *opened* closes the task files."""
    files: Sequence[PlannedElement | PlannedQueue] = plan.elements
    if plan.queue is not None:
        files = (plan.queue,)
    digests = {one.file: one.digest for one in files}
    places = {
        task: (one.file, seq) for one in files for seq, task in enumerate(one.tasks, 1)
    }
    sources: dict[str, task_source.TaskSource] = {}

    def text_of(task: int) -> bytes:
        file, seq = places[task]
        if file not in sources:
            refuse_changed_tasks(os.path.join(folder, file), digests[file])
            # one open file at a time: a plan may have more than a process may open
            for source in sources.values():
                source.close()
            sources.clear()
            sources[file] = task_source.TaskSource(os.path.join(folder, file))
            opened.callback(sources[file].close)
        return sources[file].text(seq)

    return text_of


# requested for the one process of weigh resume that decides on a node
_MEMORY = 200 * MIB
# where it is limited: mapped libraries count as well
_ADDRESS_SPACE = 2 * GIB
_TIME = 10 * MINUTE


def send_healer(
    here: Here,
    scheduler: Scheduler,
    submitted_jobs: Sequence[SubmittedJob],
    sending: SubmissionRound,
) -> SubmittedJob:
    """Submit the job that resumes those of one plan once all of them have ended.

    It runs where and as the last of them did.

    Raises:
        StoreError: a file cannot be written.
        SchedulerError: the scheduler refused it, or nodes may not submit jobs.
        SubmissionUnknownError: whether it was accepted is not known.
    """
    # some sites allow sbatch and qsub on login nodes only
    why_not = scheduler.ask(
        scheduler.questions.why_not_from_nodes(submitted_jobs[-1].request.queue)
    )
    if why_not is not None:
        raise SchedulerError(why_not)
    last = submitted_jobs[-1]
    # by its token: schedulers use ids again
    words = ("resume", "--heal", "--confirm", last.token)
    token, sent = sending.new_token()
    script = JobScript(
        name=f"{last.name}-heal",
        folder=sent,
        cwd=last.cwd,
        store=sending.sender.store,
        python=sys.executable,
        elements=1,
        together=1,
        request=_healer_request(last, [job.id for job in submitted_jobs]),
        setup=_healer_setup(last, here.env),
        version=__version__,
        token=token,
        sent=sent,
        command=" ".join(map(quote, (sys.executable, "-P", "-m", "weigh", *words))),
    )
    path = os.path.join(sent, SCRIPT)
    write_script(path, scheduler.render(script), script.log)
    draft = _draft_of(scheduler, script, path)
    draft = replace(draft, round=last.round, is_healer=True)
    return sending.send(scheduler, draft, path)


def followed(
    here: Here, answer: SubmitAnswer, scheduler: Scheduler, sending: SubmissionRound
) -> SubmitAnswer:
    """Submit the healer of the jobs, if there is one; a refusal leaves them alone."""
    if sending.heal is None:
        return answer
    jobs_sent = [job for job in (answer.job, *answer.more) if job is not None]
    try:
        healer = send_healer(here, scheduler, jobs_sent, sending)
    except SchedulerError as error:
        note = without_healer(str(error), jobs_sent[0].name)
        notes = dict.fromkeys((*answer.notes, note))  # it may be known since before
        return replace(answer, notes=tuple(notes))
    return replace(answer, healer=healer)


def why_none(scheduler: Scheduler, queue: str | None, name: str) -> tuple[str, ...]:
    """Return the note that no healer can follow job *name*; none where one can.

    A scheduler that does not answer is believed to let nodes submit.
    """
    try:
        why = scheduler.ask(scheduler.questions.why_not_from_nodes(queue))
    except SchedulerError:
        return ()
    return () if why is None else (without_healer(why, name),)


def without_healer(why: str, name: str) -> str:
    """Write that no healer follows job *name*, why, and who has to go on."""
    return (
        f"no healer follows: {why}. When weigh status shows that all have ended: "
        f"weigh resume --heal {name}"
    )


def _healer_request(last: SubmittedJob, ids: Sequence[str]) -> JobRequest:
    """Return the request of a small job, in the queue and account of the tasks."""
    request, kind = last.request, find_kind(last.scheduler)
    limits_space = kind is not None and kind.traits.address_space is not None
    return JobRequest(
        memory=_MEMORY,
        virtual_memory=_ADDRESS_SPACE if limits_space else None,
        time_limit=_TIME,
        queue=request.queue,
        account=request.account,
        qos=request.qos,
        complexes=request.complexes,
        site=SiteFlags(per_cpu=request.site.per_cpu),
        after_end=tuple(ids),
    )


def _healer_setup(last: SubmittedJob, env: Mapping[str, str]) -> JobSetup:
    """Return the environment of the tasks, and what reaches the scheduler from a node.

    A job does not inherit its variables everywhere. The node's own programs come first.
    """
    kind = find_kind(last.scheduler)
    # what selects the cluster, such as SGE_ROOT: without it qsub finds none
    kept = () if kind is None else sorted(kind.variables.kept)
    lines = [
        f"export {name}={quote(env[name])}"
        for name in ("XDG_CONFIG_HOME", *kept)
        if env.get(name)
    ]
    if env.get("PATH"):
        lines.append(f'export PATH="$PATH":{quote(env["PATH"])}')
    # the tasks' own lines first, so PATH is extended after them
    lines = [*last.setup.lines, *lines]
    # weigh itself is not in the tasks' container
    return replace(last.setup, lines=tuple(lines), container=None, checks=False)
