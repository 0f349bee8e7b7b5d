"""Time and energy of the GPUs, counted once where several runs shared one."""

from collections.abc import Iterable, Sequence

import msgspec

from weigh.model.gpu import GpuUsage
from weigh.review.runs import ReviewedRun
from weigh.units import Seconds


class GpuTotals(msgspec.Struct, frozen=True):
    """Seconds of GPUs in use, and joules over the runs that measured energy.

    None if no run had a GPU, or none measured energy; ``measured`` counts the runs
    that did.
    """

    time: Seconds | None = None
    energy: float | None = None
    measured: int = 0


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
