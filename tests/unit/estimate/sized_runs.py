"""Records of runs at several sizes, for fits."""

from collections.abc import Iterable, Sequence
from typing import Any

from some_runs import a_run

from weigh.estimate.curve import gather_size_points
from weigh.estimate.fit import FittedCurve, Quantity, fit_curve
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import BatchTimes, Record, RecordedHost
from weigh.units import GIB, MIB

V100 = "Tesla V100-SXM2-32GB"
V100_TOTAL = 32768 * MIB
BY = "batch_size"


def sized_run(
    size: float | str,
    memory: float | None = None,
    *,
    time: float = 10.0,
    gpu: float | None = None,
    **other: Any,
) -> Record:
    """Give a run of ``tag.py SIZE``; memory in bytes."""
    card = GpuUsage(
        uuid="GPU-1",
        name=V100,
        memory_total=V100_TOTAL,
        memory_before=0,
        peak_memory=None if gpu is None else round(gpu),
    )
    usual: dict[str, Any] = {
        "id": f"id-{size}-{memory}-{time}-{gpu}",
        "parameters": {BY: size},
        "host": RecordedHost(name="node07", system="Linux"),
        "wall_time": time,
        "gpus": () if gpu is None else (card,),
    }
    return a_run(f"python tag.py {size}", memory, **usual | other)


def sized_runs(sizes: Sequence[float], memories: Sequence[float]) -> list[Record]:
    return [sized_run(*pair) for pair in zip(sizes, memories, strict=True)]


def on_a_line(*sizes: float, base: float = GIB, each: float = 10 * MIB) -> list[Record]:
    return sized_runs(sizes, [base + each * size for size in sizes])


def timed_batches(size: int, memory: int, base: int, time: float) -> BatchTimes:
    """Give a loop over 881 samples that began with *base* bytes on the card."""
    return BatchTimes(
        size=size,
        count=-(-881 // size),
        samples=881,
        time_per_sample=time / 881,
        gpus=(GpuMemory(uuid="GPU-1", before=base, peak=memory),),
    )


def guide_runs(unit: float = 10**9) -> list[Record]:
    """Give the guide's two runs on a V100: the model's phase, then the batches."""
    runs = []
    for size, time, batch in ((50, 8.6445, 0.6641), (300, 5.9519, 5.7539)):
        base = round(1.3270 * unit)
        total = round((1.3270 + batch) * unit)
        loop = timed_batches(size, total, base, time)
        runs.append(sized_run(size, 2.45 * GIB, time=time, gpu=total, batches=loop))
    return runs


def fit_of(
    pairs: Iterable[tuple[float, float]], quantity: Quantity = "memory"
) -> FittedCurve:
    """Fit sizes and what was measured at each, of which the most counts."""
    points = [(float(size), float(measured)) for size, measured in pairs]
    return fit_curve(gather_size_points(points, keep="most"), quantity)
