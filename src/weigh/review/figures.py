"""Figures of the scheduler next to weigh's own, and which of the two to trust."""

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.report import Accounted, Figure, GpuTable, Measure
from weigh.review.requested import Requested
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.slurm import text as slurm_text
from weigh.units import Seconds

_SAME = 0.05  # a smaller relative difference counts as the same


_WHOLE_SECONDS = 2.0  # accounting has whole seconds, weigh milliseconds


VIRTUAL = "qacct maxvmem"


_TABLE = "the job log's GPU table"


def with_accounting(requested: Requested, accounted: Sequence[Accounted]) -> Requested:
    """Return *requested*, completed by what only accounting knows."""
    if not accounted:
        return requested
    first = accounted[0]
    return msgspec.structs.replace(
        requested,
        cpus=requested.cpus or first.cpus,
        memory=requested.memory or first.memory_asked,
        time_limit=requested.time_limit or first.time_limit,
        gpus=requested.gpus or first.gpus or 0,
    )


def with_other_figures(
    measures: Sequence[Measure],
    accounted: Sequence[Accounted],
    tables: Sequence[GpuTable],
    *,
    scheduler: str | None,
    killed: bool = False,
) -> tuple[Measure, ...]:
    """Return measures with the figures of other sources that differ from weigh's.

    *killed*: a task was killed for memory, even if accounting reports another state.
    """
    over = tuple(one for one in accounted if one.state not in {"RUNNING", "PENDING"})
    walls = (one.most for one in measures if one.name == "time")
    killed = killed or any(one.state == "OUT_OF_MEMORY" for one in accounted)
    others = _Others(over, tuple(tables), scheduler, killed, next(walls, None))
    return tuple(
        msgspec.structs.replace(one, others=tuple(others.of(one))) for one in measures
    )


class _Others(msgspec.Struct, frozen=True):
    """The figures of accounting and GPU tables; ``wall_time`` is weigh's largest."""

    accounted: tuple[Accounted, ...]
    tables: tuple[GpuTable, ...]
    scheduler: str | None
    killed: bool
    wall_time: Seconds | None

    def of(self, measure: Measure) -> Iterator[Figure]:
        """Yield their figures of one measure."""
        if measure.name == "memory":
            yield from _memory(measure, self)
        elif measure.name == "gpu_memory":
            yield from _gpu_memory(measure, self.accounted, self.tables)
        elif measure.name == "gpu_utilization":
            yield from _busy(measure, self.accounted, self.tables)
        elif measure.name == "cpus":
            yield from _cpus(measure, self)
        elif measure.name == "time":
            yield from _time(measure, self.accounted, self.scheduler)


def _memory(measure: Measure, others: _Others) -> Iterator[Figure]:
    ours, accounted, scheduler = measure.most, others.accounted, others.scheduler
    sizes = [one.max_rss for one in accounted if one.max_rss is not None]
    theirs = max(sizes, default=None)
    if (
        theirs is None
        and scheduler == slurm_text.NAME
        and accounted
        and ours is not None
    ):
        theirs = 0  # sacct leaves MaxRSS empty where no sample was taken
    if theirs is not None and not _alike(ours, theirs):
        if scheduler == gridengine_text.NAME:
            yield Figure(
                source="qacct ru_maxrss", value=theirs, word=_of_qacct(ours, theirs)
            )
        else:
            sampled = _sampled(accounted)
            word = _of_sacct(ours, theirs, sampled, killed=others.killed)
            yield Figure(source="sacct MaxRSS", value=theirs, word=word)
    virtual = [one.virtual_memory for one in accounted if one.virtual_memory]
    if virtual and scheduler == gridengine_text.NAME:
        yield Figure(
            source=VIRTUAL,
            value=max(virtual),
            word="address space, which h_vmem limits; not memory in use",
        )


def _sampled(accounted: Sequence[Accounted]) -> Seconds | None:
    """Return the seconds between the site's samples; None if unknown."""
    return next((one.sampled for one in accounted if one.sampled is not None), None)


def _how_often(sampled: Seconds | None) -> str:
    if sampled is None:
        return "sampled at an interval that is not known"
    return f"sampled every {sampled:g} s" if sampled else "sampled at the end only"


