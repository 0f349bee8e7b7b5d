"""One attempt at one task, from its start until all its processes have ended.

What identifies an attempt never changes. Everything else has one writer: the spawner,
the loop's thread, the watcher's thread or the thread of the GPU meter.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from weigh.runner.slots import NO_RESERVATION, RunSlot, TaskReservation
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.runner.output import AttemptOutput

# why weigh stopped a task before its end
Stop = Literal[
    "timeout", "signal", "halt", "memory", "gpu_memory", "diverged", "idle", "output"
]


class LaunchedAttempt(msgspec.Struct):
    """The process of an attempt; the spawner writes it once, in the loop's thread.

    ``started`` is seconds since the epoch, ``began`` is on the monotonic clock.
    ``refused`` is why the task's command could not be run; ``granted`` the memory that
    its command may hold, 0 if unknown.
    """

    pid: int = 0  # also the number of its process group
    start_time: int | None = None  # in clock ticks since the boot; None: unknown
    started: Seconds = 0.0
    began: Seconds = 0.0
    refused: str | None = None
    granted: Bytes = 0


class KernelUsage(msgspec.Struct, gc=False):
    """What the kernel reports of ended processes; the loop's thread adds it up.

    ``reaped`` counts the processes.
    """

    user: Seconds = 0.0
    system: Seconds = 0.0
    max_rss: Bytes = 0  # of the largest process
    read_bytes: Bytes = 0
    write_bytes: Bytes = 0
    reaped: int = 0

    def add(self, other: "KernelUsage") -> None:
        """Add the usage of other processes."""
        self.user += other.user
        self.system += other.system
        self.max_rss = max(self.max_rss, other.max_rss)
        self.read_bytes += other.read_bytes
        self.write_bytes += other.write_bytes
        self.reaped += other.reaped


class LoopState(msgspec.Struct):
    """How far an attempt is; only the loop's thread writes it.

    ``status`` is the wait status of the leader once it has ended, at ``ended`` on the
    monotonic clock. ``orphans`` are processes it left behind. ``stop`` is why weigh
    stops it, ``evidence`` what it saw, and ``kill_at`` when it is sent KILL.
    ``channel`` is the file with its regions. ``again``: its task is retried in this
    run. ``shared``: another task ran at the same time.
    """

    status: int | None = None  # None: it runs
    ended: Seconds = 0.0
    orphans: set[int] = msgspec.field(default_factory=set)
    stop: Stop | None = None
    evidence: str | None = None
    kill_at: Seconds | None = None  # on the monotonic clock; None: not stopped
    channel: str | None = None  # None: its program wrote no regions
    again: bool = False
    shared: bool = False


# read without a lock: each field is replaced as a whole
class MemoryLevel(msgspec.Struct, gc=False):
    """The memory that an attempt holds now and has held at most."""

    now: Bytes = 0
    peak: Bytes = 0


class TaskAttempt(msgspec.Struct, frozen=True, eq=False):
    """An attempt: its identity, and one part for each writer.

    ``reservation`` is reserved for it, ``plan`` is what its plan says it needs;
    ``alone``: no other task runs. ``floor`` is weigh's own peak memory at its start.
    The watcher's thread writes ``host``, the GPU meter's thread writes ``gpu``; the
    loop's thread reads both to guard the memory.
    """

    seq: int  # number of the task in its file, from 1
    number: int  # of the attempt, from 1, earlier runs included
    text: bytes  # the command line
    slot: RunSlot
    record: str = ""  # id of its record, which no other attempt ever has
    reservation: TaskReservation = NO_RESERVATION
    plan: TaskReservation = NO_RESERVATION
    alone: bool = False
    floor: Bytes = 0
    output: "AttemptOutput | None" = None  # None: not kept
    launch: LaunchedAttempt = msgspec.field(default_factory=LaunchedAttempt)
    usage: KernelUsage = msgspec.field(default_factory=KernelUsage)
    state: LoopState = msgspec.field(default_factory=LoopState)
    host: MemoryLevel = msgspec.field(default_factory=MemoryLevel)
    gpu: MemoryLevel = msgspec.field(default_factory=MemoryLevel)
