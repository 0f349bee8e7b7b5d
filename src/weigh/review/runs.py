"""Runs as the rows of a report, made from records of ``weigh run``."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from weigh.model.job import FINAL
from weigh.model.record import Record, State, Usage
from weigh.model.report import ReportRow
from weigh.render.printable import short_command
from weigh.request import memory_uses_of_runs
from weigh.schedulers import find_kind
from weigh.units import Bytes, Seconds

STATES: dict[str, State] = {word: word for word in (*FINAL, "RUNNING")}


class ReviewedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: its row, and its record without the series, if there is one.

    ``need`` is the memory that the kernel could not drop; ``gpu_peaks`` the peak memory
    on each GPU; ``is_last``: no later attempt at the task is known.
    """

    row: ReportRow
    record: Record | None = None
    need: Bytes | None = None  # None: not measured
    gpu_peaks: tuple[tuple[str, Bytes], ...] = ()
    is_last: bool = True


def run_of(record: Record) -> ReviewedRun:
    """Return the run of a record."""
    return ReviewedRun(
        row=row_of(record),
        record=record,
        need=max(
            (m for m, _ in memory_uses_of_runs(record) if m is not None), default=None
        ),
        gpu_peaks=_gpu_peaks(record.usage),
    )


def runs_of_records(records: Sequence[Record]) -> list[ReviewedRun]:
    """Return the runs of records, oldest first; the last run of a task counts.

    Some schedulers count elements from 1 in a record; here they count from 0.
    """
    in_order = sorted(records, key=lambda one: one.started)
    runs = [run for one in in_order for run in _repeats_of(one)]
    # oldest first, so that the newest run of a task stays; repeats of a record stay
    # together
    last = {_task_identity(run): run.row.record for run in runs}
    return [
        msgspec.structs.replace(
            run, is_last=last[_task_identity(run)] == run.row.record
        )
        for run in runs
    ]


def _repeats_of(record: Record) -> Iterator[ReviewedRun]:
    """Yield the run of a record, or each repeat without the warm-ups."""
    # a warm-up fills caches and is no sample of what is measured
    counted = [one for one in record.repeats if not one.warmup]
    if len(counted) <= 1:
        yield run_of(record)
        return
    row = row_of(record)
    began = row.started
    for one, (need, run) in zip(counted, memory_uses_of_runs(record), strict=True):
        its = msgspec.structs.replace(
            row,
            started=began,
            state=STATES.get(run.state, "UNKNOWN"),
            exit_code=one.exit_code,
            signal=one.signal,
            reason=None if run.completed else row.reason,
            **_row_usage_fields(one.usage),
        )
        yield ReviewedRun(
            row=its, record=record, need=need, gpu_peaks=_gpu_peaks(one.usage)
        )
        # a repeat has no start of its own: each follows the one before
        began = None if began is None else began + one.usage.wall_time


def epoch_seconds(iso_time: str | None) -> Seconds | None:
    """Return a record's time as seconds since the epoch; None if it is invalid."""
    try:
        return (
            None if iso_time is None else datetime.fromisoformat(iso_time).timestamp()
        )
    except (ValueError, OverflowError):
        return None


def _task_identity(reviewed_run: ReviewedRun) -> object:
    """Return the identity of a task; outside a job every record is a task."""
    record, row = reviewed_run.record, reviewed_run.row
    if record is None or record.job is None:
        return row.record
    return record.job.id, row.element, row.task


def row_of(record: Record) -> ReportRow:
    """Return the row of a record."""
    usage, job = record.usage, record.job
    scheduler = record.allocation.scheduler if record.allocation else None
    kind = find_kind(scheduler)
    # Grid Engine's array indices begin at 1, elements of a report at 0
    first = 0 if kind is None else kind.traits.first_element
    return ReportRow(
        job=job.id if job else None,
        task=job.task if job else None,
        element=None if job is None or job.element is None else job.element - first,
        attempt=job.attempt if job else None,
        record=record.id,
        label=record.label or "",
        parameters=record.parameters,
        state=STATES.get(record.state, "UNKNOWN"),
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.outcome.reason if record.outcome else None,
        node=record.host.name if record.host else None,
        started=epoch_seconds(record.started),
        command=short_command(record.command),
        **(_row_usage_fields(usage) if usage else {}),  # type: ignore[arg-type]
    )


def _row_usage_fields(usage: Usage) -> dict[str, object]:
    peak = usage.peak_memory
    busy = [g.utilization_mean for g in usage.gpus if g.utilization_mean is not None]
    energies = [gpu.energy for gpu in usage.gpus if gpu.energy is not None]
    held = [size for _, size in _gpu_peaks(usage)]
    return {
        "wall_time": usage.wall_time,
        "cpu_time": usage.cpu_time,
        "cpus": usage.cpus_used,
        "memory": peak.value if peak else usage.max_process_memory,
        "gpu_memory": max(held, default=None),
        # NVML's per cent as a share; the mean over the run's GPUs
        "gpu_utilization": sum(busy) / len(busy) / 100 if busy else None,
        "gpus": len(usage.gpus) if usage.gpus else None,
        "energy": sum(energies) if energies else None,
        "growing": usage.growing,
    }


def _gpu_peaks(usage: Usage | None) -> tuple[tuple[str, Bytes], ...]:
    """Return the peak memory of a run on each GPU."""
    held = ((gpu.uuid, gpu.job_peak) for gpu in (usage.gpus if usage else ()))
    return tuple((uuid, size) for uuid, size in held if size is not None)
