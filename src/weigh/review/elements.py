"""The usage of each element: the sum of what its tasks held at the same time.

Tasks of one program map the same libraries, which count once in an element.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from weigh.model.job import ElementState
from weigh.model.report import Name, ReportMeasure, Unit
from weigh.review.runs import ElementRequest, ReviewedRun
from weigh.units import Bytes, Seconds

_ROUNDING = 0.002  # seconds: records and events keep milliseconds
_INSTANT = 1e-5  # seconds, and more than a double loses of a time since the epoch


class ReviewedElement(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a job, or one run outside a job.

    ``need`` is ``memory``, or what a run that was killed for memory was granted if that
    is more; ``virtual`` is the address space, ``cpus`` the mean number busy,
    ``utilization`` the mean share of its GPUs over time. ``number`` is None outside a
    job.
    """

    number: int | None = None
    runs: tuple[ReviewedRun, ...]
    requested: ElementRequest
    state: ElementState | None = None  # None: not queried
    memory: Bytes | None = None
    need: Bytes | None = None  # None: no run was measured
    virtual: Bytes | None = None
    gpu_memory: Bytes | None = None
    cpus: float | None = None  # mean busy
    utilization: float | None = None  # 0 to 1
    started: Seconds | None = None  # since the epoch
    wall_time: Seconds | None = None


def elements_of_runs(
    runs: Sequence[ReviewedRun],
    element_states: Sequence[ElementState],
    requested: ElementRequest,
) -> list[ReviewedElement]:
    """Group runs by element; *element_states* are those that the scheduler reports."""
    # elements without runs have a state and a time, too
    states = dict(enumerate(element_states))
    groups: dict[int, list[ReviewedRun]] = {number: [] for number in states}
    for run in runs:
        # a plain job has no array task index: it is element 0
        groups.setdefault(run.row.element or 0, []).append(run)
    return [
        _element_of_runs(number, group, states.get(number), requested)
        for number, group in sorted(groups.items())
    ]


def single_run_element(
    reviewed_run: ReviewedRun, requested: ElementRequest
) -> ReviewedElement:
    """Return the element of a run outside a job."""
    row = reviewed_run.row
    return ReviewedElement(
        runs=(reviewed_run,),
        requested=requested,
        memory=row.memory,
        need=reviewed_run.need,
        virtual=_run_virtual_memory(reviewed_run),
        gpu_memory=row.gpu_memory,
        cpus=row.cpus,
        utilization=row.gpu_utilization,
        started=row.started,
        wall_time=row.wall_time,
    )


def most_at_once(spans: Iterable[tuple[Seconds, Seconds, float]]) -> float | None:
    """Return the peak over time of a sum of amounts, each held from start to end.

    None if there are none. An amount that ends as another begins does not overlap.
    """
    changes: list[tuple[Seconds, float]] = []
    for start, end, amount in spans:
        # an end at or before the start would be taken away before it was added
        changes += [(start, amount), (max(end, start + _INSTANT), -amount)]
    if not changes:
        return None
    most = held = 0.0
    for _, amount in sorted(changes):  # at one moment, what ends goes first
        held += amount
        most = max(most, held)
    return most


def memory_at_once(
    runs: Iterable[ReviewedRun],
    memory_of: Callable[[ReviewedRun], Bytes | None] = lambda run: run.row.memory,
) -> Bytes | None:
    """Return the peak over time of the memory that runs held together.

    A run's mapped files count as a whole, but once for all runs of one program at the
    time, as large as the largest of them maps. What else a run holds is its own. Other
    files that such runs map, each its own, are thereby left out: the kernel can drop
    those pages. None if no run was measured.
    """
    changes: list[tuple[Seconds, bool, int, _HeldMemory]] = []
    for number, run in enumerate(runs):
        held = _memory_held_by_run(run, memory_of(run))
        if held is not None and run.row.started is not None:
            # tasks that followed each other in one slot seem to overlap by the rounding
            # of their times
            start, wall = run.row.started, (run.row.wall_time or 0.0) - _ROUNDING
            over = max(start + wall, start + _INSTANT)
            # at one moment, what ends goes first
            changes += [(start, True, number, held), (over, False, number, held)]
    if not changes:
        return None
    # mapped bytes of the runs that are under way, by program
    files: dict[str, list[Bytes]] = {}
    most = own = mapped = 0
    # the number of the run makes the keys differ, since held cannot be compared
    for _, begins, _, held in sorted(changes, key=lambda change: change[:-1]):
        sizes = files.setdefault(held.program, [])
        # each program counts with its largest run: replace its part, as that may have
        # changed
        mapped -= max(sizes, default=0)
        if begins:
            sizes.append(held.file)
            own += held.own
        else:
            sizes.remove(held.file)
            own -= held.own
        mapped += max(sizes, default=0)
        most = max(most, own + mapped)
    return most


