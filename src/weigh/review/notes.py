"""Notes of a report: GPUs, growing memory, missing requests; all in order of weight."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.joined import imbalance
from weigh.model.gpu import GpuUsage
from weigh.model.record import Request, SiteFlags
from weigh.model.report import Note, Row
from weigh.render.words import preallocation_words, xid_words
from weigh.request import (
    DEFAULT_HEADROOM,
    from_usages,
    round_time,
    why_no_request,
)
from weigh.review.advice import (
    Subject,
    enough_memory,
    forecast_time,
    resource_notes,
    tasks_out_of_memory,
    unmeasured,
)
from weigh.review.failures import failure_notes, node_notes
from weigh.schedulers import find_kind
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.units import format_duration

_IDLE, _VERY_IDLE = 0.25, 0.15  # busy less than that: worth a line; a finding
_ROOM = 0.5  # of a GPU used by a task: a second task fits
_FULL = 0.95  # of the GPU's memory
_AT_WORK = 0.8  # of a CPU


def gpu_notes(subject: Subject) -> Iterator[Note]:
    """Yield notes on GPUs: unused, idle, full, faulty."""
    gpus = [
        gpu
        for one in subject.elements
        for run in one.runs
        if run.record and run.record.usage
        for gpu in run.record.usage.gpus
    ]
    if not subject.requested.gpus and not gpus:
        return
    if not gpus:
        yield _unseen(subject)
        return
    used = used_gpus(subject) or 0
    if not used:
        if subject.requested.gpus and subject.completed:
            yield _never_used(subject)
    else:
        yield from _too_many(subject, used)
        yield from _idle(subject)
        yield from _full(subject)
    yield from _troubles(gpus)


def used_gpus(subject: Subject) -> int | None:
    """Return the most GPUs that any run used; None if no GPU was detected."""
    usages = [
        run.record.usage.gpus
        for one in subject.elements
        for run in one.runs
        if run.record and run.record.usage and run.record.usage.gpus
    ]
    if not usages:
        return None
    return max(sum(gpu.was_used is not False for gpu in usage) for usage in usages)


def gpu_flag(subject: Subject, gpus: int) -> str:
    """Write the flag that requests *gpus*."""
    options = subject.dialect.OPTIONS
    return options.gpus.format(gpus) if gpus else options.no_gpus


def _unseen(subject: Subject) -> Note:
    requested = subject.requested.gpus
    what = "1 GPU was" if requested == 1 else f"{requested} GPUs were"
    return Note(
        about="GPU",
        words=(
            f"{what} requested, but no run detected any: is the driver installed "
            "(weigh doctor)?"
        ),
        weight=15,
    )


def _never_used(subject: Subject) -> Note:
    requested = subject.requested.gpus
    whose = "the GPU was" if requested <= 1 else f"none of the {requested} GPUs was"
    cpus = [one.cpus for one in subject.elements if one.cpus is not None]
    on_cpu = bool(cpus) and max(cpus) >= _AT_WORK
    verb = "never used" if requested <= 1 else "used"
    if on_cpu:
        words = (
            f"{whose} {verb}, the CPUs did the work: is torch built for CUDA, and the "
            "model moved to the GPU? If the job needs no GPU, request none"
        )
    else:
        words = f"{whose} {verb}: request none, and the job starts sooner"
    return Note(
        about="GPU",
        words=words + subject.basis(),
        flag=gpu_flag(subject, 0),
        weight=88,
        is_finding=bool(requested),
    )


def _too_many(subject: Subject, used: int) -> Iterator[Note]:
    requested = subject.requested.gpus
    if used < requested and subject.completed:
        yield Note(
            about="GPU",
            words=f"{used} of {requested} GPUs used, request {used}{subject.basis()}",
            flag=gpu_flag(subject, used),
            weight=70,
            is_finding=True,
        )


def _idle(subject: Subject) -> Iterator[Note]:
    busy = subject.measures.get("gpu_utilization")
    if busy is None or busy.median is None or busy.median >= _IDLE:
        return
    held = subject.measures.get("gpu_memory")
    share = (
        held.most / held.requested if held and held.requested and held.most else None
    )
    words = f"busy {100 * busy.median:.0f} % of the time"
    flag = None
    if share is not None and share <= _ROOM:
        words += (
            f" and {100 * share:.0f} % full: several tasks per GPU would do more work"
        )
        flag = "weigh plan TASKS --gpu"
    else:
        words += (
            ": loading data may be too slow; try more loader workers or a local disk"
        )
    yield Note(
        about="GPU",
        words=words + subject.basis(),
        flag=flag,
        weight=65 if busy.median < _VERY_IDLE else 45,
        is_finding=busy.median < _VERY_IDLE,
    )


def _full(subject: Subject) -> Iterator[Note]:
    held = subject.measures.get("gpu_memory")
    if held is None or held.efficiency is None or held.efficiency < _FULL:
        return
    yield Note(
        about="GPU mem",
        words=(
            f"{100 * held.efficiency:.0f} % of the GPU's memory was used: a larger "
            "batch or longer sample does not fit (unless a framework reserved more "
            f"than it needs){subject.basis()}"
        ),
        weight=35,
    )


def _troubles(gpus: Sequence[GpuUsage]) -> Iterator[Note]:
    """Yield errors of the GPUs or their driver, and throttling."""
    xids = [xid for gpu in gpus for xid in gpu.xids]
    if xids:
        yield Note(about="GPU", words=xid_words(xids), weight=92, is_finding=True)
    if any(gpu.preallocated for gpu in gpus):
        words = f"most of a GPU's memory was taken at once: {preallocation_words()}"
        yield Note(about="GPU mem", words=words, weight=40)
    errors = sum(gpu.ecc_errors or 0 for gpu in gpus)
    if errors:
        yield Note(
            about="GPU",
            words=f"{errors} uncorrected memory errors: report them to the admins",
            weight=91,
            is_finding=True,
        )
    for reason in ("thermal", "power"):
        yield from _throttled(gpus, reason)


def _throttled(gpus: Sequence[GpuUsage], reason: str) -> Iterator[Note]:
    slowed = [(gpu.throttle or {}).get(reason, 0.0) for gpu in gpus]
    worst = max(slowed, default=0.0)
    if worst < 1:
        return
    what = "heat" if reason == "thermal" else "its power limit"
    advice = (
        ": report it to the admins"
        if reason == "thermal"
        else ", which is usual at full load"
    )
    yield Note(
        about="GPU",
        words=f"slowed down by {what} for up to {format_duration(worst)}{advice}",
        weight=48 if reason == "thermal" else 3,
    )


def notes(subject: Subject, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return what to change and what went wrong, the most important first."""
    found = list(_all(subject, rows))
    found += _fine(subject, {note.about for note in found})
    if any(note.words.endswith(subject.basis()) for note in found):
        found += _few(subject)
    return tuple(sorted(found, key=lambda note: note.weight, reverse=True))


