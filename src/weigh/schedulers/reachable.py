"""A scheduler that can be reached: what weigh asks of it, and its answers on jobs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from weigh.errors import FormatError
from weigh.model.job import (
    STUCK,
    ElementState,
    JobScript,
    States,
    SubmittedJob,
)
from weigh.schedulers import find_kind
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.kind import (
    AnswerT,
    Argv,
    KnownJob,
    LiveAnswers,
    SchedulerCommands,
    SchedulerKind,
    SchedulerQuery,
    SchedulerQuestion,
    SchedulerQuestions,
)
from weigh.schedulers.words import parse_ranges
from weigh.units import Seconds

ABSENT = ElementState(state="UNKNOWN")


# ---- array task indices as schedulers write them: ``0-3,7,10-20:5%3``
def indices_of(submitted_job: SubmittedJob) -> Sequence[int]:
    """Return the array indices of a job's elements as its user writes them.

    The elements of a job that weigh wrote count from 0, and so does a plain job.
    """
    if submitted_job.own is None or not submitted_job.own.indices:
        return range(submitted_job.elements)
    return _indices_of_ranges(submitted_job.own.indices)


def element_numbers_of(submitted_job: SubmittedJob) -> Sequence[int]:
    """Return the numbers of a job's elements in the answers of its scheduler."""
    if submitted_job.own is None or not submitted_job.own.indices:
        return range(submitted_job.elements)
    kind = find_kind(submitted_job.scheduler)
    return _numbers_from(
        submitted_job.own.indices, kind.traits.first_element if kind else 0
    )


@lru_cache(maxsize=64)
def _indices_of_ranges(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(parse_ranges(text))))


@lru_cache(maxsize=64)
def _numbers_from(text: str, first: int) -> tuple[int, ...]:
    return tuple(index - first for index in _indices_of_ranges(text))


class JobSnapshot(msgspec.Struct, frozen=True):
    """The states of jobs that a scheduler reported, and when (seconds since the epoch).

    ``trouble`` is why later queries failed; ``accounting`` is why its
    accounting does not answer.
    """

    states: States
    asked: Seconds
    trouble: str | None = None
    accounting: str | None = None

    def of(self, submitted_job: SubmittedJob, element: int) -> ElementState:
        """Return the state of an element; UNKNOWN if the scheduler does not list it."""
        numbers = element_numbers_of(submitted_job)
        number = numbers[element] if element < len(numbers) else element
        return self.states.get(submitted_job.id, {}).get(number, ABSENT)


def queried_limits(
    scheduler_kind: SchedulerKind,
    awaited_ids: Sequence[str],
    query: SchedulerQuery,
) -> LiveAnswers:
    """Return the limits of a cluster, and the states of the jobs that others wait for.

    Never raises.
    """
    backend, site = scheduler_kind.backend, scheduler_kind.site
    commands, count = site.LIMITS, len(site.LIMITS)
    if not commands:
        return LiveAnswers(trouble="weigh does not read those of this scheduler")
    replies = query((*commands, *backend.awaited_argvs(awaited_ids)))
    answers = dict(zip(commands, replies[:count], strict=True))
    for argv, reply in answers.items():
        if commands[argv] and not reply.is_answer:
            return LiveAnswers(trouble=reply.complaint())
    texts = {argv: reply.out for argv, reply in answers.items() if reply.is_answer}
    jobs = _awaited_states(backend, awaited_ids, replies[count:])
    try:
        return LiveAnswers(limits=site.limits_of(texts, query), jobs=jobs)
    except FormatError as error:
        return LiveAnswers(trouble=str(error))


