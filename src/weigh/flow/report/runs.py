"""The runs of a submitted job: attempts at tasks, from events, records, joblogs."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, WeighError
from weigh.flow.follow.first_tasks import is_unsent, rest_comes, with_unsent
from weigh.flow.follow.tasks import LOGS, last_words
from weigh.flow.follow.view import View, merged
from weigh.flow.here import Here
from weigh.flow.plan.directory import plan_of, tasks_of
from weigh.flow.records import joined_records as report_records
from weigh.flow.site.schedulers import kind_of
from weigh.joblog import Entry, parse_line
from weigh.model.job import FINAL, Submitted, TaskState
from weigh.model.mask import MASK
from weigh.model.record import Record
from weigh.model.report import Row
from weigh.regular_file import only_regular
from weigh.review.runs import STATES, Run, row_of, run_of, seconds_of
from weigh.runner import events
from weigh.schedulers import KINDS
from weigh.schedulers.elements import numbers_of
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.store.lines import UNREADABLE
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import read_task_lines
from weigh.units import Seconds

Parameters = dict[str, int | float | str]
_CLOCKS: Seconds = 300.0  # how far those of two nodes may differ


def parameters_of(view: View) -> Mapping[int, Parameters]:
    """Return the parameters of each task by its number.

    Empty if the task file was edited since, or has no table of parameters.
    """
    try:
        plan = plan_of(view.job)
    except WeighError:
        return {}
    known: dict[int, tuple[str, Parameters]] = {}
    table = os.path.join(view.job.cwd, table_path(plan.task_file))
    try:
        with open(table, encoding="utf-8", newline="", opener=only_regular) as file:
            for task in read_table(file):
                known[task.seq] = task.line, task.parameters
    except (OSError, FormatError, UnicodeDecodeError):
        return {}
    return {
        number: known[number][1]
        for number, line in _lines(view, {task.element for task in view.tasks})
        if number in known and known[number][0] == line
    }


def _lines(view: View, elements: Iterable[int]) -> Iterable[tuple[int, str]]:
    """Yield number and command line of the tasks of a plan."""
    numbers = {(task.element, task.seq): task.task for task in view.tasks}
    for path, element in _task_files(view, elements):
        try:
            with open(path, "rb", opener=only_regular) as file:
                for task in read_task_lines(file, path):
                    number = numbers.get((element, task.seq))
                    if number is not None:
                        yield number, task.command
        except (OSError, WeighError):
            continue


def _task_files(view: View, elements: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield the path of each task file with the element whose tasks to read in it."""
    try:
        queue = plan_of(view.job).queue
    except WeighError:
        queue = None
    for element in elements:
        if queue is not None:
            yield tasks_of(view.job, queue), element
        else:
            name = f"tasks_{view.job.first + element}.txt"
            yield os.path.join(view.job.plan_folder, name), element


_EVENT = msgspec.json.Decoder(events.Opened | events.Started | events.Ended)


def runs_of_view(view: View, root: str) -> list[Run]:
    """Return the runs of a submitted job: all attempts, and tasks without one.

    Raises:
        StoreError: the records cannot be read.
    """
    if view.job.own is not None:
        return list(_runs_of_own(view, root))
    known = list(_attempts_in(view))
    attempts: dict[tuple[int, int], list[Run]] = {}
    records = _records(view, root, known)
    for one in known:
        record = records.get((one.element, one.seq, one.attempt))
        place = one.element, one.seq
        attempts.setdefault(place, []).append(_attempt(one, record, view))
    given, joblogs = parameters_of(view), _Joblogs(view)
    runs: list[Run] = []
    for task in view.tasks:
        tried = attempts.get((task.element, task.seq)) or [joblogs.unmeasured(task)]
        runs += (
            _on_node(run, view) if run.is_last else run
            for run in _of_task(task, tried, given.get(task.task, {}))
        )
    return runs


def unsent_runs(here: Here, views: Sequence[View]) -> Iterator[Run]:
    """Yield a run for each task of the plan that was not submitted."""
    comes = rest_comes(here, views)
    for task in merged(with_unsent(views, comes=comes)).values():
        if is_unsent(task):
            row = Row(job=task.job, task=task.task, state=task.state, attempts=0)
            yield Run(row=row)


