"""``weigh submit``: a plan or a command in, a job at a scheduler out."""

import os
import sys
import time
from collections.abc import Mapping

import msgspec

from weigh import __version__
from weigh.errors import FormatError, StoreError, UsageError
from weigh.flow import plan_directory, schedulers
from weigh.flow.command_plan import plan_command
from weigh.model.job import JobScript, Runner, Setup, Submitted, Wanted
from weigh.model.plan import Plan
from weigh.report.submit_lines import Shipped
from weigh.scheduler import gridengine
from weigh.scheduler.local import NAME as LOCAL
from weigh.scheduler.scheduler import Scheduler
from weigh.store import jobs, location
from weigh.units import GIB, MIB, Bytes, parse_duration, parse_size

SCRIPT = "job.sh"
LOGS = "log"
THROTTLE = 10
# on top of the memory where nobody measured what is mapped: libraries, locales, weigh
_MAPPED: Bytes = GIB
_MAPPED_A_TASK: Bytes = 512 * MIB


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for, as written; None is left to the plan."""

    plan: str | None = None
    command: tuple[str, ...] = ()
    scheduler: str | None = None
    name: str | None = None
    memory: str | None = None
    virtual_memory: str | None = None
    time: str | None = None
    cpus: int | None = None
    gpus: str | None = None
    queue: str | None = None
    account: str | None = None
    qos: str | None = None
    mail: str | None = None
    after: tuple[str, ...] = ()
    throttle: int | None = None
    setup: Setup = Setup()
    runner: Runner = "weigh"
    again: bool = False
    dry_run: bool = False
    extra: tuple[tuple[str, str], ...] = ()


def submit(wishes: Wishes, *, cwd: str, env: Mapping[str, str]) -> Shipped:
    """Write the job script of a plan, or of a command, and submit it.

    Raises:
        UsageError: there is no such plan, it was submitted before, or a value cannot
            be asked for.
        FormatError: a size, a time or the plan does not parse.
        SchedulerError: the scheduler is not there, refuses or does not answer.
        StoreError: the script cannot be written.
    """
    root = location.locate(cwd, env)
    name = wishes.scheduler or schedulers.at_hand(env)
    scheduler = schedulers.reach(name, root=root, env=env)
    wanted = _said(wishes)
    folder, plan = _plan(wishes, cwd=cwd, env=env)
    if not wishes.again:
        _refuse_twice(root, folder)
    asked, notes = _asked(plan, wanted, scheduler)
    script = JobScript(
        name=wishes.name or plan.name,
        folder=folder,
        cwd=cwd,
        store=root,
        python=sys.executable,
        elements=len(plan.elements),
        together=max(len(element.tasks) for element in plan.elements),
        wanted=asked,
        setup=wishes.setup,
        runner=wishes.runner,
        version=__version__,
    )
    text = scheduler.render(script)
    path = os.path.join(folder, SCRIPT)
    answer = Shipped(
        plan=plan, scheduler=name, script=path, text=text, notes=tuple(notes)
    )
    if wishes.dry_run:
        return answer
    job = ship(scheduler, script, text, tasks=_count(plan), root=root)
    return msgspec.structs.replace(answer, job=job)


def ship(  # noqa: PLR0913 - keyword-only past the third
    scheduler: Scheduler,
    script: JobScript,
    text: str,
    *,
    tasks: int,
    root: str,
    resumes: str | None = None,
    reason: str | None = None,
) -> Submitted:
    """Write a script and its log folder, submit it, and keep what was submitted.

    Raises:
        StoreError: it cannot be written.
        SchedulerError: the scheduler does not take it.
    """
    path = os.path.join(script.folder, SCRIPT)
    _write(path, text)
    # kept beside the records before anything runs: no job is to be forgotten
    location.make_folder(root)
    job = Submitted(
        scheduler=scheduler.name,
        id=scheduler.submit(path, cwd=script.cwd),
        name=script.name,
        folder=script.folder,
        cwd=script.cwd,
        script=path,
        elements=script.elements,
        tasks=tasks,
        submitted=round(time.time(), 3),
        wanted=script.wanted,
        setup=script.setup,
        runner=script.runner,
        resumes=resumes,
        reason=reason,
    )
    jobs.append(root, job)
    return job


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
                f"{folder} is a file, and submit takes a plan: weigh plan {folder}"
            ) from error
        raise UsageError(f"no plan in {folder} (weigh plan TASKS makes one)") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is no plan: {error}") from error


def _plan(wishes: Wishes, *, cwd: str, env: Mapping[str, str]) -> tuple[str, Plan]:
    if wishes.command:
        return plan_command(
            wishes.command,
            name=wishes.name,
            cwd=cwd,
            env=env,
            dry_run=wishes.dry_run,
        )
    if wishes.plan is None:
        raise UsageError(
            "what to submit? weigh submit PLAN, or weigh submit -- COMMAND"
        )
    folder = os.path.abspath(os.path.join(cwd, wishes.plan))
    plan = read_plan(folder)
    if not plan.elements:
        raise UsageError(f"{wishes.plan} has no element: there is nothing to submit")
    return folder, plan


def _refuse_twice(root: str, folder: str) -> None:
    """Keep a plan from being run by two jobs at once.

    Raises:
        UsageError: it was submitted before.
    """
    earlier = [job for job in jobs.read_jobs(root) if job.folder == folder]
    if earlier:
        raise UsageError(
            f"{earlier[-1].name} was submitted before, as job {earlier[-1].id}: "
            f"weigh resume {earlier[-1].id} runs what did not finish "
            "(--again submits it once more)"
        )


def _said(wishes: Wishes) -> Wanted:
    """Read what was said on the command line."""
    gpu_type, gpus = parse_gpus(wishes.gpus)
    return Wanted(
        cpus=wishes.cpus or 0,
        memory=None if wishes.memory is None else parse_size(wishes.memory),
        virtual_memory=None
        if wishes.virtual_memory is None
        else parse_size(wishes.virtual_memory),
        time_limit=None if wishes.time is None else parse_duration(wishes.time),
        gpus=gpus,
        gpu_type=gpu_type,
        queue=wishes.queue,
        account=wishes.account,
        qos=wishes.qos,
        mail=wishes.mail,
        throttle=wishes.throttle,
        after=wishes.after,
        extra=wishes.extra,
    )


def parse_gpus(text: str | None) -> tuple[str | None, int]:
    """Read ``2``, ``v100`` or ``v100:2``.

    Raises:
        FormatError: none of those.
    """
    if text is None:
        return None, 0
    kind, colon, count = text.rpartition(":")
    if not colon:
        kind, count = ("", text) if text.isdecimal() else (text, "1")
    if not count.isdecimal() or not int(count) or (colon and not kind):
        raise FormatError(f"not GPUs: {text!r} (write it like 1, v100 or v100:2)")
    return kind or None, int(count)


def _asked(plan: Plan, said: Wanted, scheduler: Scheduler) -> tuple[Wanted, list[str]]:
    """Fill in from the plan what was not said; note what nobody said."""
    ask = plan.ask
    notes: list[str] = []
    wanted = msgspec.structs.replace(
        said,
        cpus=said.cpus or ask.cpus,
        memory=ask.memory if said.memory is None else said.memory,
        time_limit=ask.time_limit if said.time_limit is None else said.time_limit,
        throttle=_throttle(said, plan, scheduler.name),
    )
    if not said.gpus and ask.gpus:
        kind, note = _gpu_word(ask.gpu, scheduler)
        wanted = msgspec.structs.replace(wanted, gpus=ask.gpus, gpu_type=kind)
        notes += note
    if scheduler.name == gridengine.NAME and wanted.virtual_memory is None:
        wanted, note = _with_virtual(wanted, plan)
        notes += note
    if scheduler.name != LOCAL:
        if wanted.memory is None:
            notes.append("memory: not known, so the queue's default (--memory SIZE)")
        if wanted.time_limit is None:
            notes.append("time: not known, so the queue's default (--time TIME)")
    return wanted, notes


def _gpu_word(
    name: str | None, scheduler: Scheduler
) -> tuple[str | None, tuple[str, ...]]:
    """Find the site's word for a GPU: of ``v100-32gb`` it may know ``v100`` only."""
    if name is None or scheduler.name == LOCAL:
        return None, ()
    types = scheduler.gpu_types()
    plain = name.lower()
    alike = [word for word in types if plain.startswith(word.lower())]
    if alike:
        return max(alike, key=len), ()
    known = f": it has {', '.join(types)}" if types else ""
    note = f"any GPU: the site has no word for {name}{known} (--gpus TYPE:N)"
    return None, (note,)


def _throttle(said: Wanted, plan: Plan, scheduler: str) -> int | None:
    if scheduler == LOCAL:
        return said.throttle or 1
    if len(plan.elements) == 1:
        return None
    return said.throttle or THROTTLE


def _with_virtual(wanted: Wanted, plan: Plan) -> tuple[Wanted, tuple[str, ...]]:
    """Reckon h_vmem from the memory: it counts what is mapped as well."""
    if wanted.gpus:
        note = "h_vmem is left out: CUDA maps far more than it uses (--h-vmem SIZE)"
        return wanted, (note,)
    if wanted.memory is None:
        return wanted, ()
    together = max(len(element.tasks) for element in plan.elements)
    size = wanted.memory + _MAPPED + together * _MAPPED_A_TASK
    note = (
        "h_vmem counts what is mapped, too, which nobody measured: the memory and "
        "what libraries map (--h-vmem SIZE)"
    )
    return msgspec.structs.replace(wanted, virtual_memory=size), (note,)


def _count(plan: Plan) -> int:
    return sum(len(element.tasks) for element in plan.elements)


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.join(os.path.dirname(path), LOGS), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        os.chmod(path, 0o755)  # noqa: S103 - it is meant to be run
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
