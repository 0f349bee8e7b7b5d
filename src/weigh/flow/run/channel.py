"""The event file of one run: made before the job, read after it, removed."""

import os
import time
from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.gpu import GpuMemory
from weigh.model.record import (
    Measurement,
    PeakMemory,
    Phase,
    Rank,
    Regions,
    Series,
    Usage,
)
from weigh.units import Bytes

VARIABLE = "WEIGH_CHANNEL"


STEP = "largest process of the step"  # the source of what `weigh run --stages` reports


_STEP_TREE = "sampled, all processes of the step"


_SEVERAL = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class Channel:
    """A file that a program with ``import weigh`` tells its phases to.

    It lies in the machine's own temporary folder, not in the store: a program may
    write to it often. Where it cannot be made, the job does without.
    """

    def __init__(self, name: str) -> None:
        self._path = next((path for path in _paths(name) if _is_made(path)), None)

    @property
    def path(self) -> str | None:
        """Give where it is; None where it could not be made."""
        return self._path

    def environment(self) -> dict[str, str]:
        """Give what the job's environment has to name."""
        return {} if self._path is None else {VARIABLE: self._path}

    def take(self, measured: Measurement) -> Measurement:
        """Add what the job told, and empty the file for a next run."""
        return with_own_rank(self._with_told(measured), os.environ)

    def _with_told(self, measured: Measurement) -> Measurement:
        if self._path is None or not _size(self._path):
            return measured
        from weigh.measure.region.channel import clock, read_channel  # noqa: PLC0415 - rare

        started = clock() - (time.time() - measured.started)
        ended = started + measured.usage.wall_time
        regions = read_channel(self._path, started=started, ended=ended)
        try:
            os.truncate(self._path, 0)
        except OSError:  # the job did away with its temporary folder
            self._path = None
        return with_regions(measured, regions)

    def close(self) -> None:
        """Remove the file."""
        if self._path is not None:
            _remove(self._path)


def forget(name: str) -> None:
    """Remove the file of a run whose weigh was killed, if it lies here."""
    for path in _paths(name):
        _remove(path)


def with_regions(measured: Measurement, regions: Regions) -> Measurement:
    """Join what the job told of itself with what was seen of it from outside."""
    return msgspec.structs.replace(
        measured,
        regions=msgspec.structs.replace(
            regions, phases=_with_step_peaks(regions.phases, measured)
        ),
        usage=with_told_peak(measured.usage, regions.peak_memory),
    )


def _with_step_peaks(
    phases: tuple[Phase, ...], measured: Measurement
) -> tuple[Phase, ...]:
    """Add to each step of ``weigh run --stages`` what its process tree used."""
    return tuple(
        _with_cards(_with_tree_peak(phase, measured.series), measured)
        if phase.source == STEP
        else phase
        for phase in phases
    )


def _with_cards(phase: Phase, measured: Measurement) -> Phase:
    """Add what the job held on each card in the step, where it was looked at then."""
    series, cards = measured.series, measured.usage.gpus
    if len(series.gpu_memory) != len(cards):
        return phase
    found = (
        _held(phase, card.uuid, list(zip(series.t, held, strict=True)))
        for card, held in zip(cards, series.gpu_memory, strict=True)
    )
    return msgspec.structs.replace(phase, gpus=tuple(filter(None, found)))


def _held(
    phase: Phase, uuid: str, seen: Sequence[tuple[float, Bytes]]
) -> GpuMemory | None:
    within = [held for at, held in seen if phase.start <= at <= phase.end]
    if not within:
        return None
    before = [held for at, held in seen if at < phase.start]
    return GpuMemory(uuid, before[-1] if before else within[0], within[-1], max(within))


def _with_tree_peak(phase: Phase, series: Series) -> Phase:
    seen = zip(series.t, series.memory, strict=True)
    within = (memory for at, memory in seen if phase.start <= at <= phase.end)
    peak = max(within, default=0)
    if peak <= (phase.peak_memory or 0):
        return phase
    return msgspec.structs.replace(phase, peak_memory=peak, source=_STEP_TREE)


def with_told_peak(usage: Usage, told: Bytes | None) -> Usage:
    """Correct the peak by what a process said that it held at most.

    A phase that measures its own peak resets the kernel's high-water mark, so a spike
    between two samples is known to that process alone.
    """
    seen = usage.max_process_memory or 0
    if told is None or told <= seen:
        return usage
    peak = usage.peak_memory
    if peak is not None:
        more = told - seen if seen else max(0, told - peak.value)
        peak = _raised(peak, more)
    return msgspec.structs.replace(usage, max_process_memory=told, peak_memory=peak)


def with_own_rank(measured: Measurement, env: Mapping[str, str]) -> Measurement:
    """Name the rank that weigh itself was started as, by ``srun weigh run`` say.

    The record's usage is that rank's then. Where the job has ranks of its own, those
    count.
    """
    told = () if measured.regions is None else measured.regions.ranks
    if measured.ranks or told or not any(name in env for name in _SEVERAL):
        return measured
    from weigh.measure.ranks import place_of  # noqa: PLC0415 - rare

    place = place_of(env)
    if place is None:
        return measured
    host = os.uname().nodename if hasattr(os, "uname") else None
    rank = Rank(place.rank, place.local_rank, host)
    return msgspec.structs.replace(measured, ranks=(rank,))


def _raised(peak: PeakMemory, more: Bytes) -> PeakMemory:
    anonymous = None if peak.anonymous is None else peak.anonymous + more
    value = peak.value + more
    return msgspec.structs.replace(
        peak,
        value=value,
        low=max(peak.low, value if peak.low == peak.value else peak.low),
        high=max(peak.high, value),
        anonymous=anonymous,
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _paths(name: str) -> list[str]:
    """Give where the file may lie: schedulers name folders that are not there."""
    folders = dict.fromkeys((os.environ.get("TMPDIR", ""), "/tmp"))  # noqa: S108 - opened exclusively
    file = f"weigh-{name}.events"
    return [os.path.join(folder, file) for folder in folders if os.path.isabs(folder)]


def _is_made(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