def _of_sacct(
    ours: float | None, theirs: float, sampled: Seconds | None, *, killed: bool
) -> str:
    """Return what to think of MaxRSS; a low one is wrong where samples are far apart.

    Where the interval is unknown it may be too low, or weigh's too high.
    """
    if ours is None:
        return f"{_how_often(sampled)}: peaks in between are missed"
    if theirs < ours:
        if killed:
            return "its last sample before the kill: trust weigh's"
        if not theirs:
            often = "" if sampled is None else f" ({_how_often(sampled)})"
            return f"not zero: no sample was taken{often}"
        trust = "may be" if sampled is None else "are"
        end = "" if sampled is None else ": trust weigh's"
        return f"{_how_often(sampled)}, peaks {trust} missed{end}"
    if killed:
        return "sampled after weigh's last sample of a killed task: trust it"
    return (
        "counts shared pages in each process, at some sites page cache too: an upper "
        "bound; weigh counts shared pages once"
    )


def _of_qacct(ours: float | None, theirs: float) -> str:
    if ours is not None and theirs < ours:
        return "the largest single process (its KB means 1000 KiB): trust weigh's"
    return "the largest process without page cache (its KB means 1000 KiB)"


def _gpu_memory(
    measure: Measure, accounted: Sequence[Accounted], tables: Sequence[GpuTable]
) -> Iterator[Figure]:
    ours = measure.most
    held = [table.gpu_memory for table in tables if table.gpu_memory is not None]
    if held and not _alike(ours, max(held)):
        word = "the site's sampler (DCGM) over the whole job"
        if ours is not None and max(held) < ours:
            once = all(table.one_look for table in tables)
            looks = "a single sample (mean = largest = smallest)" if once else "sampled"
            word = f"{looks}: trust weigh's"
        yield Figure(source=_TABLE, value=max(held), word=word)
    seen = [one.gpu_memory for one in accounted if one.gpu_memory]
    if seen and not _alike(ours, max(seen)):
        sampled = _sampled(accounted)
        word = _how_often(sampled)
        if ours is not None and max(seen) < ours and sampled is not None:
            word += ": trust weigh's"
        yield Figure(source="sacct gpumem", value=max(seen), word=word)


def _busy(
    measure: Measure, accounted: Sequence[Accounted], tables: Sequence[GpuTable]
) -> Iterator[Figure]:
    shares = [table.utilization for table in tables if table.utilization is not None]
    if shares and not _alike(measure.median, statistics.median(shares)):
        once = all(table.one_look for table in tables)
        word = "a single sample" if once else "mean of its samples"
        own = [
            table.process_utilization
            for table in tables
            if table.process_utilization is not None
        ]
        if own:
            word += f"; of this job's process {100 * statistics.median(own):.0f} %"
        yield Figure(source=_TABLE, value=statistics.median(shares), word=word)
    theirs = [
        one.gpu_utilization for one in accounted if one.gpu_utilization is not None
    ]
    if theirs and not _alike(measure.median, statistics.median(theirs)):
        word = "the maximum of its samples, not the mean"
        source = "sacct gpuutil"
        yield Figure(source=source, value=statistics.median(theirs), word=word)


def _cpus(measure: Measure, others: _Others) -> Iterator[Figure]:
    shares = [
        one.cpu_time / one.wall_time
        for one in others.accounted
        if one.cpu_time is not None and one.wall_time
    ]
    if not shares:
        return
    theirs = statistics.median(shares)
    is_close = measure.median is not None and abs(theirs - measure.median) < 0.1  # noqa: PLR2004 - of a CPU
    if _alike(measure.median, theirs) or is_close:
        return
    is_grid = others.scheduler == gridengine_text.NAME
    name = "qacct cpu" if is_grid else "sacct TotalCPU"
    word = "over the whole job, including its set-up"
    longest = max(one.wall_time or 0.0 for one in others.accounted)
    is_longer = _is_longer(others.wall_time, longest)
    if measure.median is not None and theirs < measure.median and not is_longer:
        word = "misses what was killed or left the job: trust weigh's"
    yield Figure(source=f"{name} / time", value=theirs, word=word)


def _time(
    measure: Measure, accounted: Sequence[Accounted], scheduler: str | None
) -> Iterator[Figure]:
    walls = [one.wall_time for one in accounted if one.wall_time is not None]
    theirs = max(walls, default=None)
    ours = measure.most
    if theirs is None or not (_is_longer(ours, theirs) or _is_longer(theirs, ours)):
        return
    name = (
        "qacct ru_wallclock" if scheduler == gridengine_text.NAME else "sacct Elapsed"
    )
    word = "the whole job, which the time limit counts: trust it"
    yield Figure(source=name, value=theirs, word=word)


def _is_longer(one: Seconds | None, other: Seconds | None) -> bool:
    """Return whether *other* is longer by more than rounding explains."""
    if one is None or other is None:
        return other is not None
    return not _alike(one, other) and other - one >= _WHOLE_SECONDS


def _alike(ours: float | None, theirs: float) -> bool:
    return ours is not None and abs(ours - theirs) <= _SAME * max(ours, theirs)
