"""The runs of a submitted job: attempts at tasks, from events, records, joblogs."""

import os
from binascii import crc32
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.task_history import (
    JoblogHistory,
    RecordedAttempt,
    records_of_attempts,
)
from weigh.flow.follow.tasks import last_lines_of_output
from weigh.flow.follow.view import (
    JobView,
    is_unsent,
    latest_task_states,
    with_unsent,
)
from weigh.flow.plan.directory import plan_in_folder_of, tasks_of
from weigh.joblog import JoblogEntry, output_folder, output_name
from weigh.model.job import FINAL, TaskState
from weigh.model.mask import MASK
from weigh.model.record import Record
from weigh.model.report import NOT_RUN, ReportRow
from weigh.regular_file import only_regular
from weigh.review.runs import STATES, ReviewedRun, run_of
from weigh.runner import events
from weigh.runner.task_source import TaskParameters
from weigh.store.identity import is_alive, this_machine
from weigh.sweep.quoting import bash_quoted
from weigh.sweep.task_file import read_task_lines
from weigh.units import Seconds

Parameters = dict[str, int | float | str]
_WEIGH_KILLED = "weigh was killed before the task ended"


def parameters_of(job_view: JobView) -> Mapping[int, Parameters]:
    """Return the parameters of each task by its number.

    Empty if the task file was edited since, or has no table of parameters.
    """
    try:
        plan = plan_in_folder_of(job_view.job)
    except WeighError:
        return {}
    elements = {task.element for task in job_view.tasks}
    path = os.path.join(job_view.job.cwd, plan.task_file)
    # a task whose line was edited since has none
    with closing(TaskParameters(path)) as table:
        return {
            number: table.of(number, line)
            for number, line in _numbered_task_lines(job_view, elements)
        }


def _numbered_task_lines(
    job_view: JobView, elements: Iterable[int]
) -> Iterable[tuple[int, str]]:
    """Yield number and command line of the tasks of a plan."""
    numbers = {(task.element, task.seq): task.task for task in job_view.tasks}
    for path, element in _task_files(job_view, elements):
        try:
            with open(path, "rb", opener=only_regular) as file:
                for task in read_task_lines(file, path):
                    number = numbers.get((element, task.seq))
                    if number is not None:
                        yield number, task.command
        except (OSError, WeighError):
            continue


def _task_files(
    job_view: JobView, elements: Iterable[int]
) -> Iterator[tuple[str, int]]:
    """Yield the path of each task file with the element whose tasks to read in it."""
    try:
        queue = plan_in_folder_of(job_view.job).queue
    except WeighError:
        queue = None
    for element in elements:
        if queue is not None:
            yield tasks_of(job_view.job, queue), element
        # files are numbered over the plan, elements within their job
        else:
            name = f"tasks_{job_view.job.first + element}.txt"
            yield os.path.join(job_view.job.plan_folder, name), element


def runs_of_view(job_view: JobView, root: str) -> list[ReviewedRun]:
    """Return the runs of a submitted job: all attempts, and tasks without one.

    Raises:
        StoreError: the records cannot be read.
    """
    if job_view.job.is_script:
        return list(_runs_of_own(job_view, root))
    history = job_view.history
    attempts: dict[tuple[int, int], list[ReviewedRun]] = {}
    records = history.records(root)
    for one in history.attempts:
        record = records.get((one.element, one.seq, one.attempt))
        run = _run_of_attempt(one, record) or _cut_short(one, job_view)
        attempts.setdefault((one.element, one.seq), []).append(run)
    given = parameters_of(job_view)
    runs: list[ReviewedRun] = []
    for task in job_view.tasks:
        tried = attempts.get((task.element, task.seq))
        if not tried:  # what the joblog has of it
            entry = history.element(task.element).entries.get(task.seq)
            nodes = [state.node for state in job_view.elements]
            tried = [_run_of_entry(entry, nodes[task.element] if nodes else None)]
        runs += (
            _on_node(run, job_view) if run.is_last else run
            for run in _attempts_with_task(task, tried, given.get(task.task, {}))
        )
    return runs


