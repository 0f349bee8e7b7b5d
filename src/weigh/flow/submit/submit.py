"""``weigh submit``: write the job script of a plan or a command, and submit it."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import (
    NoClusterError,
    SchedulerError,
    UsageError,
    WeighError,
    why_nothing_is_at,
)
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
    refuse_without_cluster,
    typed_request,
    where_to,
)
from weigh.flow.submit.rounds import SubmissionRound, rounds_of_plan, settle_all
from weigh.flow.submit.submit_script import (
    LOGS,
    TOO_LONG,
    JobOrigin,
    followed,
    freeze,
    make_numbered,
    note_on_edited_tasks,
    programs_of,
    script_path,
    ship,
    split_into_job_parts,
    text_of_script,
    why_none,
)
from weigh.lazy_modules import lazy_module
from weigh.model.element_time import reserved_time
from weigh.model.job import (
    AGAIN,
    ANY_QUEUE,
    JobRequest,
    JobScript,
    JobSetup,
    SubmittedJob,
)
from weigh.model.plan import HIDES_FAILURES, PLAN_FILE, QUEUE_TASKS, Plan
from weigh.render.submit_lines import SubmitAnswer
from weigh.runner.shell import does_shell_accept, plain_words
from weigh.schedulers import KINDS
from weigh.schedulers.conda_environments import conda_program, lacks_conda_environment
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store import jobs
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.check import script as check_script
    from weigh.flow.follow import dependency
    from weigh.flow.plan import plan as plan_flow
    from weigh.flow.submit import checks as submit_checks
    from weigh.flow.submit import staging as submit_staging
    from weigh.model.staging import StagingPlan
else:  # each is imported when it is first used
    check_script = lazy_module("weigh.flow.check.script")
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
                refuse_without_cluster(here, name)
            then = None if options.then is None else _job_for_then(here, options, name)
            try:
                answer = _PlanSubmission(here, options, name).submit()
            except UsageError:
                # of rules that do not count, as the job does not go there
                if is_in_doubt:
                    refuse_without_cluster(here, name)
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
    _, plan, _ = plan_flow.plan_command(here, then)
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
        follows = replace(then, follows=sent)
        follower = _PlanSubmission(here, follows, answer.scheduler).submit()
    except WeighError as error:
        line = f"weigh submit --after {sent[0]} -- {shlex.join(then.command)}"
        message = f"job {sent[0]} is submitted, --then not: {error} ({line})"
        if isinstance(error, UsageError):
            raise UsageError(message) from error
        raise SchedulerError(message) from error
    return replace(answer, then=follower.job)


class _PlanSubmission:
    """A plan, or a command, on its way to one scheduler.

    What was typed is read first; `submit` finds the work, and has it written, checked
    and sent.
    """

    def __init__(self, here: Here, options: SubmitOptions, name: str) -> None:
        """Read the options for the scheduler *name*; refuse what it does not have."""
        self.here, self.options = here, options
        hang_on: tuple[str, ...] = ()
        self.needs: tuple[str, ...] = ()  # jobs that must succeed, by token or id
        if names := options.after or options.follows:
            are_new = not options.after
            wait = dependency.await_jobs(here, names, name, are_new=are_new)
            hang_on, self.needs = wait.ids, wait.needs
        self.typed = typed_request(here, options, name, hang_on)
        self.heal = limits_of(here, options, name)
        self.staging: StagingPlan | None = None
        self.notes = list[str]()
        if options.stages:
            self.staging = submit_staging.staging_of(
                here, options.stage_in, options.stage_out
            )
            # an earlier job may still make the inputs: then they count as empty
            if not options.after:
                submit_staging.refuse_missing(self.staging)
            most = here.settings.value("stage_max")
            self.notes += submit_staging.refuse_large(self.staging, most)
        self.scheduler = schedulers.reach(here, name)

    def submit(self) -> SubmitAnswer:
        """Submit the work, or show what a dry run would submit."""
        options, heal = self.options, self.heal
        folder, plan, is_new = self._work()
        sendings = rounds_of_plan(self.here, folder)
        # before the jobs are read: who begins this number has seen all that were sent
        number = sendings.next_number(self.here.notify)
        if not options.again:
            sendings.refuse_again()
        try:
            parts, answer = self.written(folder, plan)
            if options.dry_run:
                return self._with_refusal(parts[0], answer)
            if options.setup.checks:
                answer = self.checked(parts[0], answer)
        except UsageError:
            # of a command that is refused no plan is left behind
            if is_new:
                plan_directory.remove_unsent(folder)
            raise
        # even with --again the plan's own round begins first: only one process may look
        # whether the plan was used
        with ExitStack() as rounds:
            sending = rounds.enter_context(sendings.begin(number, heal_limits=heal))
            if options.again and _was_used(sending):
                parts = _anew(parts, plan)
                # rounds of its own: healers of the earlier jobs are none of its
                anew = rounds_of_plan(self.here, parts[0].folder)
                sending = rounds.enter_context(anew.begin(1, heal_limits=heal))
                answer = replace(answer, script=script_path(parts[0]))
            return self._sent(parts, plan, answer, sending)

    def _work(self) -> tuple[str, Plan, bool]:
        """Return a plan and its folder; of a command whether this call has made it."""
        if self.options.command:
            return plan_flow.plan_command(self.here, self.options)
        return *_plan_to_submit(self.here, self.options), False

    def written(self, folder: str, plan: Plan) -> tuple[list[JobScript], SubmitAnswer]:
        """Complete the request with what the plan needs, and write the job scripts.

        Return them, several for a long array, and the answer to print.
        """
        here, options, scheduler = self.here, self.options, self.scheduler
        # stage-out and requeue need the end of the time limit for themselves
        reserved = reserved_time(self.staging, requeue=options.requeue)
        request, notes = complete_request(
            plan, self.typed, scheduler, reserved, self.heal
        )
        if reserved and options.time is None and options.setup.checks:
            request, more = submit_checks.within_time_of_queue(
                here, request, plan, scheduler.name, reserved
            )
            notes += more
        # exact on this machine; Slurm's limits are whole minutes
        if scheduler.name == LOCAL:
            notes += notes_on_no_time(request.time_limit, reserved)
        self.notes += [*notes, *site_warnings(here)]
        # an earlier job may still make the environment
        if not options.after:
            self.notes += _notes_on_conda(here, options.setup)
        # one that is not written yet has been read just now
        with suppress(FileNotFoundError):
            planned = os.stat(os.path.join(folder, PLAN_FILE)).st_mtime
            cwd = plan_directory.planned_in(folder) or here.cwd
            words = "it was planned, and the tasks run"
            self.notes += note_on_edited_tasks(plan, folder, cwd, planned, words)
        script = self._script(folder, plan, request)
        # exit codes that hide failures, as the plan noted already
        self.notes += (note for note in plan.notes if HIDES_FAILURES in note)
        # a longer array would be refused, by Slurm above MaxArraySize
        limit = scheduler.ask(scheduler.questions.array_limit(script.elements))
        parts = list(split_into_job_parts(script, limit))
        answer = SubmitAnswer(
            scheduler=scheduler.name,
            script=script_path(parts[0]),
            text=text_of_script(scheduler, parts[0]),
            notes=tuple(self.notes),
            # this machine starts jobs itself, without a command to show
            commands=tuple(
                KINDS[scheduler.name].backend.submit_argv(script_path(part))
                for part in parts
                if options.dry_run and scheduler.name in KINDS
            ),
        )
        return parts, answer

    def _script(self, folder: str, plan: Plan, request: JobRequest) -> JobScript:
        """Return the script of all elements; note where and for whom it runs."""
        here, options, staging = self.here, self.options, self.staging
        # paths in task lines start where weigh plan was called; with staging results go
        # back to where weigh submit was called
        cwd = here.cwd if staging else plan_directory.planned_in(folder) or here.cwd
        if not os.path.samefile(cwd, here.cwd):
            self.notes.append(f"the tasks run in {cwd}, as planned")
        if staging is not None:
            if request.nodes > 1:
                raise UsageError(
                    "staging copies to the disk of one node: the job has several"
                )
            staging, note = submit_staging.with_programs_of_tasks(
                plan, staging, cwd, may_come=bool(options.after)
            )
            self.notes += [note] if note else []
            self.notes += submit_staging.left_behind(plan, staging, here.cwd)
        script = JobScript(
            name=options.name or plan.name,
            folder=folder,
            cwd=cwd,
            store=here.root,
            python=sys.executable,
            elements=len(plan.elements),
            together=plan.together,
            queue=plan.queue.folder if plan.queue else "",
            request=request,
            setup=_setup_of_site(
                here.in_folder(cwd), options.setup, self.scheduler.name
            ),
            programs=programs_of(plan),
            # asked here too: most dry runs do not need the many modules of the checks
            imports_torch=request.gpus > 0
            and submit_checks.imports_torch(plan, cwd, request),
            staging=staging,
            requeue=options.requeue,
            needs=self.needs,
            version=__version__,
        )
        if request.queue == ANY_QUEUE:
            request, note = submit_checks.with_queues_that_take(
                here.in_folder(cwd),
                self.scheduler,
                request,
                partial(submit_checks.script_to_check, self.scheduler, script),
            )
            script = replace(script, request=request)
            self.notes.append(note)
        if self.heal is not None:
            self.notes += why_none(self.scheduler, request.queue, script.name)
        return script

    def checked(self, script: JobScript, answer: SubmitAnswer) -> SubmitAnswer:
        """Refuse a request that would fail; add what the checks doubt."""
        # jobs of this machine: no cluster whose limits they could exceed
        if answer.scheduler == LOCAL:
            return answer
        checks = submit_checks.check_request(
            self.here.in_folder(script.cwd),
            submit_checks.script_to_check(self.scheduler, script, script.request),
        )
        # what is not known is then a default, which a rule names
        has_rules = KINDS[answer.scheduler].traits.takes_scripts
        notes = [one for one in answer.notes if not (has_rules and one in UNKNOWN)]
        return replace(
            answer,
            has_free_nodes=checks.has_free_nodes,
            notes=(*notes, *checks.doubts, *checks.unchecked),
        )

    def _with_refusal(self, script: JobScript, answer: SubmitAnswer) -> SubmitAnswer:
        """Return the answer of a dry run, noting why it would be refused without."""
        kind = KINDS.get(answer.scheduler)
        if not self.options.setup.checks or kind is None:
            return answer
        # where no cluster answers nothing is known to be refused
        if not ask_scheduler(kind.probe, env=self.here.env).is_answer:
            return answer
        try:
            self.checked(script, answer)
        except UsageError as error:
            refusal = f"without --dry-run: {error}"
            return replace(answer, notes=(*answer.notes, refusal))
        return answer

    def _sent(
        self,
        parts: Sequence[JobScript],
        plan: Plan,
        answer: SubmitAnswer,
        sending: SubmissionRound,
    ) -> SubmitAnswer:
        made: list[SubmittedJob] = []
        for part in parts:
            # each later part continues the first, so all of them are one chain of jobs
            origin = JobOrigin(made[0].id, TOO_LONG) if made else None
            try:
                made.append(ship(self.scheduler, part, plan, sending, origin=origin))
            except WeighError as error:
                if not made:
                    raise
                rest = _words_on_the_rest(made, parts)
                raise SchedulerError(str(error), rest) from error
        if self.needs:
            dependency.await_last_rounds(self.here, made)
        answer = replace(
            answer,
            job=made[0],
            more=tuple(made[1:]),
            notes=(*answer.notes, *check_understood(self.scheduler, made)),
            now=time.time(),
        )
        return followed(self.here, answer, self.scheduler, sending)


def _words_on_the_rest(made: Sequence[SubmittedJob], parts: Sequence[JobScript]) -> str:
    there = sum(job.elements for job in made)
    total = sum(part.elements for part in parts)
    ids = ", ".join(job.id for job in made)
    return (
        f"only {there:,} of {total:,} elements were submitted, as job {ids}: "
        f"weigh resume {made[0].id} submits the rest"
    )


def predicted_start_of_plan(
    here: Here, options: SubmitOptions, plan: Plan
) -> Seconds | None:
    """Return when a plan that is not written yet would start, if that is predicted.

    Raises:
        UsageError: it would be refused, or never start.
    """
    submission = _PlanSubmission(here, options, where_to(here, options))
    folder = os.path.join(here.cwd, plan_directory.FOLDER, plan.name)
    parts, answer = submission.written(folder, plan)
    submission.checked(parts[0], answer)
    return submit_checks.predicted_start_of_text(
        submission.scheduler, answer.text, here.cwd
    )


def _plan_to_submit(here: Here, options: SubmitOptions) -> tuple[str, Plan]:
    if options.nodes is not None:
        raise UsageError("--nodes is for a command (weigh plan TASKS --nodes N)")
    if options.plan is None:
        raise UsageError(
            "nothing to submit: weigh submit PLAN, or weigh submit -- COMMAND"
        )
    folder = os.path.abspath(os.path.join(here.cwd, options.plan))
    # a name with a suffix was meant as a script or as a command
    why_not = why_nothing_is_at(folder)
    if why_not is not None and "." in os.path.basename(options.plan):
        if why_not != "no such file":
            raise UsageError(f"cannot read {options.plan}: {why_not}")
        way_out = "weigh plan makes a plan"
        if " " in options.plan:
            way_out = f"a command: weigh submit -- {options.plan}"
        raise UsageError(f"no such script or plan: {options.plan} ({way_out})")
    plan = plan_directory.read_plan(folder)
    if not plan.elements:
        raise UsageError(f"{options.plan} has no elements: there is nothing to submit")
    plan_directory.refuse_changed_plan(folder, plan)
    return folder, plan


def _notes_on_conda(here: Here, setup: JobSetup) -> Iterator[str]:
    """Yield a note if conda is here, and has no environment of this name or path.

    Nothing where conda is not on this machine, may come from a module, or may look in
    other folders.
    """
    if setup.conda is None or setup.modules:
        return
    facts = check_script.facts_of(here)
    conda = conda_program(facts)
    if conda is None:
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
