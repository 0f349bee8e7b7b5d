"""What travels between the schedulers and the rest: answers, requests, words."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from weigh.model.cluster import ClusterJob, ClusterLimits, ClusterNode, QueueLimits
from weigh.model.job import (
    ElementState,
    JobRequest,
    RecordedRequest,
    States,
    SubmittedJob,
)
from weigh.model.record import State
from weigh.schedulers import find_kind
from weigh.schedulers.words import parse_ranges
from weigh.units import Seconds

if TYPE_CHECKING:  # what a job needs of a scheduler runs no command
    from weigh.schedulers.command import CommandOutput

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


Argv = tuple[str, ...]
# accounting is switched off or unreadable; does not have the job; should be retried
Answer = Literal["off", "unknown job", "failing"]


def unanswered(replies: "Mapping[str, CommandOutput]") -> tuple[str, ...]:
    """Return a note for each command, by name, that did not answer."""
    return tuple(
        f"{name} does not answer: {reply.complaint()}"
        for name, reply in replies.items()
        if not reply.is_answer
    )


def answered_texts(
    commands: Sequence[Argv], replies: "Sequence[CommandOutput]"
) -> dict[Argv, str]:
    """Return what the commands printed that answered."""
    pairs = zip(commands, replies, strict=True)
    return {argv: reply.out for argv, reply in pairs if reply.is_answer}


class SchedulerQuery(Protocol):
    """A function that runs several of a scheduler's commands in parallel."""

    def __call__(self, commands: Sequence[Argv]) -> "list[CommandOutput]":
        """Return the replies in the order of *commands*; never raises."""


class ClusterAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed answers of a scheduler, before anything is counted."""

    name: str | None
    version: str | None
    nodes: tuple[ClusterNode, ...]
    queues: tuple[QueueLimits, ...]
    jobs: tuple[ClusterJob, ...]
    notes: tuple[str, ...]


class LiveAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the scheduler; ``jobs`` are the states of the given jobs by id.

    ``trouble`` is why the scheduler does not answer; ``limits`` is None where no
    limit is known.
    """

    limits: ClusterLimits | None = None
    jobs: dict[str, str | None] = {}
    trouble: str | None = None


class DescribedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A user's script as its scheduler reads it, with the flags typed with it.

    ``output`` and ``error`` are absolute patterns, ``error`` empty if both are one
    file. ``comment`` is its own free text. ``interpreter`` runs the script in place of
    the one that its first line names. ``misread`` is a flag that the scheduler would
    refuse, ``refusals`` are why weigh cannot submit the script.
    """

    name: str
    cwd: str
    indices: str = ""
    throttle: int | None = None  # most elements at once
    output: str = ""
    error: str = ""
    comment: str = ""
    interpreter: tuple[str, ...] = ()
    request: JobRequest = JobRequest()
    misread: str = ""
    refusals: tuple[str, ...] = ()


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that weigh did not submit, as its scheduler describes it.

    ``part`` are the indices that were named, if not all of the array; ``logs``
    are the log files that are known, by index, empty for a plain job. ``line`` are
    the words of its submission, if the script among them is not known.
    """

    id: str
    user: str
    name: str
    cwd: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()
    line: tuple[str, ...] = ()
    indices: str = ""
    part: str = ""
    submitted: Seconds = 0.0  # since the epoch; 0: not known
    output: str = ""
    logs: dict[str, str] = {}
    request: RecordedRequest | None = None


class AccountingWords(msgspec.Struct, frozen=True, kw_only=True):
    """The names of accounting's figures, and which to trust if they differ from ours.

    Words on memory that it reports: ``unmeasured`` by us, ``below`` our figure,
    ``above`` it; each ``_killed`` for a task that was killed for memory, where another
    word holds then. ``zero`` is for memory that it leaves empty though the job ran:
    empty, if it never does.
    ``virtual`` is address space, ``sampled`` how GPU memory is read. ``{often}`` in
    words stands for the interval of the site's samples; if that is unknown, ``unsure``
    is said of a figure below ours.
    """

    memory: str
    unmeasured: str
    below: str
    above: str
    below_killed: str = ""
    above_killed: str = ""
    zero: str = ""
    virtual: str = ""
    virtual_word: str = ""
    cpu_time: str
    wall_time: str
    gpu_memory: str = "GPU memory"
    gpu_utilization: str = "GPU utilization"
    sampled: str = "sampled"
    unsure: str = ""


class EndMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler prints into a job's log when it ends the job.

    ``over_memory`` matches the end of a job for memory, ``step_over_memory`` that of a
    step in the output of its task. ``ended`` matches any other end; its group is the
    reason, whose state is in ``states``, else CANCELLED.
    """

    over_memory: re.Pattern[str] | None = None
    step_over_memory: re.Pattern[str] | None = None
    ended: re.Pattern[str] | None = None
    states: dict[str, State] = {}
