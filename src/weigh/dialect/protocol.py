"""What every scheduler's dialect can say; slurm and gridengine beside this one do."""

from collections.abc import Mapping
from typing import Protocol

from weigh.model.record import Allocation, Job, Request
from weigh.units import Bytes, Seconds


class Dialect(Protocol):
    """One scheduler's text: sizes, times, flags, and the environment of its jobs.

    What is written reads back as at least what was meant: a scheduler kills the job
    that is one byte or one second short.
    """

    NAME: str
    PREFIX: str

    def format_memory(self, size: Bytes) -> str:
        """Write *size* as the scheduler counts it, rounded up."""

    def parse_memory(self, text: str) -> Bytes:
        """Read a size as the scheduler would.

        Raises:
            FormatError: the scheduler would refuse it.
        """

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit, rounded up to whole seconds."""

    def parse_time(self, text: str) -> int | None:
        """Read a time limit in seconds; None is no limit.

        Raises:
            FormatError: the scheduler would refuse it.
        """

    def directives(self, request: Request) -> tuple[str, ...]:
        """Write *request* as flags; what is not known is left out."""

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read what was granted on this node, or None outside a job."""

    def job_from_environment(self, env: Mapping[str, str]) -> Job | None:
        """Read the scheduler's name for this job, or None outside one."""
