"""What a run is made of: its rules, the parts it works with, how it ended."""

from collections.abc import Callable
from os.path import basename

import msgspec

from weigh.runner.channels import Channels
from weigh.runner.events import EventsFile
from weigh.runner.halt import Halt
from weigh.runner.joblog_file import JoblogFile
from weigh.runner.lock import Lock
from weigh.runner.progress_watch import ProgressWatch
from weigh.runner.queue import Queue
from weigh.runner.room import MemoryGauge
from weigh.runner.share import Share
from weigh.runner.slots import Layout
from weigh.runner.spawn import Spawner
from weigh.runner.streams import Output
from weigh.runner.tally import Tally
from weigh.runner.task_source import TaskSource
from weigh.runner.watch import Watcher
from weigh.units import Seconds


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks are to be run. ``retries`` and ``oom_retries`` are tries in all.

    ``guard``: stop the youngest task where memory runs out. ``end_at``, on the
    monotonic clock, is when weigh itself will be ended.
    """

    retries: int = 1
    oom_retries: int = 3
    halt: Halt = Halt()
    timeout: Seconds | None = None
    grace: Seconds = 30.0
    guard: bool = True
    wait_orphans: bool = True
    end_at: Seconds | None = None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop works with; ``plan_of`` returns a task's planned need."""

    run: str
    source: TaskSource
    queue: Queue
    layout: Layout
    spawner: Spawner
    watcher: Watcher
    joblog: JoblogFile
    events: EventsFile
    held: Lock
    output: Output
    channels: Channels
    gauge: MemoryGauge
    progress: ProgressWatch
    attempts: dict[int, int]
    plan_of: Callable[[int], Share]
    say: Callable[[str], None]
    show: Callable[[Tally], Seconds]


class Failure(msgspec.Struct, frozen=True):
    """A task that failed for good; ``output`` is its file, where it said something."""

    task: int
    reason: str
    output: str | None = None

    def words(self, width: int) -> str:
        """Say so in one line; where it would be too long only the file's own name."""
        said = f"task {self.task} failed: {self.reason}"
        if self.output is None:
            return said
        line = f"{said}   {self.output}"
        return line if len(line) <= width else f"{said}   {basename(self.output)}"


class Result(msgspec.Struct, frozen=True):
    """How a run ended. ``signal`` told it to; ``trouble`` made it stop launching.

    ``failures`` are the first of them; the joblog has all. ``has_abandoned``: a process
    that could not be killed runs on.
    """

    tally: Tally
    signal: int | None = None
    trouble: str | None = None
    halted: str | None = None
    halt_code: int | None = None
    failures: tuple[Failure, ...] = ()
    has_abandoned: bool = False
