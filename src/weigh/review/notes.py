"""Notes of a report: GPUs, growing memory, missing requests; all in order of weight."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.joined_ranks import imbalance_notes
from weigh.model.gpu import GpuUsage
from weigh.model.job import ACTIVE
from weigh.model.record import Request, SiteFlags
from weigh.model.report import NOT_RUN, ReportNote, ReportRow
from weigh.render.words import gpu_trouble_words
from weigh.request import DEFAULT_HEADROOM, from_usages, time_to_request, why_no_request
from weigh.review.advice import (
    AdviceSubject,
    enough_memory,
    finding_note,
    forecast_time,
    resource_notes,
    tasks_out_of_memory,
    unmeasured_parts,
)
from weigh.review.elements import most_runs_on_a_gpu, peak_gpu_memory
from weigh.review.runs import ReviewedRun
from weigh.schedulers import find_kind
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.units import Seconds, count_with_noun
from weigh.usage_needs import full_gpu_words, preallocation_words

_IDLE = 0.25  # busy less than that is worth a finding
_ROOM = 0.5  # of a GPU used by a task: a second task fits
_PAST_START: Seconds = 60.0  # a shorter run is mostly its start-up
_FULL = 0.95  # of the GPU's memory
_LOST = 90  # weight of what ends a job
# busy so much, the CPU probably did what the GPU was requested for
_AT_WORK = 0.8  # of a CPU


def gpu_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield notes on GPUs: unused, idle, full, faulty."""
    gpus = [gpu for usage in subject.usages for gpu in usage.gpus]
    if not subject.requested.gpus and not gpus:
        return
    if not gpus:
        if subject.usages:  # of what was not measured nothing is known
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
    yield from _gpu_filled_notes(subject)


def used_gpus(subject: AdviceSubject) -> int | None:
    """Return the most GPUs that any run used; None if no GPU was detected."""
    usages = [usage.gpus for usage in subject.usages if usage.gpus]
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
    words = (
        f"{what} requested, but no run detected any: is the driver installed (weigh "
        "doctor)?"
    )
    return ReportNote(about="GPU", words=words, weight=15)


def _never_used(subject: AdviceSubject) -> ReportNote:
    requested = subject.requested.gpus
    what = f"none of the {requested} GPUs was used"
    what = "the GPU was never used" if requested == 1 else what
    words = f"{what}: request none, and the job starts sooner"
    if max((one.cpus or 0.0 for one in subject.elements), default=0.0) >= _AT_WORK:
        words = (
            f"{what}, the CPUs did the work: is torch built for CUDA, and the model "
            "moved to the GPU? If the job needs no GPU, request none"
        )
    return finding_note("GPU", words, 88, gpu_flag(subject, 0))


def _unused_gpu_notes(subject: AdviceSubject, used: int) -> Iterator[ReportNote]:
    requested = subject.requested.gpus
    # a run that failed may have ended before it came to its other GPUs
    if used < requested and subject.completed:
        words = f"{used} of {requested} GPUs used, request {used}"
        yield finding_note("GPU", words, 70, gpu_flag(subject, used))


def _idle_gpu_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    busy = subject.measures.get("gpu_utilization")
    if busy is None or busy.median is None or busy.median >= _IDLE:
        return
    words = f"busy {100 * busy.median:.0f} % of the time"
    # without: the GPU's memory is not known, so that it cannot be shared by memory
    share = _share_of_fullest_gpu(subject)
    if share is not None and share <= _ROOM and _took_turns_on_gpus(subject.last_runs):
        words += f" and {100 * share:.0f} % full: several tasks per GPU would do more"
        yield finding_note("GPU", words, 65, subject.packing_command)
    elif any((one.wall_time or 0.0) >= _PAST_START for one in subject.elements):
        words += ": loading data may be too slow; try more loader workers or a local"
        yield finding_note("GPU", f"{words} disk", 65)


def _share_of_fullest_gpu(subject: AdviceSubject) -> float | None:
    """Return the peak of all runs on one GPU as a share of its memory, if known."""
    held = subject.measures.get("gpu_memory")
    peak = peak_gpu_memory([run for run in subject.runs if run.row.started is not None])
    if held is None or not held.requested or not peak:
        return None
    return peak / held.requested


def _took_turns_on_gpus(runs: Sequence[ReviewedRun]) -> bool:
    """Return whether more runs used GPUs than ever ran at once on one of them.

    Where they did not, all there is to run shared a GPU already.
    """
    # repeats of a record are one program, which is not packed with itself
    records = {run.row.record for run in runs if any(size for _, size in run.gpu_peaks)}
    return len(records) > most_runs_on_a_gpu(runs)


