"""What happened to the tasks of a job, read in one place: `history_of` a job.

It reads joblogs, events, progress, claims, outputs and records for status, resume, logs
and report. What follows for a task is decided in `tasks`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count

import msgspec
from msgspec.structs import replace

from weigh.errors import FormatError, StoreError
from weigh.flow.records import record_lookup
from weigh.joblog import (
    JoblogEntry,
    output_folder,
    output_name,
    parse_line,
    read_task_ends,
)
from weigh.model.job import SubmittedJob
from weigh.model.plan import Plan, PlannedQueue
from weigh.model.record import Record
from weigh.planning.queue_order import units_of
from weigh.regular_file import only_regular
from weigh.review.runs import epoch_seconds, row_of
from weigh.runner import events
from weigh.runner.shared_queue import QueueClaims, QueueOwner
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import HOME
from weigh.schedulers.reachable import Scheduler, element_numbers_of
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store.lines import read_tail
from weigh.units import Seconds

LOGS = "log"
# bytes of a log or an output: what explains an end is at its end
_TAIL = 1 << 16
_CLOCKS: Seconds = 300.0  # how far those of two nodes may differ
TaskAttemptKey = tuple[int, int, int]  # element, number of the task in it, attempt


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
        # where somebody removed the joblog, an end is in the events
        paths = self.joblog, self.joblog + events.SUFFIX
        with suppress(OSError):
            return {} if all(map(self._lacks, paths)) else events.ended_tasks(paths[0])
        return {}

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
        """Return the attempts at each task, by its number in the element."""
        found: dict[int, list[RecordedAttempt]] = {}
        for one in self.recorded.attempts:
            found.setdefault(one.seq, []).append(one)
        return found

    @property
    def in_flight(self) -> dict[int, events.AttemptStarted]:
        """Return the start of each attempt without an end."""
        last = {seq: tried[-1] for seq, tried in self.attempts.items()}
        return {seq: one.started for seq, one in last.items() if one.ended is None}

    @property
    def progress(self) -> events.RunningProgress | None:
        """Return what its running tasks reported last; None if nothing."""
        return events.read_progress(self.joblog)

    @property
    def has_events(self) -> bool:
        """Return whether an events file was written."""
        return os.path.exists(self.joblog + events.SUFFIX)

    def has_events_since(self, asked: Seconds) -> bool:
        """Return whether its events file was written to after this time."""
        try:
            return os.stat(self.joblog + events.SUFFIX).st_mtime > asked
        except OSError:
            return False

    @cached_property
    def entries(self) -> dict[int, JoblogEntry]:
        """Return the last entry of each task in the joblog."""
        found: dict[int, JoblogEntry] = {}
        for line in self._lines_of(self.joblog):
            with suppress(FormatError, UnicodeDecodeError):
                entry = parse_line(line.decode().rstrip("\n"))
                found[entry.seq] = entry
        return found

    def outputs(self, task: int) -> list[str]:
        """Return the outputs of the attempts at a task, by its number in the plan."""
        found = []
        for attempt in count(1):
            path = self.output_path(task, attempt)
            # attempts have files of their own, numbered without a gap
            if os.path.exists(path):
                found.append(path)
            elif attempt > 1:
                break
        return found

    def output_path(self, task: int, attempt: int) -> str:
        """Return where the output of an attempt is, or would be."""
        return os.path.join(output_folder(self.joblog), output_name(task, attempt))

    def _lacks(self, path: str) -> bool:
        """Return whether the folder was listed without this file."""
        return self._names is not None and os.path.basename(path) not in self._names

    def _lines_of(self, path: str) -> Sequence[bytes]:
        return () if self._lacks(path) else lines_of_file(path)


class JobHistory:
    """What happened in the elements of a job; each file is read at its first use."""

    def __init__(self, submitted_job: SubmittedJob) -> None:
        self.job = submitted_job
        self._log_folder = os.path.join(submitted_job.folder, LOGS)
        self._joblogs: dict[str, JoblogHistory] = {}

    @cached_property
    def _names(self) -> frozenset[str]:
        # one listing instead of one look per element: thousands on a network disk
        with suppress(OSError):
            return frozenset(os.listdir(self._log_folder))
        return frozenset()

    def element(self, number: int) -> JoblogHistory:
        """Return what happened in the element of this number, from 0."""
        # joblogs are numbered over the plan
        name = f"tasks_{self.job.first + number}.joblog"
        path = os.path.join(self._log_folder, name)
        if path not in self._joblogs:
            self._joblogs[path] = JoblogHistory(path, self._names)
        return self._joblogs[path]

    def log(self, scheduler: Scheduler, number: int) -> str:
        """Return the path of the log that the scheduler writes for an element."""
        is_array = self.job.elements > 1
        name = scheduler.log_name(self.job.id, number, is_array=is_array)
        return os.path.join(self._log_folder, name)

    def claims(self, plan: Plan) -> dict[int, tuple[int, list[QueueOwner]]]:
        """Return how often each task of the queue was claimed, and by which runs.

        The runs stand in the order of their claims.
        """
        if plan.queue is None:
            return {}
        claims = QueueClaims(os.path.join(self.job.folder, plan.queue.folder))
        try:
            claims.look()
        except StoreError:  # it was removed: what the job did is not known
            return {}
        units = units_of(plan.queue, plan.kinds)
        return {
            seq: (
                len(owners),
                [one for one in owners if one is not None and one.joblog],
            )
            for unit, owners in claims.claimants()
            if unit < len(units)
            for seq in units[unit].tasks
        }

    def element_of_owner(self, owner: QueueOwner) -> int | None:
        """Return the element of this job that a run is; None for a run by hand."""
        if owner.element is None:
            return None
        number = owner.element - self.job.first
        return number if 0 <= number < self.job.elements else None

    def run_of_owner(self, queue: PlannedQueue, owner: QueueOwner) -> JoblogHistory:
        """Return what happened in a run that has claimed tasks of the queue."""
        number = self.element_of_owner(owner)
        if number is not None:
            return self.element(number)
        folder = os.path.join(self.job.folder, queue.folder)
        path = os.path.normpath(os.path.join(folder, owner.joblog))
        return self._joblogs.setdefault(path, JoblogHistory(path))

    @cached_property
    def attempts(self) -> list[RecordedAttempt]:
        """Return the attempts in the events files, element by element, in order."""
        return [
            replace(one, element=number)
            for number in range(self.job.elements)
            for one in self.element(number).recorded.attempts
        ]

    def records(self, root: str) -> dict[TaskAttemptKey, Record]:
        """Return the records of attempts; an element of a user's own script is a task.

        Raises:
            StoreError: the records cannot be read.
        """
        if not self.job.is_script:
            return records_of_attempts(root, self.attempts, self.job)
        places = {index: at for at, index in enumerate(element_numbers_of(self.job))}
        begun = Counter[int]()  # a requeued element has a record of each attempt
        found: dict[TaskAttemptKey, Record] = {}
        for record in record_lookup.records_of_jobs(root, {self.job.id}):
            place = places.get(row_of(record).element or 0)
            if place is not None and is_record_of_job(record, self.job):
                begun[place] += 1
                found[place, 1, begun[place]] = record
        return found

    def whole_times(self, root: str) -> dict[tuple[int, int], Seconds]:
        """Return the whole time of tasks, by element and number in it.

        It is forecast by the progress in the newest record: an element that is killed
        at its limit leaves no event with the need of its task.

        Raises:
            StoreError: the records cannot be read.
        """
        times: dict[tuple[int, int], Seconds] = {}
        for (element, seq, _), record in sorted(self.records(root).items()):
            whole = None if record.progress is None else record.progress.whole_time
            if whole is not None:
                times[element, seq] = whole
        return times


def history_of(submitted_job: SubmittedJob) -> JobHistory:
    """Return what happened to the tasks of a job."""
    return JobHistory(submitted_job)


def records_of_attempts(
    root: str, attempts: Sequence[RecordedAttempt], submitted_job: SubmittedJob | None
) -> dict[TaskAttemptKey, Record]:
    """Return the record of each attempt by element, task and number.

    *submitted_job* is None for ``weigh exec`` without a job.
    """
    places = {
        one.ended.record: (one.element, one.seq, one.attempt)
        for one in attempts
        if one.ended is not None
    }
    found = record_lookup.records_by_ids(root, places)
    records = {places[record_id]: record for record_id, record in found.items()}
    # killed together with weigh exec: no event names its record
    lost = [one for one in attempts if one.ended is None]
    # without a scheduler, weigh exec has a job id of its own
    jobs = {one.started.run for one in lost}
    if lost and submitted_job is not None:
        jobs.add(submitted_job.id)
    for record in record_lookup.records_of_jobs(root, jobs):
        if submitted_job is not None and not is_record_of_job(record, submitted_job):
            continue
        row = row_of(record)
        for one in lost:
            is_its = row.job == one.started.run
            element = one.element if is_its else row.element or 0
            if (element, row.task, row.attempt) == (one.element, one.seq, one.attempt):
                records[one.element, one.seq, one.attempt] = record
    return records


def is_record_of_job(record: Record, submitted_job: SubmittedJob) -> bool:
    """Return whether a record with the job's id may be of that job.

    Each scheduler counts from 1, again where it was installed again.
    """
    where = record.allocation and record.allocation.scheduler
    # an id of another scheduler is another job
    if where in KINDS and where != submitted_job.scheduler != LOCAL:
        return False
    began = epoch_seconds(record.started)
    # a job's record cannot be older than its submission, beyond what clocks differ
    return began is None or began >= submitted_job.submitted - _CLOCKS


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