def _runs_of_own(view: View, root: str) -> Iterator[Run]:
    """Yield the runs of a job with the user's own script: measured ones, or states.

    A requeued element has a record of each attempt.
    """
    places = {number: place for place, number in enumerate(numbers_of(view.job))}
    found: dict[int, list[Run]] = {}
    for record in report_records.of_jobs(root, {view.job.id}):
        if not _is_of(record, view.job):
            continue
        run = run_of(record)
        place = places.get(run.row.element or 0)
        if place is not None:
            found.setdefault(place, []).append(run)
    for task in view.tasks:
        tried = found.get(task.element) or [_by_state(view, task)]
        for run in _of_task(task, tried, {}):
            job = msgspec.structs.replace(run.row, job=view.job.id)
            yield msgspec.structs.replace(run, row=job)


def _is_of(record: Record, job: Submitted) -> bool:
    """Return whether a record with the job's id may be of that job.

    Each scheduler counts from 1, again where it was installed again.
    """
    where = record.allocation and record.allocation.scheduler
    if where in KINDS and where != kind_of(job.scheduler) != LOCAL:
        return False
    began = seconds_of(record.started)
    return began is None or began >= job.submitted - _CLOCKS


def _by_state(view: View, task: TaskState) -> Run:
    """Return the run of an element that was not measured, timed by the scheduler."""
    state = view.elements[task.element]
    wall = None
    if state.started is not None and state.ended is not None:
        wall = max(0.0, state.ended - state.started)
    words = (os.path.basename(view.job.script) or view.job.name, *_arguments(view))
    return Run(
        row=Row(
            node=state.node,
            started=state.started,
            wall_time=wall,
            command=MASK.line(" ".join(words)),
            attempts=0 if state.started is None else 1,
        )
    )


def _arguments(view: View) -> tuple[str, ...]:
    return view.job.own.arguments if view.job.own else ()


def _on_node(run: Run, view: View) -> Run:
    """Return a run with the node's name in the scheduler, for flags to exclude it."""
    element = run.row.element
    known = element is not None and element < len(view.elements)
    node = view.elements[element or 0].node if known else None
    if not node or not node.replace("-", "").replace(".", "").isalnum():
        return run  # one of several nodes, unknown which
    return msgspec.structs.replace(run, row=msgspec.structs.replace(run.row, node=node))


class Attempt(msgspec.Struct, frozen=True):
    """A start, and its end unless it still runs or was killed with ``weigh exec``."""

    started: events.Started
    ended: events.Ended | None
    node: str | None
    element: int = 0

    @property
    def seq(self) -> int:
        """Return the number of the task in its element."""
        return self.started.seq

    @property
    def attempt(self) -> int:
        """Return the number of the attempt."""
        return self.started.attempt


def _attempts_in(view: View) -> Iterator[Attempt]:
    """Yield the attempts in the events files, element by element, in order."""
    for element in sorted({task.element for task in view.tasks}):
        _, found = attempts_in_events(_joblog(view, element) + events.SUFFIX)
        for one in found:
            yield msgspec.structs.replace(one, element=element)


def attempts_in_events(path: str) -> tuple[events.Opened | None, list[Attempt]]:
    """Return the newest ``weigh exec`` in an events file, and all attempts in order."""
    opened: events.Opened | None = None
    nodes: dict[str, str] = {}
    begun: dict[tuple[int, int], events.Started] = {}
    ended: dict[tuple[int, int], events.Ended] = {}
    for event in _events(path):
        if isinstance(event, events.Opened):
            opened = event
            nodes[event.run] = event.machine.host
        elif isinstance(event, events.Started):
            begun[event.seq, event.attempt] = event
        else:
            ended[event.seq, event.attempt] = event
    attempts = [
        Attempt(start, ended.get(place), nodes.get(start.run))
        for place, start in begun.items()
    ]
    return opened, attempts


def _records(
    view: View, root: str, attempts: Sequence[Attempt]
) -> dict[tuple[int, int, int], Record]:
    """Return the record of each attempt; of a killed attempt by its job."""
    places = {
        one.ended.record: (one.element, one.seq, one.attempt)
        for one in attempts
        if one.ended is not None
    }
    found = report_records.by_ids(root, places)
    records = {places[record_id]: record for record_id, record in found.items()}
    lost = [one for one in attempts if one.ended is None]
    # without a scheduler, weigh exec has a job id of its own
    jobs = {view.job.id, *(one.started.run for one in lost)} if lost else set()
    for record in report_records.of_jobs(root, jobs):
        row, job = row_of(record), record.job
        for one in lost if _is_of(record, view.job) else ():
            is_its = job is not None and job.id == one.started.run
            element = one.element if is_its else row.element or 0
            if (element, row.task, row.attempt) == (one.element, one.seq, one.attempt):
                records[one.element, one.seq, one.attempt] = record
    return records