class _HeldMemory(msgspec.Struct, frozen=True):
    """What a run held at its peak; ``file`` is of mapped files, ``own`` the rest."""

    program: str
    own: Bytes
    file: Bytes


def _memory_held_by_run(
    reviewed_run: ReviewedRun, memory: Bytes | None
) -> _HeldMemory | None:
    """Return what a run held; without a record its files are not known apart."""
    usage = reviewed_run.record.usage if reviewed_run.record else None
    if memory is None:
        return None
    peak = usage.peak_memory if usage else None
    # without a record all memory counts as its own: rather too much than too little
    file = min(memory, (peak.file or 0) if peak else 0)
    words = reviewed_run.row.command.split()
    # the first word that is no assignment (OMP_NUM_THREADS=4 solver)
    program = next((word for word in words if "=" not in word), "")
    return _HeldMemory(program, memory - file, file)


def _element_of_runs(
    number: int,
    group: Sequence[ReviewedRun],
    state: ElementState | None,
    requested: ElementRequest,
) -> ReviewedElement:
    timed = [run for run in group if run.row.started is not None]
    started, ended = _element_span(timed, state)
    wall = None if started is None or ended is None else max(0.0, ended - started)
    # longer runs have more weight in an element's mean
    busy = [
        (run.row.gpu_utilization, run.row.wall_time or 0.0)
        for run in group
        if run.row.gpu_utilization is not None
    ]
    return ReviewedElement(
        number=number,
        runs=tuple(group),
        requested=requested,
        state=state,
        memory=memory_at_once(timed),
        need=memory_at_once(timed, lambda run: run.need),
        virtual=_rounded_or_none(
            most_at_once(_amount_spans(timed, _run_virtual_memory))
        ),
        gpu_memory=peak_gpu_memory(timed),
        cpus=_mean_busy_cpus(timed),
        utilization=_weighted_mean(busy),
        started=started,
        wall_time=wall,
    )


def _element_span(
    timed: Sequence[ReviewedRun], state: ElementState | None
) -> tuple[Seconds | None, Seconds | None]:
    """Return start and end of an element: by the scheduler, else by its runs."""
    starts = [start for run in timed if (start := run.row.started) is not None]
    ends = [end for run in timed if (end := _run_end_time(run)) is not None]
    began, over = (state.started, state.ended) if state else (None, None)
    # both from one source: the clocks of the scheduler's server and of the node differ
    if began is None or over is None:
        began, over = min(starts, default=began), max(ends, default=over)
    return began, over


def _run_end_time(reviewed_run: ReviewedRun) -> Seconds | None:
    row = reviewed_run.row
    if row.started is None or row.wall_time is None:
        return None
    return row.started + row.wall_time


def _amount_spans(
    runs: Sequence[ReviewedRun], amount: Callable[[ReviewedRun], float | None]
) -> Iterator[tuple[Seconds, Seconds, float]]:
    for run in runs:
        held = amount(run)
        if held is not None and run.row.started is not None:
            wall = (run.row.wall_time or 0.0) - _ROUNDING
            yield run.row.started, run.row.started + wall, held


def _run_virtual_memory(reviewed_run: ReviewedRun) -> Bytes | None:
    usage = reviewed_run.record.usage if reviewed_run.record else None
    return usage.virtual_memory if usage else None


