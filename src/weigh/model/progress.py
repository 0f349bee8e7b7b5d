"""How a run goes on: its failed tasks, its memory and that of a longer run."""

import msgspec

from weigh.units import Bytes, Seconds

EXEC_SCHEMA = "weigh.exec/1"


class FailedTask(msgspec.Struct, frozen=True):
    """A task that failed finally; ``output`` is its output file, if it has any."""

    task: int  # the number that users know it by
    reason: str
    output: str | None = None


class ExecReport(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run, as ``--json`` writes it."""

    schema: str = EXEC_SCHEMA
    task_file: str
    joblog: str  # path
    events: str  # path
    output: str | None  # the folder of the output files; None: no file was written
    tasks: int
    done: int
    failed: int
    interrupted: int
    left: int  # tasks not settled: stopped or never started
    earlier: int
    retried: int
    wall_time: Seconds
    slots: int  # tasks at a time
    failures: tuple[FailedTask, ...]
    signal: int | None = None  # None: no signal ended the run
    trouble: str | None = None  # what weigh could not do; None: nothing
    halted: str | None = None  # why the rule of --halt stopped it; None: it did not
    # why tasks of a queue were left; None: there was time for all
    untaken: str | None = None
    queue: str | None = None  # the folder of a shared queue; None: a task file
    unsure: tuple[str, ...] = ()  # hosts that may still run tasks which they took
    links: int | None = None
    # the run of the command behind "# weigh: then"; None: it did not run
    then: "ExecReport | None" = None


class MemoryTrend(msgspec.Struct, frozen=True):
    """A line through the memory: ``level`` bytes at ``time``, and ``rate`` bytes/s.

    ``low`` and ``high`` are the interval of the rate. Memory was at most ``scatter``
    bytes above the line, or a factor of ``surge``.
    """

    time: Seconds
    level: float  # bytes
    rate: float  # bytes per second, as the two that follow
    low: float
    high: float
    scatter: float = 0.0
    surge: float = 1.0


class MemoryGrowth(msgspec.Struct, frozen=True):
    """Whether memory still rose when the run ended, by how much, and since when.

    ``growing`` is None if the run is too short to be more than start-up, or to rise
    after it. ``trend`` is set if a rise is certain, even if it is too small to matter
    in a run of this length. ``since`` is when memory that does not grow levelled out.
    """

    growing: bool | None
    peak: Bytes
    end: Seconds  # since the run began
    trend: MemoryTrend | None = None
    since: Seconds | None = None


class MemoryExtrapolation(msgspec.Struct, frozen=True):
    """The predicted peak memory of a longer run that continues as before, in bytes.

    ``low`` and ``high`` are its interval at confidence ``level``; ``time`` is the
    length of that run in seconds, ``factor`` its multiple of the measured run.
    """

    value: Bytes
    low: Bytes
    high: Bytes
    time: Seconds  # since the run began
    factor: float
    level: float = 0.95


class StepProgress(msgspec.Struct, frozen=True):
    """How far a run came: ``done`` steps, of ``total`` if that is known.

    ``step_time`` is the time per step in seconds; ``source`` is what counted the steps.
    """

    done: float
    total: float | None
    step_time: Seconds
    source: str