def _all(subject: Subject, rows: Sequence[Row]) -> Iterator[Note]:
    yield from failure_notes(rows, subject.unit)
    yield from resource_notes(subject)
    yield from gpu_notes(subject)
    yield from _growing(subject)
    yield from _ranks(subject)
    yield from node_notes(rows, subject.dialect.OPTIONS.exclude, subject.unit)
    yield from _unasked(subject)
    yield from _unknown_scheduler(subject)


def _unknown_scheduler(subject: Subject) -> Iterator[Note]:
    """Yield whose flags are shown, if this weigh does not know the scheduler."""
    name = subject.requested.scheduler
    if name is not None and name != LOCAL and find_kind(name) is None:
        words = f"{name!r} is unknown to this weigh: flags are for {subject.kind.title}"
        yield Note(about="scheduler", words=words, weight=50)


def _growing(subject: Subject) -> Iterator[Note]:
    rising = sum(
        bool(run.row.growing)
        for one in subject.elements
        for run in one.runs
        if run.is_last
    )
    if rising:
        what = "it was" if rising == 1 else f"in {rising:,} runs it was"
        yield Note(
            about="memory",
            words=f"{what} still rising at the end: a longer job needs more",
            flag="weigh request --steps TOTAL --done N",
            weight=55,
            is_finding=True,
        )


