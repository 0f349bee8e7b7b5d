"""The only place that runs a scheduler's commands."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh.errors import (
    SIGNAL_BASE,
    FormatError,
    NoClusterError,
    SchedulerError,
    StoreError,
    SubmissionUnknownError,
    UsageError,
)
from weigh.model.job import (
    CANCELLING,
    REST,
    STUCK,
    WHOLE,
    Elements,
    ElementState,
    JobScript,
    States,
    SubmittedJob,
)
from weigh.regular_file import file_head, only_regular
from weigh.schedulers.command import (
    CommandOutput,
    NoAnswerError,
    Runner,
    outside_of_job,
)
from weigh.schedulers.kind import Argv, KnownJob, SchedulerKind
from weigh.schedulers.reachable import (
    ABSENT,
    JobSnapshot,
    Scheduler,
    element_numbers_of,
)
from weigh.schedulers.words import format_ranges, parse_ranges
from weigh.store.lines import UNREADABLE, read_documents
from weigh.store.location import make_folder, replace_whole_file
from weigh.store.shards import append_line
from weigh.units import DAY, Seconds

# between two queries: sites ask users not to poll more often
INTERVAL: Seconds = 30.0
# between queries of a scheduler that does not answer: each failure doubles the pause
_MOST_DOUBLINGS = 16  # of the pause between queries, far above the longest
_LONGEST_PAUSE: Seconds = 600.0  # a controller is restarted within some minutes
_ENDING: Seconds = 60.0  # most sites give a job this long to exit after a signal
_WHILE_ENDING: Seconds = 1.0  # between queries then
_FOLDER = "queue"


class SchedulerPoll(msgspec.Struct, frozen=True):
    """The last answer of a scheduler, its time, and how many queries failed since.

    ``asked`` is when it came, ``tried`` when the last query was (both epoch seconds).
    ``unsettled`` are jobs with an element that has left the
    queue and whose end accounting does not show yet, and since when; ``accounting`` is
    why accounting does not answer. ``covered`` are the elements, as ranges, of each
    script of a user's that were asked about: ``123_4`` is an answer on one of them.
    """

    asked: Seconds = 0.0  # 0: never
    tried: Seconds = 0.0
    failures: int = 0  # since the last answer
    trouble: str | None = None  # None: the last query was answered
    states: States = {}
    unsettled: dict[str, Seconds] = {}
    accounting: str | None = None  # None: it answers, or is not used
    covered: dict[str, str] = {}

    def covers(self, submitted_job: SubmittedJob) -> bool:
        """Return whether the answer is one on all elements of *submitted_job*."""
        if submitted_job.own is None:
            return submitted_job.id in self.states
        # of a user's array some elements may have been asked about, by their indices
        covered = set(parse_ranges(self.covered.get(submitted_job.id, "")))
        return covered.issuperset(element_numbers_of(submitted_job))

    def is_due(
        self, current_time: Seconds, interval: Seconds, cancelled_at: Seconds = 0.0
    ) -> bool:
        """Return whether a query is due; a clock that was set back does not delay it.

        Queries are more frequent just after a cancellation.
        """
        if 0 <= current_time - cancelled_at < _ENDING and not self.failures:
            interval = min(interval, _WHILE_ENDING)
        # after a week without an answer 2 to the failures is more than a float holds
        doubled = interval * 2 ** min(self.failures, _MOST_DOUBLINGS)
        pause = min(doubled, max(_LONGEST_PAUSE, interval))
        # a time in the future is from a clock that was set back: then it is due, too
        return not 0 <= current_time - self.tried < pause


def load_poll(root: str, name: str) -> SchedulerPoll:
    """Read the last answer; return an empty one if it is missing or unreadable."""
    try:
        with open(_poll_file_path(root, name), "rb", opener=only_regular) as file:
            return msgspec.json.decode(file.read(), type=SchedulerPoll)
    except (OSError, *UNREADABLE):
        # a cache: without it the scheduler is queried again, which is all that is lost
        return SchedulerPoll()


def save_poll(root: str, name: str, poll: SchedulerPoll) -> None:
    """Write an answer to disk; if that fails, the scheduler is queried again."""
    make_folder(root, _FOLDER)
    path = _poll_file_path(root, name)
    with suppress(OSError):
        replace_whole_file(path, msgspec.json.encode(poll))


def forget_poll(root: str, name: str) -> None:
    """Force a new query next time: a job was submitted, changed or cancelled."""
    poll = load_poll(root, name)
    # while the scheduler does not answer, a submission is no reason to ask more often
    if not poll.failures:
        poll = msgspec.structs.replace(poll, tried=0.0)
    save_poll(root, name, poll)


class CancelledElements(msgspec.Struct, frozen=True):
    """Elements of a job that weigh cancelled at ``time``.

    They may be gone without a trace, so that only weigh knows. Each cancellation is a
    line of a file of its own: a query that was under way replaces the last answer.
    """

    job: str
    elements: tuple[int, ...]
    time: Seconds


def append_cancelled_elements(root: str, name: str, one: CancelledElements) -> None:
    """Note a cancellation; if that fails, it is as if somebody else had cancelled."""
    with suppress(StoreError):
        make_folder(root, _FOLDER)
        append_line(_path_of_cancelled(root, name), msgspec.json.encode(one))


def read_cancelled_elements(root: str, name: str) -> list[CancelledElements]:
    """Return what weigh cancelled at a scheduler."""
    with suppress(StoreError):
        path = _path_of_cancelled(root, name)
        return list(read_documents(path, CancelledElements))
    return []


def _path_of_cancelled(root: str, name: str) -> str:
    return os.path.join(root, _FOLDER, f"{name}.cancelled.jsonl")


def _poll_file_path(root: str, name: str) -> str:
    return os.path.join(root, _FOLDER, f"{name}.json")


# long, as giving up leaves it unknown whether the job was accepted
TO_SUBMIT: Seconds = 120.0
_TO_ASK: Seconds = 30.0  # a question that is not answered may be asked again
_OWN_END = 255  # a program's -1
_TOLD = SIGNAL_BASE + 15  # exit code of a shell that TERM ended
_OLD: Seconds = 30 * DAY  # schedulers have forgotten older jobs
_LATE: Seconds = 300.0  # accounting that answers must show the end of a job by then
# what still runs then was not cancelled, whatever the scheduler said
_TO_CANCEL: Seconds = 600.0
_NOT_YET = "accounting has not recorded its end yet"


class SchedulerReach(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a scheduler: what runs its commands, for which user, how often.

    ``root`` is the store, which keeps its answers; ``interval`` is in seconds.
    """

    run: Runner
    env: Mapping[str, str]
    root: str
    user: str
    clock: Callable[[], Seconds]
    interval: Seconds = INTERVAL


