"""``weigh submit``: a plan or a command in, a job at a scheduler out."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import __version__
from weigh.errors import UsageError
from weigh.flow import schedulers
from weigh.flow.command_plan import plan_command
from weigh.flow.job_programs import programs_of
from weigh.flow.job_wanted import asked, parse_gpus
from weigh.flow.ship import (
    TOO_LONG,
    Origin,
    parts_of,
    read_plan,
    script_path,
    ship,
)
from weigh.model.job import JobScript, Runner, Setup, Submitted, Wanted
from weigh.model.plan import Plan
from weigh.report.submit_lines import Shipped
from weigh.scheduler.local import NAME as LOCAL
from weigh.store import jobs, location
from weigh.units import parse_duration, parse_size

_OWN_DISKS = ("/tmp", "/var/tmp", "/dev/shm", "/scratch")  # noqa: S108 - only named


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
    wanted = _said(wishes, _after(wishes.after, name, root))
    earlier = jobs.read_jobs(root)
    folder, plan = _plan(wishes, earlier, cwd=cwd, env=env)
    if not wishes.again:
        _refuse_twice(earlier, folder)
    wanted, notes = asked(plan, wanted, scheduler)
    script = JobScript(
        name=wishes.name or plan.name,
        folder=folder,
        cwd=cwd,
        store=root,
        python=sys.executable,
        elements=len(plan.elements),
        together=max(len(element.tasks) for element in plan.elements),
        wanted=wanted,
        setup=wishes.setup,
        runner=wishes.runner,
        programs=programs_of(plan),
        version=__version__,
    )
    limit = scheduler.array_limit(script.elements)
    parts = list(parts_of(script, limit))
    answer = Shipped(
        plan=plan,
        scheduler=name,
        script=script_path(parts[0]),
        text=scheduler.render(parts[0]),
        notes=(*notes, *_reach_notes(name)),
    )
    if wishes.dry_run:
        return answer
    made: list[Submitted] = []
    for part in parts:
        origin = Origin(made[0].id, TOO_LONG) if made else None
        made.append(ship(scheduler, part, plan, root=root, origin=origin))
    return msgspec.structs.replace(answer, job=made[0], more=tuple(made[1:]))


def _plan(
    wishes: Wishes,
    earlier: Sequence[Submitted],
    *,
    cwd: str,
    env: Mapping[str, str],
) -> tuple[str, Plan]:
    if wishes.command:
        return plan_command(
            wishes.command,
            name=wishes.name,
            cwd=cwd,
            env=env,
            submitted={job.folder for job in earlier},
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


def _reach_notes(scheduler: str) -> Iterator[str]:
    """Doubt that the nodes have the Python that the script calls."""
    own = [place for place in _OWN_DISKS if sys.prefix.startswith(f"{place}/")]
    if own and scheduler != LOCAL:
        yield f"weigh is in {sys.prefix}: {own[0]} is each machine's own, as a rule"


def _refuse_twice(known: Sequence[Submitted], folder: str) -> None:
    """Keep a plan from being run by two jobs at once.

    Raises:
        UsageError: it was submitted before.
    """
    earlier = [job for job in known if job.folder == folder]
    if earlier:
        raise UsageError(
            f"{earlier[-1].name} was submitted before, as job {earlier[-1].id}: "
            f"weigh resume {earlier[-1].id} runs what did not finish "
            "(--again submits it once more)"
        )


def _said(wishes: Wishes, after: tuple[str, ...]) -> Wanted:
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
        after=after,
        extra=wishes.extra,
    )


def _after(names: Sequence[str], scheduler: str, root: str) -> tuple[str, ...]:
    """Give the ids of the jobs to come after; those of others go through as they are.

    Raises:
        UsageError: a job is another scheduler's, which would wait for nothing.
    """
    if not names:
        return ()
    known = jobs.read_jobs(root)
    ids: list[str] = []
    for name in names:
        if name.isdecimal() and not any(job.id == name for job in known):
            ids.append(name)
            continue
        job = jobs.find_jobs(known, name)[-1]
        if job.scheduler != scheduler:
            raise UsageError(
                f"job {job.id} is with {job.scheduler}: a job of {scheduler} cannot "
                "wait for it"
            )
        ids.append(job.id)
    return tuple(ids)
