"""Every run that a report is about: attempts at tasks, or records of ``weigh run``."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from weigh.errors import FormatError, WeighError
from weigh.flow.follow.tasks import LOGS, last_words
from weigh.flow.follow.view import View
from weigh.flow.plan.directory import read_plan
from weigh.flow.report import joined_records as report_records
from weigh.joblog import Entry, parse_line
from weigh.model.job import FINAL, TaskState
from weigh.model.mask import MASK
from weigh.model.record import Record, State, Usage
from weigh.model.report import Row
from weigh.render.printable import short_command
from weigh.request import uses_of
from weigh.runner import events
from weigh.store.lines import UNREADABLE
from weigh.sweep.table import read_table, table_path
from weigh.sweep.task_file import read_task_lines
from weigh.units import Bytes, Seconds

Parameters = dict[str, int | float | str]


def parameters_of(view: View) -> Mapping[int, Parameters]:
    """Give the parameters of each task by its number; none where it was edited since.

    Also none where there is no table: a task file that no sweep wrote.
    """
    try:
        plan = read_plan(view.job.plan_folder)
    except WeighError:
        return {}
    known: dict[int, tuple[str, Parameters]] = {}
    beside = os.path.join(view.job.cwd, table_path(plan.task_file))
    try:
        with open(beside, encoding="utf-8", newline="") as file:
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
    """Yield the tasks as they are in the plan: number and line."""
    numbers = {(task.element, task.seq): task.task for task in view.tasks}
    for element in elements:
        name = f"tasks_{view.job.first + element}.txt"
        try:
            with open(os.path.join(view.job.plan_folder, name), "rb") as file:
                for task in read_task_lines(file, name):
                    number = numbers.get((element, task.seq))
                    if number is not None:
                        yield number, task.command
        except (OSError, WeighError):
            continue


_STATES: dict[str, State] = {word: word for word in (*FINAL, "RUNNING")}
_EVENT = msgspec.json.Decoder(events.Opened | events.Started | events.Ended)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: its row, and its record without the series where there is one.

    ``need`` is the memory it held that the kernel could not drop; ``cards`` what it
    held of each GPU; ``is_last`` that no later attempt at the task is known.
    """

    row: Row
    record: Record | None = None
    need: Bytes | None = None
    cards: tuple[tuple[str, Bytes], ...] = ()
    is_last: bool = True


def run_of(record: Record) -> Run:
    """Make the run of a record."""
    return Run(
        row=_row(record),
        record=record,
        need=max((m for m, _ in uses_of(record) if m is not None), default=None),
        cards=_cards(record.usage),
    )


def runs_of_records(records: Sequence[Record]) -> list[Run]:
    """Make the runs of records, the oldest first; of a job's task the last one counts.

    The elements of Grid Engine count from 1 in a record, and from 0 here.
    """
    in_order = sorted(records, key=lambda one: one.started)
    runs = [run for one in in_order for run in _repeats_of(one)]
    last = {_place(run): run.row.record for run in runs}
    return [
        msgspec.structs.replace(run, is_last=last[_place(run)] == run.row.record)
        for run in runs
    ]


def _repeats_of(record: Record) -> Iterator[Run]:
    """Yield the run of a record, or each of several; warm-ups do not count."""
    counted = [one for one in record.repeats if not one.warmup]
    if len(counted) <= 1:
        yield run_of(record)
        return
    row = _row(record)
    began = row.started
    for one, (need, run) in zip(counted, uses_of(record), strict=True):
        its = msgspec.structs.replace(
            row,
            started=began,
            state=_STATES.get(run.state, "UNKNOWN"),
            exit_code=one.exit_code,
            signal=one.signal,
            reason=None if run.completed else row.reason,
            **_used(one.usage),
        )
        yield Run(row=its, record=record, need=need, cards=_cards(one.usage))
        began = None if began is None else began + one.usage.wall_time


def runs_of_view(view: View, root: str) -> list[Run]:
    """Make the runs of a submitted job: every attempt, and the tasks without one.

    Raises:
        StoreError: the records cannot be read.
    """
    told = list(_told(view))
    attempts: dict[tuple[int, int], list[Run]] = {}
    records = _records(view, root, told)
    for one in told:
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


