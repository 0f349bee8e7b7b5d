"""What a run writes next to its joblog, and how others read it.

The events file has one event per line, as JSON: what the joblog has no columns for, the
attempts, where and as which process each ran, its usage, why it ended. The progress
file is a small one, replaced while tasks run.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from weigh.joblog import read_task_ends
from weigh.model.record import ReportedProgress
from weigh.regular_file import file_head, only_regular
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.lines import UNREADABLE
from weigh.store.location import replace_whole_file
from weigh.units import Bytes, Seconds

SUFFIX = ".events.jsonl"
SCHEMA = "weigh.exec-events/1"
PROGRESS_SUFFIX = ".progress"
PROGRESS_SCHEMA = "weigh.exec-progress/1"
_UNFINISHED = frozenset({"INTERRUPTED", "OUT_OF_MEMORY"})
_MOST_PROGRESS = 1 << 26  # bytes: 100,000 running tasks


class RunOpened(msgspec.Struct, frozen=True, tag_field="event", tag="opened"):
    """A ``weigh exec`` began; the marks of its processes begin with ``run``."""

    run: str
    time: Seconds  # since the epoch, as in all events
    machine: MachineIdentity
    process: ProcessIdentity
    task_file: str
    tasks: int  # in the task file
    weigh: str  # its version
    job: str | None = None  # of the scheduler; None: run by hand
    afresh: bool = False  # with --no-resume: what ended before does not count
    schema: str = SCHEMA


class AttemptStarted(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """An attempt at a task began as process ``pid``. ``task`` is a hash of its text.

    ``memory`` and ``gpu_memory`` were reserved for it; ``alone``: nothing else ran.
    """

    seq: int
    attempt: int
    run: str
    time: Seconds
    slot: int
    pid: int
    start_time: int | None  # of the process, in clock ticks since the boot
    task: str
    gpu: str | None = None  # as in CUDA_VISIBLE_DEVICES; None: no GPU
    memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    alone: bool = False


# reason of an attempt that was stopped because the tasks together held too much memory
STOPPED_FOR_MEMORY = "stopped to make room: memory was running out"


class AttemptEnded(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """An attempt ended; ``again`` if the task is retried in this run.

    ``record`` is the id of the record with everything that was measured. ``needs`` is
    how long the attempt would have taken in all, by its progress, if it was stopped.
    ``alone``: it ran out of memory, and no other task ran at any time of it.
    """

    seq: int
    attempt: int
    time: Seconds
    state: str
    exit_code: int | None
    signal: int | None
    record: str
    reason: str | None = None
    again: bool = False  # a retry in this run follows
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None  # None: not measured, as the two that follow
    peak_memory: Bytes | None = None
    gpu_memory: Bytes | None = None
    needs: Seconds | None = None
    alone: bool = False

    @property
    def lacked_memory(self) -> bool:
        """Return whether the attempt ended because there was too little memory."""
        return self.state == "OUT_OF_MEMORY" or self.reason == STOPPED_FOR_MEMORY


class RunClosed(msgspec.Struct, frozen=True, tag_field="event", tag="closed"):
    """A ``weigh exec`` ended and left nothing running."""

    run: str
    time: Seconds
    reason: str


_EVENTS = msgspec.json.Decoder(RunOpened | AttemptStarted | AttemptEnded | RunClosed)


def decoded_events(
    event_lines: Iterable[bytes],
) -> Iterator[RunOpened | AttemptStarted | AttemptEnded | RunClosed]:
    """Yield the events of a file; lines that do not parse are skipped."""
    for line in event_lines:
        with suppress(*UNREADABLE):
            yield _EVENTS.decode(line)


class PastRuns(msgspec.Struct, frozen=True):
    """Earlier runs on this joblog.

    ``open_runs`` have no closing event. ``in_flight`` are the starts without an end,
    ``attempts`` how often each task was started, and ``ended`` the last end of each
    that neither goes on in its run nor was interrupted, all by task number.
    ``last_end`` is when the last attempt of any task ended, since the epoch.
    """

    open_runs: dict[str, RunOpened]
    in_flight: dict[int, AttemptStarted]
    attempts: dict[int, int]
    ended: dict[int, AttemptEnded]
    last_end: Seconds = 0.0


def read_past_events(
    event_lines: Iterable[bytes], is_wanted: Callable[[int], bool]
) -> PastRuns:
    """Read an events file; attempts and ends are those of the tasks that *is_wanted*.

    There may be hundreds of thousands.
    """
    runs: dict[str, RunOpened] = {}
    begun: dict[int, AttemptStarted] = {}
    ended: dict[int, AttemptEnded] = {}
    attempts: dict[int, int] = {}
    last_end: Seconds = 0.0
    for event in decoded_events(event_lines):
        if isinstance(event, AttemptStarted):
            begun[event.seq] = event
            if is_wanted(event.seq):
                attempts[event.seq] = attempts.get(event.seq, 0) + 1
        elif isinstance(event, AttemptEnded):
            begun.pop(event.seq, None)
            last_end = event.time
            # else the task goes on in that run, or in a later one
            is_final = not event.again and event.state != "INTERRUPTED"
            if is_final and is_wanted(event.seq):
                ended[event.seq] = event
        elif isinstance(event, RunClosed):
            # it left nothing running, so nothing has to be asked about it
            runs.pop(event.run, None)
        else:
            runs[event.run] = event
            if event.afresh:
                ended.clear()
    return PastRuns(runs, begun, attempts, ended, last_end)


def past_runs_of_file(path: str, is_wanted: Callable[[int], bool]) -> PastRuns | None:
    """Return what an events file holds; None if it cannot be read."""
    try:
        with open(path, "rb", buffering=1 << 20, opener=only_regular) as file:
            return read_past_events(file, is_wanted)
    except OSError:
        return None


def ended_in_events(path: str) -> dict[int, bool]:
    """Return the tasks that ended by an events file, and whether each succeeded."""
    past = past_runs_of_file(path, lambda _: True)
    ended = {} if past is None else past.ended
    return {seq: end.state == "COMPLETED" for seq, end in ended.items()}


def ended_tasks(joblog_path: str) -> dict[int, bool]:
    """Return the tasks that a joblog has, and whether each succeeded.

    Where somebody removed it, its events know what ended.

    Raises:
        OSError: it exists and cannot be read.
    """
    try:
        with open(joblog_path, "rb", buffering=1 << 20, opener=only_regular) as file:
            # the header
            file.readline()
            # of several lines on a task the last one counts
            return {seq: good for seq, good, _ in read_task_ends(file)}
    except FileNotFoundError:
        return ended_in_events(joblog_path + SUFFIX)


class TaskLeft(msgspec.Struct, frozen=True):
    """What a run left of a task: it stopped it after ``time``, or memory ran out.

    ``short`` and not ``alone``: the task ran out of memory next to others.
    """

    time: Seconds = 0.0
    short: bool = False
    alone: bool = False


def read_left(event_lines: Iterable[bytes]) -> dict[int, TaskLeft]:
    """Return the tasks that weigh exec stopped with its job, or that lacked memory."""
    found: dict[int, TaskLeft] = {}
    alone: dict[int, bool] = {}
    for event in decoded_events(event_lines):
        if isinstance(event, AttemptStarted):
            alone[event.seq] = event.alone
        elif isinstance(event, AttemptEnded) and event.state in _UNFINISHED:
            # of several attempts: the longest time, and whether any lacked memory
            was = found.get(event.seq, TaskLeft())
            ran_out = event.state == "OUT_OF_MEMORY"
            found[event.seq] = TaskLeft(
                was.time if ran_out else max(was.time, event.wall_time or 0.0),
                was.short or ran_out,
                was.alone or event.alone or (ran_out and alone.get(event.seq, False)),
            )
    return found


class TaskHeadway(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an attempt; ``started`` is in seconds since the epoch."""

    seq: int  # number of the task in its file, from 1
    attempt: int  # from 1
    started: Seconds
    headway: ReportedProgress


class RunningProgress(msgspec.Struct, frozen=True, kw_only=True):
    """All running tasks with known progress, at ``time`` since the epoch.

    ``ends_at`` is when the run itself reaches its time limit, if known.
    """

    schema: str = PROGRESS_SCHEMA
    run: str
    time: Seconds
    slots: int  # tasks that run at once, at most
    ends_at: Seconds | None = None
    tasks: tuple[TaskHeadway, ...] = ()


def write_progress(path: str, progress: RunningProgress) -> bool:
    """Replace the progress file; return whether that succeeded."""
    try:
        replace_whole_file(path, msgspec.json.encode(progress) + b"\n")
    except OSError:
        return False
    return True


def read_progress(joblog_path: str) -> RunningProgress | None:
    """Read the progress of the running tasks of *joblog_path*; None if unknown."""
    content = file_head(joblog_path + PROGRESS_SUFFIX, _MOST_PROGRESS)
    try:
        found = msgspec.json.decode(content, type=RunningProgress)
    except UNREADABLE:
        return None
    return found if found.schema == PROGRESS_SCHEMA else None
