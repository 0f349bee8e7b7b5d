"""Runs as the rows of a report, made from records of ``weigh run``."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from weigh.model.gpu import GpuUsage
from weigh.model.job import FINAL, SubmittedJob
from weigh.model.plan import Plan
from weigh.model.record import Allocation, Record, Request, State, Usage
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
    measured = iter(memory_uses_of_runs(record))
    for one in record.repeats:
        if not one.warmup:
            need, run = next(measured)
            its = msgspec.structs.replace(
                row,
                started=began,
                state=STATES.get(run.state, "UNKNOWN"),
                exit_code=one.exit_code,
                signal=one.signal,
                reason=None if run.completed else row.reason,
                **_row_usage_fields(one.usage),
            )
            peaks = _gpu_peaks(one.usage)
            yield ReviewedRun(row=its, record=record, need=need, gpu_peaks=peaks)
        # a repeat has no start of its own: each follows the one before
        began = None if began is None else began + one.usage.wall_time


def epoch_seconds(iso_time: str) -> Seconds | None:
    """Return a record's time as seconds since the epoch; None if it is invalid."""
    try:
        return datetime.fromisoformat(iso_time).timestamp()
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
        "memory_is_bound": peak is not None and peak.is_bound,
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


_AMOUNTS = ("cpus", "memory", "virtual_memory", "time_limit", "gpus", "gpu_memory")


class ElementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of one element; None is not requested, or unknown.

    ``gpu_memory`` is the memory of a GPU of the requested type; ``scheduler`` decides
    on the flags that change it, ``per_cpu`` on how memory is written. ``nodes`` are
    those that the CPUs of accounting are on, together.
    """

    scheduler: str | None = None
    cpus: int | None = None
    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    time_limit: int | None = None  # seconds
    gpus: int = 0
    gpu_memory: Bytes | None = None
    nodes: int = 1  # 1 also if unknown
    per_cpu: bool = False

    @property
    def is_nothing(self) -> bool:
        """Return whether no resource is known to be requested."""
        return not (self.memory or self.time_limit or self.cpus)


def requested_by_job(submitted_job: SubmittedJob, plan: Plan | None) -> ElementRequest:
    """Return what each element of a job requested."""
    wanted = submitted_job.request
    gpu = plan.gpu if plan else None
    return ElementRequest(
        scheduler=submitted_job.scheduler,
        cpus=wanted.cpus,
        memory=wanted.memory,
        virtual_memory=wanted.virtual_memory,
        time_limit=wanted.time_limit,
        gpus=wanted.gpus,
        # a plan may name a GPU whose job requests none
        gpu_memory=gpu.memory if gpu and wanted.gpus else None,
        per_cpu=wanted.site.per_cpu,
    )


def most_requested(several: Sequence[ElementRequest]) -> ElementRequest:
    """Return the maximum of each amount over *several*, of one scheduler."""
    most = {
        field: _largest_amount(getattr(one, field) for one in several)
        for field in _AMOUNTS
    }
    return ElementRequest(
        scheduler=several[0].scheduler,
        gpus=most.pop("gpus") or 0,
        nodes=max(one.nodes for one in several),
        per_cpu=any(one.per_cpu for one in several),
        **most,
    )


def requested_by_records(records: Sequence[Record]) -> ElementRequest:
    """Return what records requested or were granted; of several the maximum."""
    requests = [record.requested for record in records if record.requested]
    grants = [record.allocation for record in records if record.allocation]
    both: list[Request | Allocation] = [*requests, *grants]
    gpu_memory = [
        gpu.memory_total
        for record in records
        if record.usage
        for gpu in record.usage.gpus
    ]
    return ElementRequest(
        scheduler=grants[0].scheduler if grants else None,
        cpus=_largest_amount(one.cpus for one in both),
        memory=_largest_amount(one.memory for one in both),
        virtual_memory=_largest_amount(one.virtual_memory for one in requests),
        time_limit=_largest_amount(one.time_limit for one in requests),
        gpus=_largest_amount(one.gpus for one in both) or 0,
        gpu_memory=_largest_amount(gpu_memory),
    )


def _largest_amount(amounts: Iterable[int | None]) -> int | None:
    return max((value for value in amounts if value), default=None)


class GpuTotals(msgspec.Struct, frozen=True):
    """Seconds of GPUs in use, and joules over the runs that measured energy.

    None if no run had a GPU, or none measured energy; ``measured`` counts the runs
    that did.
    """

    time: Seconds | None
    energy: float | None
    measured: int


def gpu_time_and_energy(runs: Sequence[ReviewedRun]) -> GpuTotals:
    """Add up over GPUs; time that runs share on one GPU counts once.

    A GPU's energy counter includes all runs on it. For runs that share a GPU, the
    mean power over them is used.
    """
    spans: dict[str, list[tuple[Seconds, Seconds]]] = {}
    powers: dict[str, list[tuple[float, Seconds, Seconds]]] = {}
    measured = 0
    for run in runs:
        start, wall = run.row.started, run.row.wall_time
        # without a time it is not known with which runs it shared the GPU
        if start is None or not wall:
            continue
        gpus = held_gpus(run)
        # older GPUs have no energy counter: the sum is of those that have one
        measured += any(gpu.energy is not None for gpu in gpus)
        for gpu in gpus:
            spans.setdefault(gpu.uuid, []).append((start, start + wall))
            if gpu.energy is not None:
                known = gpu.energy, start, start + wall
                powers.setdefault(gpu.uuid, []).append(known)
    return GpuTotals(
        time=sum(map(covered_time, spans.values())) if spans else None,
        energy=sum(map(_shared_energy, powers.values())) if powers else None,
        measured=measured,
    )


def held_gpus(reviewed_run: ReviewedRun) -> tuple[GpuUsage, ...]:
    """Return the GPUs that a run used or was granted, not all of the machine."""
    record = reviewed_run.record
    if record is None or record.usage is None:
        return ()
    gpus = record.usage.gpus
    # what a job was granted it holds, used or not; elsewhere it may be other people's
    if record.allocation is not None:
        return gpus
    return tuple(gpu for gpu in gpus if gpu.was_used is not False)


def covered_time(spans: Iterable[tuple[Seconds, Seconds]]) -> Seconds:
    """Return the time that spans cover, with overlaps counted once."""
    total, until = 0.0, float("-inf")
    # in the order of their starts: what lies before *until* is counted already
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _shared_energy(energy_spans: Sequence[tuple[float, Seconds, Seconds]]) -> float:
    joules = sum(energy for energy, _, _ in energy_spans)
    long = sum(end - start for _, start, end in energy_spans)
    once = covered_time((start, end) for _, start, end in energy_spans)
    # each run read the whole counter, so shared time was added up as often as it was
    # shared
    return joules * once / long
