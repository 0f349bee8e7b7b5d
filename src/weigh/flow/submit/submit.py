"""``weigh submit``: a plan or a command in, a job at a scheduler out."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh import __version__, config
from weigh.errors import UsageError, WeighError
from weigh.flow.job_scripts import refuse_job_script
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site import schedulers
from weigh.flow.site.cluster import in_site_words
from weigh.flow.submit import each_node, first
from weigh.flow.submit.checks import check_request, log_row, programs_of
from weigh.flow.submit.command_plan import plan_command
from weigh.flow.submit.interactive import Session, interactive
from weigh.flow.submit.once import Round, Sendings, freeze, reaching, settle_all
from weigh.flow.submit.prefetch import (
    MEMORY,
    after_prefetch,
    await_prefetch,
    free_name,
    prefetch_cluster,
    where_to,
)
from weigh.flow.submit.resolve import UNKNOWN, asked, parse_gpus, refuse_own
from weigh.flow.submit.staging import (
    left_behind,
    refuse_large,
    refuse_missing,
    refuse_requeue,
    staged,
    staging_of,
)
from weigh.flow.submit.submit_script import (
    LOGS,
    TOO_LONG,
    Origin,
    halfway,
    make_numbered,
    read_plan,
    script_path,
    ship,
)
from weigh.flow.submit.verify import check_understood, ids_to_await
from weigh.model.job import AGAIN, JobScript, Runner, Setup, Submitted, Wanted
from weigh.model.plan import Plan
from weigh.model.staging import Staging
from weigh.render.submit_lines import Shipped
from weigh.schedulers import KINDS
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.schedulers.protocol import Scheduler
from weigh.store import jobs, location
from weigh.units import parse_limit, parse_size

_OWN_DISKS = ("/tmp", "/var/tmp", "/dev/shm", "/scratch")  # noqa: S108 - only named


# what a job has and a shell on a node has not
_OF_JOBS = (
    *("after", "throttle", "first", "each_node", "mail", "prefetch", "stage_in"),
    *("stage_out", "scratch", "stage_max", "requeue", "again", "name", "nodes"),
)


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
    nodes: int | None = None
    queue: str | None = None
    account: str | None = None
    qos: str | None = None
    mail: str | None = None
    after: tuple[str, ...] = ()
    throttle: int | None = None
    first: int | None = None
    each_node: bool = False
    setup: Setup = Setup()
    cluster: str | None = None
    prefetch: str | None = None
    stage_in: tuple[str, ...] = ()
    stage_out: str | None = None
    scratch: str | None = None
    stage_max: str | None = None
    requeue: bool = False
    runner: Runner = "weigh"
    again: bool = False
    ignore_directives: bool = False
    dry_run: bool = False
    extra: tuple[tuple[str, str], ...] = ()


def submit(
    wishes: Wishes,
    *,
    cwd: str,
    env: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Shipped:
    """Write the job script of a plan, or of a command, and submit it.

    *say* is told what it waits for.

    Raises:
        UsageError: there is no such plan, it was submitted before, or a value cannot
            be asked for.
        FormatError: a size, a time or the plan does not parse.
        SchedulerError: the scheduler is not there, refuses or does not answer.
        StoreError: the script cannot be written.
    """
    root, here = location.locate(cwd, env), env
    settle_all(root, env, say)
    name, env = where_to(wishes.scheduler, wishes.cluster, cwd=cwd, env=env)
    parts, answer = _prepared(wishes, name, root, cwd=cwd, env=env)
    sendings = Sendings(parts[0].folder, root=root, reach=reaching(root, here))
    number = sendings.next_number(say)
    if not wishes.again:
        _refuse_twice(jobs.read_jobs(root), parts[0].folder)
        sendings.refuse_again()
    if wishes.dry_run:
        return answer
    if wishes.setup.checks:
        answer = _checked(parts, answer, env)
    sending = sendings.begin(number)
    try:
        return _sent(wishes, parts, answer, sending, name, cwd=cwd, env=here, say=say)
    finally:
        sending.close()


def _sent(  # noqa: PLR0913 - keyword-only past the fifth
    wishes: Wishes,
    parts: list[JobScript],
    answer: Shipped,
    sending: Round,
    name: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> Shipped:
    """Submit what was worked out, and before it what it waits for."""
    root = sending.sender.store
    if wishes.again and _was_used(sending):
        parts = _anew(parts, answer.plan)
        answer = msgspec.structs.replace(answer, script=script_path(parts[0]))
    if wishes.prefetch is not None:
        fetch = _prefetch(wishes, parts[0].name, cwd=cwd, env=env)
        note = f"{parts[0].name} begins once prefetch job {fetch.id} has succeeded"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
        if fetch.scheduler == name:
            parts = after_prefetch(parts, fetch)
        else:
            await_prefetch(fetch, root=root, env=env, say=say)
    scheduler = schedulers.reach(name, root=root, env=env)
    return _ship_all(scheduler, parts, answer, sending)


def _was_used(sending: Round) -> bool:
    """Return whether a job has run the plan in its own folder, where its logs are."""
    known = jobs.read_jobs(sending.sender.store)
    logs = os.path.join(sending.folder, LOGS)
    return any(job.is_of(sending.folder) for job in known) or os.path.exists(logs)


def _anew(parts: Sequence[JobScript], plan: Plan) -> list[JobScript]:
    """Copy the plan to a folder of its own, so that all of it runs once more.

    What an earlier job of it still writes, and what is done, stays as it is.

    Raises:
        StoreError: the folder cannot be written.
    """
    above = parts[0].folder
    folder = make_numbered(above, AGAIN)
    freeze(above, folder, (plan_directory.FILE, *(one.file for one in plan.elements)))
    return [msgspec.structs.replace(part, folder=folder) for part in parts]


def _prepared(
    wishes: Wishes, name: str, root: str, *, cwd: str, env: Mapping[str, str]
) -> tuple[list[JobScript], Shipped]:
    """Work out the jobs to submit at the scheduler *name*, and what to say of them."""
    kind = schedulers.kind_of(name)
    scheduler = schedulers.reach(kind, root=root, env=env)
    wanted = _said(wishes, ids_to_await(wishes.after, name, jobs.read_jobs(root)))
    wanted = in_site_words(wanted, kind, config.load(cwd, env).cluster)
    refuse_own(wishes.extra, kind)
    staging, staging_notes = _staging(wishes, cwd, env)
    if wishes.requeue:
        refuse_requeue(kind, wishes.runner)
    folder, plan = _plan(wishes, root, cwd=cwd, env=env)
    if not wishes.again:
        _refuse_twice(jobs.read_jobs(root), folder)
    nodes: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    if wishes.each_node and kind != LOCAL:
        nodes, down = each_node.nodes_of(wanted, kind, cwd=cwd, env=env)
        plan = each_node.widened(
            plan, folder, wishes.command, len(nodes), dry_run=wishes.dry_run
        )
    wanted, notes = asked(plan, wanted, scheduler)
    if staging is not None and wanted.nodes > 1:
        raise UsageError("staging is to the disk of one node, and the job has several")
    script = _script(wishes, plan, wanted, staging, folder=folder, cwd=cwd, store=root)
    limit = scheduler.array_limit(script.elements)
    parts = list(first.cut(staged(script, kind), wishes.first, kind, limit))
    if nodes:
        parts = list(each_node.parts(staged(script, kind), nodes, kind))
    answer = Shipped(
        plan=plan,
        scheduler=kind,
        script=script_path(parts[0]),
        text=scheduler.render(parts[0]),
        notes=(
            *notes,
            *down,
            *_reach_notes(kind),
            *staging_notes,
            *left_behind(plan, staging, cwd),
            *_first_notes(wishes),
        ),
        commands=tuple(_commands(parts, kind)) if wishes.dry_run else (),
    )
    return parts, answer


def _script(  # noqa: PLR0913 - keyword-only past the fourth
    wishes: Wishes,
    plan: Plan,
    wanted: Wanted,
    staging: Staging | None,
    *,
    folder: str,
    cwd: str,
    store: str,
) -> JobScript:
    return JobScript(
        name=wishes.name or plan.name,
        folder=folder,
        cwd=cwd,
        store=store,
        python=sys.executable,
        elements=len(plan.elements),
        together=max(len(element.tasks) for element in plan.elements),
        wanted=wanted,
        setup=wishes.setup,
        runner=wishes.runner,
        programs=programs_of(plan),
        staging=staging,
        requeue=wishes.requeue,
        version=__version__,
    )


def session_of(wishes: Wishes, *, cwd: str, env: Mapping[str, str]) -> Session:
    """Work out the line that gives a shell on a node, with what *wishes* say.

    Raises:
        UsageError: there is no scheduler here, or it would refuse it.
        FormatError: a size, a time or a settings file does not parse.
    """
    if wishes.plan is not None:
        raise UsageError("--interactive takes no plan: a command after --, or nothing")
    idle = [f"--{name.replace('_', '-')}" for name in _OF_JOBS if getattr(wishes, name)]
    if idle or wishes.setup != Setup(checks=wishes.setup.checks):
        raise UsageError(
            "--interactive gives a shell and runs no job script: leave "
            f"{', '.join(idle) or '--module, --conda and the like'} out"
        )
    if not wishes.ignore_directives:
        refuse_job_script(wishes.command, cwd=cwd, path=env.get("PATH"))
    name, env = where_to(wishes.scheduler, wishes.cluster, cwd=cwd, env=env)
    kind = schedulers.kind_of(name)
    return interactive(
        in_site_words(_said(wishes, ()), kind, config.load(cwd, env).cluster),
        wishes.command,
        scheduler=kind,
        cwd=cwd,
        env=env,
    )


def _ship_all(
    scheduler: Scheduler, parts: Sequence[JobScript], answer: Shipped, sending: Round
) -> Shipped:
    """Submit a script, or each part of one that was too long for one job."""
    made: list[Submitted] = []
    why = TOO_LONG if parts[0].elements > 1 else each_node.REASON
    for part in parts:
        origin = Origin(made[0].id, why) if made else None
        if made and parts[0].gate:
            origin = Origin(made[0].id, first.reason(parts[0].elements))
            part = first.held(part, made[0].id, answer.scheduler)  # noqa: PLW2901
        try:
            made.append(ship(scheduler, part, answer.plan, sending, origin=origin))
        except WeighError as error:
            raise halfway(error, made, parts) if made else error from error
    return msgspec.structs.replace(
        answer,
        job=made[0],
        more=tuple(made[1:]),
        notes=(*answer.notes, *check_understood(scheduler, made)),
        now=time.time(),
    )


def _prefetch(
    wishes: Wishes, name: str, *, cwd: str, env: Mapping[str, str]
) -> Submitted:
    """Submit the command that is to run first, without a GPU."""
    fetch = Wishes(
        command=("bash", "-c", wishes.prefetch or ""),
        scheduler=wishes.scheduler,
        cluster=prefetch_cluster(wishes.cluster, cwd=cwd, env=env),
        name=free_name(name, cwd),
        ignore_directives=wishes.ignore_directives,
        memory=MEMORY,
        account=wishes.account,
        setup=wishes.setup,
    )
    job = submit(fetch, cwd=cwd, env=env).job
    if job is None:
        raise UsageError("a prefetch that is not submitted cannot be waited for")
    return job


def _checked(
    parts: Sequence[JobScript], answer: Shipped, env: Mapping[str, str]
) -> Shipped:
    """Refuse what would fail; add what was seen to be right."""
    script = parts[0]
    was_there = os.path.isdir(script.log)
    checks = check_request(
        script,
        answer.text,
        scheduler=answer.scheduler,
        env=env,
        elements=sum(part.elements for part in parts),
    )
    if not checks.rows:
        return answer
    said = tuple(note for note in answer.notes if note not in UNKNOWN)
    return msgspec.structs.replace(
        answer,
        checks=(*checks.rows, log_row(script, was_there=was_there)),
        notes=(*said, *checks.doubts),
    )


def _staging(
    wishes: Wishes, cwd: str, env: Mapping[str, str]
) -> tuple[Staging | None, tuple[str, ...]]:
    words = (wishes.stage_in, wishes.stage_out, wishes.scratch)
    staging = staging_of(words, config.load(cwd, env), cwd=cwd, env=env)
    if staging is not None and not wishes.after and wishes.prefetch is None:
        refuse_missing(staging)
    notes = () if staging is None else tuple(refuse_large(staging, wishes.stage_max))
    return staging, notes


def _plan(
    wishes: Wishes, root: str, *, cwd: str, env: Mapping[str, str]
) -> tuple[str, Plan]:
    if wishes.each_node and not wishes.command:
        raise UsageError("--each-node runs a command: weigh submit --each-node -- CMD")
    if wishes.each_node and wishes.first is not None:
        raise UsageError("--each-node and --first: each node's job is its own")
    if wishes.command:
        return plan_command(
            wishes.command,
            name=wishes.name,
            cwd=cwd,
            env=env,
            nodes=wishes.nodes,
            submitted={job.folder for job in jobs.read_jobs(root)},
            dry_run=wishes.dry_run,
            ignore_directives=wishes.ignore_directives,
        )
    if wishes.nodes is not None:
        raise UsageError("--nodes is for a command (weigh plan TASKS --nodes N)")
    if wishes.plan is None:
        raise UsageError(
            "what to submit? weigh submit PLAN, or weigh submit -- COMMAND"
        )
    folder = os.path.abspath(os.path.join(cwd, wishes.plan))
    plan = read_plan(folder)
    if not plan.elements:
        raise UsageError(f"{wishes.plan} has no element: there is nothing to submit")
    return folder, plan


def _commands(parts: Sequence[JobScript], kind: str) -> Iterator[tuple[str, ...]]:
    if kind in KINDS:
        for part in parts:
            yield KINDS[kind].backend.submit_argv(script_path(part))


def _first_notes(wishes: Wishes) -> Iterator[str]:
    if wishes.prefetch is not None and wishes.dry_run:
        yield f"runs before it, in a job without GPU: {wishes.prefetch}"


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
    earlier = [job for job in known if job.is_of(folder)]
    if earlier:
        raise UsageError(
            f"{earlier[-1].name} was submitted before, as job {earlier[-1].id}: "
            f"weigh resume {earlier[-1].id} runs what did not finish "
            "(--again runs all of it once more)"
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
        time_limit=None if wishes.time is None else parse_limit(wishes.time),
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
