"""A short trial of a few tasks: what each did, and whether anything is wrong."""

import msgspec

from weigh.units import Bytes, Seconds

SCHEMA = "weigh.check/1"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One task that was tried.

    ``state`` is RUNNING for one that was stopped when its time was up, and PENDING for
    one that was not begun. ``growth_rate`` is in bytes a second, where memory still
    rose. ``evidence`` is the line of its output that says most: the first with a NaN,
    or the last. ``verdict`` says in a few words how it went.
    """

    task: int
    command: str
    parameters: dict[str, int | float | str] = {}
    state: str
    verdict: str
    is_wrong: bool = False
    exit_code: int | None = None
    signal: int | None = None
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None
    cpus_used: float | None = None
    peak_memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    growth_rate: float | None = None
    output: str | None = None
    output_size: Bytes = 0
    evidence: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A trial of ``trials`` out of so many ``tasks``, ``seconds`` each at most.

    ``side_by_side`` is how many ran at once at most, ``signal`` what told weigh to end.
    Where it ``is_plan``, ``task_file`` is the plan's folder.
    """

    schema: str = SCHEMA
    task_file: str
    is_plan: bool = False
    tasks: int
    label: str
    seconds: Seconds
    side_by_side: int
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
    signal: int | None = None

    @property
    def wrong(self) -> int:
        """Count the tasks with which something is wrong."""
        return sum(trial.is_wrong for trial in self.trials)