def unsent_runs(views: Sequence[JobView]) -> Iterator[ReviewedRun]:
    """Yield a run for each task of the plan that was not submitted."""
    for task in latest_task_states(with_unsent(views)).values():
        if is_unsent(task):
            row = ReportRow(job=task.job, task=task.task, state=task.state, attempts=0)
            yield ReviewedRun(row=row)


def _runs_of_own(job_view: JobView, root: str) -> Iterator[ReviewedRun]:
    """Yield the runs of a job with the user's own script: measured ones, or states."""
    found: dict[int, list[ReviewedRun]] = {}
    for (element, _, _), record in job_view.history.records(root).items():
        found.setdefault(element, []).append(run_of(record))
    for task in job_view.tasks:
        tried = found.get(task.element) or [_by_state(job_view, task)]
        for run in _attempts_with_task(task, tried, {}):
            job = msgspec.structs.replace(run.row, job=job_view.job.id)
            yield msgspec.structs.replace(run, row=job)


def _by_state(job_view: JobView, task_state: TaskState) -> ReviewedRun:
    """Return the run of an element that was not measured, timed by the scheduler."""
    state = job_view.elements[task_state.element]
    wall = None
    if state.started is not None and state.ended is not None:
        wall = max(0.0, state.ended - state.started)
    words = (
        os.path.basename(job_view.job.script) or job_view.job.name,
        *_arguments(job_view),
    )
    return ReviewedRun(
        row=ReportRow(
            node=state.node,
            started=state.started,
            wall_time=wall,
            command=MASK.line(" ".join(words)),
            attempts=0 if state.started is None else 1,
        )
    )


def _arguments(job_view: JobView) -> tuple[str, ...]:
    return job_view.job.own.arguments if job_view.job.own else ()


def _on_node(reviewed_run: ReviewedRun, job_view: JobView) -> ReviewedRun:
    """Return a run with the node's name in the scheduler, for flags to exclude it."""
    element = reviewed_run.row.element
    known = element is not None and element < len(job_view.elements)
    node = job_view.elements[element or 0].node if known else None
    if not node or not node.replace("-", "").replace(".", "").isalnum():
        return reviewed_run  # one of several nodes, unknown which
    return msgspec.structs.replace(
        reviewed_run, row=msgspec.structs.replace(reviewed_run.row, node=node)
    )


def _run_of_attempt(
    attempt: RecordedAttempt, record: Record | None
) -> ReviewedRun | None:
    """Return the run of an attempt, from its record or else the event of its end.

    None if there is neither.
    """
    ended = attempt.ended
    if record is not None:
        return run_of(record)
    if ended is None:
        return None
    row = ReportRow(
        attempt=ended.attempt,
        record=ended.record,
        state=STATES.get(ended.state, "FAILED"),
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
        node=attempt.node,
        started=attempt.started.time,
        wall_time=ended.wall_time,
        cpu_time=ended.cpu_time,
        cpus=_mean(ended.cpu_time, ended.wall_time),
        memory=ended.peak_memory,
        gpu_memory=ended.gpu_memory,
    )
    return ReviewedRun(row=row, need=ended.peak_memory)


def _cut_short(attempt: RecordedAttempt, job_view: JobView) -> ReviewedRun:
    """Return the run of an attempt without an end: it ended with its element."""
    state = (
        job_view.elements[attempt.element]
        if attempt.element < len(job_view.elements)
        else None
    )
    # it ended with its element at the latest
    ended = state.ended if state and state.is_final else None
    is_running = state is not None and not state.is_final
    return _run_without_end(attempt, is_running=is_running, ended=ended)


def _run_without_end(
    attempt: RecordedAttempt,
    *,
    is_running: bool,
    ended: Seconds | None = None,
    reason: str | None = None,
) -> ReviewedRun:
    """Return the run of an attempt whose end no event has; *reason*: why it ended."""
    begun = attempt.started.time
    row = ReportRow(
        attempt=attempt.attempt,
        state="RUNNING" if is_running else "INTERRUPTED",
        reason=None if is_running else reason,
        node=attempt.node,
        started=begun,
        wall_time=None if ended is None else max(0.0, ended - begun),
    )
    return ReviewedRun(row=row)


