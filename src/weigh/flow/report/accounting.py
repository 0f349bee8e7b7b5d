"""What the scheduler says beside what weigh measured, and which of them to believe."""

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.flow.follow.tasks import LOGS, tail_of
from weigh.flow.follow.view import View
from weigh.flow.report.requested import Asked
from weigh.model.report import Accounted, Figure, GpuTable, Measure
from weigh.schedulers import accounting
from weigh.schedulers.accounting import read_tables
from weigh.schedulers.command import run
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.slurm import text as slurm_text
from weigh.units import Seconds

_SAME = 0.05  # apart by less, two figures are one
_WHOLE_SECONDS = 2.0  # accounting counts them, weigh the thousandths
_MOST_LOGS = 500
VIRTUAL = "qacct maxvmem"
_TABLE = "the job log's GPU table"


def ask(
    scheduler: str | None, jobs: Iterable[str], env: Mapping[str, str]
) -> tuple[Accounted, ...]:
    """Ask accounting about jobs, one after the other; nothing where there is none."""
    if scheduler is None:
        return ()
    return tuple(
        one for job in jobs for one in accounting.ask(scheduler, job, run=run, env=env)
    )


def logs_of(views: Sequence[View]) -> Iterator[str]:
    """Name the logs of the elements of jobs."""
    for view in views:
        job = view.job
        for number in range(job.elements):
            name = view.scheduler.log_name(job.id, number, is_array=job.elements > 1)
            yield os.path.join(job.folder, LOGS, name)


def tables_in(paths: Iterable[str]) -> tuple[GpuTable, ...]:
    """Read the GPU tables at the ends of logs, of the first few hundred of them."""
    some = (path for _, path in zip(range(_MOST_LOGS), paths, strict=False))
    return tuple(table for path in some for table in read_tables(tail_of(path)))


def asked_too(asked: Asked, told: Sequence[Accounted]) -> Asked:
    """Fill in what only accounting knows of what was asked for."""
    if not told:
        return asked
    first = told[0]
    return msgspec.structs.replace(
        asked,
        cpus=asked.cpus or first.cpus,
        memory=asked.memory or first.memory_asked,
        time_limit=asked.time_limit or first.time_limit,
        gpus=asked.gpus or first.gpus or 0,
    )


def beside(
    measures: Sequence[Measure],
    told: Sequence[Accounted],
    tables: Sequence[GpuTable],
    *,
    scheduler: str | None,
    killed: bool = False,
) -> tuple[Measure, ...]:
    """Put what others measured beside each measure, where it differs from ours.

    *killed*: a task was killed for memory, whatever accounting calls its end.
    """
    over = tuple(one for one in told if one.state not in {"RUNNING", "PENDING"})
    walls = (one.most for one in measures if one.name == "time")
    killed = killed or any(one.state == "OUT_OF_MEMORY" for one in told)
    others = _Others(over, tuple(tables), scheduler, killed, next(walls, None))
    return tuple(
        msgspec.structs.replace(one, others=tuple(others.of(one))) for one in measures
    )


class _Others(msgspec.Struct, frozen=True):
    """What accounting and the GPU tables say; ``wall_time`` is the most by weigh."""

    told: tuple[Accounted, ...]
    tables: tuple[GpuTable, ...]
    scheduler: str | None
    killed: bool
    wall_time: Seconds | None

    def of(self, measure: Measure) -> Iterator[Figure]:
        """Yield what they say of one measure."""
        if measure.name == "memory":
            yield from _memory(measure, self)
        elif measure.name == "gpu_memory":
            yield from _gpu_memory(measure, self.told, self.tables)
        elif measure.name == "gpu_utilization":
            yield from _busy(measure, self.told, self.tables)
        elif measure.name == "cpus":
            yield from _cpus(measure, self)
        elif measure.name == "time":
            yield from _time(measure, self.told, self.scheduler)


def _memory(measure: Measure, others: _Others) -> Iterator[Figure]:
    ours, told, scheduler = measure.most, others.told, others.scheduler
    sizes = [one.max_rss for one in told if one.max_rss is not None]
    theirs = max(sizes, default=None)
    if theirs is None and scheduler == slurm_text.NAME and told and ours is not None:
        theirs = 0  # sacct leaves MaxRSS empty where no sample was taken
    if theirs is not None and not _alike(ours, theirs):
        if scheduler == gridengine_text.NAME:
            yield Figure(
                source="qacct ru_maxrss", value=theirs, word=_of_qacct(ours, theirs)
            )
        else:
            word = _of_sacct(ours, theirs, killed=others.killed)
            yield Figure(source="sacct MaxRSS", value=theirs, word=word)
    virtual = [one.virtual_memory for one in told if one.virtual_memory]
    if virtual and scheduler == gridengine_text.NAME:
        yield Figure(
            source=VIRTUAL,
            value=max(virtual),
            word="address space, which h_vmem counts; not memory that was held",
        )


