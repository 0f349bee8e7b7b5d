"""What all parts of a run of ``weigh exec`` know: options, machine, tasks, files, user.

The verb makes the context once; the loop, the watcher and the readers of progress take
from it what they need.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from weigh.model.mask import SecretMask
from weigh.model.record import Record, RunMeasurement
from weigh.progress.eta import TaskTally
from weigh.runner.journal import RunJournal
from weigh.runner.retry import HaltRule
from weigh.runner.slots import SlotLayout, TaskPlan
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.runner.shared_queue import PulledTasks


class ExecOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options. Times are in seconds; ``jobs`` None: one per CPU or GPU.

    ``only`` are the tasks to run, in this order; without it, all that are left.
    ``variables`` are added to the environment of the tasks.
    """

    jobs: int | None = None
    per_gpu: int | None = None  # tasks at once on each GPU
    gpus: int | None = None  # how many to use; None: all that are granted
    joblog: str | None = None
    label: str | None = None  # of the records
    output: str | None = None
    ungroup: bool = False
    resume: bool = True
    resume_failed: bool = False
    retries: int = 1  # per task, the first attempt included
    # by weigh itself: no run that ``last`` means; out of memory is not tried again
    is_trial: bool = False
    halt: HaltRule = HaltRule()
    timeout: Seconds | None = None  # of one attempt; None: no limit
    grace: Seconds = 30.0  # from the first signal to KILL
    time_limit: Seconds | None = None
    # of all tasks together; None: what the job or the machine has
    memory: Bytes | None = None
    guard: bool = True  # stop a task before memory runs out
    pin: bool = True
    wait_orphans: bool = True  # else what a task leaves behind is stopped
    interval: Seconds = 0.05  # between samples
    kill_survivors: bool = False
    forget_survivors: bool = False
    pull: str | None = None  # directory of the queue; None: tasks come from the file
    gone: tuple[str, ...] = ()  # hosts that have failed, as the user states
    progress_patterns: tuple[str, ...] = ()
    checkpoint_signal: str | None = None
    stalled_after: Seconds = 600.0  # without work or output, then a warning
    stop_nan: bool = False
    end_stuck: Seconds | None = None  # without any sign of life; None: never
    only: tuple[int, ...] = ()
    variables: dict[str, str] = {}
    mask: SecretMask = SecretMask()


class RunConsole(msgspec.Struct, frozen=True):
    """Output to the user: ``notify`` prints a line, ``show`` displays the progress.

    ``keeps`` is called with each record as its attempt ends, and returns whether it is
    stored; the watcher's thread calls it.
    """

    notify: Callable[[str], None]
    show: Callable[[TaskTally], Seconds]  # returns the seconds until it is due again
    keeps: Callable[[Record], bool] = lambda _record: True


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """A run: where it takes place, and what the verb knows about it.

    ``mask`` are the signals that tasks find blocked;
    ``blank`` is the record of any attempt before it starts. ``ends_at`` is the time
    limit of weigh itself, on the monotonic clock. ``ask`` writes a time limit as an
    option of the scheduler. ``add_regions`` adds what a program wrote to its file of
    regions. ``table`` has the parameters of tasks, ``plan`` what is planned for them.
    ``shared`` is the queue to pull from, if it is not the task file's own.
    """

    id: str
    options: ExecOptions
    console: RunConsole
    source: TaskSource
    journal: RunJournal
    cwd: str
    env: Mapping[str, str]
    layout: SlotLayout
    mask: frozenset[int]
    blank: Record
    ends_at: Seconds | None
    ask: Callable[[Seconds], str]
    add_regions: Callable[[str, RunMeasurement], RunMeasurement]
    table: TaskParameters
    plan: TaskPlan
    shared: "PulledTasks | None" = None
    checkpoint: "CheckpointSignal | None" = None  # to send before a time limit

    def number_of(self, task_number: int) -> int:
        """Return the number that users know a task by."""
        return self.plan.number_of(task_number)

    @property
    def memory_limit(self) -> Bytes | None:
        """Return the limit of all tasks together: the user's, or the job's."""
        if self.options.memory is not None:
            return self.options.memory
        return None if self.blank.allocation is None else self.blank.allocation.memory
