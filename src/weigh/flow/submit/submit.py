"""``weigh submit``: write the job script of a plan or a command, and submit it."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import (
    NoClusterError,
    SchedulerError,
    UsageError,
    WeighError,
)
from weigh.flow.check.script import facts_of
from weigh.flow.here import Here
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site import schedulers
from weigh.flow.site.ask import ask_scheduler
from weigh.flow.site.cluster import has_container_steps, site_warnings
from weigh.flow.submit.job_request import (
    UNKNOWN,
    SubmitOptions,
    check_understood,
    complete_request,
    limits_of,
    notes_on_no_time,
    typed_request,
    where_to,
)
from weigh.flow.submit.rounds import (
    SubmissionRound,
    rounds_of_plan,
    settle_all,
)
from weigh.flow.submit.submit_script import (
    LOGS,
    TOO_LONG,
    JobOrigin,
    followed,
    freeze,
    halfway,
    make_numbered,
    programs_of,
    script_path,
    ship,
    split_into_job_parts,
    why_none,
)
from weigh.lazy_modules import lazy_module
from weigh.model.element_time import reserved_time
from weigh.model.job import (
    AGAIN,
    ANY_QUEUE,
    HealLimits,
    JobRequest,
    JobScript,
    JobSetup,
    SubmittedJob,
)
from weigh.model.plan import HIDES_FAILURES, PLAN_FILE, QUEUE_TASKS, Plan
from weigh.model.staging import StagingPlan
from weigh.render.submit_lines import SubmitAnswer
from weigh.runner.shell import does_shell_accept, plain_words
from weigh.schedulers import KINDS
from weigh.schedulers.conda_environments import conda_program, lacks_conda_environment
from weigh.schedulers.reachable import Scheduler
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store import jobs
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.follow import dependency
    from weigh.flow.plan import plan as plan_flow
    from weigh.flow.submit import checks as submit_checks
    from weigh.flow.submit import staging as submit_staging
else:  # each is imported when it is first used
    dependency = lazy_module("weigh.flow.follow.dependency")
    submit_checks = lazy_module("weigh.flow.submit.checks")
    plan_flow = lazy_module("weigh.flow.plan.plan")
    submit_staging = lazy_module("weigh.flow.submit.staging")


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
    if options.then is None and options.plan is not None:
        options = replace(options, then=_plan_to_submit(here, options)[1].then)
    # a command on PATH may have no cluster behind it: then the next one counts
    names = [options.scheduler] if options.scheduler else []
    names = names or schedulers.available_schedulers(here.env)
    without_cluster = list[NoClusterError]()
    while True:
        name = names.pop(0)
        # alone it is taken as it is
        is_in_doubt = name in KINDS and bool(names or without_cluster)
        try:
            # a dry run sends nothing that could fail, so the cluster is asked; nor can
            # the job to wait for be at a scheduler without one
            if (options.dry_run or options.after) and is_in_doubt:
                _refuse_without_cluster(here, name)
            then = None if options.then is None else _job_for_then(here, options, name)
            try:
                answer = _submit_to(here, options, name)
            except UsageError:
                # of rules that do not count, as the job does not go there
                if is_in_doubt:
                    _refuse_without_cluster(here, name)
                raise
            if then is not None:
                answer = _with_then(here, then, answer)
            commands = tuple(one.command for one in without_cluster)
            return replace(answer, without_cluster=commands)
        except NoClusterError as error:
            without_cluster.append(error)
            if not names:
                # the usual one: where several are installed, few use the last
                raise without_cluster[0] from error


_MEMORY_OF_THEN = "1G"  # of a command that was never measured
# of the tasks alone: what follows has a request and a place of its own
_OF_TASKS = (
    *("memory", "cpus", "gpus", "nodes", "time", "name", "throttle"),
    *("stage_in", "stage_out", "requeue", "again"),
)


def _job_for_then(here: Here, options: SubmitOptions, kind: str) -> SubmitOptions:
    """Return the options of the job that runs ``--then``; plan it before all else.

    Raises:
        UsageError: it is no command, or jobs cannot wait for others there.
    """
    text = options.then or ""
    line = os.fsencode(text)
    if not text.strip() or not does_shell_accept(line):
        raise UsageError(f"--then {text!r} is no command (bash -n shows why)")
    if kind in KINDS and not KINDS[kind].traits.waits:
        title = KINDS[kind].title
        raise UsageError(f"{title} lets no job wait for another: omit --then")
    # a shell only where one is needed, as the words name the plan
    words = map(os.fsdecode, plain_words(line) or (b"bash", b"-c", line))
    usual = SubmitOptions()
    then = replace(
        options,
        plan=None,
        command=tuple(words),
        then=None,
        after=(),
        **{name: getattr(usual, name) for name in _OF_TASKS},
    )
    folders = {job.folder for job in jobs.read_jobs(here.root)}
    _, plan, _ = plan_flow.plan_command(here, then, folders)
    return then if plan.request.memory else replace(then, memory=_MEMORY_OF_THEN)


def _with_then(here: Here, then: SubmitOptions, answer: SubmitAnswer) -> SubmitAnswer:
    """Submit the job that follows the one of *answer*.

    Raises:
        UsageError, SchedulerError: it was refused, while the tasks are submitted.
    """
    if answer.job is None:
        line = f"then, when all tasks are done: {shlex.join(then.command)}"
        return replace(answer, notes=(*answer.notes, line))
    sent = tuple(job.id for job in (answer.job, *answer.more))
    try:
        follower = _submit_to(here, replace(then, follows=sent), answer.scheduler)
    except WeighError as error:
        line = f"weigh submit --after {sent[0]} -- {shlex.join(then.command)}"
        message = f"job {sent[0]} is submitted, --then not: {error} ({line})"
        if isinstance(error, UsageError):
            raise UsageError(message) from error
        raise SchedulerError(message) from error
    return replace(answer, then=follower.job)


def _refuse_without_cluster(here: Here, name: str) -> None:
    """Refuse a scheduler whose commands reach no cluster, by its cheapest query.

    Raises:
        NoClusterError: they reach none.
    """
    kind = KINDS[name]
    reply = ask_scheduler(kind.probe, env=here.env)
    if not reply.is_answer and kind.backend.NO_CLUSTER.search(reply.complaint()):
        raise NoClusterError(kind.submits, kind.backend.LOGIN_HINT)


class TypedSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """What the options ask of a scheduler, before the plan fills in the rest."""

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
    is_new: bool
    """This call has made it, of a command."""


class WrittenSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """The job scripts to submit, several for a long array, and the answer to print."""

    parts: list[JobScript]
    plan: Plan
    answer: SubmitAnswer


def _submit_to(here: Here, options: SubmitOptions, name: str) -> SubmitAnswer:
    """Submit to one scheduler: what was typed, its work, written, checked and sent."""
    typed = _typed_submission(here, options, name)
    work = _work_to_send(here, options)
    with _plan_removed_if_refused(work):
        written = _written_submission(here, options, typed, work)
    sendings = rounds_of_plan(here, work.folder)
    # before the jobs are read: who begins this number has seen all that were sent
    number = sendings.next_number(here.notify)
    if not options.again:
        _refuse_submitted_plan(jobs.read_jobs(here.root), work.folder)
        sendings.refuse_again()
    if options.dry_run:
        if options.setup.checks:
            return _answer_with_refusal(here, written)
        return written.answer
    if options.setup.checks:
        with _plan_removed_if_refused(work):
            written = _checked_submission(here, written)
    # even with --again the plan's own round begins first: only one process may look
    # whether the plan was used
    with ExitStack() as rounds:
        sending = rounds.enter_context(sendings.begin(number, heal_limits=typed.heal))
        parts = written.parts
        if options.again and _was_used(sending):
            parts = _anew(parts, work.plan)
            # rounds of its own: healers of the earlier jobs are none of its
            anew = rounds_of_plan(here, parts[0].folder)
            sending = rounds.enter_context(anew.begin(1, heal_limits=typed.heal))
        answer = replace(written.answer, script=script_path(parts[0]))
        written = replace(written, parts=parts, answer=answer)
        return _sent(here, typed.scheduler, written, sending)


def predicted_start_of_plan(
    here: Here, options: SubmitOptions, plan: Plan
) -> Seconds | None:
    """Return when a plan that is not written yet would start, if that is predicted.

    Raises:
        UsageError: it would be refused, or never start.
    """
    typed = _typed_submission(here, options, where_to(here, options))
    folder = os.path.join(here.cwd, plan_directory.FOLDER, plan.name)
    work = WorkToSend(folder=folder, plan=plan, is_new=False)
    written = _checked_submission(here, _written_submission(here, options, typed, work))
    return submit_checks.predicted_start_of_text(
        typed.scheduler, written.answer.text, here.cwd
    )


@contextmanager
def _plan_removed_if_refused(work: WorkToSend) -> Iterator[None]:
    """Leave no plan of a command behind whose submission is refused."""
    try:
        yield
    except UsageError:
        if work.is_new:
            plan_directory.remove_unsent(work.folder)
        raise


def _typed_submission(here: Here, options: SubmitOptions, kind: str) -> TypedSubmission:
    """Read the options for the scheduler *kind*; refuse what it does not have."""
    hang_on: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    if options.after:
        known = jobs.read_jobs(here.root)
        wait = dependency.await_jobs(here, options.after, kind, known)
        hang_on, needs = wait.ids, wait.needs
    elif options.follows:
        wait = dependency.await_sent_jobs(here, options.follows, kind)
        hang_on, needs = wait.ids, wait.needs
    request = typed_request(here, options, kind, hang_on)
    heal = limits_of(here, options, kind)
    staging, notes = None, list[str]()
    if options.stages:
        staging = submit_staging.staging_of(here, options.stage_in, options.stage_out)
        # an earlier job may still make the inputs: then they count as empty
        if not options.after:
            submit_staging.refuse_missing(staging)
        notes += submit_staging.refuse_large(staging, here.settings.value("stage_max"))
    return TypedSubmission(
        scheduler=schedulers.reach(here, kind),
        request=request,
        needs=needs,
        heal=heal,
        staging=staging,
        notes=tuple(notes),
    )


def _work_to_send(here: Here, options: SubmitOptions) -> WorkToSend:
    """Read the plan, or make one of the command."""
    known = jobs.read_jobs(here.root)
    if options.command:
        folders = {job.folder for job in known}
        folder, plan, is_new = plan_flow.plan_command(here, options, folders)
    else:
        folder, plan = _plan_to_submit(here, options)
        is_new = False
    # a first look, before the script is written: it counts once rounds are settled
    if not options.again:
        _refuse_submitted_plan(known, folder)
    return WorkToSend(folder=folder, plan=plan, is_new=is_new)


def _plan_to_submit(here: Here, options: SubmitOptions) -> tuple[str, Plan]:
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


def _written_submission(
    here: Here, options: SubmitOptions, typed: TypedSubmission, work: WorkToSend
) -> WrittenSubmission:
    """Complete the request with what the plan needs, and write the job scripts."""
    plan, scheduler = work.plan, typed.scheduler
    kind = scheduler.name
    # stage-out and requeue need the end of the time limit for themselves
    reserved = reserved_time(typed.staging, requeue=options.requeue)
    request, notes = complete_request(
        plan, typed.request, scheduler, reserved, typed.heal
    )
    # exact on this machine; Slurm's limits are whole minutes
    if kind == LOCAL:
        notes += notes_on_no_time(request.time_limit, reserved)
    notes += [*site_warnings(here), *typed.notes]
    # an earlier job may still make the environment
    if not options.after:
        notes += _notes_on_conda(here, options.setup)
    if typed.staging is not None and request.nodes > 1:
        raise UsageError("staging copies to the disk of one node: the job has several")
    # paths in task lines start where weigh plan was called; with staging results go
    # back to where weigh submit was called
    folder = here.cwd
    if typed.staging is None:
        folder = plan_directory.planned_in(work.folder) or here.cwd
    if not os.path.samefile(folder, here.cwd):
        notes.append(f"the tasks run in {folder}, as planned")
    script, more = _script_in_its_queue(
        options, typed, work, request, here.in_folder(folder)
    )
    notes += more
    if (staging := script.staging) is not None:
        script = submit_staging.staged(script, kind)
        notes += submit_staging.left_behind(plan, staging, here.cwd)
    # exit codes that hide failures, as the plan noted already
    notes += (note for note in plan.notes if HIDES_FAILURES in note)
    # a longer array would be refused, by Slurm above MaxArraySize
    limit = scheduler.ask(scheduler.questions.array_limit(script.elements))
    parts = list(split_into_job_parts(script, limit))
    answer = SubmitAnswer(
        scheduler=kind,
        script=script_path(parts[0]),
        text=scheduler.render(parts[0]),
        notes=tuple(notes),
        # this machine starts jobs itself, without a command to show
        commands=tuple(
            KINDS[kind].backend.submit_argv(script_path(part))
            for part in parts
            if options.dry_run and kind in KINDS
        ),
    )
    return WrittenSubmission(parts=parts, plan=plan, answer=answer)


def _script_in_its_queue(
    options: SubmitOptions,
    typed: TypedSubmission,
    work: WorkToSend,
    request: JobRequest,
    here: Here,
) -> tuple[JobScript, list[str]]:
    """Return the script of all elements, whose tasks run in *here*, and notes."""
    plan, scheduler, notes = work.plan, typed.scheduler, list[str]()
    staging = typed.staging
    if staging is not None:
        staging, note = submit_staging.with_programs_of_tasks(
            plan, staging, here.cwd, may_come=bool(options.after)
        )
        notes += [note] if note else []
    script = JobScript(
        name=options.name or plan.name,
        folder=work.folder,
        cwd=here.cwd,
        store=here.root,
        python=sys.executable,
        elements=len(plan.elements),
        together=plan.together,
        queue=plan.queue.folder if plan.queue else "",
        request=request,
        setup=_setup_of_site(here, options.setup, scheduler.name),
        programs=programs_of(plan),
        # asked here too: the checks are many modules, which most dry runs do not need
        imports_torch=request.gpus > 0
        and submit_checks.imports_torch(plan, here.cwd, request),
        staging=staging,
        requeue=options.requeue,
        needs=typed.needs,
        version=__version__,
    )
    if request.queue == ANY_QUEUE:
        request, note = submit_checks.with_queues_that_take(
            here,
            scheduler,
            request,
            lambda one: submit_checks.script_to_check(scheduler, script, one),
        )
        script = replace(script, request=request)
        notes.append(note)
    if typed.heal is not None:
        notes += why_none(scheduler, request.queue, script.name)
    return script, notes


def _notes_on_conda(here: Here, setup: JobSetup) -> Iterator[str]:
    """Yield a note if conda is here, and has no environment of this name or path.

    Nothing where conda is not on this machine, may come from a module, or may look in
    other folders.
    """
    facts = facts_of(here)
    conda = conda_program(facts)
    if setup.conda is None or conda is None or setup.modules:
        return
    root = os.path.dirname(os.path.dirname(os.path.realpath(conda)))
    if lacks_conda_environment(setup.conda, facts, (root,)):
        words = "conda has no such environment here (conda env list)"
        yield f"--setup conda:{setup.conda}: {words}"


_READ_BY_ENROOT = frozenset({"", "docker", "dockerd", "podman"})  # "": a file


def _setup_of_site(here: Here, setup: JobSetup, kind: str) -> JobSetup:
    """Return the setup with the program that runs containers here.

    Raises:
        UsageError: that program does not read the image.
    """
    if setup.container is None or not has_container_steps(kind, here.settings.cluster):
        return setup
    source = setup.container.rpartition("://")[0]
    if setup.container.endswith(".sif") or source not in _READ_BY_ENROOT:
        raise UsageError(
            f"Pyxis does not read {setup.container}: name an image of squashfs "
            "(.sqsh), or docker://IMAGE"
        )
    return replace(setup, is_pyxis=True)


def _checked_submission(here: Here, written: WrittenSubmission) -> WrittenSubmission:
    """Refuse a request that would fail; add what the checks doubt."""
    parts, answer = written.parts, written.answer
    script = parts[0]
    # jobs of this machine: no cluster whose limits they could exceed
    if answer.scheduler == LOCAL:
        return written
    to_check = submit_checks.ScriptToCheck(
        text=answer.text,
        request=script.request,
        scheduler=answer.scheduler,
        written=script,
    )
    checks = submit_checks.check_request(here.in_folder(script.cwd), to_check)
    # what is not known is then a default, which a rule names
    has_rules = KINDS[answer.scheduler].traits.takes_scripts
    notes = [one for one in answer.notes if not (has_rules and one in UNKNOWN)]
    answer = replace(
        answer,
        has_free_nodes=checks.has_free_nodes,
        notes=(*notes, *checks.doubts, *checks.unchecked),
    )
    return replace(written, answer=answer)


def _answer_with_refusal(here: Here, written: WrittenSubmission) -> SubmitAnswer:
    """Return the answer of a dry run, noting why the submission would be refused."""
    answer = written.answer
    # where no cluster answers nothing is known to be refused
    kind = KINDS.get(answer.scheduler)
    if kind is None or not ask_scheduler(kind.probe, env=here.env).is_answer:
        return answer
    try:
        _checked_submission(here, written)
    except UsageError as error:
        refusal = f"without --dry-run: {error}"
        return replace(answer, notes=(*answer.notes, refusal))
    return answer


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
    if plan.queue is None:
        freeze(above, folder, plan.files)
    else:
        # a queue's directory never changes, while weigh plan --replace may write the
        # plan's own
        files = os.path.join(above, plan.queue.folder)
        freeze(files, os.path.join(folder, plan.queue.folder), (PLAN_FILE, QUEUE_TASKS))
        freeze(files, folder, (PLAN_FILE,))
    return [replace(part, folder=folder) for part in job_scripts]


def _sent(
    here: Here,
    scheduler: Scheduler,
    written: WrittenSubmission,
    sending: SubmissionRound,
) -> SubmitAnswer:
    """Submit the written parts."""
    parts, answer = written.parts, written.answer
    made: list[SubmittedJob] = []
    for part in parts:
        # each later part continues the first, so all of them are one chain of jobs
        origin = JobOrigin(made[0].id, TOO_LONG) if made else None
        try:
            made.append(ship(scheduler, part, written.plan, sending, origin=origin))
        except WeighError as error:
            raise (halfway(error, made, parts) if made else error) from error
    answer = replace(
        answer,
        job=made[0],
        more=tuple(made[1:]),
        notes=(*answer.notes, *check_understood(scheduler, made)),
        now=time.time(),
    )
    return followed(here, answer, scheduler, sending)
