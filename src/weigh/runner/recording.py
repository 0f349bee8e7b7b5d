"""From an attempt to its record, and records to their shard many at a time."""

import os
import time
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from weigh.errors import StoreError
from weigh.measure.peak import PeakTracker
from weigh.measure.sampler import Sampler, is_growing, thin_series
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    Job,
    Measurement,
    Monitor,
    Record,
    Regions,
    Series,
    Usage,
)
from weigh.runner.attempt import Attempt
from weigh.runner.retry import Ending
from weigh.store import lines, shards
from weigh.store.identity import Machine
from weigh.store.location import make_folder
from weigh.units import MIB, Bytes, Seconds

_SHORTEST_MEAN = 0.1  # seconds below which a mean over the run says nothing
_FLOOR_GROWTH = MIB  # how far off the counters behind VmHWM are
_NO_SERIES = Series()
_NO_REGIONS = Regions()


def peak_tracker(attempt: Attempt) -> PeakTracker:
    """Begin to follow an attempt's memory; weigh's own size is no sign of it."""
    return PeakTracker(attempt.floor + _FLOOR_GROWTH)


def measurement(
    attempt: Attempt,
    tracker: PeakTracker,
    sampler: Sampler | None,
    *,
    processes: int,
    ended: bool = True,
) -> Measurement:
    """Sum up an attempt, sampled or over before there was a look at it."""
    wall = (attempt.ended if ended else time.monotonic()) - attempt.began
    status = attempt.status if ended else None
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if ended:
        tracker.reap(attempt.max_rss)
        tracker.finish(wall)
    return Measurement(
        started=attempt.started,
        ended=attempt.started + wall if ended else None,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        usage=_usage(attempt, tracker, sampler, processes=processes, wall=wall),
        series=_NO_SERIES if sampler is None else thin_series(sampler.samples),
        monitor=Monitor()
        if sampler is None
        else Monitor(samples=sampler.looks, interval=sampler.interval),
        ranks=() if sampler is None else sampler.ranks(),
    )


def _usage(
    attempt: Attempt,
    tracker: PeakTracker,
    sampler: Sampler | None,
    *,
    processes: int,
    wall: Seconds,
) -> Usage:
    seen = 0.0 if sampler is None else sampler.most_cpu_time
    cpu = max(attempt.user + attempt.system, seen)
    return Usage(
        wall_time=wall,
        cpu_time=cpu,
        user_time=attempt.user,
        system_time=attempt.system,
        cpus_used=None if wall < _SHORTEST_MEAN else cpu / wall,
        peak_memory=tracker.peak(_method(sampler, processes)),
        max_process_memory=tracker.max_process(),
        virtual_memory=tracker.virtual or None,
        read_bytes=attempt.read_bytes,
        write_bytes=attempt.write_bytes,
        processes=max(processes, attempt.reaped, 1),
        growing=None if sampler is None else is_growing(sampler.samples),
    )


def _method(sampler: Sampler | None, processes: int) -> str:
    if sampler is None or processes <= 1:
        return "kernel high-water mark of the one process"
    return (
        f"sampled every {round(sampler.interval * 1000)} ms, shared pages "
        "once, with the kernel's high-water marks"
    )


def with_gpus(
    measured: Measurement,
    usages: tuple[GpuUsage, ...],
    rows: Sequence[Sequence[tuple[Seconds, Bytes]]],
    *,
    began: Seconds,
) -> Measurement:
    """Add what a task did to its GPUs; *rows* are its memory on each over time."""
    from weigh.measure.gpu.account import gpu_columns  # noqa: PLC0415 - with GPUs

    times = [began + at for at in measured.series.t]
    return msgspec.structs.replace(
        measured,
        usage=msgspec.structs.replace(measured.usage, gpus=usages),
        series=msgspec.structs.replace(
            measured.series, gpu_memory=gpu_columns(rows, times)
        ),
    )


def filled(
    blank: Record,
    attempt: Attempt,
    measured: Measurement,
    *,
    command: tuple[str, ...],
    ending: Ending | None,
) -> Record:
    """Make an attempt's record; without *ending*, of one that still runs."""
    job = blank.job or Job("")
    told = measured.regions or _NO_REGIONS
    return msgspec.structs.replace(
        blank,
        id=attempt.record,
        command=command,
        started=utc(measured.started),
        ended=None if measured.ended is None else utc(measured.ended),
        state="RUNNING" if ending is None else ending.state,
        outcome=None if ending is None else ending.outcome,
        exit_code=measured.exit_code,
        signal=measured.signal,
        usage=measured.usage,
        series=measured.series,
        monitor=measured.monitor,
        phases=told.phases,
        batches=told.batches[0] if told.batches else None,
        events=told.events,
        progress=measured.progress,
        ranks=measured.ranks or told.ranks,
        job=msgspec.structs.replace(job, task=attempt.seq, attempt=attempt.number),
    )


class RecordBatch:
    """Records on their way to this machine's shard."""

    def __init__(self, root: str, machine: Machine) -> None:
        self.trouble: str | None = None
        self._root = root
        self._machine = machine
        self._lines: dict[str, list[bytes]] = {}

    def add(self, record: Record) -> None:
        """Keep a record until the next :meth:`flush`."""
        month = shards.month(record.started)
        self._lines.setdefault(month, []).append(lines.encode(record))

    def flush(self) -> None:
        """Append all of them in one write; trouble is noted and costs no task."""
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


def utc(seconds: Seconds) -> str:
    """Write a time since the epoch as a record has it."""
    return f"{_whole_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=8)  # many short tasks begin and end in one second
def _whole_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def forget_own_peak() -> None:
    """Make what weigh holds now the most it has held."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")
    except OSError:
        return
