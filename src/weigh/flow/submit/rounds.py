"""Submit each job exactly once, although sbatch and qsub may fail after accepting it.

A round is one call of submit or resume for a plan. Before a job is sent, it is written
to the directory ``sent`` of the plan:

    N.round      the process that runs round N: created by link(2), so only one wins
    N.K.part     the K-th job of the round as it is sent, with its token
    N.K.over     its sbatch ended without an answer, or its sender is dead
    N.K.unlisted when the scheduler first answered that it does not list the job
    N.K.answer   the job's id, or that it never became a job: created by link(2)
    N.left       the sender gave the round up, though parts have no answer
    N.plan/      the plan and its task files as they were submitted
    healed       why the last healer sent no further round
    N.end        every part has an answer
    TOKEN/       the script as it was sent, and ``id``, which the job itself writes

A round without an end whose sender is gone is settled by the next weigh: it searches
for the token at the scheduler. A job that is found is recorded. A job that is not found
may still be in transit until the scheduler refuses requests of that age, and a
controller that has just restarted may not have read all requests. Only after both times
have passed the job counts as lost, and may be sent again.
"""

import errno
import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Self, TypeVar

import msgspec
from msgspec.structs import replace

from weigh.errors import (
    SchedulerError,
    StoreError,
    SubmissionUnknownError,
    UsageError,
    WeighError,
    cannot_write,
    writing,
)
from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.model.job import HealLimits, SubmittedJob
from weigh.regular_file import only_regular, write_all
from weigh.schedulers.client import TO_SUBMIT
from weigh.schedulers.job_script import ANNOUNCED
from weigh.schedulers.kind import Argv
from weigh.schedulers.reachable import Scheduler
from weigh.store import jobs
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    is_alive,
    process_identity,
    this_machine,
)
from weigh.store.lines import UNREADABLE
from weigh.store.location import make_folder, replace_whole_file
from weigh.units import Seconds, format_duration

FOLDER = "sent"
_HEALED = "healed"
_OPEN = "sending"  # in the store: one file per plan with a round that has no end
# after this its sbatch was killed by the timeout, and can send nothing more
_LONGEST_SEND: Seconds = TO_SUBMIT + 5.0
# how long a second caller waits to learn the job's id from the first
_FOR_THE_OTHER: Seconds = 5.0
# from the first answer without the job to giving it up: see above, a controller that
# has just restarted
_SECOND_LOOK: Seconds = 10.0
# between two looks at a sender that still runs
_PACE: Seconds = 0.1
# what link(2) answers where the file system has no hard links, or no more
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NEVER_CAME = "never reached the scheduler"

_T = TypeVar("_T")
Reach = Callable[[str], Scheduler]
Notify = Callable[[str], None]


class TakenError(UsageError):
    """Another process submits the plan at this moment, or has just done so."""


class RoundSender(msgspec.Struct, frozen=True, kw_only=True):
    """The process that sends a round; ``store`` is where its jobs are recorded."""

    user: str
    machine: MachineIdentity
    process: ProcessIdentity
    store: str

    def lives(self) -> bool | None:
        """Return whether the process runs; None if that is not visible from here."""
        if not this_machine().sees_processes_of(self.machine):
            return None
        return is_alive(self.process)

    def __str__(self) -> str:
        """Return a name of the sender that other users understand."""
        return f"{self.user} (process {self.process.pid} on {self.machine.host})"


class PartAnswer(msgspec.Struct, frozen=True):
    """The outcome of a part: the job's id, or None if it never became a job."""

    id: str | None
    reason: str | None = None  # why ``id`` is None


class StoppedHealer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a healer sent no further round after this *round* of jobs, and when.

    ``left`` counts the tasks that are not done, by cause.
    """

    round: int
    why: str
    time: Seconds
    left: dict[str, int] = {}


class PartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a part without an answer; times are in seconds.

    ``found`` is the job's id if the scheduler lists it; ``silent`` is why the scheduler
    did not answer. ``sent``, ``over`` and ``unlisted`` are how long ago the part was
    written, its sbatch ended, and the scheduler first answered that it does not list
    the job; ``patience`` is how long the scheduler accepts an old request.
    """

    found: str | None = None
    silent: str | None = None
    lives: bool | None = None  # None: the sender is not visible from here
    sent: Seconds = 0.0
    over: Seconds | None = None  # None: not known to have ended
    unlisted: Seconds = 0.0
    patience: Seconds = 0.0


