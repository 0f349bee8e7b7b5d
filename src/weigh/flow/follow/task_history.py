"""What happened to the tasks of a job: the one reader of its joblogs and events.

Status, resume, logs and report ask it. What follows for a task is decided in `tasks`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count

import msgspec

from weigh.errors import FormatError
from weigh.joblog import (
    JoblogEntry,
    output_folder,
    output_name,
    parse_line,
    read_task_ends,
)
from weigh.model.job import SubmittedJob
from weigh.regular_file import only_regular
from weigh.runner import events
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.job_script import HOME
from weigh.store.lines import read_tail
from weigh.units import Seconds

LOGS = "log"
# bytes of a log or an output: what explains an end is at its end
_TAIL = 1 << 16


class RecordedAttempt(msgspec.Struct, frozen=True):
    """An attempt at a task: its start, and how it ended."""

    started: events.AttemptStarted
    ended: events.AttemptEnded | None
    """None while it runs, or if it was killed together with ``weigh exec``."""
    node: str | None
    """None if the event of its run is lost."""
    element: int = 0

    @property
    def seq(self) -> int:
        """Return the number of the task in its element."""
        return self.started.seq

    @property
    def attempt(self) -> int:
        """Return the number of the attempt."""
        return self.started.attempt


class RecordedEvents(msgspec.Struct, frozen=True):
    """What an events file holds: the attempts in order, and the runs of weigh exec."""

    attempts: tuple[RecordedAttempt, ...]
    opened: events.RunOpened | None
    """The newest run, None if there is none."""
    open_runs: frozenset[str]
    """The runs that have not closed."""
    closed_at: Seconds | None
    """When the last run closed; None if it goes on, or was killed."""

    def attempts_by_task(self) -> dict[int, list[RecordedAttempt]]:
        """Return the attempts at each task by its number in the element."""
        found: dict[int, list[RecordedAttempt]] = {}
        for one in self.attempts:
            found.setdefault(one.seq, []).append(one)
        return found


def recorded_events(lines: Iterable[bytes]) -> RecordedEvents:
    """Return what an events file holds; *lines* that do not parse are skipped."""
    opened: events.RunOpened | None = None
    runs: dict[str, str] = {}
    closed: set[str] = set()
    closed_at: Seconds | None = None
    begun: dict[tuple[int, int], events.AttemptStarted] = {}
    ended: dict[tuple[int, int], events.AttemptEnded] = {}
    for event in events.decoded_events(lines):
        # a run that closed writes nothing more: only a later run does
        closed_at = event.time if isinstance(event, events.RunClosed) else None
        if isinstance(event, events.RunOpened):
            opened = event
            runs[event.run] = event.machine.host
        elif isinstance(event, events.RunClosed):
            closed.add(event.run)
        elif isinstance(event, events.AttemptStarted):
            begun[event.seq, event.attempt] = event
        else:
            place = event.seq, event.attempt
            ended[place] = event
            # the line of its start was lost, as on a full disk
            begun.setdefault(place, _start_of_ended(event))
    attempts = tuple(
        RecordedAttempt(start, ended.get(place), runs.get(start.run))
        for place, start in begun.items()
    )
    return RecordedEvents(attempts, opened, frozenset(runs) - closed, closed_at)


def _start_of_ended(ended: events.AttemptEnded) -> events.AttemptStarted:
    started = ended.time - (ended.wall_time or 0.0)
    return events.AttemptStarted(
        ended.seq, ended.attempt, "", started, slot=0, pid=0, start_time=None, task=""
    )


class JoblogHistory:
    """What one joblog, its events and its outputs show; each is read at its first use.

    *names* are the files in its folder, None if they were not listed.
    """

    def __init__(self, joblog: str, names: frozenset[str] | None = None) -> None:
        self.joblog = joblog
        self._names = names

    @cached_property
    def ends(self) -> dict[int, bool]:
        """Return the tasks that ended, and whether each succeeded."""
        # of several lines on a task the last one counts
        lines = self._lines_of(self.joblog)
        found = {seq: good for seq, good, _ in read_task_ends(lines)}
        # somebody removed the joblog: an end is in the events before it is there
        if not lines and self.has_events:
            return events.ended_in_events(self.joblog + events.SUFFIX)
        return found

    @cached_property
    def ends_at_home(self) -> dict[int, bool]:
        """Return the tasks whose results were copied back from the node."""
        lines = self._lines_of(self.joblog + HOME)
        return {seq: good for seq, good, _ in read_task_ends(lines)}

    @cached_property
    def recorded(self) -> RecordedEvents:
        """Return what the events file holds."""
        return recorded_events(self._lines_of(self.joblog + events.SUFFIX))

    @cached_property
    def attempts(self) -> dict[int, list[RecordedAttempt]]:
        """Return the attempts at each task."""
        return self.recorded.attempts_by_task()

    @property
    def in_flight(self) -> dict[int, events.AttemptStarted]:
        """Return the start of each attempt without an end."""
        last = {seq: tried[-1] for seq, tried in self.attempts.items()}
        return {seq: one.started for seq, one in last.items() if one.ended is None}

    @property
    def has_events(self) -> bool:
        """Return whether an events file was written."""
        path = self.joblog + events.SUFFIX
        if self._names is not None:
            return os.path.basename(path) in self._names
        return os.path.exists(path)

    @cached_property
    def entries(self) -> dict[int, JoblogEntry]:
        """Return the last entry of each task in the joblog."""
        found: dict[int, JoblogEntry] = {}
        for line in self._lines_of(self.joblog):
            with suppress(FormatError, UnicodeDecodeError):
                entry = parse_line(line.decode().rstrip("\n"))
                found[entry.seq] = entry
        return found

    def outputs(self, task: int) -> Iterator[str]:
        """Yield the outputs of the attempts at a task, by its number in the plan."""
        for attempt in count(1):
            path = self.output_path(task, attempt)
            # attempts have files of their own, numbered without a gap
            if os.path.exists(path):
                yield path
            elif attempt > 1:
                return

    def output_path(self, task: int, attempt: int) -> str:
        """Return where the output of an attempt is, or would be."""
        return os.path.join(output_folder(self.joblog), output_name(task, attempt))

    def _lines_of(self, path: str) -> Sequence[bytes]:
        if self._names is not None and os.path.basename(path) not in self._names:
            return ()
        return lines_of_file(path)


class JobHistory:
    """What happened in the elements of a job; their files are read at first use."""

    def __init__(self, submitted_job: SubmittedJob) -> None:
        self._job = submitted_job
        self._elements: dict[int, JoblogHistory] = {}

    @cached_property
    def _names(self) -> frozenset[str]:
        # one listing instead of one look per element: thousands on a network disk
        with suppress(OSError):
            return frozenset(os.listdir(os.path.join(self._job.folder, LOGS)))
        return frozenset()

    def element(self, number: int) -> JoblogHistory:
        """Return what happened in the element of this number, from 0."""
        if number not in self._elements:
            path = joblog_of_element(self._job, number)
            self._elements[number] = JoblogHistory(path, self._names)
        return self._elements[number]


def history_of(submitted_job: SubmittedJob) -> JobHistory:
    """Return what happened to the tasks of a job of a plan."""
    return JobHistory(submitted_job)


def joblog_of_element(submitted_job: SubmittedJob, number: int) -> str:
    """Return the path of an element's joblog, which is numbered over the plan."""
    name = f"tasks_{submitted_job.first + number}.joblog"
    return os.path.join(submitted_job.folder, LOGS, name)


def log_of_element(
    submitted_job: SubmittedJob, scheduler: Scheduler, number: int
) -> str:
    """Return the path of the log that the scheduler writes for an element."""
    is_array = submitted_job.elements > 1
    name = scheduler.log_name(submitted_job.id, number, is_array=is_array)
    return os.path.join(submitted_job.folder, LOGS, name)


def outputs_of_task(submitted_job: SubmittedJob, element: int, task: int) -> list[str]:
    """Return the outputs of a task's attempts; where the first will be if none is."""
    history = JoblogHistory(joblog_of_element(submitted_job, element))
    return [*history.outputs(task)] or [history.output_path(task, 1)]


def tail_of(path: str) -> str:
    """Return the end of a file; an empty text if it does not exist."""
    return read_tail(path, _TAIL).decode("utf-8", "replace")


def lines_of_file(path: str) -> Sequence[bytes]:
    """Return the lines of a file; none if it does not exist."""
    try:
        with open(path, "rb", opener=only_regular) as file:
            return file.readlines()
    except OSError:
        return ()