def _ranks(subject: Subject) -> Iterator[Note]:
    """Yield what was not measured, and the ranks that are far from the mean."""
    for part in unmeasured(subject):
        yield Note(
            about="missing",
            words=f"{part}: the figures are a lower bound",
            weight=97,
            is_finding=True,
        )
    runs = [run for one in subject.elements for run in one.runs if run.record]
    if len(runs) == 1 and runs[0].record is not None:
        for line in imbalance(runs[0].record.ranks):
            yield Note(about="ranks", words=line, weight=20)


def _fine(subject: Subject, found: Collection[str]) -> Iterator[Note]:
    """Yield which requested and measured resources need no change."""
    about = {"memory": "memory", "time": "time", "cpus": "CPUs"}
    good = [
        word
        for name, word in about.items()
        if word not in found
        and not (word != "time" and unmeasured(subject))
        and (one := subject.measures.get(name)) is not None
        and one.efficiency is not None
    ]
    if good and subject.completed:
        yield Note(about="fine", words=", ".join(good) + subject.basis())


def _few(subject: Subject) -> Iterator[Note]:
    """Yield how reliable advice from few runs is."""
    few = subject.few()
    if few.startswith("no"):
        words = f"{few}: the usage is a lower bound of the need"
        yield Note(about="basis", words=words, weight=-1)
    elif few:
        words = f"{few}: run it three times to learn how much it varies"
        yield Note(about="basis", words=words, weight=-1)


def _unasked(subject: Subject) -> Iterator[Note]:
    """Yield the request to use, if nothing was requested."""
    if not subject.requested.is_nothing:
        return
    every = (run.record for one in subject.elements for run in one.runs if run.record)
    apart = {record.id: record for record in every}
    reasons = {why_no_request(record) for record in apart.values()}
    records = [one for one in apart.values() if why_no_request(one) is None]
    try:
        request = _long_enough(from_usages(records), subject)
    except UsageError:
        for why in sorted(reason for reason in reasons if reason):
            yield Note(about="request", words=f"none: {why}", weight=1)
        return
    yield Note(
        about="request",
        words=f"{_rule(subject, request)}{subject.basis()}",
        flag=" ".join(subject.dialect.directives(_as_requested(request, subject))),
        weight=1,
    )


def _long_enough(request: Request, subject: Subject) -> Request:
    """Return *request* with the time that unfinished runs need by their progress."""
    needs = forecast_time(subject)
    if needs is None:
        return request
    time = round_time(needs * (1 + DEFAULT_HEADROOM))
    limit = max(request.time_limit or 0, time)
    return msgspec.structs.replace(request, time_limit=limit)


def _as_requested(request: Request, subject: Subject) -> Request:
    """Return *request* with memory per CPU, if the job requested it so."""
    if not subject.requested.per_cpu:
        return request
    return msgspec.structs.replace(request, site=SiteFlags(per_cpu=True))


def _rule(subject: Subject, request: Request) -> str:
    """Return how the request follows from the usage."""
    usual = f"usage + {100 * DEFAULT_HEADROOM:.0f} %"
    enough = enough_memory(subject)
    if enough is None or request.memory is None or request.memory <= enough:
        return usual
    if tasks_out_of_memory(subject):
        return f"twice the memory that was exceeded, else {usual}"
    if request.knob is not None:
        return f"{usual}; memory together with {request.knob}: set both or neither"
    if subject.completed == len(subject.elements):
        return f"{usual}; memory from the upper bound of its peak"
    return f"the memory granted, because a run failed; else {usual}"