def _mean(cpu_time: Seconds | None, wall_time: Seconds | None) -> float | None:
    return cpu_time / wall_time if cpu_time is not None and wall_time else None


def _run_of_entry(entry: JoblogEntry | None, node: str | None) -> ReviewedRun:
    """Return the run of a task without events: timed by a joblog, or not started."""
    if entry is None:
        return ReviewedRun(row=ReportRow(node=node, state="PENDING", attempts=0))
    return ReviewedRun(
        row=ReportRow(
            state="COMPLETED" if entry.succeeded else "FAILED",
            exit_code=entry.exit_code,
            signal=entry.signal or None,
            node=node if entry.host == ":" else entry.host,
            started=entry.started,
            wall_time=entry.wall_time,
            command=MASK.line(entry.command),
        )
    )


def _attempts_with_task(
    task_state: TaskState,
    attempts: Sequence[ReviewedRun],
    given: dict[str, int | float | str],
) -> Iterator[ReviewedRun]:
    """Yield attempts with the numbers of their task; the last has the task's state."""
    for number, run in enumerate(attempts, start=1):
        is_last = number == len(attempts)
        row = msgspec.structs.replace(
            run.row,
            task=task_state.task,
            element=task_state.element,
            attempts=run.row.attempts and len(attempts),
            parameters=run.row.parameters or given,
        )
        if is_last:
            # the scheduler knows how the task ended at last, events only how the
            # attempt did
            row = msgspec.structs.replace(
                row,
                state=task_state.state,
                exit_code=_first_known(task_state.exit_code, row.exit_code),
                signal=_first_known(task_state.signal, row.signal),
                reason=task_state.reason or row.reason,
                output=task_state.output,
                error=_last_words(task_state),
            )
        yield msgspec.structs.replace(run, row=row, is_last=is_last)


def _last_words(task_state: TaskState) -> str | None:
    """Return the line that states why a task failed, by what it printed."""
    if (
        task_state.output is None
        or task_state.state == "COMPLETED"
        or task_state.state not in FINAL
    ):
        return None
    return next(iter(last_lines_of_output(task_state.output)), None)


def _first_known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def joblog_of(name: str) -> str | None:
    """Return the joblog of the task file *name*, or *name* if it is one itself."""
    for path in (name, f"{name}.joblog"):
        if os.path.isfile(path) and path.endswith(".joblog"):
            return path
    return None


def runs_of_exec(joblog_path: str, root: str) -> list[ReviewedRun]:
    """Return all attempts at the tasks of *joblog_path*, and the tasks without one.

    Raises:
        StoreError: the records cannot be read.
    """
    history = JoblogHistory(joblog_path)
    opened, attempts = history.recorded.opened, history.recorded.attempts
    entries = history.entries
    records = records_of_attempts(root, attempts, None)
    # attempts without an end run only while a weigh exec may
    is_running = opened is not None and _may_run(opened)
    places = _numbers_in_edited_file(joblog_path, opened, attempts)
    if places is not None:
        # lines of the joblog still have the numbers from before the edit
        entries = {}
    by_task: dict[int, list[ReviewedRun]] = {seq: [] for seq in entries}
    for one in attempts:
        number = one.seq if places is None else places.get((one.seq, one.started.task))
        if number is None:
            continue
        record = records.get((one.element, one.seq, one.attempt))
        run = _run_of_attempt(one, record) or _run_without_end(
            one, is_running=is_running, reason=_WEIGH_KILLED
        )
        row = msgspec.structs.replace(run.row, output=output_name(one.seq, one.attempt))
        by_task.setdefault(number, []).append(msgspec.structs.replace(run, row=row))
    # without the event of an opening, the tasks in the joblog are all that is known
    total = opened.tasks if opened is not None else len(by_task)
    for seq in range(1, total + 1):
        by_task.setdefault(seq, [])
    folder = output_folder(joblog_path)
    runs = [
        run
        for seq, tried in sorted(by_task.items())
        for run in _runs_of_task(
            seq, tried or [_run_of_entry(entries.get(seq), None)], folder
        )
    ]
    return runs if is_running else _without_waiting(runs, joblog_path)


