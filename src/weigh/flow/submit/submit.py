"""``weigh submit``: write the job script of a plan or a command, and submit it."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from weigh._version import __version__
from weigh.errors import (
    NoClusterError,
    SchedulerError,
    UsageError,
    WeighError,
)
from weigh.flow.here import Here
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site import schedulers
from weigh.flow.site.ask import ask_scheduler
from weigh.flow.site.cluster import in_site_words, refuse_lacking, site_warnings
from weigh.flow.submit import job_parts
from weigh.flow.submit.job_request import (
    UNKNOWN,
    can_heal,
    check_limits,
    check_understood,
    complete_request,
    parse_gpus,
    refuse_absent,
    refuse_heal,
    refuse_own,
    refuse_requeue,
)
from weigh.flow.submit.rounds import (
    SubmissionRound,
    freeze,
    rounds_of_plan,
    settle_all,
)
from weigh.flow.submit.submit_script import (
    LOGS,
    make_numbered,
    programs_of,
    script_path,
    ship,
)
from weigh.lazy_modules import lazy_module
from weigh.model.element_time import reserved_time
from weigh.model.job import (
    AGAIN,
    HealLimits,
    JobRequest,
    JobScript,
    JobSetup,
    SubmittedJob,
)
from weigh.model.plan import HIDES_FAILURES, PLAN_FILE, QUEUE_TASKS, Plan
from weigh.model.record import SiteFlags
from weigh.model.staging import StagingPlan
from weigh.render.submit_lines import SubmitAnswer
from weigh.schedulers import KINDS
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store import jobs
from weigh.units import parse_limit, parse_size

if TYPE_CHECKING:
    from weigh.flow.follow import dependency
    from weigh.flow.submit import checks as submit_checks
    from weigh.flow.submit import command_plan, torch_imports
    from weigh.flow.submit import healer as submit_healer
    from weigh.flow.submit import prefetch as submit_prefetch
    from weigh.flow.submit import staging as submit_staging
else:  # each is imported when it is first used
    dependency = lazy_module("weigh.flow.follow.dependency")
    submit_checks = lazy_module("weigh.flow.submit.checks")
    command_plan = lazy_module("weigh.flow.submit.command_plan")
    submit_healer = lazy_module("weigh.flow.submit.healer")
    torch_imports = lazy_module("weigh.flow.submit.torch_imports")
    submit_prefetch = lazy_module("weigh.flow.submit.prefetch")
    submit_staging = lazy_module("weigh.flow.submit.staging")

# directories that each node usually has for itself
_OWN_DISKS = ("/tmp", "/var/tmp", "/dev/shm", "/scratch")  # noqa: S108 - only named


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None: take the value from the plan."""

    # the directory of a plan; None: a ``command`` is submitted
    plan: str | None = None
    command: tuple[str, ...] = ()
    scheduler: str | None = None
    name: str | None = None
    # sizes and times are text here, read once the scheduler is known
    memory: str | None = None
    virtual_memory: str | None = None
    time: str | None = None
    cpus: int | None = None
    gpus: str | None = None
    nodes: int | None = None
    queue: str | None = None
    account: str | None = None
    qos: str | None = None
    exclusive: bool = False
    local_disk: str | None = None
    mail: str | None = None
    notify: str | None = None
    after: tuple[str, ...] = ()
    throttle: int | None = None
    first: int | None = None  # tasks of each kind; None: all tasks
    setup: JobSetup = JobSetup()
    cluster: str | None = None
    prefetch: str | None = None
    stage_in: tuple[str, ...] = ()
    stage_out: str | None = None
    scratch: str | None = None
    stage_max: str | None = None  # a size; None: _MOST_STAGED of staging
    requeue: bool = False
    # None: as the settings have it
    heal: bool | None = None
    max_memory: str | None = None
    max_time: str | None = None
    max_rounds: int | None = None
    max_hours: float | None = None  # CPU hours; None: no limit
    again: bool = False
    ignore_directives: bool = False
    dry_run: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def stages(self) -> bool:
        """Return whether files are staged."""
        return any((self.stage_in, self.stage_out, self.scratch))


