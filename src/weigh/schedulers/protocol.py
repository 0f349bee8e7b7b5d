"""What every scheduler's text can say; slurm and gridengine beside this one do.

A backend is text in, text out: it gives the command line to run and reads what that
printed. It runs nothing.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from weigh.model.complexes import Complexes
from weigh.model.job import ElementState, JobScript, RecordedRequest, States, Submitted
from weigh.schedulers.command import Ran
from weigh.units import Seconds

ABSENT = ElementState(state="UNKNOWN")


class Snapshot(msgspec.Struct, frozen=True):
    """What a scheduler reported of jobs, and when (seconds since the epoch).

    ``trouble`` is why it could not be asked again since; ``accounting`` why its
    accounting does not answer.
    """

    states: States
    asked: Seconds
    trouble: str | None = None
    accounting: str | None = None

    def of(self, job: Submitted, element: int) -> ElementState:
        """Give how an element stands; UNKNOWN where the scheduler says nothing."""
        return self.states.get(job.id, {}).get(element, ABSENT)


class Scheduler(Protocol):
    """One scheduler that can be asked."""

    name: str

    def render(self, script: JobScript) -> str:
        """Write the job script. Raises UsageError where a value cannot stand in it."""

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Name the file that an element's output goes to, in the log folder."""

    def foresee(self, script: str, *, cwd: str) -> Seconds | None:
        """Say when the script at a path would start, None where nobody knows.

        Raises UsageError where it could never run.
        """

    def submit(self, script: str, *, cwd: str) -> str:
        """Submit the script at a path once; return the job's id.

        Raises SchedulerError where it is refused, SubmissionUnknownError where nobody
        knows whether it was accepted.
        """

    def find(self, token: str, *, name: str) -> str | None:
        """Return the id of the job submitted with *token*, None where none is listed.

        Raises SchedulerError where the scheduler does not answer.
        """

    def patience(self) -> Seconds:
        """Return the seconds after which what was sent can no longer become a job.

        Raises SchedulerError where the scheduler does not answer.
        """

    def understood(self, job: str) -> RecordedRequest | None:
        """Say what it took a job to ask for; None where it does not tell."""

    def states(self, jobs: Sequence[Submitted], *, fresh: bool = False) -> Snapshot:
        """Say how jobs stand, asked about together.

        *fresh* asks even where it was asked a moment ago.
        """

    def gpu_types(self) -> tuple[str, ...]:
        """Give the words it has for GPUs; none where it does not tell."""

    def cpus_beside_gpus(self, complexes: Complexes | None = None) -> str | None:
        """Name the resource to ask CPUs by where slots would multiply the GPUs.

        *complexes* are the site's words. It is empty where the site has none, and None
        where slots do no harm.
        """

    def array_limit(self, elements: int) -> int | None:
        """Say how many elements an array may have; None where *elements* may be."""

    def why(self, job: Submitted) -> str | None:
        """Say why a job is in error, where the scheduler knows."""

    def cancel(self, job: Submitted, elements: Sequence[int] | None) -> None:
        """End a job, or these elements of it. Raises SchedulerError."""


Argv = tuple[str, ...]
# of accounting: none is kept or it cannot be read here; it has no such job; try later
Answer = Literal["off", "unknown job", "failing"]


class Backend(Protocol):
    """One scheduler's commands. A job that an answer does not mention is absent."""

    NAME: str
    LOGIN_HINT: str

    def render(self, script: JobScript) -> str:
        """Write the job script.

        Raises:
            UsageError: a value cannot stand in it.
        """

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Name the file that an element's output goes to, in the log folder."""

    def submit_argv(self, script: str) -> Argv:
        """Give the command that submits the script at this path."""

    def verify_argv(self, script: str) -> Argv:
        """Give the command that says whether a job could ever run; it submits none."""

    def parse_doubt(self, out: str) -> str | None:
        """Read why it would be refused or never run, as a sentence; None otherwise.

        Nodes that take no jobs now are no such reason: they come back.
        """

    def parse_start(self, out: str) -> Seconds | None:
        """Read from the same when it would start, where that is foreseen."""

    def understood_argv(self, job: str) -> Argv:
        """Give the command that says what the scheduler took a job to ask for."""

    def parse_understood(self, out: str) -> RecordedRequest | None:
        """Read that; None where it says nothing of a job."""

    def parse_submitted(self, out: str) -> str | None:
        """Read the job's id; None where there is none in it."""

    def is_unanswered(self, words: str) -> bool:
        """Return whether these words of a failed submission leave open what came of it.

        A refusal names what is wrong with the job; a lost connection does not.
        """

    def find_argv(self, user: str, name: str) -> Argv:
        """Return the command that lists jobs of *user* with the mark that they carry.

        *name* is the name of the job as weigh gave it.
        """

    def parse_found(self, ran: Ran, token: str) -> str | None:
        """Return the id of the job marked with *token*, None if it is not listed.

        Raises:
            FormatError: that is no answer.
        """

    def patience_argv(self) -> Argv | None:
        """Return the command that reports how long a request stays valid, if any."""

    def parse_patience(self, out: str) -> Seconds:
        """Return the seconds after which a request can no longer arrive."""

    def queue_argv(self, user: str) -> Argv:
        """Give the one command that lists all that *user* has there."""

    def parse_queue(self, out: str) -> States:
        """Read what is there.

        Raises:
            FormatError: it is cut off or something else altogether.
        """

    def ended_argvs(self, jobs: Sequence[str]) -> tuple[Argv, ...]:
        """Give the commands that say how these jobs ended, as accounting knows it."""

    def accounting_answer(self, out: str, err: str) -> "Answer":
        """Read what a command of ``ended_argvs`` that failed means."""

    def parse_ended(self, out: str) -> States:
        """Read that; what does not parse is stepped over."""

    def why_argv(self, job: str) -> Argv | None:
        """Give the command that says why an element is in error, if there is one."""

    def parse_why(self, out: str) -> str | None:
        """Read that."""

    def gpu_types_argv(self) -> Argv | None:
        """Give the command that lists the site's words for GPUs, if there is one."""

    def parse_gpu_types(self, out: str) -> tuple[str, ...]:
        """Read them."""

    def slots_argv(self) -> Argv | None:
        """Give the command that says what slots multiply, if any would."""

    def parse_slots(self, out: str, complexes: Complexes | None = None) -> str | None:
        """Read how CPUs are asked for beside GPUs; see Scheduler.cpus_beside_gpus."""

    def array_limit_argv(self, elements: int) -> Argv | None:
        """Give the command that says how long an array may be, where that matters."""

    def parse_array_limit(self, out: str) -> int | None:
        """Read how many elements an array may have, counted from its first."""

    def cancel_argv(self, job: Submitted, elements: Sequence[int] | None) -> Argv:
        """Give the command that ends a job, or these elements of it."""