def peak_gpu_memory(runs: Sequence[ReviewedRun]) -> Bytes | None:
    """Return the peak memory over GPUs, each summed over its runs."""
    # runs on different GPUs do not add up: the fullest one counts, which a request has
    # to fit
    gpus = {uuid for run in runs for uuid, _ in run.gpu_peaks}
    if gpus:
        held = (
            most_at_once(_amount_spans(runs, partial(_run_memory_on_gpu, uuid)))
            for uuid in gpus
        )
        return _rounded_or_none(max(size or 0 for size in held))
    return _rounded_or_none(
        most_at_once(_amount_spans(runs, lambda run: run.row.gpu_memory))
    )


def most_runs_on_a_gpu(runs: Sequence[ReviewedRun]) -> int:
    """Return how many runs held memory of one GPU at the same time, at most."""
    gpus = {uuid for run in runs for uuid, _ in run.gpu_peaks}
    spans = ([*_amount_spans(runs, partial(_run_memory_on_gpu, uuid))] for uuid in gpus)
    counts = (most_at_once((start, end, 1) for start, end, _ in one) for one in spans)
    return max((int(count or 0) for count in counts), default=0)


def _run_memory_on_gpu(gpu_uuid: str, reviewed_run: ReviewedRun) -> float | None:
    return (
        sum(size for uuid, size in reviewed_run.gpu_peaks if uuid == gpu_uuid) or None
    )


def _mean_busy_cpus(runs: Sequence[ReviewedRun]) -> float | None:
    times = [time for run in runs if (time := run.row.cpu_time) is not None]
    # weigh's own times: the scheduler's include the set-up, which no CPU time here
    # covers
    began, over = _element_span(runs, None)
    if not times or began is None or over is None or over <= began:
        return None
    return sum(times) / (over - began)


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    if not pairs or total <= 0:
        return None
    return sum(value * weight for value, weight in pairs) / total


def _rounded_or_none(measured_value: float | None) -> int | None:
    return None if measured_value is None else round(measured_value)


_MEMORY_SOURCE = "shared pages and libraries counted once, no page cache"
_GPU_SOURCE = "NVML, the fullest GPU"


def resource_measures(
    elements: Sequence[ReviewedElement], requested: ElementRequest
) -> tuple[ReportMeasure, ...]:
    """Return one measure per resource over *elements*, measured or not."""
    # an element that never started is not one that used nothing
    ran = [one for one in elements if one.runs or one.wall_time]
    # a type of GPU that was planned for, but not requested, is no denominator
    has_gpus = requested.gpus or any(one.gpu_memory for one in ran)
    gpu_memory = requested.gpu_memory if has_gpus else None
    rows: tuple[tuple[Name, Unit, str, str, float | None], ...] = (
        ("memory", "bytes", _MEMORY_SOURCE, "memory", requested.memory),
        ("gpu_memory", "bytes", _GPU_SOURCE, "gpu_memory", gpu_memory),
        ("cpus", "cpus", "weigh", "cpus", requested.cpus),
        ("time", "seconds", "weigh", "wall_time", requested.time_limit),
        ("gpu_utilization", "share", "NVML", "utilization", None),
    )
    measures = []
    for name, unit, source, field, asked in rows:
        values = [getattr(one, field) for one in ran]
        known = [value for value in values if value is not None]
        bound = max(filter(None, map(_memory_bound, ran)), default=None)
        bound = bound if name == "memory" else None
        blank = ReportMeasure(name=name, unit=unit, source=source, bound=bound)
        measures.append(measure_of(blank, known, asked))
    return tuple(measures)


def _memory_bound(element: ReviewedElement) -> Bytes | None:
    """Return the memory of an element whose runs were all too short to measure it."""
    rows = [run.row for run in element.runs if run.row.memory is not None]
    return element.memory if all(row.memory_is_bound for row in rows) else None


def measure_of(
    report_measure: ReportMeasure,
    known_values: Sequence[float],
    requested: float | None,
) -> ReportMeasure:
    """Return a measure with these values; CPUs are judged by their median."""
    median = statistics.median(known_values) if known_values else None
    most = max(known_values, default=None)
    # a limit must hold for the largest; CPUs only make an element slower
    judged = median if report_measure.name == "cpus" else most
    is_judged = requested and judged is not None
    return msgspec.structs.replace(
        report_measure,
        requested=requested,
        median=median,
        most=most,
        efficiency=judged / requested if is_judged else None,  # type: ignore[operator]
        values=tuple(known_values),
    )
