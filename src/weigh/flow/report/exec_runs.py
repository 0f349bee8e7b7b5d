"""Runs of a ``weigh exec``: every attempt in its joblog and its events file."""

import os
from collections.abc import Iterator, Mapping

import msgspec

from weigh.flow.follow.tasks import last_line_of_output
from weigh.flow.records import joined_records as report_records
from weigh.flow.report.runs import (
    ReportedAttempt,
    attempts_in_events,
    joblog_entries,
    run_of_ended_attempt,
)
from weigh.joblog import JoblogEntry, output_folder, output_name
from weigh.model.job import FINAL
from weigh.model.mask import MASK
from weigh.model.record import Record, State
from weigh.model.report import ReportRow
from weigh.review.runs import ReviewedRun, run_of
from weigh.runner import events
from weigh.store.identity import is_alive, this_machine


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
    opened, attempts = attempts_in_events(joblog_path + events.SUFFIX)
    entries = dict(joblog_entries(joblog_path))
    ids = {one.ended.record for one in attempts if one.ended is not None}
    records = report_records.by_ids(root, ids)
    # attempts without an end run only while a weigh exec may
    is_running = opened is not None and _may_run(opened)
    by_task: dict[int, list[ReviewedRun]] = {seq: [] for seq in entries}
    for one in attempts:
        run = _run_of_attempt(one, records, is_running=is_running)
        by_task.setdefault(one.seq, []).append(run)
    # without the event of an opening, the tasks in the joblog are all that is known
    total = opened.tasks if opened is not None else len(by_task)
    for seq in range(1, total + 1):
        by_task.setdefault(seq, [])
    folder = output_folder(joblog_path)
    return [
        run
        for seq, tried in sorted(by_task.items())
        for run in _runs_of_task(
            seq, tried or [_unmeasured_exec_run(entries.get(seq))], folder
        )
    ]


def _may_run(opened: events.RunOpened) -> bool:
    """Return whether the newest ``weigh exec`` may go on: elsewhere it may."""
    # processes of another machine cannot be seen from here
    if not this_machine().sees_processes_of(opened.machine):
        return True
    return is_alive(opened.process)


def _run_of_attempt(
    reported_attempt: ReportedAttempt,
    records: Mapping[str, Record],
    *,
    is_running: bool,
) -> ReviewedRun:
    if reported_attempt.ended is None:
        state: State = "RUNNING" if is_running else "INTERRUPTED"
        return ReviewedRun(
            row=ReportRow(
                attempt=reported_attempt.attempt,
                state=state,
                node=reported_attempt.node,
                started=reported_attempt.started.time,
            )
        )
    record = records.get(reported_attempt.ended.record)
    return run_of_ended_attempt(reported_attempt) if record is None else run_of(record)


def _unmeasured_exec_run(entry: JoblogEntry | None) -> ReviewedRun:
    """Return the run of a task without events: timed by a joblog, or not started."""
    if entry is None:
        return ReviewedRun(row=ReportRow(state="PENDING", attempts=0))
    return ReviewedRun(
        row=ReportRow(
            state="COMPLETED" if entry.succeeded else "FAILED",
            exit_code=entry.exit_code,
            signal=entry.signal or None,
            node=None if entry.host == ":" else entry.host,
            started=entry.started,
            wall_time=entry.wall_time,
            command=MASK.line(entry.command),
        )
    )


def _runs_of_task(
    task_number: int, tried: list[ReviewedRun], folder: str
) -> Iterator[ReviewedRun]:
    """Yield the attempts at a task; the last has its output and the error in it."""
    for number, run in enumerate(tried, start=1):
        path = os.path.join(folder, output_name(task_number, number))
        output = path if os.path.exists(path) else None
        is_bad = run.row.state in FINAL and run.row.state != "COMPLETED"
        row = msgspec.structs.replace(
            run.row,
            job=None,  # each weigh exec has an id of its own
            task=task_number,
            # 0 attempts stay 0: the task was never started
            attempts=run.row.attempts and len(tried),
            output=output,
            # only an output that ended badly is read: there may be thousands
            error=last_line_of_output(output) if output and is_bad else None,
        )
        yield msgspec.structs.replace(run, row=row, is_last=number == len(tried))