def _without_waiting(
    runs: Iterable[ReviewedRun], joblog_path: str
) -> list[ReviewedRun]:
    """Return runs after the end of ``weigh exec``: no task waits any more."""
    task_file = os.path.relpath(joblog_path).removesuffix(".joblog")
    way_out = f"weigh exec {bash_quoted(task_file)} runs what is left"
    # that of a submitted command is temporary
    reason = f"{NOT_RUN}: {way_out}" if os.path.isfile(task_file) else NOT_RUN
    return [
        msgspec.structs.replace(
            run, row=msgspec.structs.replace(run.row, reason=reason)
        )
        if run.row.state == "PENDING"
        else run
        for run in runs
    ]


def _numbers_in_edited_file(
    joblog_path: str,
    opened: events.RunOpened | None,
    attempts: Sequence[RecordedAttempt],
) -> dict[tuple[int, str], int] | None:
    """Return the present number of each (number, text's hash) that was attempted.

    An attempt at a line that is gone has none. None if no task got a new number, or
    if the task file is not the one that the newest ``weigh exec`` ran.
    """
    tried = dict.fromkeys((one.seq, one.started.task) for one in attempts)
    newest = {
        (one.seq, one.started.task)
        for one in attempts
        if opened is not None and one.started.run == opened.run
    }
    present = dict(enumerate(_hashes_of_task_file(joblog_path), start=1))
    is_same = opened is not None and len(present) == opened.tasks
    if not is_same or any(present.get(seq) != text for seq, text in newest):
        return None
    # an empty hash: the line of the attempt's start was lost
    kept = {(seq, text) for seq, text in tried if text in ("", present.get(seq))}
    if len(kept) == len(tried):
        return None
    places = {place: place[0] for place in kept}
    free: dict[str, list[int]] = {}
    for seq, text in present.items():
        if (seq, text) not in kept:
            free.setdefault(text, []).append(seq)
    for place in tried:
        if place not in kept and free.get(place[1]):
            places[place] = free[place[1]].pop(0)
    return places


def _hashes_of_task_file(joblog_path: str) -> list[str]:
    """Return the hash of each task that *joblog_path* is of, as in events."""
    path = joblog_path.removesuffix(".joblog")
    try:
        with open(path, "rb", opener=only_regular) as file:
            return [f"{crc32(line.text):08x}" for line in read_task_lines(file, path)]
    except (OSError, WeighError):
        return []


def _may_run(opened: events.RunOpened) -> bool:
    """Return whether the newest ``weigh exec`` may go on: elsewhere it may."""
    # processes of another machine cannot be seen from here
    if not this_machine().sees_processes_of(opened.machine):
        return True
    return is_alive(opened.process)


def _runs_of_task(
    task_number: int, tried: list[ReviewedRun], folder: str
) -> Iterator[ReviewedRun]:
    """Yield the attempts at a task; the last has its output and the error in it."""
    for number, run in enumerate(tried, start=1):
        name = run.row.output or output_name(task_number, number)
        path = os.path.join(folder, name)
        output = path if os.path.exists(path) else None
        state = run.row.state
        # the last words of a task that weigh's end cut short are no reason
        is_bad = state in FINAL and state not in {"COMPLETED", "INTERRUPTED"}
        row = msgspec.structs.replace(
            run.row,
            job=None,  # each weigh exec has an id of its own
            task=task_number,
            # 0 attempts stay 0: the task was never started
            attempts=run.row.attempts and len(tried),
            output=output,
            # only an output that ended badly is read: there may be thousands
            error=next(iter(last_lines_of_output(output)), None)
            if output and is_bad
            else None,
        )
        yield msgspec.structs.replace(run, row=row, is_last=number == len(tried))
