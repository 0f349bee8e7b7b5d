"""After a job was submitted: what the scheduler took it to ask for, beside what was."""

from collections.abc import Iterator, Sequence

from weigh.dialect.slurm import format_time
from weigh.model.job import Submitted, Understood, Wanted
from weigh.scheduler.scheduler import Scheduler
from weigh.units import MIB, MINUTE, Bytes, format_size


def check_understood(scheduler: Scheduler, jobs: Sequence[Submitted]) -> list[str]:
    """Ask how the scheduler reads the first of *jobs*; name each difference, once.

    The parts of one plan ask for the same.
    """
    if not jobs:
        return []
    told = scheduler.understood(jobs[0].id)
    return [] if told is None else list(differences(jobs[0], told))


def differences(job: Submitted, told: Understood) -> Iterator[str]:
    """Name what a scheduler took otherwise; what it does not tell is no difference."""
    wanted = job.wanted
    nodes = wanted.nodes  # all of them together are what it tells
    for what, asked, got in (
        ("memory", _size(wanted.memory, nodes), _size(told.memory)),
        ("h_vmem", _size(wanted.virtual_memory), _size(told.virtual_memory)),
        ("CPUs", wanted.cpus * nodes or None, told.cpus),
        ("GPUs", wanted.gpus * nodes, told.gpus),
        ("time", _time(wanted.time_limit), _time(told.time_limit)),
        ("elements", job.elements if job.elements > 1 else None, told.elements),
        ("throttle", _throttle(job), told.throttle),
        ("account", wanted.account, told.account),
    ):
        if asked is not None and got is not None and not _is_same(asked, got):
            yield f"{what}: asked for {asked}, the scheduler made it {got}"
    yield from _types(wanted, told)
    yield from _queue(wanted, told)


def _types(wanted: Wanted, told: Understood) -> Iterator[str]:
    kind = wanted.gpu_type
    if kind and told.gpu_types and kind.lower() not in map(str.lower, told.gpu_types):
        got = ", ".join(told.gpu_types)
        yield f"GPU type: asked for {kind}, the scheduler made it {got}"


def _queue(wanted: Wanted, told: Understood) -> Iterator[str]:
    if wanted.queue is None or told.queue is None:
        return
    if {*wanted.queue.split(",")} != {*told.queue.split(",")}:
        yield f"queue: asked for {wanted.queue}, the scheduler made it {told.queue}"


def _throttle(job: Submitted) -> int | None:
    """Give the throttle, where it holds anything back."""
    most = job.wanted.throttle
    return most if most is not None and most < job.elements else None


def _size(size: Bytes | None, nodes: int = 1) -> str | None:
    """Write a size as schedulers count it: in whole MiB, rounded up."""
    return None if size is None else format_size(-(-size // MIB) * MIB * nodes)


def _time(seconds: int | None) -> str | None:
    """Write a limit as schedulers may count it: in whole minutes, rounded up."""
    return None if seconds is None else format_time(-(-seconds // MINUTE) * MINUTE)


def _is_same(asked: object, got: object) -> bool:
    if isinstance(asked, str) and isinstance(got, str):
        return asked.lower() == got.lower()  # Slurm's accounts are in lower case
    return asked == got
