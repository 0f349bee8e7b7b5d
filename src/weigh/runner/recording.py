"""Make the records of attempts, and append them to the store in batches."""

import os
import time
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from weigh.errors import StoreError
from weigh.measure.peak import PeakTracker
from weigh.measure.watcher import ONE_PROCESS, SHORTEST_MEAN, TreeWatcher
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    MeasuringCost,
    ProgramRegions,
    Record,
    RecordedJob,
    RunMeasurement,
    SampleSeries,
    Usage,
)
from weigh.runner.attempt import TaskAttempt
from weigh.runner.retry import AttemptEnding
from weigh.store import lines, shards
from weigh.store.identity import MachineIdentity
from weigh.store.location import make_folder
from weigh.units import MIB, Bytes, Seconds

_FLOOR_GROWTH = MIB  # the error of the counters behind VmHWM
_NO_SERIES = SampleSeries()
_NO_REGIONS = ProgramRegions()


def tracker_floor(attempt: TaskAttempt) -> Bytes:
    """Return the memory up to which an attempt's may be weigh's own."""
    return attempt.floor + _FLOOR_GROWTH


def attempt_measurement(
    attempt: TaskAttempt, watcher: TreeWatcher | None, *, ended: bool = True
) -> RunMeasurement:
    """Return the measurement of an attempt, whether it was sampled or not."""
    wall = (attempt.state.ended if ended else time.monotonic()) - attempt.launch.began
    status = attempt.state.status if ended else None
    code = None if status is None else os.waitstatus_to_exitcode(status)
    tracker = (
        PeakTracker(tracker_floor(attempt)) if watcher is None else watcher.tracker
    )
    if ended:
        # the kernel's peak is known only now
        tracker.reap(attempt.usage.max_rss)
        tracker.finish(wall)
    return RunMeasurement(
        started=attempt.launch.started,
        ended=attempt.launch.started + wall if ended else None,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        usage=_attempt_usage(attempt, tracker, watcher, wall),
        series=_NO_SERIES if watcher is None else watcher.series(),
        monitor=MeasuringCost()
        if watcher is None
        else MeasuringCost(samples=watcher.looks, interval=watcher.reached_interval()),
        ranks=() if watcher is None else watcher.ranks(),
    )


def _attempt_usage(
    attempt: TaskAttempt,
    tracker: PeakTracker,
    watcher: TreeWatcher | None,
    wall: Seconds,
) -> Usage:
    kernel = attempt.usage
    cpu = kernel.user + kernel.system
    if watcher is None:
        usage = Usage(
            wall_time=wall,
            cpu_time=cpu,
            cpus_used=None if wall < SHORTEST_MEAN else cpu / wall,
            peak_memory=tracker.peak(ONE_PROCESS),
            max_process_memory=tracker.max_process(),
            processes=max(kernel.reaped, 1),
        )
    else:
        # the kernel's sum lacks processes that nobody waited for, the samples' those
        # that ended between two looks
        usage = watcher.usage(
            wall,
            max(cpu, watcher.most_cpu_time),
            reaped=kernel.reaped,
            method=ONE_PROCESS if watcher.tree.seen <= 1 else None,
        )
    return msgspec.structs.replace(
        usage,
        user_time=kernel.user,
        system_time=kernel.system,
        read_bytes=kernel.read_bytes,
        write_bytes=kernel.write_bytes,
    )


def measurement_with_gpus(
    measured: RunMeasurement,
    usages: tuple[GpuUsage, ...],
    memory_by_gpu: Sequence[Sequence[tuple[Seconds, Bytes]]],
    *,
    began: Seconds,
) -> RunMeasurement:
    """Add the usage of a task's GPUs.

    *memory_by_gpu* are its memory on each over time.
    """
    from weigh.measure.gpu_account import gpu_columns  # noqa: PLC0415 - with GPUs

    times = [began + at for at in measured.series.t]
    return msgspec.structs.replace(
        measured,
        usage=msgspec.structs.replace(measured.usage, gpus=usages),
        series=msgspec.structs.replace(
            measured.series, gpu_memory=gpu_columns(memory_by_gpu, times)
        ),
    )


def fill_record(
    unfinished_record: Record,
    attempt: TaskAttempt,
    measured: RunMeasurement,
    *,
    command: tuple[str, ...],
    ending: AttemptEnding | None,
) -> Record:
    """Return an attempt's record; without *ending* it is still running."""
    # task and attempt are kept there, also outside of any job
    job = unfinished_record.job or RecordedJob("")
    regions = measured.regions or _NO_REGIONS
    return msgspec.structs.replace(
        unfinished_record,
        id=attempt.record,
        command=command,
        started=record_time_text(measured.started),
        ended=None if measured.ended is None else record_time_text(measured.ended),
        state="RUNNING" if ending is None else ending.state,
        outcome=None if ending is None else ending.outcome,
        exit_code=measured.exit_code,
        signal=measured.signal,
        usage=measured.usage,
        series=measured.series,
        monitor=measured.monitor,
        phases=regions.phases,
        # the longest loop; a record has room for one
        batches=regions.batches[0] if regions.batches else None,
        events=regions.events,
        progress=measured.progress,
        ranks=measured.ranks or regions.ranks,
        nodes=measured.nodes,
        missing=measured.missing,
        job=msgspec.structs.replace(job, task=attempt.seq, attempt=attempt.number),
    )


class RecordBatch:
    """Records waiting to be appended to this machine's shard."""

    def __init__(self, root: str, machine: MachineIdentity) -> None:
        self.trouble: str | None = None
        self._root = root
        self._machine = machine
        self._lines: dict[str, list[bytes]] = {}

    def add(self, record: Record) -> None:
        """Queue a record until the next :meth:`flush`."""
        month = shards.month_folder(record.started)
        self._lines.setdefault(month, []).append(lines.encode_record(record))

    def flush(self) -> None:
        """Append all of them in one write; note errors in ``trouble``."""
        if not self._lines:
            return
        kept, self._lines = self._lines, {}
        for month, batch in kept.items():
            try:
                folder = make_folder(self._root, shards.RECORDS, month)
                path = os.path.join(folder, shards.shard_name(self._machine))
                shards.append_line(path, b"\n".join(batch))
            except (StoreError, OSError) as error:
                few = (
                    "1 record was" if len(batch) == 1 else f"{len(batch)} records were"
                )
                self.trouble = f"{few} not kept: {error}"


def record_time_text(seconds: Seconds) -> str:
    """Write seconds since the epoch in the format of records."""
    return f"{_whole_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=8)  # many short tasks share a second
def _whole_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def reset_weigh_peak_memory() -> None:
    """Reset weigh's own peak memory to what it holds now."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")  # resets VmHWM, see proc(5)
    except OSError:
        return