def submit_plan(here: Here, options: SubmitOptions) -> SubmitAnswer:
    """Write the job script of a plan, or of a command, and submit it.

    Raises:
        UsageError: there is no such plan, it was submitted before, or the request
            would be refused.
        FormatError: a size, a time or the plan does not parse.
        SchedulerError: there is no scheduler, or it refuses or does not answer.
        StoreError: the script cannot be written.
    """
    settle_all(here)
    name, reached = where_to(here, options.scheduler, options.cluster)
    names = [name]
    # a command on PATH may have no cluster behind it: then the next one counts
    if options.scheduler is None and options.cluster is None:
        names = schedulers.available_schedulers(here.env)
    while True:
        name = names.pop(0)
        to = SubmitTarget(name, reached)
        try:
            # a dry run sends nothing that could fail, so the cluster is asked
            if options.dry_run and names:
                _refuse_without_cluster(here, name)
            return _submit_to(here, to, options)
        except NoClusterError as error:
            if not names:
                raise
            titles = {LOCAL: "this machine"} | {n: k.title for n, k in KINDS.items()}
            here.notify(f"{error.command} finds no cluster: trying {titles[names[0]]}")


def _refuse_without_cluster(here: Here, name: str) -> None:
    """Refuse a scheduler whose commands reach no cluster, by its cheapest query.

    Raises:
        NoClusterError: they reach none.
    """
    kind = KINDS[name]
    reply = ask_scheduler(kind.probe, env=here.env)
    if not reply.is_answer and kind.backend.NO_CLUSTER.search(reply.complaint()):
        raise NoClusterError(kind.submits, kind.backend.LOGIN_HINT)


class SubmitTarget(msgspec.Struct, frozen=True):
    """A scheduler by its name, and the environment in which its commands reach it."""

    scheduler: str
    env: Mapping[str, str]


class TypedSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """What the options ask of a scheduler, before the plan fills in the rest."""

    kind: str
    """The scheduler without the name of its cluster."""
    scheduler: Scheduler
    request: JobRequest
    needs: tuple[str, ...]
    """The jobs that must have succeeded, by token or id."""
    heal: HealLimits | None
    staging: StagingPlan | None
    notes: tuple[str, ...]


class WorkToSend(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of the tasks, in its directory."""

    folder: str
    plan: Plan
    together: int
    """How many tasks an element runs at once, of all of them, not of the first."""
    notes: tuple[str, ...] = ()


class WrittenSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """The job scripts to submit, several for a long array, and the answer to print."""

    parts: list[JobScript]
    plan: Plan
    answer: SubmitAnswer


def _submit_to(here: Here, to: SubmitTarget, options: SubmitOptions) -> SubmitAnswer:
    """Submit to one scheduler: what was typed, its work, written, checked and sent."""
    there = here.in_environment(to.env)
    typed = _typed_submission(there, options, to.scheduler)
    work = _work_to_send(there, options)
    written = _written_submission(there, options, typed, work)
    sendings = rounds_of_plan(here, written.parts[0].folder)
    # before the jobs are read: who begins this number has seen all that were sent
    number = sendings.next_number(here.notify)
    if not options.again:
        _refuse_submitted_plan(jobs.read_jobs(here.root), written.parts[0].folder)
        sendings.refuse_again()
    if options.dry_run:
        return written.answer
    if options.setup.checks:
        written = _checked_plan_answer(there, options, written)
    # even with --again the plan's own round begins first: only one process may look
    # whether the plan was used
    with ExitStack() as rounds:
        sending = rounds.enter_context(sendings.begin(number, heal_limits=typed.heal))
        source, parts = sending.folder, written.parts
        if options.again and _was_used(sending):
            parts = _anew(parts, work.plan)
            # rounds of its own: healers of the earlier jobs are none of its
            anew = rounds_of_plan(here, parts[0].folder)
            sending = rounds.enter_context(anew.begin(1, heal_limits=typed.heal))
        answer = msgspec.structs.replace(written.answer, script=script_path(parts[0]))
        # the plan was divided for --first, and is in no directory yet
        if work.plan.held:
            parts = _frozen(parts, work.plan, sending, source)
        written = WrittenSubmission(parts=parts, plan=work.plan, answer=answer)
        return _sent(here, options, written, sending, to.scheduler)


def _sent(
    here: Here,
    options: SubmitOptions,
    written: WrittenSubmission,
    sending: SubmissionRound,
    name: str,
) -> SubmitAnswer:
    """Submit the written parts, and before them the prefetch job."""
    parts, answer = written.parts, written.answer
    if options.prefetch is not None:
        # a cluster has its scheduler, and `name` carries the cluster's mark
        on = None if options.cluster else name
        fetch = _prefetch(here, options, on, parts[0].name)
        note = f"{parts[0].name} starts after prefetch job {fetch.id} has succeeded"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
        parts = submit_prefetch.after_prefetch(parts, fetch)
    scheduler = schedulers.reach(here, name)
    answer = _ship_all(scheduler, parts, written.plan, answer, sending)
    if parts[0].needs:
        for job in filter(None, (answer.job, *answer.more)):
            dependency.renew(here, job)  # a healer may have sent a round meanwhile
    return followed(here, answer, scheduler, sending)


def _awaited(
    here: Here, names: Sequence[str], scheduler: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the scheduler's jobs to hang on, and the jobs that must have succeeded.

    Raises:
        UsageError: there is no such job, or it cannot succeed as things are.
    """
    if not names:
        return (), ()
    wait = dependency.await_jobs(here, names, scheduler, jobs.read_jobs(here.root))
    return wait.ids, wait.needs


def limits_of(here: Here, options: SubmitOptions, kind: str) -> HealLimits | None:
    """Return the limits of healing, as typed or set; None without healing.

    Raises:
        UsageError: there are limits, but no --heal; or the scheduler cannot heal.
        FormatError: a settings file is invalid.
    """
    typed = {
        "max_memory": options.max_memory,
        "max_time": options.max_time,
        "max_rounds": options.max_rounds,
        "max_hours": options.max_hours,
    }
    given = {name: value for name, value in typed.items() if value is not None}
    settings = here.settings.submit
    # a setting is for all clusters: where no job can follow another it is ignored,
    # while a typed --heal is refused below
    if options.heal is None and "heal" in settings and settings["heal"].value:
        if not can_heal(kind):
            return None
    elif options.first is not None and options.heal is None:
        pass  # the healer sends the rest
    elif not options.heal:
        if options.first is not None:
            raise UsageError("--first: the healer sends the others: omit --no-heal")
        for name in given:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} limits what --heal may do: add --heal")
        return None
    refuse_heal(kind)
    if options.first is not None and options.stages:
        raise UsageError("--first cannot be combined with staging: omit one")
    found: dict[str, Any] = {
        name: one.value for name, one in settings.items() if name != "heal"
    }
    # what was typed comes before the settings
    found |= given
    for name, parse in (("max_memory", parse_size), ("max_time", parse_limit)):
        if name in found:
            found[name] = parse(found[name])
    return HealLimits(**found)