class OpenPart(msgspec.Struct, frozen=True):
    """A part whose outcome is not known yet; it will be in ``left`` seconds."""

    why: str
    left: Seconds | None = None  # None: not known how long it takes


def decide_part_outcome(facts: PartFacts) -> PartAnswer | OpenPart:
    """Decide the outcome of a part: found, lost, or still open.

    If the sender is not visible, its sbatch counts as ended after the longest timeout.
    """
    # a job that exists is certain, whatever its sender does
    if facts.found is not None:
        return PartAnswer(facts.found)
    if facts.over is None and facts.lives:
        return OpenPart("its sender still runs")
    if facts.silent is not None:
        return OpenPart(facts.silent)
    # negative as long as the sbatch may still run
    over = facts.sent - _LONGEST_SEND if facts.over is None else facts.over
    # both have to pass: see the top of this module
    left = max(facts.patience - over, _SECOND_LOOK - facts.unlisted)
    if left > 0:
        return OpenPart("the scheduler does not list it yet", left)
    return PartAnswer(None, _NEVER_CAME)


class SubmissionRound:
    """One call of submit or resume for a plan; only its own sender sends jobs.

    ``heal_limits`` are the limits of the healer that will follow its jobs, if one will.
    Left with ``with``, it ends, or is marked as left if a part is open or not recorded.
    """

    def __init__(
        self,
        folder: str,
        number: int,
        sender: RoundSender,
        reach: Reach,
        heal_limits: HealLimits | None,
    ) -> None:
        self.folder, self.number = folder, number
        self.sender, self.heal = sender, heal_limits
        self._reach = reach
        self._top = os.path.join(folder, FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(StoreError):
            # a round without either file is settled like one whose sender was killed
            self._note("end" if self._is_done() else "left")

    def path(self, name: str) -> str:
        """Return the path of a file of this round."""
        return os.path.join(self._top, f"{self.number}.{name}")

    def _part_path(self, number: int) -> str:
        return self.path(f"{number}.part")

    def new_token(self) -> tuple[str, str]:
        """Return a new token and the directory for the files of its job.

        Raises:
            StoreError: the directory cannot be created.
        """
        # begins with a letter: a need of digits alone is a scheduler's id
        token = f"w{secrets.token_hex(6)}"
        folder = os.path.join(self._top, token)
        _make_round_folder(folder)
        return token, folder

    def send(
        self,
        scheduler: Scheduler,
        submitted_job: SubmittedJob,
        script: str,
        argv: Argv | None = None,
    ) -> SubmittedJob:
        """Send *script* as *submitted_job*, which has no id yet.

        Record the job with its id.

        *argv* is the command that submits it, if not the usual one.

        Raises:
            SchedulerError: the job was refused.
            SubmissionUnknownError: whether the job was accepted is not known yet.
            StoreError: the job cannot be recorded.
        """
        late = "it took so long that another weigh process took over (weigh status)"
        if self.is_over():
            raise SchedulerError(f"{submitted_job.name} was not submitted: {late}")
        # an unreadable part keeps its number
        number = next(n for n in count(1) if not os.path.lexists(self._part_path(n)))
        # before the first part is written: settle_all has to find the round if this
        # process is killed after it
        if number == 1:
            _mark_open(self.sender.store, self.folder)
        part = self._part_path(number)
        if not link_new(part, msgspec.json.encode(submitted_job)):
            raise SchedulerError(
                f"{submitted_job.name} was not submitted: another weigh process wrote "
                f"{part} (weigh status)"
            )
        unknown = _unknown_outcome_text(submitted_job, "interrupted", PartAnswer(None))
        _print_at_interrupt(submitted_job, unknown)
        try:
            job_id = scheduler.submit(script, cwd=submitted_job.cwd, argv=argv)
        # the wait for a late arrival is counted from here
        except SubmissionUnknownError as error:
            self._note(f"{number}.over")
            answer = self._settle_part(number, submitted_job)
            if isinstance(answer, PartAnswer) and answer.id is not None:
                return replace(submitted_job, id=answer.id)
            raise SubmissionUnknownError(
                _unknown_outcome_text(submitted_job, str(error), answer)
            ) from error
        except SchedulerError as error:
            self._answer(number, submitted_job, PartAnswer(None, str(error)))
            raise
        # Ctrl-C in a notebook: sbatch was killed, and may have sent its request
        except BaseException:
            self._note(f"{number}.over")
            raise
        # sbatch may have taken minutes: the time of the draft would be too early
        submitted_job = replace(submitted_job, submitted=round(time.time(), 3))
        sent = replace(submitted_job, id=job_id)
        if self._answer(number, submitted_job, PartAnswer(job_id)).id is None:
            # another process gave us up and may have sent it again
            scheduler.cancel(sent, None)
            raise SchedulerError(f"job {job_id} was cancelled: {late}")
        _print_at_interrupt(sent, _settled(sent, PartAnswer(job_id)))
        return sent

    def lives(self) -> bool | None:
        """Return whether its sender still runs; None if that is not visible."""
        return False if os.path.exists(self.path("left")) else self.sender.lives()

    def is_over(self) -> bool:
        """Return whether every part has an answer."""
        return os.path.exists(self.path("end"))

    def parts(self) -> Iterator[tuple[int, SubmittedJob]]:
        """Yield the jobs that were written, with their numbers from 1."""
        for number in count(1):
            path = self._part_path(number)
            if not os.path.lexists(path):
                return
            # an unreadable part keeps its number, or a later one would be sent in its
            # place
            if (job := _read_round_file(path, SubmittedJob)) is not None:
                yield number, job

    def answer(self, number: int) -> PartAnswer | None:
        """Return the outcome of a part; None while it is open."""
        return _read_round_file(self.path(f"{number}.answer"), PartAnswer)

    def accepted(self) -> Iterator[SubmittedJob]:
        """Yield the jobs that were accepted, also those that only follow others."""
        for number, job in self.parts():
            answer = self.answer(number)
            if answer is not None and answer.id:
                yield replace(job, id=answer.id)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the jobs of this round, without those that follow them."""
        return tuple(job.id for job in self.accepted() if not job.is_healer)

    def settle(self, notify: Notify) -> list[str]:
        """Determine the outcome of each part; return messages on parts still open."""
        lives, still = self.lives(), []
        for number, job in self.parts():
            # its sender may have died between the answer and the record
            if (known := self.answer(number)) is not None:
                self._record(job, known.id)
            # the job is in another user's store, and that user's commands ask for it
            elif not self._is_ours():
                still.append(
                    f"{job.name}: {self.sender} got no answer when it was submitted; "
                    f"weigh status of {self.sender.user} settles it"
                )
            else:
                verdict = self._settle_part(number, job, lives=lives)
                if isinstance(verdict, OpenPart):
                    still.append(_unknown_outcome_text(job, None, verdict))
                else:
                    notify(_settled(job, verdict))
        # its sender, on another machine, may be between two parts
        if not still and lives is None and self._age() < _LONGEST_SEND:
            still.append(f"{self.sender} may still be submitting it (weigh status)")
        # a sender that lives ends its round itself
        if not still and not lives:
            self.__exit__()
        return still

    def _is_ours(self) -> bool:
        return self.sender.user == schedulers.current_user()

    def _is_done(self) -> bool:
        """Return whether each part has an answer, and each job is recorded."""
        if any(self.answer(number) is None for number, _ in self.parts()):
            return False
        # healers are not recorded as jobs
        sent = {job.token for job in self.accepted() if not job.is_healer}
        if not sent or not self._is_ours():
            return True
        try:
            return sent <= {job.token for job in jobs.read_jobs(self.sender.store)}
        except StoreError:
            return False

    def _age(self) -> Seconds:
        """Return how long ago its sender last wrote a file, in seconds."""
        names = ("round", *(f"{number}.part" for number, _ in self.parts()))
        now = _now(self._top)
        ages = (self._since(now, name) for name in names)
        return min((age for age in ages if age is not None), default=math.inf)

    def _settle_part(
        self, number: int, submitted_job: SubmittedJob, *, lives: bool | None = True
    ) -> PartAnswer | OpenPart:
        # the sbatch died with its sender at the latest now
        if lives is False:
            self._note(f"{number}.over")
        now = _now(self._top)
        facts = PartFacts(
            lives=lives,
            sent=self._since(now, f"{number}.part") or 0.0,
            over=self._since(now, f"{number}.over"),
        )
        # while its sbatch runs its sender learns the outcome first
        if not (lives and facts.over is None):
            facts = self._looked(facts, submitted_job)
            if facts.found is None and facts.silent is None:
                # only the first call creates the file: its time is that of the first
                # answer
                self._note(f"{number}.unlisted")
                since = self._since(now, f"{number}.unlisted") or 0.0
                facts = replace(facts, unlisted=since)
        verdict = decide_part_outcome(facts)
        if isinstance(verdict, OpenPart):
            return verdict
        return self._answer(number, submitted_job, verdict)

    def _looked(self, facts: PartFacts, submitted_job: SubmittedJob) -> PartFacts:
        """Search for the job: by the id that it wrote, else at the scheduler."""
        with suppress(OSError):
            # the link's target is the id; it needs no answer of the scheduler
            own = os.readlink(os.path.join(self._top, submitted_job.token, ANNOUNCED))
            return replace(facts, found=own)
        try:
            scheduler = self._reach(submitted_job.scheduler)
            found = scheduler.find(submitted_job.token, name=submitted_job.name)
            if (
                found is None and submitted_job.is_script
            ):  # it writes no id, may be over
                found = scheduler.find_ended(submitted_job)
            patience = scheduler.patience() if found is None else 0.0
        except WeighError as error:
            return replace(facts, silent=str(error))
        return replace(facts, found=found, patience=patience)

    def _answer(
        self, number: int, submitted_job: SubmittedJob, answer: PartAnswer
    ) -> PartAnswer:
        """Store the outcome of a part; return the stored one if another was first."""
        path = self.path(f"{number}.answer")
        # whoever links first decides, and the others follow
        if not link_new(path, msgspec.json.encode(answer)):
            answer = self.answer(number) or answer
        self._record(submitted_job, answer.id)
        return answer

    def _record(self, submitted_job: SubmittedJob, job_id: str | None) -> None:
        """Record the job in its sender's store, unless its token is there already."""
        store = self.sender.store
        if job_id is None or submitted_job.is_healer or not self._is_ours():
            return
        if all(one.token != submitted_job.token for one in jobs.read_jobs(store)):
            jobs.append_job(store, replace(submitted_job, id=job_id))

    def _note(self, name: str) -> None:
        with suppress(StoreError):
            link_new(self.path(name), b"")

    def _since(self, current_time: Seconds, name: str) -> Seconds | None:
        changed = _file_change_time(self.path(name))
        return None if changed is None else current_time - changed


class SubmissionRounds:
    """The rounds of one plan; *root* is the store where its jobs are recorded.

    *name* is what messages call it, by default the name of its directory.
    """

    def __init__(
        self, folder: str, *, root: str, reach: Reach, name: str | None = None
    ) -> None:
        self.folder = folder
        self._top = os.path.join(folder, FOLDER)
        self._name = name or os.path.basename(folder)
        self._root, self._reach = root, reach

    def next_number(self, notify: Notify = lambda _: None) -> int:
        """Settle open rounds; return the number of the next round.

        Call this before reading the jobs: the process that then begins the round of
        this number has seen all jobs that were sent before.

        Raises:
            TakenError: another process is submitting the plan.
            SubmissionUnknownError: whether a job was accepted is not known yet.
        """
        number = 0
        for one in self.rounds():
            number = one.number
            if one.is_over():
                continue
            if not one.lives():
                if still := one.settle(notify):
                    raise SubmissionUnknownError(still[0])
            # a sender that failed meanwhile leaves the plan to this caller
            elif not _sender_has_ended(one) or one.ids():
                raise TakenError(self._taken(one))
        return number + 1

    def begin(
        self, number: int, *, heal_limits: HealLimits | None = None
    ) -> SubmissionRound:
        """Begin the round of this number; of several processes only one succeeds.

        With *heal_limits* a healer will follow its jobs.

        Raises:
            TakenError: another process began it; the message names it.
            StoreError: the plan's directory cannot be written.
        """
        _make_round_folder(self._top)
        sender = RoundSender(
            user=schedulers.current_user(),
            machine=this_machine(),
            process=process_identity(os.getpid()),
            store=self._root,
        )
        ours = SubmissionRound(self.folder, number, sender, self._reach, heal_limits)
        if not link_new(ours.path("round"), msgspec.json.encode(sender)):
            other = next(one for one in self.rounds() if one.number == number)
            _sender_has_ended(other)
            raise TakenError(self._taken(other))
        return ours

    def rounds(self) -> Iterator[SubmissionRound]:
        """Yield the rounds in the order in which they began."""
        for number in count(1):
            path = os.path.join(self._top, f"{number}.round")
            if not os.path.lexists(path):
                return
            # an unreadable sender counts as one that is not visible, so its parts get
            # all the time there is
            sender = _read_round_file(path, RoundSender) or _NOBODY
            yield SubmissionRound(self.folder, number, sender, self._reach, None)

    def healers(self) -> list[SubmittedJob]:
        """Return the healers that were accepted, in the order of their rounds."""
        return [j for one in self.rounds() for j in one.accepted() if j.is_healer]

    def stopped(self) -> StoppedHealer | None:
        """Return why the last healer sent no further round; None if none has ended."""
        return _read_round_file(os.path.join(self._top, _HEALED), StoppedHealer)

    def note_stop(self, stopped: StoppedHealer) -> None:
        """Keep why there is no further round, for `weigh status`."""
        # replaced as a whole: status may read it at any moment
        with suppress(OSError):
            path = os.path.join(self._top, _HEALED)
            replace_whole_file(path, msgspec.json.encode(stopped))

    def refuse_again(self) -> None:
        """Refuse a plan that was submitted before, also by another user.

        A copy of a plan's directory is not refused: its jobs ran elsewhere.

        Raises:
            UsageError: names the job, and the user.
        """
        earlier = [job for job in jobs.read_jobs(self._root) if job.is_of(self.folder)]
        if earlier:
            job = earlier[-1]
            raise UsageError(
                f"{job.name} was submitted before, as job {job.id} (weigh resume "
                f"{job.id}, or --again)"
            )
        for one in self.rounds():
            ours = any(job.folder == self.folder for _, job in one.parts())
            if ours and one.ids():
                raise UsageError(
                    f"{self._name} was submitted before by {one.sender}, as job "
                    f"{', '.join(one.ids())} (--again runs all of it again)"
                )

    def _taken(self, other: SubmissionRound) -> str:
        name, ids = self._name, other.ids()
        if ids:
            return (
                f"{name} was submitted at the same moment by {other.sender}, "
                f"as job {', '.join(ids)} (weigh status {ids[-1]})"
            )
        if other.is_over():
            return f"{name}: {other.sender} tried at the same moment and failed"
        return f"{name} is being submitted by {other.sender} (weigh status)"


def _sender_has_ended(other: SubmissionRound) -> bool:
    """Wait briefly for a running sender, which may learn its job's id meanwhile."""
    end = time.monotonic() + _FOR_THE_OTHER
    while not other.is_over() and other.lives() and time.monotonic() < end:
        time.sleep(_PACE)
    return other.is_over()


def settle_all(here: Here) -> list[str]:
    """Settle the rounds of this store that have no end; return what is still open."""
    still = []
    for entry, folder in _open_folders(here.root):
        is_open = False
        for one in rounds_of_plan(here, folder).rounds():
            if not one.is_over():
                still += one.settle(here.notify)
                is_open |= not one.is_over()
        # else the mark stays, and the next command looks again
        if not is_open:
            with suppress(OSError):
                os.unlink(entry)
    return still


def rounds_of_plan(
    here: Here, folder: str, name: str | None = None
) -> SubmissionRounds:
    """Return the rounds of the plan, or of the script, whose jobs are in *folder*."""

    def reach(scheduler: str) -> Scheduler:
        return schedulers.reach(here, scheduler)

    return SubmissionRounds(folder, root=here.root, reach=reach, name=name)


# the sender of a round whose file cannot be read
_NOBODY = RoundSender(
    user="?", machine=MachineIdentity("?"), process=ProcessIdentity(0), store=""
)


def _unknown_outcome_text(
    submitted_job: SubmittedJob, error: str | None, answer: PartAnswer | OpenPart
) -> str:
    """Return the message that it is open whether a job was accepted."""
    kind = submitted_job.scheduler
    what = f"{submitted_job.name}: not known whether {kind} accepted the job"
    why = error or (answer.why if isinstance(answer, OpenPart) else "")
    left = answer.left if isinstance(answer, OpenPart) else None
    when = f" in {format_duration(left)}" if left else ""
    return f"{what} ({why}); weigh status settles it{when}, nothing is sent twice"


def _print_at_interrupt(submitted_job: SubmittedJob, outcome: str) -> None:
    """Let Ctrl-C print what is known of a job before it ends weigh.

    Where a notebook handles Ctrl-C, or for a healer, which is not the user's job,
    nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_ours = handler == signal.SIG_DFL or isinstance(handler, _OutcomeAtInterrupt)
    if is_ours and not submitted_job.is_healer:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _OutcomeAtInterrupt(outcome))


class _OutcomeAtInterrupt:
    """A handler of Ctrl-C that prints a line, and then lets the signal end weigh."""

    def __init__(self, outcome: str) -> None:
        self._line, self._process = f"\nweigh: {outcome}\n", os.getpid()

    def __call__(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # a child that has not become sbatch yet is silent
        if os.getpid() == self._process:
            with suppress(OSError):
                os.write(2, self._line.encode())  # stderr may be interrupted in a write
        os.kill(os.getpid(), number)


def _settled(submitted_job: SubmittedJob, answer: PartAnswer) -> str:
    kind = submitted_job.scheduler
    if answer.id is not None:
        return f"{submitted_job.name}: {kind} accepted it as job {answer.id}"
    if submitted_job.is_healer:
        return (
            f"{submitted_job.name} never reached {kind} (weigh resume sends it again)"
        )
    verb = "resume" if submitted_job.resumes else "submit"
    return (
        f"{submitted_job.name}: the job never reached {kind} (weigh {verb} sends it "
        "again)"
    )


def link_new(path: str, contents: bytes) -> bool:
    """Create a file with *contents*, synced to disk; return False where it exists.

    Raises:
        StoreError: it cannot be written.
    """
    folder = os.path.dirname(path)
    # the contents are on disk before the name exists: no reader finds half a file
    fresh = os.path.join(folder, f".{secrets.token_hex(8)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        inode = os.fstat(descriptor).st_ino
        try:
            try:
                write_all(descriptor, contents)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.link(fresh, path)
        except FileExistsError:
            # over NFS the reply to link() may be lost: then the file is our own
            return os.stat(path).st_ino == inode
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create_new(path, contents)
        finally:
            os.unlink(fresh)
        # the new name itself is only on disk once its directory is
        _sync_folder(folder)
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error
    return True


def _create_new(path: str, contents: bytes) -> bool:
    """Create a file where links are not supported: readers may see it unfinished."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        write_all(descriptor, contents)
        os.fsync(descriptor)
    except OSError:
        os.unlink(path)  # half a file would count as whole
        raise
    finally:
        os.close(descriptor)
    return True


def _sync_folder(folder: str) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_round_folder(folder: str) -> None:
    with writing(folder):
        os.makedirs(folder, exist_ok=True)


def _read_round_file(path: str, kind: type[_T]) -> _T | None:
    try:
        with open(path, "rb", opener=only_regular) as file:
            return msgspec.json.decode(file.read(), type=kind)
    except (OSError, *UNREADABLE):
        return None


def _file_change_time(path: str) -> Seconds | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _now(folder: str) -> Seconds:
    """Return the time by the clock of the file system of *folder*.

    Clocks of machines differ; file times on one file system come from one clock.
    """
    path = os.path.join(folder, f".{secrets.token_hex(8)}")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError:
        return time.time()


def _mark_open(root: str, folder: str) -> None:
    """Note in the store that the plan has an open round, for calls without a plan."""
    # one file per mark: two processes cannot overwrite each other's
    top = make_folder(root, _OPEN)
    link_new(os.path.join(top, secrets.token_hex(8)), os.fsencode(folder))


def _open_folders(root: str) -> Iterator[tuple[str, str]]:
    top = os.path.join(root, _OPEN)
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return
    for name in names:
        if name.startswith("."):  # not linked to its name yet
            continue
        path = os.path.join(top, name)
        with suppress(OSError), open(path, "rb", opener=only_regular) as file:
            folder = os.fsdecode(file.read())
            yield path, folder