def _full_gpu_memory_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    held = subject.measures.get("gpu_memory")
    if held is not None and (held.efficiency or 0.0) >= _FULL and subject.completed:
        words = (
            f"{100 * (held.efficiency or 0.0):.0f} % of the GPU's memory was used: a "
            "larger batch or longer sample does not fit (unless a framework reserved "
            "more than it needs)"
        )
        yield ReportNote(about="GPU mem", words=words, weight=35)


def _gpu_filled_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield that a program took a GPU at once, or filled it and failed."""
    measured = [(one.usage, one.state) for one in subject.records if one.usage]
    taken = (words for run in measured for words in preallocation_words(*run))
    for words in dict.fromkeys(taken):
        yield ReportNote(about="GPU", words=words, weight=40)
    # a failure whose words are known has its own note
    has_words = any(run.row.error for run in subject.last_runs)
    if {state for _, state in measured} == {"FAILED"} and not has_words:
        full = (full_gpu_words(usage, ran_out=False) for usage, _ in measured)
        for words in [words for words in full if words][:1]:
            yield finding_note("GPU mem", words, 95)


def _gpu_error_notes(gpu_usages: Sequence[GpuUsage]) -> Iterator[ReportNote]:
    """Yield errors of the GPUs or their driver, and heat."""
    heat = max((gpu.slowed or {}).get("thermal", 0.0) for gpu in gpu_usages)
    together = msgspec.structs.replace(
        gpu_usages[0],
        xids=tuple(xid for gpu in gpu_usages for xid in gpu.xids),
        ecc_errors=sum(gpu.ecc_errors or 0 for gpu in gpu_usages),
        slowed={"thermal": heat},
    )
    for weight, words in gpu_trouble_words(together):
        is_lost = weight >= _LOST
        yield ReportNote(about="GPU", words=words, weight=weight, is_finding=is_lost)


def report_notes(
    subject: AdviceSubject, report_rows: Sequence[ReportRow]
) -> tuple[ReportNote, ...]:
    """Return what to change and what went wrong, the most important first."""
    found = list(_unsorted_notes(subject, report_rows))
    if any(note.flag is not None for note in found):
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
    yield from _missing_request_notes(subject)
    yield from _unknown_scheduler(subject)


def _unknown_scheduler(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield whose flags are shown, if this weigh does not know the scheduler."""
    name = subject.requested.scheduler
    if name is not None and name != LOCAL and find_kind(name) is None:
        words = f"{name!r} is unknown to this weigh: flags are for {subject.kind.title}"
        yield ReportNote(about="scheduler", words=words, weight=50)


def _rising_memory_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    rising = sum(bool(run.row.growing) for run in subject.last_runs)
    if rising:
        what = "it was" if rising == 1 else f"in {rising:,} runs it was"
        words = f"{what} still rising at the end: a longer job needs more"
        yield finding_note("memory", words, 55, "weigh request --target DONE/TOTAL")


def _rank_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield what was not measured, and the ranks that are far from the mean."""
    # each part once, however many runs lack it
    for part in unmeasured_parts(subject):
        yield finding_note("missing", f"{part}: the figures are a lower bound", 97)
    # ranks of several runs would be as many notes as runs
    if len(subject.records) == 1:
        for line in imbalance_notes(subject.records[0].ranks):
            yield ReportNote(about="ranks", words=line, weight=20)


def _few_runs_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield how reliable advice from few runs is."""
    few = subject.few()
    what = "run it three times to learn how much it varies"
    if few.startswith("no"):
        what = "the usage is a lower bound of the need"
    if few:
        yield ReportNote(about="basis", words=f"{few}: {what}", weight=-1)


