"""The event file of one run: created before the job, read after it, removed."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from weigh.model.gpu import GpuMemory
from weigh.model.record import (
    BatchTimes,
    PeakMemory,
    ProgramPhase,
    ProgramRegions,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
)
from weigh.project_folders import HeldTemporary, temporary_folders
from weigh.units import Bytes, Seconds

VARIABLE = "WEIGH_CHANNEL"
_PREFIX, _ENDING = ".weigh-", ".regions"


# the sources of a step's figures under `weigh run FILE.toml`
STEP = "largest process of the step"
_STEP_TREE = "sampled, all processes of the step"
# variables of launchers that start several ranks; without one nothing is imported
SEVERAL = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


# sources of a peak: the kernel's account of a group, and of a single process
_MISS_NOTHING = ("own cgroup", "cgroup", "kernel")


class PhaseChannel:
    """A file to which programs with ``import weigh`` write their phases.

    It is in the machine's temporary folder, not in the store, because a program may
    write to it often. If it cannot be created, the job runs without it.
    """

    def __init__(self, name: str) -> None:
        # O_EXCL: a file that somebody put there is never written to
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self._file = HeldTemporary(
            temporary_folders(os.environ),
            f"{_PREFIX}{name}{_ENDING}",
            lambda path: os.close(os.open(path, flags, 0o600)),
        )

    @property
    def path(self) -> str | None:
        """Its path; None if it could not be created."""
        return self._file.path

    def environment(self) -> dict[str, str]:
        """Return the environment variable for the job."""
        return {} if self.path is None else {VARIABLE: self.path}

    def take(self, measurement: RunMeasurement) -> RunMeasurement:
        """Add the job's regions to *measurement*; empty the file for the next run."""
        return with_own_rank(self._with_reported(measurement), os.environ)

    def _with_reported(self, measurement: RunMeasurement) -> RunMeasurement:
        if self._file.path is None or not _channel_file_size(self._file.path):
            return measurement
        from weigh.measure.region.channel import clock, read_channel  # noqa: PLC0415 - rare

        # events have the monotonic clock, the measurement that of the day: convert
        started = clock() - (time.time() - measurement.started)
        ended = started + measurement.usage.wall_time
        regions = read_channel(self._file.path, started=started, ended=ended)
        try:
            # the next repetition writes into the same file
            os.truncate(self._file.path, 0)
        except OSError:  # the job removed its temporary folder
            self._file.path = None
        return with_regions(measurement, regions)

    def close(self) -> None:
        """Remove the file, and those of runs that were killed long ago."""
        self._file.close(os.unlink)


def with_regions(
    measurement: RunMeasurement, regions: ProgramRegions
) -> RunMeasurement:
    """Join the job's own regions with the measurement from outside."""
    return msgspec.structs.replace(
        measurement,
        regions=msgspec.structs.replace(
            regions,
            phases=_with_sampled_peaks(regions, measurement),
            batches=tuple(
                _with_gpu_peaks(one, regions, measurement) for one in regions.batches
            ),
        ),
        usage=with_reported_peak(measurement.usage, regions.peak_memory),
    )


def _with_sampled_peaks(
    regions: ProgramRegions, measurement: RunMeasurement
) -> tuple[ProgramPhase, ...]:
    """Add to each step its whole tree's peak, on GPUs too; to each phase the GPUs'."""
    return tuple(
        _with_gpus(_with_tree_peak(phase, measurement.series), measurement)
        if phase.source == STEP
        else _with_gpu_peaks(phase, regions, measurement)
        for phase in regions.phases
    )


_Part = TypeVar("_Part", ProgramPhase, BatchTimes)


def _with_gpu_peaks(
    part: _Part, regions: ProgramRegions, measurement: RunMeasurement
) -> _Part:
    """Raise the peaks that a program read of GPUs to those sampled meanwhile.

    A program reads at the edges of its phases and once per second in a loop, the
    sampler every 50 ms. Its column has the job's memory, to which belongs what was in
    use before the run; the program's own figures have what was in use before its first
    region instead.
    """
    columns = dict(
        zip(
            (gpu.uuid for gpu in measurement.usage.gpus),
            measurement.series.gpu_memory,
            strict=False,
        )
    )
    start: Seconds | None = part.start
    end: Seconds | None = part.end
    if not columns or not part.gpus or start is None or end is None:
        return part
    before = {gpu.uuid: gpu.memory_before or 0 for gpu in measurement.usage.gpus}
    first = {gpu.uuid: gpu.memory_before or 0 for gpu in regions.gpus}
    gpus: list[GpuMemory] = []
    for read in part.gpus:
        gpu, column = read, columns.get(read.uuid, ())
        # from the program's zero to that of the sampler
        if gpu.uuid in first and gpu.uuid in before:
            gpu = _shifted(gpu, before[gpu.uuid] - first[gpu.uuid])
        held = _most_within(measurement.series.t, column, start, end)
        total = None if held is None else before.get(gpu.uuid, 0) + held
        if total is not None and total > (gpu.peak or 0):
            gpu = msgspec.structs.replace(gpu, peak=total)
        gpus.append(gpu)
    return msgspec.structs.replace(part, gpus=tuple(gpus))