def _events(path: str) -> Iterator[events.Opened | events.Started | events.Ended]:
    for line in _joblog_lines(path):
        with suppress(*UNREADABLE):
            yield _EVENT.decode(line)


def _joblog(view: View, element: int) -> str:
    """Return the path of an element's joblog, which is numbered over the plan."""
    number = view.job.first + element
    return os.path.join(view.job.folder, LOGS, f"tasks_{number}.joblog")


def _attempt(one: Attempt, record: Record | None, view: View) -> Run:
    if record is not None:
        return run_of(record)
    return _cut_short(one, view) if one.ended is None else run_of_ended_attempt(one)


def run_of_ended_attempt(one: Attempt) -> Run:
    """Return the run of an attempt without a record, from the event of its end."""
    ended = one.ended
    if ended is None:
        raise ValueError(f"attempt {one.attempt} at task {one.seq} has not ended")
    row = Row(
        attempt=ended.attempt,
        record=ended.record,
        state=STATES.get(ended.state, "FAILED"),
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
        node=one.node,
        started=one.started.time,
        wall_time=ended.wall_time,
        cpu_time=ended.cpu_time,
        cpus=_mean(ended.cpu_time, ended.wall_time),
        memory=ended.peak_memory,
        gpu_memory=ended.gpu_memory,
    )
    return Run(row=row, need=ended.peak_memory)


def _cut_short(one: Attempt, view: View) -> Run:
    """Return the run of an attempt without an end: it ended with its element."""
    state = view.elements[one.element] if one.element < len(view.elements) else None
    over = state.ended if state and state.is_final else None
    begun = one.started.time
    wall = None if over is None else max(0.0, over - begun)
    row = Row(
        attempt=one.attempt,
        state="RUNNING" if state and not state.is_final else "INTERRUPTED",
        node=one.node,
        started=begun,
        wall_time=wall,
    )
    return Run(row=row)


def _mean(cpu_time: Seconds | None, wall_time: Seconds | None) -> float | None:
    return cpu_time / wall_time if cpu_time is not None and wall_time else None


class _Joblogs:
    """The joblogs of a job, each read once when it is needed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._entries: dict[int, dict[int, Entry]] = {}

    def unmeasured(self, task: TaskState) -> Run:
        """Return the run of a task without events, timed by the joblog if it can."""
        view = self._view
        node = view.elements[task.element].node if view.elements else None
        if task.element not in self._entries:
            path = _joblog(view, task.element)
            self._entries[task.element] = dict(joblog_entries(path))
        entry = self._entries[task.element].get(task.seq)
        if entry is None:
            return Run(row=Row(node=node, attempts=0))
        return Run(
            row=Row(
                node=node if entry.host == ":" else entry.host,
                started=entry.started,
                wall_time=entry.wall_time,
                command=MASK.line(entry.command),
            )
        )


def joblog_entries(path: str) -> Iterator[tuple[int, Entry]]:
    """Yield the entries of a joblog; the last one of a task counts."""
    for line in _joblog_lines(path):
        with suppress(FormatError, UnicodeDecodeError):
            entry = parse_line(line.decode().rstrip("\n"))
            yield entry.seq, entry


def _of_task(
    task: TaskState, attempts: Sequence[Run], given: dict[str, int | float | str]
) -> Iterator[Run]:
    """Yield attempts with the numbers of their task; the last has the task's state."""
    for number, run in enumerate(attempts, start=1):
        is_last = number == len(attempts)
        row = msgspec.structs.replace(
            run.row,
            task=task.task,
            element=task.element,
            attempts=run.row.attempts and len(attempts),
            parameters=run.row.parameters or given,
        )
        if is_last:
            row = msgspec.structs.replace(
                row,
                state=task.state,
                exit_code=_known(task.exit_code, row.exit_code),
                signal=_known(task.signal, row.signal),
                reason=task.reason or row.reason,
                output=task.output,
                error=_last_words(task),
            )
        yield msgspec.structs.replace(run, row=row, is_last=is_last)


def _last_words(task: TaskState) -> str | None:
    """Return the last line that a task printed, if it failed."""
    if task.output is None or task.state == "COMPLETED" or task.state not in FINAL:
        return None
    return last_words(task.output)


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _joblog_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb", opener=only_regular) as file:
            return file.readlines()
    except OSError:
        return []