def _awaited_states(
    commands: SchedulerCommands,
    job_ids: Sequence[str],
    replies: Sequence[CommandOutput],
) -> dict[str, str | None]:
    """Return the worst state of each job's elements; None for an unknown job.

    A job is unknown only if all answered. Without the queue nothing is known: the
    elements that accounting has may be some of an array.
    """
    listed, *accounts = replies or (None,)
    if listed is None or not (
        listed.is_answer or commands.NOT_LISTED.search(listed.words)
    ):
        return {}
    states: States = {}
    is_sure = True
    for reply in accounts:
        states |= commands.parse_ended(reply.out) if reply.is_answer else {}
        is_sure &= reply.is_answer or (
            reply.trouble is None and commands.accounting_answer(reply) == "unknown job"
        )
    # the queue is more current than accounting
    states |= commands.parse_queue(listed.out) if listed.is_answer else {}
    return {
        job: _worst_state(states[job].values()) if job in states else None
        for job in job_ids
        if job in states or is_sure
    }


def _worst_state(element_states: Iterable[ElementState]) -> str:
    # what is in an error state waits until somebody clears it
    states = {"PENDING" if one.reason == STUCK else one.state for one in element_states}
    going = states & {"PENDING", "RUNNING", "UNKNOWN"}
    return min(states - going - {"COMPLETED"} or going or states)


class Scheduler(ABC):
    """One scheduler that can be reached: its commands answer its ``questions``."""

    name: str
    questions: SchedulerQuestions

    def ask(self, question: SchedulerQuestion[AnswerT]) -> AnswerT:
        """Return the answer; the output of a command that fails is empty."""
        # an optional question must not end a command: without output its answer is the
        # usual one
        return question.read([self.output_of(argv) for argv in question.argvs])

    def output_of(self, argv: Argv) -> str:
        """Return what a command prints; empty if it fails."""
        return ""

    @abstractmethod
    def render(self, job_script: JobScript) -> str:
        """Return the job script. Raises UsageError if it cannot hold a value."""

    @abstractmethod
    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log in the log directory."""

    def predict_start(
        self, script: str, *, cwd: str, argv: Argv | None = None
    ) -> Seconds | None:
        """Return when the script at a path would start, None if not known.

        *argv* is the command that checks it, if not the usual one. Raises UsageError
        if it could never run.
        """
        return None

    @abstractmethod
    def submit(self, script: str, *, cwd: str, argv: Argv | None = None) -> str:
        """Submit the script at a path once; return the job's id.

        *argv* is the command, if not the usual one. Raises SchedulerError if it is
        rejected, SubmissionUnknownError if it is not known whether it was accepted.
        """

    @abstractmethod
    def find(self, token: str, *, name: str) -> str | None:
        """Return the id of the job submitted with *token*, None if none is listed.

        Raises SchedulerError if the scheduler does not answer.
        """

    def find_ended(self, submitted_job: SubmittedJob) -> str | None:
        """Return the id of a user's script that was sent as a job and has ended.

        None if accounting lists none. Raises SchedulerError if it does not answer.
        """
        return None

    def patience(self) -> Seconds:
        """Return the seconds after which a sent script can no longer become a job.

        Raises SchedulerError if the scheduler does not answer.
        """
        return self.ask(self.questions.patience())

    @abstractmethod
    def states(
        self, submitted_jobs: Sequence[SubmittedJob], *, fresh: bool = False
    ) -> JobSnapshot:
        """Return the states of several jobs, from one query.

        *fresh* forces a new query even if the last one is recent.
        """

    @abstractmethod
    def cancel(
        self, submitted_job: SubmittedJob, elements: Sequence[int] | None
    ) -> None:
        """Cancel a job, or these elements of it. Raises SchedulerError."""

    def known(self, name: str, *, is_new: bool = False) -> KnownJob | None:
        """Return the job with the id *name*; None if the scheduler does not know it.

        A job that *is_new* is in the queue: accounting is not asked. Raises
        SchedulerError if the scheduler does not answer.
        """
        return None

    @abstractmethod
    def set_awaited_jobs(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> None:
        """Let a waiting job hang on other jobs; SchedulerError if it is refused."""