def _shifted(gpu: GpuMemory, by: Bytes) -> GpuMemory:
    def moved(size: Bytes | None) -> Bytes | None:
        return None if size is None else max(0, size + by)

    return msgspec.structs.replace(
        gpu, before=moved(gpu.before), after=moved(gpu.after), peak=moved(gpu.peak)
    )


def _most_within(
    times: Sequence[Seconds], column: Sequence[Bytes], start: Seconds, end: Seconds
) -> Bytes | None:
    """Return the most that a column has of a period; each value is since the last."""
    began = (0.0, *times)
    within = (
        held
        for since, at, held in zip(began, times, column, strict=False)
        if start <= since < at <= end
        # only samples whose whole span lies within the period
    )
    return max(within, default=None)


def _with_gpus(phase: ProgramPhase, measurement: RunMeasurement) -> ProgramPhase:
    """Add the job's memory on each GPU during the step, where it was sampled."""
    series, gpus = measurement.series, measurement.usage.gpus
    # without a column for each GPU it is not known which is whose
    if len(series.gpu_memory) != len(gpus):
        return phase
    found = (
        _gpu_memory_of_phase(phase, gpu.uuid, list(zip(series.t, held, strict=True)))
        for gpu, held in zip(gpus, series.gpu_memory, strict=True)
    )
    return msgspec.structs.replace(phase, gpus=tuple(filter(None, found)))


def _gpu_memory_of_phase(
    phase: ProgramPhase, gpu_uuid: str, seen: Sequence[tuple[float, Bytes]]
) -> GpuMemory | None:
    times, column = zip(*seen, strict=True) if seen else ((), ())
    peak = _most_within(times, column, phase.start, phase.end)
    if peak is None:
        return None
    until_end = [held for at, held in seen if at <= phase.end]
    before = [held for at, held in seen if at <= phase.start]
    return GpuMemory(gpu_uuid, before[-1] if before else peak, until_end[-1], peak)


def _with_tree_peak(phase: ProgramPhase, series: SampleSeries) -> ProgramPhase:
    # a sample has the most since the one before: the first of a step may be the last's
    peak = _most_within(series.t, series.memory, phase.start, phase.end)
    if peak is None or peak <= (phase.peak_memory or 0):
        return phase
    return msgspec.structs.replace(phase, peak_memory=peak, source=_STEP_TREE)


def with_reported_peak(usage: Usage, reported: Bytes | None) -> Usage:
    """Raise the peak to the one that a process has *reported* itself.

    A phase that measures its own peak resets the kernel's high-water mark, so only that
    process knows of a spike between two samples.
    """
    seen = usage.max_process_memory or 0
    # samples have seen as much
    if reported is None or reported <= seen:
        return usage
    peak = usage.peak_memory
    if peak is not None:
        peak = _raised(peak, reported, seen)
    return msgspec.structs.replace(usage, max_process_memory=reported, peak_memory=peak)


def with_own_rank(
    measurement: RunMeasurement, env: Mapping[str, str]
) -> RunMeasurement:
    """Add the rank that weigh itself was started as, for example by srun.

    The record's usage is then that rank's. If the job has ranks of its own, those
    count.
    """
    inner = () if measurement.regions is None else measurement.regions.ranks
    if measurement.ranks or inner or not any(name in env for name in SEVERAL):
        return measurement
    from weigh.measure.ranks import rank_in_environment  # noqa: PLC0415 - rare

    own = rank_in_environment(env)
    if own is None:
        return measurement
    host = os.uname().nodename if hasattr(os, "uname") else None
    rank = RecordedRank(own.rank, host)
    return msgspec.structs.replace(measurement, ranks=(rank,))


def _raised(peak: PeakMemory, reported: Bytes, seen: Bytes) -> PeakMemory:
    """Return the peak of a tree with a process that *reported* more than was *seen*.

    A figure that misses no moment holds its spike already. Else the others of the tree
    are added.
    """
    if peak.source.startswith(_MISS_NOTHING) or not seen:
        value = max(peak.value, reported)
    else:
        # the others of the tree, and the process with the spike
        value = peak.value + reported - seen
    is_exact = peak.low == peak.value
    anonymous = None if peak.anonymous is None else value - peak.value + peak.anonymous
    return msgspec.structs.replace(
        peak,
        value=value,
        low=value if is_exact else max(peak.low, reported),
        high=max(peak.high, value),
        anonymous=anonymous,
    )


def _channel_file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