def _of_sacct(ours: float | None, theirs: float, *, killed: bool) -> str:
    if ours is None:
        return "sampled, every 30 s at most sites: peaks in between are not seen"
    if theirs < ours:
        if killed:
            return "what its last sample saw before the kill: believe weigh's"
        if not theirs:
            return "no sample was taken, it looks every 30 s at most sites: not a zero"
        return "looked at every 30 s at most sites, peaks fall between: believe weigh's"
    if killed:
        return "seen after weigh's last look at a task that was killed: believe it"
    return (
        "counts shared pages in each process, at some sites page cache too: an upper "
        "bound; weigh counts them once"
    )


def _of_qacct(ours: float | None, theirs: float) -> str:
    if ours is not None and theirs < ours:
        return (
            "the largest single process alone (printed as KB, and means 1000 KiB): "
            "believe weigh's"
        )
    return "the largest process, page cache not counted (its KB means 1000 KiB)"


def _gpu_memory(
    measure: Measure, told: Sequence[Accounted], tables: Sequence[GpuTable]
) -> Iterator[Figure]:
    ours = measure.most
    held = [table.gpu_memory for table in tables if table.gpu_memory is not None]
    if held and not _alike(ours, max(held)):
        word = "the site's sampler (DCGM), started and ended with the job"
        if ours is not None and max(held) < ours:
            once = all(table.one_look for table in tables)
            looks = "it looked once (mean = largest = smallest)" if once else "sampled"
            word = f"{looks}: believe weigh's"
        yield Figure(source=_TABLE, value=max(held), word=word)
    seen = [one.gpu_memory for one in told if one.gpu_memory]
    if seen and not _alike(ours, max(seen)):
        word = "sampled every 30 s at most sites"
        if ours is not None and max(seen) < ours:
            word += ": believe weigh's"
        yield Figure(source="sacct gpumem", value=max(seen), word=word)


def _busy(
    measure: Measure, told: Sequence[Accounted], tables: Sequence[GpuTable]
) -> Iterator[Figure]:
    shares = [table.utilization for table in tables if table.utilization is not None]
    if shares and not _alike(measure.median, statistics.median(shares)):
        once = all(table.one_look for table in tables)
        word = "one look at the card" if once else "mean of its samples"
        own = [
            table.process_utilization
            for table in tables
            if table.process_utilization is not None
        ]
        if own:
            word += f"; of this job's process {100 * statistics.median(own):.0f} %"
        yield Figure(source=_TABLE, value=statistics.median(shares), word=word)
    theirs = [one.gpu_utilization for one in told if one.gpu_utilization is not None]
    if theirs and not _alike(measure.median, statistics.median(theirs)):
        word = "the most in any sample, not the mean"
        source = "sacct gpuutil"
        yield Figure(source=source, value=statistics.median(theirs), word=word)


def _cpus(measure: Measure, others: _Others) -> Iterator[Figure]:
    shares = [
        one.cpu_time / one.wall_time
        for one in others.told
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
    word = "over the whole job, set-up and all"
    longest = max(one.wall_time or 0.0 for one in others.told)
    is_longer = _is_longer(others.wall_time, longest)
    if measure.median is not None and theirs < measure.median and not is_longer:
        word = "misses what was killed or left the job: believe weigh's"
    yield Figure(source=f"{name} / time", value=theirs, word=word)


def _time(
    measure: Measure, told: Sequence[Accounted], scheduler: str | None
) -> Iterator[Figure]:
    walls = [one.wall_time for one in told if one.wall_time is not None]
    theirs = max(walls, default=None)
    ours = measure.most
    if theirs is None or not (_is_longer(ours, theirs) or _is_longer(theirs, ours)):
        return
    name = (
        "qacct ru_wallclock" if scheduler == gridengine_text.NAME else "sacct Elapsed"
    )
    word = "the whole job, which the time limit counts: believe it"
    yield Figure(source=name, value=theirs, word=word)


def _is_longer(one: Seconds | None, other: Seconds | None) -> bool:
    """Say whether *other* is longer by more than whole seconds and rounding make it."""
    if one is None or other is None:
        return other is not None
    return not _alike(one, other) and other - one >= _WHOLE_SECONDS


def _alike(ours: float | None, theirs: float) -> bool:
    return ours is not None and abs(ours - theirs) <= _SAME * max(ours, theirs)