def seconds_of(text: str | None) -> Seconds | None:
    """Read a record's time as seconds since the epoch; None where it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _place(run: Run) -> object:
    """Tell tasks apart; outside a job every record is one of its own."""
    record, row = run.record, run.row
    if record is None or record.job is None:
        return row.record
    return record.job.id, row.element, row.task


def _row(record: Record) -> Row:
    usage, job = record.usage, record.job
    scheduler = record.allocation.scheduler if record.allocation else None
    first = 1 if scheduler == "gridengine" else 0
    return Row(
        job=job.id if job else None,
        task=job.task if job else None,
        element=None if job is None or job.element is None else job.element - first,
        attempt=job.attempt if job else None,
        record=record.id,
        label=record.label or "",
        parameters=record.parameters,
        state=_STATES.get(record.state, "UNKNOWN"),
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.outcome.reason if record.outcome else None,
        node=record.host.name if record.host else None,
        started=seconds_of(record.started),
        command=short_command(record.command),
        **(_used(usage) if usage else {}),  # type: ignore[arg-type]
    )


def _used(usage: Usage) -> dict[str, object]:
    peak = usage.peak_memory
    busy = [g.utilization_mean for g in usage.gpus if g.utilization_mean is not None]
    energies = [gpu.energy for gpu in usage.gpus if gpu.energy is not None]
    held = [size for _, size in _cards(usage)]
    return {
        "wall_time": usage.wall_time,
        "cpu_time": usage.cpu_time,
        "cpus": usage.cpus_used,
        "memory": peak.value if peak else usage.max_process_memory,
        "gpu_memory": max(held, default=None),
        "gpu_utilization": sum(busy) / len(busy) / 100 if busy else None,
        "gpus": len(usage.gpus) if usage.gpus else None,
        "energy": sum(energies) if energies else None,
        "growing": usage.growing,
    }


def _cards(usage: Usage | None) -> tuple[tuple[str, Bytes], ...]:
    """Give what a run held of each card."""
    held = ((gpu.uuid, gpu.job_peak) for gpu in (usage.gpus if usage else ()))
    return tuple((uuid, size) for uuid, size in held if size is not None)


def _on_node(run: Run, view: View) -> Run:
    """Call the last node as the scheduler does, whose flags can leave it out."""
    element = run.row.element
    known = element is not None and element < len(view.elements)
    node = view.elements[element or 0].node if known else None
    if not node or not node.replace("-", "").replace(".", "").isalnum():
        return run  # of several nodes: which of them is not known
    return msgspec.structs.replace(run, row=msgspec.structs.replace(run.row, node=node))


class _Attempt(msgspec.Struct, frozen=True):
    """A start, and its end unless it was killed with all around it, or still runs."""

    element: int
    started: events.Started
    ended: events.Ended | None
    node: str | None

    @property
    def seq(self) -> int:
        """Give the number of the task in its element."""
        return self.started.seq

    @property
    def attempt(self) -> int:
        """Give which attempt at it this is."""
        return self.started.attempt


def _told(view: View) -> Iterator[_Attempt]:
    """Yield what the events files say was started, element by element, in order."""
    for element in sorted({task.element for task in view.tasks}):
        nodes: dict[str, str] = {}
        begun: dict[tuple[int, int], events.Started] = {}
        ended: dict[tuple[int, int], events.Ended] = {}
        for event in _events(_joblog(view, element) + events.SUFFIX):
            if isinstance(event, events.Opened):
                nodes[event.run] = event.machine.host
            elif isinstance(event, events.Started):
                begun[event.seq, event.attempt] = event
            else:
                ended[event.seq, event.attempt] = event
        for place, start in begun.items():
            yield _Attempt(element, start, ended.get(place), nodes.get(start.run))


def _records(
    view: View, root: str, told: Sequence[_Attempt]
) -> dict[tuple[int, int, int], Record]:
    """Find the record of each attempt; of one that was killed, by its job."""
    places = {
        one.ended.record: (one.element, one.seq, one.attempt)
        for one in told
        if one.ended is not None
    }
    found = report_records.by_ids(root, places)
    records = {places[record_id]: record for record_id, record in found.items()}
    lost = [one for one in told if one.ended is None]
    # on this machine no scheduler names the job: weigh exec goes by a name of its own
    jobs = {view.job.id, *(one.started.run for one in lost)} if lost else set()
    for record in report_records.of_jobs(root, jobs):
        row, job = _row(record), record.job
        for one in lost:
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
    """Name the joblog of an element, which is numbered over the plan."""
    number = view.job.first + element
    return os.path.join(view.job.folder, LOGS, f"tasks_{number}.joblog")


def _attempt(one: _Attempt, record: Record | None, view: View) -> Run:
    if record is not None:
        return run_of(record)
    if one.ended is None:
        return _cut_short(one, view)
    ended = one.ended
    row = Row(
        attempt=ended.attempt,
        record=ended.record,
        state=_STATES.get(ended.state, "FAILED"),
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


def _cut_short(one: _Attempt, view: View) -> Run:
    """Make the run of an attempt without an end: its element's end is its own."""
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
    """The joblogs of a job, each read once and when it is asked for."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._entries: dict[int, dict[int, Entry]] = {}

    def unmeasured(self, task: TaskState) -> Run:
        """Make the run of a task that no event tells of; its time, where one is."""
        view = self._view
        node = view.elements[task.element].node if view.elements else None
        if task.element not in self._entries:
            path = _joblog(view, task.element)
            self._entries[task.element] = dict(_entries(path))
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


def _entries(path: str) -> Iterator[tuple[int, Entry]]:
    """Read a joblog; of a task the last line counts."""
    for line in _joblog_lines(path):
        with suppress(FormatError, UnicodeDecodeError):
            entry = parse_line(line.decode().rstrip("\n"))
            yield entry.seq, entry


def _of_task(
    task: TaskState, attempts: Sequence[Run], given: dict[str, int | float | str]
) -> Iterator[Run]:
    """Give attempts the numbers of their task; the last has the task's own state."""
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
    """Give the last line that a task printed, if it failed."""
    if task.output is None or task.state == "COMPLETED" or task.state not in FINAL:
        return None
    return last_words(task.output)


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _joblog_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return file.readlines()
    except OSError:
        return []
