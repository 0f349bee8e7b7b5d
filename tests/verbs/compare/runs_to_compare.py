"""Records to compare: one plain one to vary, and the guide's two V100 runs."""

from collections.abc import Sequence
from typing import Any

from some_runs import a_run, a_usage

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import BatchTimes, Record, RecordedHost, RepeatedRun, Usage
from weigh.units import GIB, MIB

V100 = "Tesla V100-SXM2-32GB"


def usage(time: float = 10.0, memory: float = 400 * MIB, **more: Any) -> Usage:
    return a_usage(memory, wall_time=time, cpu_time=time * 0.9, **more)


def run(name: str = "a", use: Usage | None = None, **more: Any) -> Record:
    usual: dict[str, Any] = {
        "id": f"id-{name}",
        "label": name,
        "host": RecordedHost(name="node07", system="Linux"),
        "usage": use or usage(),
        "command": ("python", "tag.py", name),
    }
    return a_run(**usual | more)


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
        gpus=(
            part,
            GpuMemory(uuid="GPU-2", before=GIB),
            GpuMemory(uuid="GPU-3", peak=1),
        ),
    )
    return run(
        f"tag-{size}",
        usage(time, ram * GIB, gpus=(card,)),
        batches=loop,
        parameters={"batch_size": size},
        command=("python", "tag.py", str(size)),
    )