def followed(
    here: Here, answer: SubmitAnswer, scheduler: Scheduler, sending: SubmissionRound
) -> SubmitAnswer:
    """Submit the healer of the jobs, if there is one; a refusal leaves them alone."""
    if sending.heal is None:
        return answer
    jobs_sent = [job for job in (answer.job, *answer.more) if job is not None]
    try:
        healer = submit_healer.send_healer(here, scheduler, jobs_sent, sending)
    except SchedulerError as error:
        note = submit_healer.without_healer(
            str(error), jobs_sent[0].name, held=answer.held
        )
        notes = dict.fromkeys((*answer.notes, note))  # it may be known since before
        return msgspec.structs.replace(answer, notes=tuple(notes))
    return msgspec.structs.replace(answer, healer=healer)


def _was_used(sending: SubmissionRound) -> bool:
    """Return whether a job ran the plan in the plan's directory, where its logs are."""
    known = jobs.read_jobs(sending.sender.store)
    logs = os.path.join(sending.folder, LOGS)
    return any(job.is_of(sending.folder) for job in known) or os.path.exists(logs)


def _anew(job_scripts: Sequence[JobScript], plan: Plan) -> list[JobScript]:
    """Copy the plan to a new directory, in which all of it runs again.

    The results of earlier jobs, and what they still write, are left alone.

    Raises:
        StoreError: the directory cannot be written.
    """
    above = job_scripts[0].folder
    folder = make_numbered(above, AGAIN)
    if plan.held:
        pass  # all of it is with what was sent
    elif plan.queue is None:
        freeze(above, folder, plan.files)
    else:
        # a queue's directory never changes, while weigh plan --replace may write the
        # plan's own
        files = os.path.join(above, plan.queue.folder)
        freeze(files, os.path.join(folder, plan.queue.folder), (PLAN_FILE, QUEUE_TASKS))
        freeze(files, folder, (PLAN_FILE,))
    return [msgspec.structs.replace(part, folder=folder) for part in job_scripts]


