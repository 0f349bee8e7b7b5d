"""The events file next to a joblog: JSON Lines, one event per line.

It holds what the joblog has no columns for: the attempts, where and as which process
each ran, its usage, why it ended. Like the joblog it has one writer.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from weigh.errors import StoreError
from weigh.regular_file import only_regular
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.lines import UNREADABLE
from weigh.units import Bytes, Seconds

SUFFIX = ".events.jsonl"
SCHEMA = "weigh.exec-events/1"


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


# where the kind of event and the number of its task begin in a line
_KIND = len('{"event":"')
_STARTED = len('{"event":"started","seq":')
_ENDED = len('{"event":"ended","seq":')
_STARTED_EVENT, _ENDED_EVENT = b'{"event":"started"', b'{"event":"ended"'
_INTERRUPTED, _OUT_OF_MEMORY = b'"state":"INTERRUPTED"', b'"state":"OUT_OF_MEMORY"'
_ALONE = b'"alone":true'
_RUNS = msgspec.json.Decoder(RunOpened | RunClosed)


class EventsFile:
    """The events of one joblog, appended to by one writer."""

    def __init__(self, path: str) -> None:
        """Open and lock the file, create it if missing.

        Raises:
            StoreError: it cannot be written.
            FormatError: it is a link, not a regular file, or another user's.
            UsageError: another process writes it.
        """
        self.trouble: str | None = None
        try:
            from weigh.runner.append_file import AppendFile  # noqa: PLC0415 - Unix only

            self._file = AppendFile(path, follow=False)
            size = os.fstat(self._file.fd).st_size
            # a line that a killed run left incomplete must not swallow the next one
            self._torn = size > 0 and os.pread(self._file.fd, 1, size - 1) != b"\n"
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error

    @property
    def path(self) -> str:
        """Return where the file is."""
        return self._file.path

    def append(self, *events: msgspec.Struct) -> None:
        """Write events; note in ``trouble`` why they cannot be written."""
        text = b"".join([msgspec.json.encode(event) + b"\n" for event in events])
        if self._torn:
            text = b"\n" + text
        try:
            self._torn = os.write(self._file.fd, text) != len(text)
            if self._torn:
                self.trouble = "No space left on device"
        except OSError as error:
            self.trouble = error.strerror

    def restore(self) -> None:
        """Write the file again if it was removed, replaced or moved."""
        try:
            self._file.put_back()
        except OSError as error:
            self.trouble = error.strerror

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read_past(self, is_wanted: Callable[[int], bool]) -> "PastRuns":
        """Read the events of earlier runs; count attempts of tasks that *is_wanted*."""
        with open(self.path, "rb", buffering=1 << 20, opener=only_regular) as file:
            return read_past_events(file, is_wanted)


class PastRuns(msgspec.Struct, frozen=True):
    """Earlier runs on this joblog.

    ``open_runs`` have no closing event. ``in_flight`` are the starts without an end,
    and ``attempts`` how often each task was started, both by task number.
    """

    open_runs: dict[str, RunOpened]
    in_flight: dict[int, AttemptStarted]
    attempts: dict[int, int]


def read_past_events(
    event_lines: Iterable[bytes], is_wanted: Callable[[int], bool]
) -> PastRuns:
    """Read an events file; skip lines that do not parse.

    Few lines are decoded: there may be hundreds of thousands.
    """
    runs: dict[str, RunOpened] = {}
    begun: dict[bytes, bytes] = {}
    attempts: dict[int, int] = {}
    for line in event_lines:
        kind = line[_KIND : _KIND + 1]
        # the first letter of ended, started, opened or closed
        if kind == b"e":
            begun.pop(line[_ENDED : line.find(b",", _ENDED)], None)
        elif kind == b"s":
            digits = line[_STARTED : line.find(b",", _STARTED)]
            # bytes, not decoded: most of them get their end
            begun[digits] = line
            if digits.isdigit() and is_wanted(seq := int(digits)):
                attempts[seq] = attempts.get(seq, 0) + 1
        else:
            _follow_run(line, runs)
    return PastRuns(runs, dict(_decoded_starts(begun.values())), attempts)


def ended_in_events(path: str) -> dict[int, bool]:
    """Return the tasks that ended by an events file, and whether each succeeded.

    An end is there before its line in the joblog, and stays if that is removed.
    """
    found: dict[int, bool] = {}
    with suppress(OSError), open(path, "rb", opener=only_regular) as file:
        for line in file:
            if line.startswith(_ENDED_EVENT):
                with suppress(*UNREADABLE):
                    end = msgspec.json.decode(line, type=AttemptEnded)
                    # the task goes on in this run, or in a later one
                    if not end.again and end.state != "INTERRUPTED":
                        found[end.seq] = end.state == "COMPLETED"
    return found


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
    for line in event_lines:
        with suppress(*UNREADABLE):
            # only a start alone, and a later one that is not, change what is known
            if line.startswith(_STARTED_EVENT) and (alone or _ALONE in line):
                start = msgspec.json.decode(line, type=AttemptStarted)
                alone[start.seq] = start.alone
            elif line.startswith(_ENDED_EVENT) and (
                _INTERRUPTED in line or _OUT_OF_MEMORY in line
            ):
                end = msgspec.json.decode(line, type=AttemptEnded)
                # of several attempts: the longest time, and whether any lacked memory
                was = found.get(end.seq, TaskLeft())
                ran_out = end.state == "OUT_OF_MEMORY"
                found[end.seq] = TaskLeft(
                    was.time if ran_out else max(was.time, end.wall_time or 0.0),
                    was.short or ran_out,
                    was.alone or end.alone or (ran_out and alone.get(end.seq, False)),
                )
    return found


def _follow_run(event_line: bytes, runs: dict[str, RunOpened]) -> None:
    with suppress(*UNREADABLE):
        # a run that closed left nothing running, so nothing has to be asked about it
        event = _RUNS.decode(event_line)
        if isinstance(event, RunOpened):
            runs[event.run] = event
        else:
            runs.pop(event.run, None)


def _decoded_starts(
    event_lines: Iterable[bytes],
) -> Iterator[tuple[int, AttemptStarted]]:
    for line in event_lines:
        with suppress(*UNREADABLE):
            start = msgspec.json.decode(line, type=AttemptStarted)
            yield start.seq, start