def _missing_request_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield the request to use, if nothing was requested."""
    if not subject.requested.is_nothing:
        return
    # a record with repeats is several runs, but one source
    apart = {record.id: record for record in subject.records}
    reasons = {why_no_request(record) for record in apart.values()}
    records = [one for one in apart.values() if why_no_request(one) is None]
    try:
        request = _long_enough(from_usages(records), subject)
    except UsageError:
        for why in sorted(reason for reason in reasons if reason):
            yield ReportNote(about="request", words=f"none: {why}", weight=1)
        return
    # memory per CPU, if the job requested it so
    if subject.requested.per_cpu:
        site = SiteFlags(per_cpu=True)
        request = msgspec.structs.replace(request, site=site)
    flags = " ".join(subject.dialect.directives(request))
    words = _request_rule_text(subject, request)
    yield ReportNote(about="request", words=words, flag=flags, weight=1)


def _long_enough(request: Request, subject: AdviceSubject) -> Request:
    """Return *request* with the time that unfinished runs need by their progress."""
    # a run that was stopped shows only how long it was allowed to run
    needs = forecast_time(subject)
    if needs is None:
        return request
    limit = max(request.time_limit or 0, time_to_request(needs))
    return msgspec.structs.replace(request, time_limit=limit)


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


FAILED = frozenset(
    {"FAILED", "NODE_FAIL", "PREEMPTED", "INTERRUPTED", "STUCK", "DIVERGED"}
    | {"OUT_OF_MEMORY", "TIMEOUT"}
)
_OF_LIMITS = frozenset({"OUT_OF_MEMORY", "TIMEOUT"})  # these are noted with the request
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MOST_WAYS = 3  # in which tasks failed: the first lines are read


def failure_notes(
    report_rows: Sequence[ReportRow], unit: str = "task"
) -> Iterator[ReportNote]:
    """Yield which tasks failed and how, grouped by the kind of failure.

    *unit* is what a row is called.
    """
    # grouped by what was printed, without numbers: 500 tasks with one bug are one line
    failed = [row for row in report_rows if row.state in FAILED - _OF_LIMITS]
    ways: dict[str, list[ReportRow]] = {}
    for row in failed:
        ways.setdefault(failure_text_without_numbers(row), []).append(row)
    ordered = sorted(ways.values(), key=len, reverse=True)
    for alike in ordered[:_MOST_WAYS]:
        yield _common_failure_note(alike, report_rows, unit)
    left = sum(map(len, ordered[_MOST_WAYS:]))
    if left:
        yield ReportNote(
            about="failed", words=f"{left:,} more failed in other ways", weight=60
        )
    yield from _unfinished_notes(report_rows, unit)


def failure_text_without_numbers(report_row: ReportRow) -> str:
    """Return how a run failed, without numbers that differ between runs."""
    return _NUMBERS.sub("N", failure_text(report_row))


def failure_text(report_row: ReportRow) -> str:
    """Return how a run failed; output before a signal is not its cause."""
    row = report_row
    if row.state in {"STUCK", "DIVERGED"}:
        state = row.state.lower()
        return f"{state}, after: {row.error}" if row.error else state
    if row.signal and row.error:
        return f"signal {row.signal}, after: {row.error}"
    if row.signal and not row.reason:
        return f"killed by signal {row.signal}"
    if row.state == "FAILED" and row.exit_code:
        return row.error or row.reason or f"exit code {row.exit_code}"
    return row.error or row.reason or row.state.lower().replace("_", " ")


def _common_failure_note(
    alike: Sequence[ReportRow], report_rows: Sequence[ReportRow], unit: str
) -> ReportNote:
    first = alike[0]
    number = len(alike)
    if number == len(report_rows) > 1:
        which = f"all {number:,} {unit}s alike"
    elif number > 1:
        which = f"{number:,} {unit}s alike, {_first_task_text(alike, unit)}"
    else:
        which = _task_or_run_name(first, unit)
    nodes = {row.node for row in alike if row.node}
    everywhere = {row.node for row in report_rows if row.node}
    where = ""
    if number > 1 and len(nodes) == 1 and len(everywhere) > 1:
        where = f", all on {nodes.pop()}"
    # a failure of many is more likely the program's than that of one input
    weight = 95 if number > 1 else 75
    return finding_note("failed", f"{which}{where}: {failure_text(first)}", weight)


def _first_task_text(alike: Sequence[ReportRow], unit: str) -> str:
    number = alike[0].task
    return "see --json" if number is None else f"the first is {unit} {number}"


def _task_or_run_name(report_row: ReportRow, unit: str) -> str:
    if report_row.task is None:
        return f"run {(report_row.record or '')[:6]}"
    return f"{unit} {report_row.task}"


def _unfinished_notes(
    report_rows: Sequence[ReportRow], unit: str
) -> Iterator[ReportNote]:
    not_run = [row for row in report_rows if row.is_not_run]
    if not_run:
        way_out = (not_run[0].reason or "").removeprefix(NOT_RUN)
        words = f"{count_with_noun(len(not_run), unit)}{way_out}"
        yield ReportNote(about=NOT_RUN, words=words, weight=99)
    waiting = sum(row.state in ACTIVE for row in report_rows) - len(not_run)
    if waiting:
        verb = "has" if waiting == 1 else "have"
        words = f"{count_with_noun(waiting, unit)} {verb} not ended yet: the figures "
        yield ReportNote(about="running", words=f"{words}are preliminary", weight=99)