def _frozen(
    job_scripts: Sequence[JobScript], plan: Plan, sending: SubmissionRound, source: str
) -> list[JobScript]:
    """Write the plan, of which only some tasks are sent, next to what was sent.

    *source* is the directory of the plan with all tasks.

    Raises:
        StoreError: the plan cannot be read or written.
    """
    whole = plan_directory.read_plan(source)
    folder = sending.path("plan")
    with ExitStack() as opened:
        text_of = job_parts.texts_of(source, whole, opened)
        plan_directory.write(folder, plan, text_of)
    return [msgspec.structs.replace(part, tasks=folder) for part in job_scripts]


def _typed_submission(here: Here, options: SubmitOptions, name: str) -> TypedSubmission:
    """Read the options for the scheduler *name*; refuse what it does not have."""
    kind = schedulers.kind_of_cluster_name(name)
    scheduler = schedulers.reach(here, kind)
    hang_on, needs = _awaited(here, options.after, name)
    request = typed_request(options, hang_on)
    request = in_site_words(request, kind, here.settings.cluster)
    refuse_own(options.extra, kind)
    refuse_absent(
        request,
        kind,
        first=options.first is not None,
        prefetch=options.prefetch is not None,
    )
    heal = limits_of(here, options, kind)
    staging, notes = _staging(here, options)
    if options.requeue:
        refuse_requeue(kind)
    return TypedSubmission(
        kind=kind,
        scheduler=scheduler,
        request=request,
        needs=needs,
        heal=heal,
        staging=staging,
        notes=notes,
    )


def _work_to_send(here: Here, options: SubmitOptions) -> WorkToSend:
    """Read the plan, or make one of the command; of --first only the first tasks."""
    folder, plan = _plan_to_submit(here, options)
    # a first look, before tasks are read: it counts once open rounds are settled
    if not options.again:
        _refuse_submitted_plan(jobs.read_jobs(here.root), folder)
    work = WorkToSend(folder=folder, plan=plan, together=plan.together)
    if options.first is None:
        return work
    plan, note = job_parts.with_first(folder, plan, options.first, cwd=here.cwd)
    return msgspec.structs.replace(work, plan=plan, notes=(note,))


def _written_submission(
    here: Here, options: SubmitOptions, typed: TypedSubmission, work: WorkToSend
) -> WrittenSubmission:
    """Complete the request with what the plan needs, and write the job scripts."""
    plan, kind, scheduler = work.plan, typed.kind, typed.scheduler
    # stage-out and requeue need the end of the time limit for themselves
    reserved = reserved_time(typed.staging, requeue=options.requeue)
    request, notes = complete_request(plan, typed.request, scheduler, reserved)
    checked = here.settings.cluster if options.setup.checks else {}
    refuse_lacking(request, kind, checked)
    more = [*typed.notes, *work.notes]
    if typed.heal is not None:
        check_limits(typed.heal, request)
        label = options.name or plan.name
        more += submit_healer.why_none(scheduler, request.queue, label, held=plan.held)
    if typed.staging is not None and request.nodes > 1:
        raise UsageError("staging copies to the disk of one node: the job has several")
    # paths in task lines start where weigh plan was called; with staging results go
    # back to where weigh submit was called
    folder = here.cwd
    if typed.staging is None:
        folder = plan_directory.planned_in(work.folder) or here.cwd
    if not os.path.samefile(folder, here.cwd):
        more.append(f"the tasks run in {folder}, as planned")
    script = _job_script_of_plan(options, typed, work, request, here.in_folder(folder))
    if typed.staging is not None:
        script = submit_staging.staged(script, kind)
        more += submit_staging.left_behind(plan, typed.staging, here.cwd)
    # a longer array would be refused, by Slurm above MaxArraySize
    limit = scheduler.ask(scheduler.questions.array_limit(script.elements))
    parts = list(job_parts.split_into_job_parts(script, limit))
    answer = SubmitAnswer(
        scheduler=kind,
        script=script_path(parts[0]),
        text=scheduler.render(parts[0]),
        notes=(
            *notes,
            *site_warnings(here),
            *_reach_notes(kind),
            *more,
            *_hidden_exits(plan),
            *_prefetch_notes(options),
        ),
        commands=tuple(_commands_of_scripts(parts, kind)) if options.dry_run else (),
    )
    return WrittenSubmission(parts=parts, plan=plan, answer=answer)


