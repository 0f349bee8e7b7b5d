"""After a job was submitted: what the scheduler recorded vs. what was requested."""

from collections.abc import Iterator, Sequence

from weigh.errors import UsageError
from weigh.model.job import Submitted, Understood, Wanted
from weigh.schedulers.protocol import Scheduler
from weigh.schedulers.slurm.text import format_time
from weigh.store.jobs import chain_of, find_jobs
from weigh.units import MIB, MINUTE, Bytes, format_size

_CLOSE = 0.01  # sizes are printed with three digits, and rounded up for each slot
_THREADS = (2, 4)  # of a core: CPUs are given out by whole cores


def check_understood(scheduler: Scheduler, jobs: Sequence[Submitted]) -> list[str]:
    """Ask what the scheduler recorded for the first of *jobs*; name each difference.

    The parts of one plan request the same.
    """
    if not jobs:
        return []
    told = scheduler.understood(jobs[0].id)
    return [] if told is None else list(differences(jobs[0], told))


def differences(job: Submitted, told: Understood) -> Iterator[str]:
    """Name what a scheduler recorded otherwise; what it does not show is left out.

    All figures are of one element, on all its nodes.
    """
    wanted = job.wanted
    nodes = wanted.nodes
    slots = wanted.cpus or 1
    memory = None if wanted.memory is None else wanted.memory * nodes
    yield from _size("memory", memory, told.memory, parts=nodes)
    yield from _size("h_vmem", wanted.virtual_memory, told.virtual_memory, parts=slots)
    yield from _cpus(wanted.cpus * nodes, told.cpus)
    for what, asked, got in (
        ("GPUs", wanted.gpus * nodes, told.gpus),
        ("time", _time(wanted.time_limit), _time(told.time_limit)),
        ("elements", job.elements if job.elements > 1 else None, told.elements),
        ("throttle", _throttle(job), told.throttle),
        ("account", wanted.account, told.account),
    ):
        if asked is not None and got is not None and not _is_same(asked, got):
            yield _differs(what, asked, got)
    yield from _types(wanted, told)
    yield from _queue(wanted, told)


def _differs(what: str, asked: object, got: object) -> str:
    return f"{what}: {asked} requested, but the scheduler recorded {got}"


def _size(
    what: str, asked: Bytes | None, got: Bytes | None, *, parts: int
) -> Iterator[str]:
    """Compare sizes; each of *parts* was rounded up to a whole MiB."""
    if asked is None or got is None:
        return
    if abs(asked - got) > max(_CLOSE * asked, parts * MIB):
        yield _differs(what, format_size(asked), format_size(got))


def _cpus(asked: int, got: int | None) -> Iterator[str]:
    """Compare CPUs; rounding up to whole cores is no difference."""
    rounded = {-(-asked // threads) * threads for threads in _THREADS}
    if asked and got is not None and got != asked and got not in rounded:
        yield _differs("CPUs", asked, got)


def _types(wanted: Wanted, told: Understood) -> Iterator[str]:
    kind = wanted.gpu_type
    if kind and told.gpu_types and kind.lower() not in map(str.lower, told.gpu_types):
        got = ", ".join(told.gpu_types)
        yield _differs("GPU type", kind, got)


def _queue(wanted: Wanted, told: Understood) -> Iterator[str]:
    if wanted.queue is None or told.queue is None:
        return
    if {*wanted.queue.split(",")} != {*told.queue.split(",")}:
        yield _differs("queue", wanted.queue, told.queue)


def _throttle(job: Submitted) -> int | None:
    """Return the throttle, where it holds anything back."""
    most = job.wanted.throttle
    return most if most is not None and most < job.elements else None


def _time(seconds: int | None) -> str | None:
    """Write a limit as schedulers may count it: in whole minutes, rounded up."""
    return None if seconds is None else format_time(-(-seconds // MINUTE) * MINUTE)


def _is_same(asked: object, got: object) -> bool:
    if isinstance(asked, str) and isinstance(got, str):
        return asked.lower() == got.lower()  # Slurm's accounts are in lower case
    return asked == got


def ids_to_await(
    names: Sequence[str], scheduler: str, known: Sequence[Submitted]
) -> tuple[str, ...]:
    """Return the ids of the jobs to come after; those of others go through as they are.

    Raises:
        UsageError: a job is another scheduler's, which would wait for nothing.
    """
    ids: dict[str, None] = {}
    for name in names:
        if name.isdecimal() and not any(job.id == name for job in known):
            ids[name] = None
            continue
        job = find_jobs(known, name)[-1]
        if job.scheduler != scheduler:
            raise UsageError(
                f"job {job.id} is with {job.scheduler}: a job of {scheduler} cannot "
                "wait for it"
            )
        ids |= dict.fromkeys(one.id for one in submitted_with(job, known))
    return tuple(ids)


def submitted_with(job: Submitted, known: Sequence[Submitted]) -> list[Submitted]:
    """Return all that one call submitted: the parts of an array, or what was resumed.

    They lie in one folder, if in none other; and where several were resumed, they go
    on from the same.
    """
    return [
        one
        for one in chain_of(known, job)
        if one.id == job.id
        or one.folder == job.folder
        or (job.resumes is not None and one.resumes == job.resumes)
    ]
