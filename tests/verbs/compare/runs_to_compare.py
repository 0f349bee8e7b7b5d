"""Records to compare: one plain one to vary, and the guide's two V100 runs."""

from collections.abc import Sequence

import msgspec

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import (
    BatchTimes,
    PeakMemory,
    Record,
    RecordedHost,
    RepeatedRun,
    Usage,
)
from weigh.units import GIB, MIB

V100 = "Tesla V100-SXM2-32GB"


def peak(
    value: float, low: float | None = None, high: float | None = None
) -> PeakMemory:
    return PeakMemory(
        value=round(value),
        low=round(value if low is None else low),
        high=round(value if high is None else high),
        anonymous=None,
        shared=None,
        file=None,
        source="test",
    )


def usage(time: float = 10.0, memory: float = 400 * MIB, **more: object) -> Usage:
    plain = Usage(wall_time=time, cpu_time=time * 0.9, peak_memory=peak(memory))
    return msgspec.structs.replace(plain, **more)


def run(name: str = "a", use: Usage | None = None, **more: object) -> Record:
    plain = Record(
        id=f"id-{name}",
        label=name,
        command=("python", "tag.py", name),
        parameters={},
        host=RecordedHost(name="node07", system="Linux"),
        started="2026-11-21T10:00:00Z",
        state="COMPLETED",
        exit_code=0,
        usage=use or usage(),
    )
    return msgspec.structs.replace(plain, **more)


def repeated(name: str, times: Sequence[float], memory: Sequence[float] = ()) -> Record:
    sizes = memory or [400.0 * MIB] * len(times)
    uses = [usage(time, size) for time, size in zip(times, sizes, strict=True)]
    repeats = tuple(RepeatedRun(use, exit_code=0, signal=None) for use in uses)
    return run(name, uses[-1], repeats=repeats)


def guide_run(size: int) -> Record:
    """Give the guide's run of a batch size: a book of 881 paragraphs on a V100."""
    time, model, batch, ram, each = {
        50: (8.6445, 1.3270, 0.6641, 2.4532, 0.4906),
        300: (5.9519, 1.3270, 5.7539, 2.4740, 2.0267),
    }[size]
    total = round((model + batch) * GIB)
    card = GpuUsage(uuid="GPU-1", name=V100, peak_memory=total)
    part = GpuMemory(uuid="GPU-1", before=round(model * GIB), peak=total)
    loop = BatchTimes(
        size=size,
        count=-(-881 // size),
        samples=881,
        time_mean=each,
        time_per_sample=time / 881,
        gpus=(part,),
    )
    return run(
        f"tag-{size}",
        usage(time, ram * GIB, gpus=(card,)),
        batches=loop,
        parameters={"batch_size": size},
        command=("python", "tag.py", str(size)),
    )
