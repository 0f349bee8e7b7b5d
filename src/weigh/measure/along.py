"""A run as who reads along with it sees it."""

from typing import Protocol

from weigh.units import Seconds


class Seen(Protocol):
    """A run that goes on; seconds since it began."""

    def elapsed(self) -> Seconds:
        """Give the time."""

    def cpu_time(self) -> Seconds | None:
        """Give the CPU time that it took so far."""

    def gpu_idle(self) -> Seconds | None:
        """Give since when no GPU was busy; None without any that says."""

    def leader(self) -> int | None:
        """Give the command's process id, for as long as it runs."""

    def set_aside(self, pid: int) -> None:
        """Leave a process of weigh's own out of the run."""