def _job_script_of_plan(
    options: SubmitOptions,
    typed: TypedSubmission,
    work: WorkToSend,
    job_request: JobRequest,
    here: Here,
) -> JobScript:
    """Return the script of all elements, whose tasks run in the folder *here*."""
    plan = work.plan
    return JobScript(
        name=options.name or plan.name,
        folder=work.folder,
        cwd=here.cwd,
        store=here.root,
        python=sys.executable,
        elements=len(plan.elements) - plan.held,  # the healer sends those held
        together=work.together,
        queue=plan.queue.folder if plan.queue else "",
        request=job_request,
        setup=options.setup,
        programs=programs_of(plan),
        imports_torch=torch_imports.imports_torch(
            plan, options.setup, here.cwd, job_request
        ),
        staging=typed.staging,
        requeue=options.requeue,
        needs=typed.needs,
        version=__version__,
    )


def where_to(
    here: Here, scheduler: str | None, cluster: str | None
) -> tuple[str, Mapping[str, str]]:
    """Return the name of the scheduler, with the cluster's, and its environment.

    Raises:
        UsageError: the settings name no such cluster, or it has another scheduler.
    """
    if cluster is None:
        return scheduler or schedulers.available_schedulers(here.env)[0], here.env
    named = schedulers.find_cluster(here, cluster)
    if scheduler not in {None, named.scheduler}:
        raise UsageError(f"cluster {cluster} runs {named.scheduler}: omit --on")
    name = f"{named.scheduler}{schedulers.CLUSTER_MARK}{cluster}"
    return name, {**here.env, **named.env}


def _ship_all(
    scheduler: Scheduler,
    job_scripts: Sequence[JobScript],
    plan: Plan,
    answer: SubmitAnswer,
    sending: SubmissionRound,
) -> SubmitAnswer:
    """Submit a script, or each part of one that was too long for one job."""
    made: list[SubmittedJob] = []
    for part in job_scripts:
        # each later part continues the first, so all of them are one chain of jobs
        origin = job_parts.JobOrigin(made[0].id, job_parts.TOO_LONG) if made else None
        try:
            made.append(ship(scheduler, part, plan, sending, origin=origin))
        except WeighError as error:
            raise (
                job_parts.halfway(error, made, job_scripts) if made else error
            ) from error
    return msgspec.structs.replace(
        answer,
        job=made[0],
        more=tuple(made[1:]),
        # [-0:] would be all elements
        held=sum(len(one.tasks) for one in plan.elements[-plan.held :])
        if plan.held
        else 0,
        notes=(*answer.notes, *check_understood(scheduler, made)),
        now=time.time(),
    )


def _prefetch(
    here: Here, options: SubmitOptions, scheduler: str | None, name: str
) -> SubmittedJob:
    """Submit the prefetch command as a job without a GPU, to the same scheduler."""
    fetch = SubmitOptions(
        command=("bash", "-c", options.prefetch or ""),
        scheduler=scheduler,
        cluster=options.cluster,
        name=submit_prefetch.free_name(name, here.cwd),
        ignore_directives=options.ignore_directives,
        memory=submit_prefetch.MEMORY,
        account=options.account,
        setup=submit_prefetch.setup_before(options.setup, here.cwd),
    )
    job = submit_plan(here, fetch).job
    if job is None:
        raise UsageError("the prefetch job was not submitted")
    return job


def _checked_plan_answer(
    here: Here, options: SubmitOptions, written: WrittenSubmission
) -> WrittenSubmission:
    """Refuse a request that would fail; add the results of the checks."""
    parts, answer = written.parts, written.answer
    script = parts[0]
    # what the prefetch command makes is not there yet
    if answer.scheduler == LOCAL and options.prefetch is None:
        submit_checks.refuse_missing_program(script, here.env)
    was_there = os.path.isdir(script.log)
    checks = submit_checks.check_request(
        here.in_folder(script.cwd),
        answer.text,
        script.request,
        scheduler=answer.scheduler,
        elements=sum(part.elements for part in parts),
        written=script,
    )
    # jobs of this machine: no cluster whose limits they could exceed
    if not checks.rows:
        return written
    # what is not known is then a default, which a rule names
    has_rules = KINDS[answer.scheduler].traits.takes_scripts
    notes = [one for one in answer.notes if not (has_rules and one in UNKNOWN)]
    answer = msgspec.structs.replace(
        answer,
        checks=(*checks.rows, submit_checks.log_row(script, was_there=was_there)),
        notes=(*notes, *checks.doubts),
    )
    return msgspec.structs.replace(written, answer=answer)


