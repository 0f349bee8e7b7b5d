"""``weigh submit job.sh``: submit a user's own script as it is, as a job of weigh's.

The scheduler reads the user's own file. With ``--measure`` it reads a wrapper with the
same directives, which runs a copy of that file under ``weigh run``: a job runs the
script as it was when it was submitted, as schedulers do themselves.
"""

import hashlib
import os
import re
import shlex
import shutil
import sys
import time

import msgspec
from msgspec.structs import replace

from weigh._version import __version__
from weigh.errors import NoClusterError, UsageError, writing
from weigh.flow.check.script import facts_of, guess, read_script_file
from weigh.flow.follow.view import look
from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.flow.site.cluster import site_warnings
from weigh.flow.submit.checks import ScriptToCheck, check_request
from weigh.flow.submit.job_request import HealOptions, check_limits, limits_of, where_to
from weigh.flow.submit.rounds import SubmissionRound, rounds_of_plan, settle_all
from weigh.flow.submit.submit_script import JobOrigin, followed, why_none, write_script
from weigh.model.job import ACTIVE, JobRequest, OwnScript, RecordedRequest, SubmittedJob
from weigh.render.submit_lines import SubmitAnswer
from weigh.request import RUNNER_MEMORY
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import announce_line
from weigh.schedulers.kind import Argv, DescribedScript, KnownJob, SchedulerUserScripts
from weigh.schedulers.launched import SUBMIT_COMMANDS, launched_by_line
from weigh.schedulers.reachable import Scheduler
from weigh.schedulers.script import read_script
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.schedulers.words import parse_ranges
from weigh.store import jobs, location
from weigh.store.location import replace_whole_file
from weigh.sweep.task_file import INTERPRETERS
from weigh.units import GIB, MIB, Bytes

FOLDER = "scripts"  # in the store: one directory per script with its flags
# what runs with --measure: one copy per text, so it stays as it was submitted
_COPIES = "copies"
# replaced in the name of a script's directory
_UNSAFE = re.compile(r"[^\w.-]+")
_SHELL = "/bin/sh"
# letters looked at for sbatch and the like: task files may be large
_MOST_READ = 1 << 16
_HAS_ROOM = 4 * GIB  # from here on weigh's share is lost in the request
# measured: the sum over the processes of a job rose by 33 to 50 MiB
_WATCHER_ADDRESSES = 96 * MIB


class ScriptOptions(HealOptions, frozen=True, kw_only=True):
    """The options as typed: ``flags`` of the scheduler, ``arguments`` of the script."""

    script: str
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    measure: bool = False
    checks: bool = True


class ScriptDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A script that is about to be submitted, as its scheduler reads it."""

    name: str
    script: str  # its absolute path
    typed: str  # its path as the user wrote it, for messages
    text: str
    folder: str  # where its rounds are kept, in the store
    cwd: str
    kind: str  # of its scheduler
    own: OwnScript
    described: DescribedScript

    @property
    def elements(self) -> int:
        """Return how many elements it has."""
        return len(set(parse_ranges(self.own.indices))) or 1

    @property
    def text_with_flags(self) -> str:
        """Return it with the typed flags as directives."""
        return self.scripts.with_flags(self.text, self.own.flags)

    @property
    def scripts(self) -> SchedulerUserScripts:
        """Return how its scheduler treats scripts of users."""
        return KINDS[self.kind].user_scripts

    @property
    def as_sent(self) -> OwnScript:
        """Return it with the flags of what is sent: a wrapper needs its own shell."""
        if not self.own.measured:
            return self.own
        room = _room_for_watching(self.described.request, self.scripts)
        flags = (*self.own.flags, *self.scripts.wrapper_flags(), *room)
        return replace(self.own, flags=flags)

    def argv(self, token: str, file: str | None = None) -> Argv:
        """Return the command that submits it, or *file* in its place."""
        return self.scripts.submit_script_argv(
            file or self.typed,
            self.as_sent,
            token=token,
            comment=self.described.comment,
        )

    def copy_path(self, store: str) -> str:
        """Return the path of the script as it is now: the same text has the same path.

        So runs of it have the same command, by which records are compared.
        """
        name = os.path.basename(self.script)
        return os.path.join(store, FOLDER, _COPIES, self.own.digest, name)

    def text_to_send(self, store: str, sent: str) -> str:
        """Return the script, or one that measures a copy of it in the job.

        Where the node has no weigh, the copy runs unmeasured.
        """
        if not self.own.measured:
            return self.text
        shell = self.described.interpreter or read_script(self.text).interpreter
        words = shlex.join((*(shell or (_SHELL,)), self.copy_path(store)))
        command, python = f'{words} "$@"', shlex.quote(sys.executable)
        written = f"{shlex.quote(self.script)}, measured; written by weigh"
        body = (
            f"# {written} {__version__}.",
            announce_line(KINDS[self.kind].backend.RULES.job_id, sent),
            # -P: a weigh.py in the job's directory must not be imported instead
            f"if {python} -P -c 'import weigh' 2>/dev/null; then",
            f"  export WEIGH_DIR={shlex.quote(store)}",
            f"  exec {python} -P -m weigh run -q --no-wait-orphans -- \\",
            f"    {command}",
            "fi",
            'echo "weigh: not measured: weigh does not run on $(hostname)" >&2',
            f"exec {command}",
        )
        return self.scripts.wrapper(self.text, "\n".join(body))

    def whole_array_variable(self) -> str | None:
        """Return the variable of the whole array that the script reads, if any."""
        found = self.scripts.OF_WHOLE_ARRAY.search(self.text)
        return found[0] if found else None


def submit_own(here: Here, options: ScriptOptions) -> SubmitAnswer:
    """Check a script, and submit it with its own directives and the typed flags.

    Raises:
        UsageError: there is no such script, it would be refused, or has not ended.
        SchedulerError: the scheduler refuses it or does not answer.
        StoreError: the job cannot be recorded.
    """
    settle_all(here)
    name = _scheduler_of_script(here, options)
    draft = draft_of(here, options, name)
    heal = limits_of(here, options, name)
    notes = site_warnings(here)
    if not KINDS[name].lint.directives(draft.text) and not draft.own.flags:
        defaults = f"{draft.typed} has no directives: the queue's defaults apply"
        notes = (defaults, *notes)
    scheduler = schedulers.reach(here, name)
    if heal is not None:
        request = draft.described.request
        check_limits(heal, request)
        notes += why_none(scheduler, request.queue, draft.name)
    if options.checks and draft.described.misread:
        raise UsageError(
            f"{draft.typed}: {draft.described.misread} (--no-checks submits it anyway)"
        )
    sendings = rounds_of_plan(here, draft.folder, draft.typed)
    # before the jobs are read, so that none sent meanwhile is missed
    number = sendings.next_number(here.notify)
    if not options.again:
        _refuse_running_script(here, draft)
    answer = SubmitAnswer(
        scheduler=name,
        script=draft.script,
        # there is no token before it is sent: the word stands in its place
        text=draft.text_to_send(here.root, "TOKEN"),
        notes=notes,
        commands=(draft.argv("TOKEN"),) if options.dry_run else (),
    )
    if options.checks:
        answer = _checked_script_answer(here, draft, answer)
    if options.dry_run:
        return answer
    with sendings.begin(number, heal_limits=heal) as sending:
        try:
            job = send_script(draft, scheduler, sending, verify=options.checks)
        except NoClusterError as error:
            # a script is for a scheduler: --on local would refuse it
            instead = f"submit from a login node, or weigh run -- bash {draft.typed}"
            raise NoClusterError(error.command, instead) from error
        answer = replace(answer, job=job, now=time.time())
        return followed(here, answer, scheduler, sending)


def draft_of(here: Here, options: ScriptOptions, name: str) -> ScriptDraft:
    """Read a script as the scheduler *name* does.

    Raises:
        UsageError: it cannot be read, or weigh cannot submit it.
    """
    kind = KINDS[name]
    path = os.path.join(here.cwd, options.script)
    text = read_script_file(path, options.script)
    facts = facts_of(here, scheduler=kind.name)
    described = kind.user_scripts.describe(text, options.flags, path, facts)
    is_misread = options.checks and bool(described.misread)
    _refuse_no_job(
        text, options, len(kind.lint.directives(text)), is_misread=is_misread
    )
    # submitted on its own, such a script would bypass the rounds of its plan
    if _is_of_plan(path, text):
        plan = os.path.dirname(options.script) or os.curdir
        raise UsageError(
            f"{options.script} is written for a plan (weigh submit {plan})"
        )
    if described.refusals:
        raise UsageError(f"{options.script}: {described.refusals[0]}")
    own = OwnScript(
        flags=options.flags,
        arguments=options.arguments,
        indices=described.indices,
        output=described.output,
        error=described.error,
        digest=digest_of(text),
        measured=options.measure,
    )
    return ScriptDraft(
        name=described.name,
        script=os.path.normpath(path),
        typed=options.script,
        text=text,
        # the path and the flags identify a script, so a second submission of it is
        # noticed
        folder=_job_folder_of_script(
            here.root, os.path.normpath(path), options, kind.name
        ),
        cwd=here.cwd,
        kind=kind.name,
        own=own,
        described=described,
    )


def send_script(
    draft: ScriptDraft,
    scheduler: Scheduler,
    sending: SubmissionRound,
    *,
    verify: bool = True,
    origin: JobOrigin | None = None,
) -> SubmittedJob:
    """Submit a script once, and record it as a job.

    Raises:
        UsageError: the scheduler would never start it.
        SchedulerError: the scheduler refused it.
        SubmissionUnknownError: whether it was accepted is not known.
        StoreError: a file cannot be written.
    """
    token, sent = sending.new_token()
    store = sending.sender.store
    location.make_folder(store)
    file = draft.typed
    if draft.own.measured:
        _keep(draft.copy_path(store), draft.text)
        file = os.path.join(sent, os.path.basename(draft.script))
        # the wrapper lies in the token's directory, where the job links its id
        write_script(file, draft.text_to_send(store, sent))
    expected = None
    if verify:
        check = draft.scripts.check_script_argv(file, draft.as_sent)
        expected = scheduler.predict_start(file, cwd=draft.cwd, argv=check)
        # the prediction does not know when the jobs end that it waits for
        waits = draft.scripts.LINT.awaited(draft.text_with_flags)
        expected = None if waits else expected
    job = SubmittedJob(
        scheduler=scheduler.name,
        id="",
        name=draft.name,
        folder=draft.folder,
        cwd=draft.cwd,
        script=draft.script,
        elements=draft.elements,
        tasks=draft.elements,
        submitted=round(time.time(), 3),
        request=draft.described.request,
        resumes=None if origin is None else origin.job,
        reason=None if origin is None else origin.reason,
        round=1 if origin is None else origin.round,
        heal=sending.heal,
        expected=expected,
        token=token,
        own=draft.own,
    )
    made = sending.send(scheduler, job, file, draft.argv(token, file))
    return _as_understood(made, scheduler, store)


def _scheduler_of_script(here: Here, options: ScriptOptions) -> str:
    """Return the scheduler to submit to: as typed, or by the script's directives.

    Raises:
        UsageError: the script is for another scheduler, or there is none.
    """
    text = read_script_file(os.path.join(here.cwd, options.script), options.script)
    chosen = where_to(here, options)
    # directives of another scheduler are plain comments to this one
    meant = guess(text) or chosen
    if options.scheduler is None and meant != chosen:
        path = here.env.get("PATH", "")
        if shutil.which(KINDS[meant].submits, path=path) is None and chosen != LOCAL:
            raise UsageError(
                f"{options.script} has directives of {KINDS[meant].title}, and here is "
                f"{KINDS[chosen].title}, which ignores them"
            )
        if chosen != LOCAL or shutil.which(KINDS[meant].submits, path=path):
            chosen = meant
    if chosen == LOCAL:
        if guess(text) is None:
            _refuse_no_job(text, options, 0, is_misread=False)
        raise UsageError(
            f"{options.script} needs a scheduler, and here is none "
            f"(try weigh run -- bash {options.script})"
        )
    kind = KINDS[chosen]
    if not kind.traits.takes_scripts:
        raise UsageError(
            f"{options.script}: submit it by {kind.submits}; weigh status, logs, "
            "cancel and report take the id of its job"
        )
    return chosen


def _job_folder_of_script(
    root: str, path: str, options: ScriptOptions, kind: str
) -> str:
    # NUL and -- keep flags apart from arguments
    words = (kind, path, *options.flags, "--", *options.arguments)
    digest = hashlib.sha256("\0".join(words).encode(errors="surrogateescape"))
    stem = _UNSAFE.sub("_", os.path.basename(path))
    return os.path.join(root, FOLDER, f"{stem}-{digest.hexdigest()[:10]}")


def _refuse_running_script(here: Here, draft: ScriptDraft) -> None:
    """Refuse a script whose job, with these flags, has not ended.

    Raises:
        UsageError: names the job.
    """
    known = jobs.read_jobs(here.root)
    earlier = [job for job in known if job.folder == draft.folder]
    for view in look(here, earlier, known, fresh=bool(earlier)):
        states = {state.state for state in view.elements}
        # without an answer the job may still run
        if states & ACTIVE or (view.snapshot.trouble and "UNKNOWN" in states):
            raise UsageError(
                f"{draft.typed} is job {view.job.id}, which has not ended "
                "(--again submits it once more)"
            )


def _checked_script_answer(
    here: Here, draft: ScriptDraft, answer: SubmitAnswer
) -> SubmitAnswer:
    """Refuse a script that would fail; add the results of the checks."""
    script = ScriptToCheck(
        text=draft.text_with_flags,
        request=draft.described.request,
        scheduler=answer.scheduler,
    )
    checks = check_request(here.in_folder(draft.cwd), script)
    noted = len(checks.doubts)
    notes = (*answer.notes, *checks.unchecked)
    if noted:
        noun = "note" if noted == 1 else "notes"
        more = " ".join(("weigh check", shlex.quote(draft.typed)))
        notes = (*notes, f"{noted} {noun} on the script: {more}")
    return replace(answer, has_free_nodes=checks.has_free_nodes, notes=notes)


def _room_for_watching(job_request: JobRequest, scripts: SchedulerUserScripts) -> Argv:
    """Return the flags that request what weigh takes in addition to the script.

    A job that uses nearly all of its limit was killed because it was measured: Grid
    Engine adds up the address space of weigh's processes too. A large request has room.
    """

    def with_room(size: Bytes | None, more: Bytes) -> Bytes | None:
        return size if size is None or size >= _HAS_ROOM else size + more

    enough = replace(
        job_request,
        memory=with_room(job_request.memory, RUNNER_MEMORY),
        virtual_memory=with_room(job_request.virtual_memory, _WATCHER_ADDRESSES),
    )
    if enough == job_request or job_request.nodes > 1:
        return ()
    return scripts.raised(enough, ("memory",))


def _is_of_plan(path: str, text: str) -> bool:
    """Return whether weigh wrote a script for the plan in its folder."""
    plan = os.path.join(os.path.dirname(path), "plan.json")
    # in the head only: a user's script may quote the line further down
    return os.path.isfile(plan) and "; written by weigh " in text[:4096]


def _refuse_no_job(
    text: str, options: ScriptOptions, directives: int, *, is_misread: bool
) -> None:
    """Refuse a file that is no job script: a task file, or one that submits jobs.

    Raises:
        UsageError: it is.
    """
    # whoever writes directives or types flags means a job script
    if directives or (options.flags and not is_misread):
        return
    name = options.script
    program = INTERPRETERS.get(os.path.splitext(name)[1].lower())
    # a file named *.py is a program, whatever it contains
    submits: set[str] = set()
    if program is None:
        submits = {
            one.runner for one in launched_by_line(text[:_MOST_READ])
        } & SUBMIT_COMMANDS
    if not text.startswith("#!") and not submits:
        way_out = f"tasks: weigh plan {name}"
        if program is not None:
            way_out = f"weigh submit -- {program} {name}"
        what = "it has no #! line" if text.strip() else "it is empty"
        raise UsageError(f"{name} is no job script: {what} ({way_out})")
    if submits:
        raise UsageError(
            f"{name} calls {submits.pop()} itself: run it with bash; weigh status "
            "takes the id of each of its jobs"
        )


def _keep(path: str, text: str) -> None:
    """Write a copy of a script, unless it is there: jobs may be reading it.

    Raises:
        StoreError: it cannot be written.
    """
    if os.path.exists(path):
        return
    with writing(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # whole: another submission may do the same now
        replace_whole_file(path, text.encode(errors="surrogateescape"))


def _as_understood(
    submitted_job: SubmittedJob, scheduler: Scheduler, store_folder: str
) -> SubmittedJob:
    """Return the job with its array and request as the scheduler understood them."""
    # a site's plugins and defaults may have changed what was requested
    known = scheduler.known(submitted_job.id, is_new=True)
    if known is None or submitted_job.own is None:
        return submitted_job
    better = replace(
        submitted_job,
        name=known.name or submitted_job.name,
        request=_script_request(submitted_job.request, known.request),
    )
    # compared as numbers: 0-3 and 0,1,2,3 are the same array
    indices = set(parse_ranges(known.indices))
    if indices and indices != set(parse_ranges(submitted_job.own.indices)):
        own, count = replace(submitted_job.own, indices=known.indices), len(indices)
        better = replace(better, own=own, elements=count, tasks=count)
    if better != submitted_job:
        jobs.append_job(store_folder, better)
    return better


def _script_request(typed: JobRequest, recorded: RecordedRequest | None) -> JobRequest:
    """Return the request with what the scheduler recorded; per node and element."""
    if recorded is None:
        return typed
    nodes = max(1, typed.nodes)

    def known(there: int | None, here: int | None) -> int | None:
        # the scheduler counts all nodes, a request one
        return here if there is None else -(-there // nodes)

    return replace(
        typed,
        cpus=known(recorded.cpus, typed.cpus) or 1,
        memory=known(recorded.memory, typed.memory),
        virtual_memory=known(recorded.virtual_memory, typed.virtual_memory),
        gpus=known(recorded.gpus, typed.gpus) or 0,
        time_limit=recorded.time_limit or typed.time_limit,
        queue=recorded.queue or typed.queue,
        account=typed.account or recorded.account,
        throttle=recorded.throttle or typed.throttle,
    )


def request_of_known(known_job: KnownJob) -> JobRequest:
    """Return the request of a job that weigh did not submit."""
    return _script_request(JobRequest(), known_job.request)


def digest_of(text: str) -> str:
    """Return a digest of a script, which names the directory of its measured copy."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def changed_since(submitted_job: SubmittedJob) -> bool:
    """Return whether the user's script is no longer the one that the job ran.

    Raises:
        UsageError: it is gone.
    """
    text = read_script_file(submitted_job.script, submitted_job.script)
    return submitted_job.own is not None and submitted_job.own.digest != digest_of(text)
