"""Notes of a report: GPUs, growing memory, missing requests; all in order of weight."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.joined import imbalance_notes
from weigh.model.gpu import GpuUsage
from weigh.model.record import Request, SiteFlags
from weigh.model.report import ReportNote, ReportRow
from weigh.render.words import preallocation_words, xid_words
from weigh.request import (
    DEFAULT_HEADROOM,
    from_usages,
    round_time,
    why_no_request,
)
from weigh.review.advice import (
    AdviceSubject,
    enough_memory,
    forecast_time,
    resource_notes,
    tasks_out_of_memory,
    unmeasured_parts,
)
from weigh.review.failures import failure_notes, node_notes
from weigh.schedulers import find_kind
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.units import format_duration

_IDLE, _VERY_IDLE = 0.25, 0.15  # busy less than that: worth a line; a finding
_ROOM = 0.5  # of a GPU used by a task: a second task fits
_FULL = 0.95  # of the GPU's memory
# busy so much, the CPU probably did what the GPU was requested for
_AT_WORK = 0.8  # of a CPU


def gpu_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
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
        yield _undetected_gpu_note(subject)
        return
    # 0 of several detected: none was touched, which is not the same as none detected
    used = used_gpus(subject) or 0
    if not used:
        if subject.requested.gpus and subject.completed:
            yield _never_used(subject)
    else:
        yield from _unused_gpu_notes(subject, used)
        yield from _idle_gpu_notes(subject)
        yield from _full_gpu_memory_notes(subject)
    yield from _gpu_error_notes(gpus)


def used_gpus(subject: AdviceSubject) -> int | None:
    """Return the most GPUs that any run used; None if no GPU was detected."""
    usages = [
        run.record.usage.gpus
        for one in subject.elements
        for run in one.runs
        if run.record and run.record.usage and run.record.usage.gpus
    ]
    if not usages:
        return None
    # None is unknown: such a GPU may have been used, so that dropping it is not advised
    return max(sum(gpu.was_used is not False for gpu in usage) for usage in usages)


def gpu_flag(subject: AdviceSubject, gpu_count: int) -> str:
    """Write the flag that requests *gpu_count*."""
    options = subject.dialect.OPTIONS
    return options.gpus.format(gpu_count) if gpu_count else options.no_gpus


def _undetected_gpu_note(subject: AdviceSubject) -> ReportNote:
    requested = subject.requested.gpus
    what = "1 GPU was" if requested == 1 else f"{requested} GPUs were"
    return ReportNote(
        about="GPU",
        words=(
            f"{what} requested, but no run detected any: is the driver installed "
            "(weigh doctor)?"
        ),
        weight=15,
    )


def _never_used(subject: AdviceSubject) -> ReportNote:
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
    return ReportNote(
        about="GPU",
        words=words + subject.basis(),
        flag=gpu_flag(subject, 0),
        weight=88,
        is_finding=bool(requested),
    )


def _unused_gpu_notes(subject: AdviceSubject, used: int) -> Iterator[ReportNote]:
    requested = subject.requested.gpus
    # a run that failed may have ended before it came to its other GPUs
    if used < requested and subject.completed:
        yield ReportNote(
            about="GPU",
            words=f"{used} of {requested} GPUs used, request {used}{subject.basis()}",
            flag=gpu_flag(subject, used),
            weight=70,
            is_finding=True,
        )


def _idle_gpu_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    busy = subject.measures.get("gpu_utilization")
    if busy is None or busy.median is None or busy.median >= _IDLE:
        return
    held = subject.measures.get("gpu_memory")
    share = (
        # None: the GPU's memory is not known, so that it cannot be shared by memory
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
    yield ReportNote(
        about="GPU",
        words=words + subject.basis(),
        flag=flag,
        weight=65 if busy.median < _VERY_IDLE else 45,
        is_finding=busy.median < _VERY_IDLE,
    )


def _full_gpu_memory_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    held = subject.measures.get("gpu_memory")
    if held is None or held.efficiency is None or held.efficiency < _FULL:
        return
    yield ReportNote(
        about="GPU mem",
        words=(
            f"{100 * held.efficiency:.0f} % of the GPU's memory was used: a larger "
            "batch or longer sample does not fit (unless a framework reserved more "
            f"than it needs){subject.basis()}"
        ),
        weight=35,
    )


def _gpu_error_notes(gpu_usages: Sequence[GpuUsage]) -> Iterator[ReportNote]:
    """Yield errors of the GPUs or their driver, and throttling."""
    xids = [xid for gpu in gpu_usages for xid in gpu.xids]
    if xids:
        yield ReportNote(about="GPU", words=xid_words(xids), weight=92, is_finding=True)
    if any(gpu.preallocated for gpu in gpu_usages):
        words = f"most of a GPU's memory was taken at once: {preallocation_words()}"
        yield ReportNote(about="GPU mem", words=words, weight=40)
    errors = sum(gpu.ecc_errors or 0 for gpu in gpu_usages)
    if errors:
        yield ReportNote(
            about="GPU",
            words=f"{errors} uncorrected memory errors: report them to the admins",
            weight=91,
            is_finding=True,
        )
    for reason in ("thermal", "power"):
        yield from _throttling_notes(gpu_usages, reason)


def _throttling_notes(
    gpu_usages: Sequence[GpuUsage], reason: str
) -> Iterator[ReportNote]:
    slowed = [(gpu.throttle or {}).get(reason, 0.0) for gpu in gpu_usages]
    worst = max(slowed, default=0.0)
    # seconds
    if worst < 1:
        return
    what = "heat" if reason == "thermal" else "its power limit"
    advice = (
        ": report it to the admins"
        if reason == "thermal"
        else ", which is usual at full load"
    )
    yield ReportNote(
        about="GPU",
        words=f"slowed down by {what} for up to {format_duration(worst)}{advice}",
        weight=48 if reason == "thermal" else 3,
    )


def report_notes(
    subject: AdviceSubject, report_rows: Sequence[ReportRow]
) -> tuple[ReportNote, ...]:
    """Return what to change and what went wrong, the most important first."""
    found = list(_unsorted_notes(subject, report_rows))
    if any(note.words.endswith(subject.basis()) for note in found):
        found += _few_runs_notes(subject)
    return tuple(sorted(found, key=lambda note: note.weight, reverse=True))


def _unsorted_notes(
    subject: AdviceSubject, report_rows: Sequence[ReportRow]
) -> Iterator[ReportNote]:
    yield from failure_notes(report_rows, subject.unit)
    yield from resource_notes(subject)
    yield from gpu_notes(subject)
    yield from _rising_memory_notes(subject)
    yield from _rank_notes(subject)
    yield from node_notes(report_rows, subject.dialect.OPTIONS.exclude, subject.unit)
    yield from _missing_request_notes(subject)
    yield from _unknown_scheduler(subject)


def _unknown_scheduler(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield whose flags are shown, if this weigh does not know the scheduler."""
    name = subject.requested.scheduler
    if name is not None and name != LOCAL and find_kind(name) is None:
        words = f"{name!r} is unknown to this weigh: flags are for {subject.kind.title}"
        yield ReportNote(about="scheduler", words=words, weight=50)