class SchedulerClient(Scheduler):
    """A scheduler that is reached through its commands."""

    def __init__(self, kind: SchedulerKind, way: SchedulerReach) -> None:
        self.name = kind.name
        self.questions = self._backend = kind.backend
        self._kind = kind
        self._way = way

    def render(self, job_script: JobScript) -> str:
        """Write the job script."""
        return self._backend.render(job_script)

    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log."""
        return self._backend.log_name(job_id, element, is_array=is_array)

    def submit(self, script: str, *, cwd: str, argv: Argv | None = None) -> str:
        """Submit the script once, by *argv* if not the usual way; return the job's id.

        Raises:
            SchedulerError: the job was rejected, or the command does not exist.
            NoClusterError: the command exists, and reaches no cluster.
            SubmissionUnknownError: no answer; the job may have been accepted.
        """
        is_own, argv = argv is not None, argv or self._backend.submit_argv(script)
        # before the command: if this process is killed during it, the next status asks
        # anew
        forget_poll(self._way.root, self.name)
        try:
            ran = self._way.run(
                argv,
                self._submission_environment(script, is_own=is_own),
                cwd=cwd,
                timeout=TO_SUBMIT,
                submits=True,
            )
        # too slow: the scheduler may have the job
        except NoAnswerError as error:
            raise SubmissionUnknownError(str(error)) from error
        except SchedulerError as error:
            raise SchedulerError(f"{error} ({self._backend.LOGIN_HINT})") from error
        job = self._backend.parse_submitted(ran.out) if ran.code == 0 else None
        if job is not None:
            return job
        # success without an id that can be read: the job probably exists
        if ran.code == 0:
            raise SubmissionUnknownError(
                f"{argv[0]} printed no job id but {ran.out[:80]!r}"
            )
        # by a signal, itself or through a shell: it may have sent the request before.
        # 255 is sbatch's for a directive that it cannot read, and ssh's for a lost line
        is_own_end = ran.code == _OWN_END and ran.err.startswith(f"{argv[0]}: ")
        killed = ran.code < 0 or (ran.code > SIGNAL_BASE and not is_own_end)
        if killed or self._backend.is_unanswered(ran.words):
            raise SubmissionUnknownError(f"{argv[0]}: {ran.complaint()}")
        if self._backend.NO_CLUSTER.search(ran.err):
            raise NoClusterError(argv[0], self._backend.LOGIN_HINT)
        raise SchedulerError(f"{argv[0]} refused the job: {ran.complaint()}")

    def _submission_environment(
        self, script: str, *, is_own: bool
    ) -> Mapping[str, str]:
        """Return the environment in which a script is submitted.

        A submission from inside a job must not pass that job's variables on. What weigh
        wrote into a script was typed, or planned: the user's defaults are for others.
        """
        env = outside_of_job(self._way.env)
        text = "" if is_own else file_head(script).decode(errors="replace")
        replacing = self._kind.lint.replacing(text)
        return {name: env[name] for name in env.keys() - replacing}

    def find(self, token: str, *, name: str) -> str | None:
        """Return the id of the job that was submitted with *token*; None if unlisted.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        ran = self._run(argv := self._backend.find_argv(self._way.user, name))
        if ran.code != 0 and not self._backend.NOT_LISTED.search(ran.words):
            raise SchedulerError(f"{argv[0]}: {ran.complaint()}")
        try:
            found = self._backend.parse_found(ran.out, token)
        except FormatError as error:
            raise SchedulerError(str(error)) from error
        if found is not None:
            forget_poll(self._way.root, self.name)
        return found

    def find_ended(self, submitted_job: SubmittedJob) -> str | None:
        """Return the id of a user's script that was sent as a job and has ended.

        None if accounting lists none, or there is no accounting.

        Raises:
            SchedulerError: accounting does not answer.
        """
        scripts = self._kind.user_scripts
        question, outputs = scripts.sent(submitted_job, self._way.user), []
        for argv in question.argvs:
            try:
                ran = self._run(argv)
            except SchedulerError as error:
                # this site has no accounting, which is not a failure
                if _is_not_installed(error):
                    return None
                raise
            if ran.code and self._backend.accounting_answer(ran) == "failing":
                raise SchedulerError(f"{argv[0]}: {ran.complaint()}")
            outputs.append(ran.out)
        return question.read(outputs)

    def patience(self) -> Seconds:
        """Return the time in seconds after which a sent request can no longer arrive.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        question = self._backend.patience()
        return question.read([self._printed(argv) for argv in question.argvs])

    def predict_start(
        self, script: str, *, cwd: str, argv: Argv | None = None
    ) -> Seconds | None:
        """Return when the script would start, None if that cannot be predicted.

        Raises:
            UsageError: it would be refused, or never start.
        """
        is_own, argv = argv is not None, argv or self._backend.verify_argv(script)
        if not argv:
            return None
        try:
            env = self._submission_environment(script, is_own=is_own)
            ran = self._way.run(argv, env, cwd=cwd, timeout=_TO_ASK)
        except SchedulerError:
            return None  # the submission itself will report what is wrong
        output = ran.words
        doubt = self._backend.parse_doubt(output)
        if doubt is not None:
            raise UsageError(f"{doubt} (--no-checks submits it anyway)")
        return self._backend.parse_start(output)

    def states(
        self, submitted_jobs: Sequence[SubmittedJob], *, fresh: bool = False
    ) -> JobSnapshot:
        """Return the states of jobs, from the last answer or from a new query."""
        last = load_poll(self._way.root, self.name)
        submitted_jobs = [job for job in submitted_jobs if self._is_of_use(job, last)]
        # a job with all elements over needs no query, unless accounting has yet to show
        # how
        is_open = [
            job
            for job in submitted_jobs
            if job.id in last.unsettled or not _are_all_elements_over(job, last.states)
        ]
        # a job named by its id, or another element, which the last query left out
        is_new = not last.failures and not all(map(last.covers, is_open))
        cancelled = read_cancelled_elements(self._way.root, self.name)
        cancelled_at = max((one.time for one in cancelled), default=0.0)
        now = self._way.clock()
        is_due = fresh or is_new or last.is_due(now, self._way.interval, cancelled_at)
        if is_open and is_due:
            last = self._ask(last, submitted_jobs, is_open, cancelled)
            save_poll(self._way.root, self.name, last)
        return JobSnapshot(last.states, last.asked, last.trouble, last.accounting)

    def _is_of_use(self, submitted_job: SubmittedJob, last: SchedulerPoll) -> bool:
        """Return False for an old job, unless the last answer showed it unfinished."""
        is_named = (
            submitted_job.own is not None and submitted_job.own.foreign
        )  # it is named by its id
        if is_named or self._way.clock() - submitted_job.submitted < _OLD:
            return True
        known = last.states.get(submitted_job.id, {}).values()
        return any(not state.is_final for state in known)

    def known(self, name: str, *, is_new: bool = False) -> KnownJob | None:
        """Return the job with the id *name*, or elements of it; None if unknown.

        A job that *is_new* is in the queue: accounting is not asked.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        # the first command asks the queue; the others, accounting
        question = self._kind.user_scripts.known(name)
        asked = question.argvs[:1] if is_new else question.argvs
        outs = [self._answer_of(argv) for argv in asked]
        # a question reads as many outputs as it has commands
        outs += [""] * (len(question.argvs) - len(asked))
        return question.read(outs) if any(outs) else None

    def _answer_of(self, argv: Argv) -> str:
        """Return what a command prints; empty if it fails or is not installed."""
        try:
            ran = self._run(argv)
        except SchedulerError as error:
            if _is_not_installed(error):
                return ""
            raise
        # an error that names the job is an answer: it is not known
        if ran.code and self._backend.is_unanswered(ran.words):
            raise SchedulerError(f"{argv[0]}: {ran.complaint()}")
        return "" if ran.code else ran.out

    def set_awaited_jobs(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> None:
        """Let a waiting job hang on other jobs than before, or on none.

        Raises:
            SchedulerError: the scheduler refuses it, or does not answer.
        """
        scripts = self._kind.user_scripts
        forget_poll(self._way.root, self.name)
        argv = scripts.awaited_argv(submitted_job, awaited_ids)
        ran = self._run(argv)
        why_not = scripts.parse_refusal(ran)
        if why_not is not None:
            raise SchedulerError(f"{argv[0]} refused the change: {why_not}")

    def cancel(
        self, submitted_job: SubmittedJob, elements: Sequence[int] | None
    ) -> None:
        """Cancel a job, or these elements of it.

        Raises:
            SchedulerError: the scheduler does not answer, or rejects it, or the id
                is another job's now.
        """
        # ids are given out again where a scheduler lost its state: never cancel another
        # job
        if submitted_job.token and self._backend.SHOWS_TOKENS:
            self._check_is_same(submitted_job)
        numbers = element_numbers_of(submitted_job)
        chosen = range(len(numbers)) if elements is None else elements
        targets = tuple(numbers[place] for place in chosen)
        own = submitted_job.own
        # a plain job has no index to name; a part of a user's array is cancelled by its
        # indices, or the rest would end with it
        is_plain = own is None and submitted_job.elements == 1
        is_whole = is_plain or (elements is None and not (own and own.part))
        chosen_elements = None if is_whole else targets
        argv = self._backend.cancel_argv(submitted_job.id, chosen_elements)
        noted = CancelledElements(submitted_job.id, tuple(targets), self._way.clock())
        is_refused = False
        try:
            ran = self._run(argv)
            is_refused = ran.code > 0 and not self._backend.is_unanswered(ran.words)
        finally:
            # also if there was no answer: it may have reached the scheduler
            if not is_refused:
                append_cancelled_elements(self._way.root, self.name, noted)
            forget_poll(self._way.root, self.name)
        if ran.code != 0:
            raise SchedulerError(f"{argv[0]}: {ran.complaint()}")

    def _check_is_same(self, submitted_job: SubmittedJob) -> None:
        """Raise if another job has the id of *submitted_job*.

        Nothing is known without an answer.

        Raises:
            SchedulerError: the queue shows another token under that id.
        """
        try:
            ran = self._run(self._backend.queue_argv(self._way.user))
        except SchedulerError:
            return
        tokens = {submitted_job.id: submitted_job.token}
        if self._backend.with_other_token(ran.out, tokens):
            raise SchedulerError(
                f"{submitted_job.id} is another job now (the scheduler gave the id out "
                "again): it was not cancelled"
            )

    def _listed(
        self, submitted_jobs: Sequence[SubmittedJob], is_open: Sequence[SubmittedJob]
    ) -> States:
        """Return the elements that the queue lists.

        Raises:
            SchedulerError: the scheduler does not answer.
            FormatError: the answer is cut off.
        """
        tokens = {job.id: job.token for job in submitted_jobs if job.token}
        # one's own queue does not list another user's job that is named by its id
        others = {job.own.user for job in is_open if job.own is not None} - {""}
        listed: States = {}
        for user in (self._way.user, *sorted(others)):
            printed = self._printed(self._backend.queue_argv(user))
            found = self._backend.parse_queue(printed)
            for other in self._backend.with_other_token(printed, tokens):
                found.pop(other, None)
            listed |= found
        return listed

    def _ask(
        self,
        last: SchedulerPoll,
        submitted_jobs: Sequence[SubmittedJob],
        is_open: Sequence[SubmittedJob],
        cancelled: Sequence[CancelledElements],
    ) -> SchedulerPoll:
        """Query the queue for all jobs, and accounting for those that have left it.

        *cancelled* is what weigh cancelled, also under an id that is given out again.
        """
        now = self._way.clock()
        try:
            listed = self._listed(submitted_jobs, is_open)
        except (SchedulerError, FormatError) as error:
            return msgspec.structs.replace(
                last, tried=now, failures=last.failures + 1, trouble=str(error)
            )
        views = [
            _JobView(
                job,
                known=last.states.get(job.id, {}),
                listed=listed.get(job.id, {}),
                cancelled=cancelled,
                owed_since=last.unsettled.get(job.id),
            )
            for job in submitted_jobs
        ]
        opened = {job.id for job in is_open}
        gone = [one for one in views if one.job.id in opened and one.has_left()]
        accounts = self._ended([one.job.id for one in gone])
        states: States = {}
        covered: dict[str, set[int]] = {}
        unsettled: dict[str, Seconds] = {}
        for view in views:
            job, numbers = view.job, element_numbers_of(view.job)
            view.ended = _rows_of_elements(job, accounts.states.get(job.id, {}))
            owed_since = now if view.owed_since is None else view.owed_since
            # accounting that answers had time enough by then; one that does not is
            # waited for
            is_late = accounts.trouble is None and now - owed_since >= _LATE
            is_owed = (
                view in gone and not accounts.is_off and view.is_owed(late=is_late)
            )
            # kept when it is late, too: or the wait would begin anew with each query
            if is_owed:
                unsettled[job.id] = owed_since
            silence = accounts.silence() if is_owed and not is_late else None
            merged = states.setdefault(job.id, dict(view.known))
            # several jobs may be parts of one array: each replaces only its own
            for number in numbers:
                merged.pop(number, None)
            merged |= view.merged(silence, now)
            if job.own is not None:
                covered.setdefault(job.id, set()).update(numbers)
        return SchedulerPoll(
            covered={job: format_ranges(numbers) for job, numbers in covered.items()},
            asked=now,
            tried=now,
            states=states,
            unsettled=unsettled,
            accounting=accounts.trouble,
        )

    def _ended(self, job_ids: Sequence[str]) -> "_AccountingAnswer":
        """Query accounting for how jobs ended."""
        states: States = {}
        for argv in self._backend.ended_argvs(job_ids):
            try:
                ran = self._run(argv)
            except SchedulerError as error:
                # without the command nothing more will be known: no use in waiting
                is_off = _is_not_installed(error)
                trouble = None if is_off else str(error)
                return _AccountingAnswer(states, trouble, is_off=is_off)
            if ran.code != 0:
                answer = self._backend.accounting_answer(ran)
                # an unknown job is an answer with fewer rows: they are read below
                if answer == "off":
                    return _AccountingAnswer(states, is_off=True)
                if answer == "failing":
                    why_not = ran.complaint().removeprefix(f"{argv[0]}: ")
                    return _AccountingAnswer(states, f"{argv[0]}: {why_not}")
            for job, elements in self._backend.parse_ended(ran.out).items():
                states.setdefault(job, {}).update(elements)
        return _AccountingAnswer(states)

    def output_of(self, argv: Argv) -> str:
        """Return what an optional command prints; empty if it fails."""
        try:
            return self._run(argv).out
        except SchedulerError:
            return ""

    def _printed(self, argv: Argv) -> str:
        """Return what a command prints.

        Raises:
            SchedulerError: it fails, or the scheduler does not answer.
        """
        ran = self._run(argv)
        if ran.code != 0:
            raise SchedulerError(f"{argv[0]}: {ran.complaint()}")
        return ran.out

    def _run(self, argv: Argv) -> CommandOutput:
        return self._way.run(argv, self._way.env, timeout=_TO_ASK)


def _is_not_installed(error: SchedulerError) -> bool:
    """Return whether the command is not on this machine, or not for this user."""
    return isinstance(error.__cause__, FileNotFoundError | PermissionError)


def _are_all_elements_over(submitted_job: SubmittedJob, states: States) -> bool:
    elements = states.get(submitted_job.id, {})
    if submitted_job.own is None:
        # a job of weigh's has elements 0 to n - 1: counting them is enough
        return sum(map(_is_final_state, elements.values())) >= submitted_job.elements
    return all(_is_over(elements, one) for one in element_numbers_of(submitted_job))


def _is_over(elements: Elements, number: int) -> bool:
    return number in elements and _is_final_state(elements[number])


def _is_final_state(element_state: ElementState) -> bool:
    """Return whether the state is final; an error state may still be cleared."""
    return element_state.is_final and element_state.reason != STUCK


class _AccountingAnswer(msgspec.Struct, frozen=True):
    """The answer of accounting; ``trouble`` is why it does not answer now.

    ``is_off``: this site has no accounting, or this user cannot read it.
    """

    states: States
    trouble: str | None = None  # None: it answers, or is off
    is_off: bool = False

    def silence(self) -> str:
        """Return why accounting does not show how an element ended."""
        if self.trouble is None:
            return _NOT_YET
        return f"accounting does not answer: {self.trouble}"


class _JobView:
    """One job: the last known states, what the queue lists, and how it ended.

    ``owed_since`` is since when accounting has owed the end of an element, None if it
    did not at the last query; ``ended`` is what it shows now.
    """

    def __init__(
        self,
        job: SubmittedJob,
        *,
        known: Elements,
        listed: Elements,
        cancelled: Sequence[CancelledElements],
        owed_since: Seconds | None,
    ) -> None:
        self.job, self.known, self.listed = job, known, listed
        self.owed_since, self.ended = owed_since, Elements()
        # when each element was cancelled
        self._cancelled = {
            number: one.time
            for one in cancelled
            # an earlier cancellation was that of another job with this id
            if one.job == job.id and one.time >= job.submitted
            for number in one.elements
        }

    def _left(self, known: Elements) -> list[int]:
        """Return the elements that the queue does not show alive, if not over."""
        return [
            number
            for number in element_numbers_of(self.job)
            if (number not in self.listed or _is_over(self.listed, number))
            and not _is_over(known, number)
        ]

    def has_left(self) -> bool:
        """Return whether accounting has to be asked: an element is gone, or owed."""
        return self.owed_since is not None or bool(self._left(self.known))

    def is_owed(self, *, late: bool) -> bool:
        """Return whether accounting does not show yet how an element ended."""
        # while it owes the end of a job, final states known so far do not settle it:
        # they do once it is *late*
        settled = self.known if self.owed_since is None or late else {}
        left = self._left(settled)
        return not all(one in self.ended and self.ended[one].is_final for one in left)

    def merged(self, silence: str | None, asked: Seconds) -> Elements:
        """Merge the last known state, what accounting shows and what the queue lists.

        Accounting knows more of an element that has ended than the queue, which may
        list it for some minutes. An element that is in neither is absent: nobody knows
        how it ended, which is not failed. *silence* is why accounting may still show
        it: then it is UNKNOWN. One that weigh cancelled was cancelled.
        """
        known, listed, ended = self.known, self.listed, self.ended
        # four views, each with only what it can be sure of; the later overrule below
        over = {one: state for one, state in known.items() if _is_final_state(state)}
        past = {one: state for one, state in listed.items() if state.is_final}
        past |= {one: state for one, state in ended.items() if state.is_final}
        # what the queue shows as running is so, even if an earlier attempt has ended
        alive = {one: state for one, state in listed.items() if not state.is_final}
        for number, since in self._cancelled.items():
            # it is cancelled once it has ended; before that it still uses its node
            if number in alive and asked - since < _TO_CANCEL:
                alive[number] = msgspec.structs.replace(
                    alive[number], reason=CANCELLING
                )
            elif number not in over and number not in alive:
                past[number] = _cancelled(past.get(number))
        # one line of an answer may stand for all elements that have none of their own
        rest = listed.get(REST) or ended.get(REST)
        numbers = element_numbers_of(self.job)
        others = {} if rest is None else dict.fromkeys(numbers, rest)
        merged = others | over | past | alive
        if silence is not None:
            for number in set(numbers) - set(merged):
                last = known.get(number, ABSENT)
                merged[number] = msgspec.structs.replace(
                    last, state="UNKNOWN", reason=silence
                )
        # an answer may list elements of other parts of the same array
        return {one: merged[one] for one in numbers if one in merged}


def _rows_of_elements(job: SubmittedJob, ended: Elements) -> Elements:
    """Return the rows of a job's elements.

    Just after the end of an array accounting may list it without indices, in the state
    of its last element, as a plain job: that is no row of element 0.
    """
    whole = ended.get(WHOLE)
    is_array = job.elements > 1 if job.own is None else bool(job.own.indices)
    is_of_no_element = is_array and whole is not None and ended.get(0) == whole
    hidden = {WHOLE, 0} if is_of_no_element else {WHOLE}
    return {one: state for one, state in ended.items() if one not in hidden}


def _cancelled(state: ElementState | None) -> ElementState:
    """Take an exit by signal as the result of our cancellation."""
    if state is None:
        return ElementState(state="CANCELLED")
    # a program that ended with an error of its own did so before the signal
    if state.state == "FAILED" and (state.signal or state.exit_code == _TOLD):
        return msgspec.structs.replace(state, state="CANCELLED", reason=None)
    return state
