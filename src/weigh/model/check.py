"""The result of a short trial of a few tasks: what each did, and what is wrong."""

import msgspec

from weigh.units import Bytes, Seconds

SCHEMA = "weigh.check/1"


class TaskTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one task.

    ``state`` is RUNNING for a task that was stopped when its time was up, and PENDING
    for one that was not started. ``growth_rate`` is in bytes per second, if memory
    still rose. ``evidence`` is the most relevant line of output: the first with a NaN,
    or the last. ``verdict`` is the result in a few words.
    """

    task: int
    command: str
    parameters: dict[str, int | float | str] = {}
    state: str
    verdict: str
    is_wrong: bool = False  # then `weigh check` fails
    exit_code: int | None = None
    signal: int | None = None
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None
    cpus_used: float | None = None  # on average
    peak_memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    growth_rate: float | None = None
    output: str | None = None
    output_size: Bytes = 0
    evidence: str = ""


class CheckedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of some of ``tasks`` tasks, at most ``seconds`` each.

    ``side_by_side`` is the largest number that ran at once, ``signal`` the signal that
    stopped weigh.
    """

    schema: str = SCHEMA
    task_file: str
    tasks: int
    label: str  # of the records of these trials
    seconds: Seconds
    side_by_side: int
    trials: tuple[TaskTrial, ...]
    notes: tuple[str, ...] = ()
    signal: int | None = None

    @property
    def wrong(self) -> int:
        """Return the number of tasks with a problem."""
        return sum(trial.is_wrong for trial in self.trials)