def _staging(
    here: Here, options: SubmitOptions
) -> tuple[StagingPlan | None, tuple[str, ...]]:
    words = (options.stage_in, options.stage_out, options.scratch)
    if not options.stages:
        return None, ()
    staging = submit_staging.staging_of(here, words, here.settings)
    # an earlier job may still make the inputs: then they count as empty below
    if staging is not None and not options.after and options.prefetch is None:
        submit_staging.refuse_missing(staging)
    notes = (
        ()
        if staging is None
        else tuple(submit_staging.refuse_large(staging, options.stage_max))
    )
    return staging, notes


def _plan_to_submit(here: Here, options: SubmitOptions) -> tuple[str, Plan]:
    if options.command:
        known = {job.folder for job in jobs.read_jobs(here.root)}
        return command_plan.plan_command(here, options, known)
    if options.nodes is not None:
        raise UsageError("--nodes is for a command (weigh plan TASKS --nodes N)")
    if options.plan is None:
        raise UsageError(
            "nothing to submit: weigh submit PLAN, or weigh submit -- COMMAND"
        )
    folder = os.path.abspath(os.path.join(here.cwd, options.plan))
    # a name with a suffix was meant as a script or as a command
    if not os.path.exists(folder) and "." in os.path.basename(options.plan):
        way_out = "weigh plan makes a plan"
        if " " in options.plan:
            way_out = f"a command: weigh submit -- {options.plan}"
        raise UsageError(f"no such script or plan: {options.plan} ({way_out})")
    plan = plan_directory.read_plan(folder)
    if not plan.elements:
        raise UsageError(f"{options.plan} has no elements: there is nothing to submit")
    plan_directory.refuse_changed_plan(folder, plan)
    return folder, plan


def _commands_of_scripts(
    job_scripts: Sequence[JobScript], kind: str
) -> Iterator[tuple[str, ...]]:
    # this machine starts jobs itself, without a command to show
    if kind in KINDS:
        for part in job_scripts:
            yield KINDS[kind].backend.submit_argv(script_path(part))


def _prefetch_notes(options: SubmitOptions) -> Iterator[str]:
    if options.prefetch is not None and options.dry_run:
        yield f"runs first, in a job without a GPU: {options.prefetch}"


def _hidden_exits(plan: Plan) -> Iterator[str]:
    """Yield a line whose exit code hides failures, as the plan noted already."""
    return (note for note in plan.notes if HIDES_FAILURES in note)


def _reach_notes(scheduler: str) -> Iterator[str]:
    """Warn if the nodes may not have the Python that the script calls."""
    own = [place for place in _OWN_DISKS if sys.prefix.startswith(f"{place}/")]
    if own and scheduler != LOCAL:
        yield f"weigh is in {sys.prefix}: usually nodes do not share {own[0]}"


def _refuse_submitted_plan(known_jobs: Sequence[SubmittedJob], folder: str) -> None:
    """Refuse a plan that was submitted before.

    Raises:
        UsageError: it was.
    """
    earlier = [job for job in known_jobs if job.is_of(folder)]
    if earlier:
        raise UsageError(
            f"{earlier[-1].name} was submitted before, as job {earlier[-1].id} "
            f"(weigh resume {earlier[-1].id}, or --again)"
        )


def typed_request(options: SubmitOptions, after: tuple[str, ...]) -> JobRequest:
    """Return the request as typed; the plan fills in the rest."""
    gpu_type, gpus = parse_gpus(options.gpus)
    return JobRequest(
        cpus=options.cpus or 0,  # 0: the plan's
        memory=None if options.memory is None else parse_size(options.memory),
        virtual_memory=None
        if options.virtual_memory is None
        else parse_size(options.virtual_memory),
        time_limit=None if options.time is None else parse_limit(options.time),
        gpus=gpus,
        gpu_type=gpu_type,
        queue=options.queue,
        account=options.account,
        qos=options.qos,
        mail=options.mail,
        notify=options.notify,
        throttle=options.throttle,
        after=after,
        extra=options.extra,
        site=SiteFlags(
            exclusive=options.exclusive,
            disk=None if options.local_disk is None else parse_size(options.local_disk),
        ),
    )
