"""One attempt at one task, from its start until all its processes have ended.

What identifies an attempt never changes. Everything else has one writer: the spawner,
the loop's thread, the watcher's thread or the thread of the GPU meter.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import Literal

import msgspec

from weigh.errors import writing
from weigh.joblog import output_name
from weigh.probe.proc import IoReading
from weigh.runner.slots import NO_RESERVATION, RunSlot, TaskReservation
from weigh.units import MIB, Bytes, Seconds

# O_APPEND: no writer of the file overwrites what another one wrote
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_LEAST = 4096  # bytes; a disk with less left counts as full
_TAIL = 16384  # bytes at the end, where a failed task states why
# a second try may succeed
_PASSING = (errno.EIO, errno.ESTALE, errno.EINTR, errno.ENOENT, errno.EEXIST)


class AttemptOutput:
    """The output of one attempt: its own file, or weigh's own streams.

    ``path`` is None for weigh's streams, and once the attempt has ended with no output.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: str | None = None, descriptor: int = -1) -> None:
        self.path = path
        self._fd = descriptor

    def descriptors(self) -> tuple[int, int] | None:
        """Return the file for both streams, so that their lines stay in order.

        Return None for weigh's own streams, which the task inherits.
        """
        return None if self._fd < 0 else (self._fd, self._fd)

    def tail(self) -> bytes:
        """Return the end of what the task wrote; empty if it cannot be read."""
        try:
            size = os.fstat(self._fd).st_size
            return os.pread(self._fd, _TAIL, max(0, size - _TAIL))
        except OSError:
            return b""

    def size(self) -> Bytes | None:
        """Return the bytes written so far; None if it cannot be read."""
        try:
            return os.fstat(self._fd).st_size
        except OSError:
            return None

    def close(self) -> Bytes:
        """Close the file and return its size, 0 if none; remove an empty one.

        One that somebody has removed is not written again.

        Raises:
            OSError: the output is not safe; ``filename`` is the file it belongs in.
        """
        fd, self._fd = self._fd, -1
        if fd < 0:
            return 0
        path = self.path or ""
        try:
            try:
                found = os.fstat(fd)
            finally:
                os.close(fd)  # some file systems report lost data only now
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if not found.st_size:
            self.path = None
            if found.st_nlink:
                with suppress(OSError):
                    os.unlink(path)
        return found.st_size


class TasksOutput:
    """Where the output of all tasks goes: a folder with one file per task, or here.

    By default a task writes directly to its file, so that its output survives weigh.
    The file of a task that prints nothing is removed.
    """

    def __init__(self, folder: str | None) -> None:
        """Create the folder; without one tasks write to weigh's own streams.

        Raises:
            StoreError: it cannot be created or written.
        """
        self.folder = folder
        if folder is None:
            return
        with writing(folder, "choose another --output folder"):
            os.makedirs(folder, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def open(self, task: int, attempt: int) -> AttemptOutput:
        """Return the output of an attempt; a removed folder is created again.

        Raises:
            OSError: no file can be created; ``filename`` is the folder.
        """
        folder = self.folder
        if folder is None:
            return AttemptOutput()
        path = f"{folder}/{output_name(task, attempt)}"
        try:
            try:
                return AttemptOutput(path, os.open(path, _FLAGS | os.O_EXCL, 0o666))
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
            os.makedirs(folder, exist_ok=True)
            # of a run whose events are gone; what still writes to it keeps that file
            with suppress(FileNotFoundError):
                os.unlink(path)
            return AttemptOutput(path, os.open(path, _FLAGS | os.O_EXCL, 0o666))
        except OSError as error:
            raise OSError(error.errno, error.strerror, folder) from error

    def is_full(self) -> bool:
        """Return whether output is lost because a disk is full."""
        if self.folder is None:
            return any(map(_is_file_on_a_full_disk, (1, 2)))
        try:
            return _is_disk_full(os.statvfs(self.folder))
        except OSError:
            return False

    def close(self) -> None:
        """Remove the folder if no task printed anything."""
        if self.folder is not None:
            with suppress(OSError):  # where files are left, as it should
                os.rmdir(self.folder)


def _is_disk_full(disk: os.statvfs_result) -> bool:
    return disk.f_bavail * disk.f_frsize < _LEAST


def _is_file_on_a_full_disk(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and _is_disk_full(
            os.fstatvfs(descriptor)
        )
    except OSError:
        return False


# why weigh stopped a task before its end
Stop = Literal["timeout", "signal", "halt", "memory", "gpu_memory", "diverged", "stuck"]


class LaunchedAttempt(msgspec.Struct):
    """The process of an attempt; the spawner writes it once, in the loop's thread.

    ``started`` is seconds since the epoch, ``began`` is on the monotonic clock.
    ``granted`` is the memory that its command may hold, 0 if unknown.
    """

    pid: int = 0  # also the number of its process group
    start_time: int | None = None  # in clock ticks since the boot; None: unknown
    started: Seconds = 0.0
    began: Seconds = 0.0
    granted: Bytes = 0


class KernelUsage(msgspec.Struct, gc=False):
    """What the kernel reports of ended processes; the loop's thread adds it up.

    ``reaped`` counts the processes.
    """

    user: Seconds = 0.0
    system: Seconds = 0.0
    max_rss: Bytes = 0  # of the largest process
    traffic: IoReading = IoReading(0, 0)
    reaped: int = 0

    def add(self, other: "KernelUsage") -> None:
        """Add the usage of other processes."""
        self.user += other.user
        self.system += other.system
        self.max_rss = max(self.max_rss, other.max_rss)
        self.traffic += other.traffic
        self.reaped += other.reaped


class LoopState(msgspec.Struct):
    """How far an attempt is; only the loop's thread writes it.

    ``status`` is the wait status of the leader once it has ended, at ``ended`` on the
    monotonic clock. ``orphans`` are processes it left behind. ``stop`` is why weigh
    stops it, ``evidence`` what it saw, and ``kill_at`` when it is sent KILL.
    Before ``alive_until`` it is not stuck. ``channel`` is the file with its regions.
    ``again``: its task is retried in this run. ``shared``: another task ran at the same
    time.
    """

    status: int | None = None  # None: it runs
    ended: Seconds = 0.0
    orphans: set[int] = msgspec.field(default_factory=set)
    stop: Stop | None = None
    evidence: str | None = None
    kill_at: Seconds | None = None  # on the monotonic clock; None: not stopped
    alive_until: Seconds = 0.0  # on the monotonic clock
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
    output: AttemptOutput = AttemptOutput()
    launch: LaunchedAttempt = msgspec.field(default_factory=LaunchedAttempt)
    usage: KernelUsage = msgspec.field(default_factory=KernelUsage)
    state: LoopState = msgspec.field(default_factory=LoopState)
    host: MemoryLevel = msgspec.field(default_factory=MemoryLevel)
    gpu: MemoryLevel = msgspec.field(default_factory=MemoryLevel)


_FLOOR_GROWTH = MIB  # the error of the counters behind VmHWM


def tracker_floor(attempt: TaskAttempt) -> Bytes:
    """Return the memory up to which an attempt's may be weigh's own."""
    return attempt.floor + _FLOOR_GROWTH
