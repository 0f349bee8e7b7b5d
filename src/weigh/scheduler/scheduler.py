"""What the flow asks of any scheduler, the local one included."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from weigh.model.complexes import Complexes
from weigh.model.job import ElementState, JobScript, States, Submitted, Understood
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

    def understood(self, job: str) -> Understood | None:
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