def _rising_memory_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    rising = sum(
        bool(run.row.growing)
        for one in subject.elements
        for run in one.runs
        if run.is_last
    )
    if rising:
        what = "it was" if rising == 1 else f"in {rising:,} runs it was"
        yield ReportNote(
            about="memory",
            words=f"{what} still rising at the end: a longer job needs more",
            flag="weigh request --steps TOTAL --done N",
            weight=55,
            is_finding=True,
        )


def _rank_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield what was not measured, and the ranks that are far from the mean."""
    # each part once, however many runs lack it
    for part in unmeasured_parts(subject):
        yield ReportNote(
            about="missing",
            words=f"{part}: the figures are a lower bound",
            weight=97,
            is_finding=True,
        )
    runs = [run for one in subject.elements for run in one.runs if run.record]
    # ranks of several runs would be as many notes as runs
    if len(runs) == 1 and runs[0].record is not None:
        for line in imbalance_notes(runs[0].record.ranks):
            yield ReportNote(about="ranks", words=line, weight=20)


def _few_runs_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield how reliable advice from few runs is."""
    few = subject.few()
    if few.startswith("no"):
        words = f"{few}: the usage is a lower bound of the need"
        yield ReportNote(about="basis", words=words, weight=-1)
    elif few:
        words = f"{few}: run it three times to learn how much it varies"
        yield ReportNote(about="basis", words=words, weight=-1)


def _missing_request_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield the request to use, if nothing was requested."""
    if not subject.requested.is_nothing:
        return
    # a record with repeats is several runs, but one source
    every = (run.record for one in subject.elements for run in one.runs if run.record)
    apart = {record.id: record for record in every}
    reasons = {why_no_request(record) for record in apart.values()}
    records = [one for one in apart.values() if why_no_request(one) is None]
    try:
        request = _long_enough(from_usages(records), subject)
    except UsageError:
        for why in sorted(reason for reason in reasons if reason):
            yield ReportNote(about="request", words=f"none: {why}", weight=1)
        return
    yield ReportNote(
        about="request",
        words=f"{_request_rule_text(subject, request)}{subject.basis()}",
        flag=" ".join(subject.dialect.directives(_as_requested(request, subject))),
        weight=1,
    )


def _long_enough(request: Request, subject: AdviceSubject) -> Request:
    """Return *request* with the time that unfinished runs need by their progress."""
    # a run that was stopped shows only how long it was allowed to run
    needs = forecast_time(subject)
    if needs is None:
        return request
    time = round_time(needs * (1 + DEFAULT_HEADROOM))
    limit = max(request.time_limit or 0, time)
    return msgspec.structs.replace(request, time_limit=limit)


def _as_requested(request: Request, subject: AdviceSubject) -> Request:
    """Return *request* with memory per CPU, if the job requested it so."""
    if not subject.requested.per_cpu:
        return request
    return msgspec.structs.replace(request, site=SiteFlags(per_cpu=True))


def _request_rule_text(subject: AdviceSubject, request: Request) -> str:
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
