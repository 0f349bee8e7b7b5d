"""From measured runs to a request: the largest usage, plus headroom, rounded.

A run that did not complete is only a lower bound: a run killed for memory or by its
time limit doubles the limit at which it was stopped.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.lazy_modules import lazy_module
from weigh.model.record import (
    PeakMemory,
    Record,
    RecordedRank,
    Request,
    Usage,
)
from weigh.why_run_ended import may_be_killed_for_memory, ran_out_on_gpu

if TYPE_CHECKING:
    from weigh import usage_needs
    from weigh.model.plan import TaskKind
    from weigh.usage_needs import HeapNeed
else:  # each is imported when it is first used
    usage_needs = lazy_module("weigh.usage_needs")
from weigh.units import (
    GIB,
    HOUR,
    MIB,
    MINUTE,
    Bytes,
    Seconds,
    count_with_noun,
    format_duration,
    format_size,
)

COMPLETED = "COMPLETED"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
DEFAULT_HEADROOM = 0.2
MOST_HEADROOM = 10.0  # as a factor: 1000 %
ENOUGH_RUNS = 3  # completed runs, from which on their spread is reported

LEAST_MEMORY: Bytes = 50 * MIB  # the shell of the job script, and weigh itself
# of weigh exec and the shell of a job script, without pages that tasks share: measured
# in a control group (tests/laws/roads/test_runner_memory.py)
RUNNER_MEMORY: Bytes = 20 * MIB
LEAST_VIRTUAL: Bytes = 200 * MIB  # a shell maps its locale archive, 110 MiB of it
LEAST_TIME = 5 * MINUTE  # seconds; also the smallest step of a time limit
STILL_RISING = (
    "memory was still rising at the end of the run: a longer job needs more; "
    "measure a longer run"
)

# up to the first number round to multiples of the second; then to whole GiB and hours
_MEMORY_STEPS = (
    (1000 * MIB, 10 * MIB),
    (2000 * MIB, 20 * MIB),
    (5000 * MIB, 50 * MIB),
    (10 * GIB, 100 * MIB),
    (20 * GIB, 200 * MIB),
    (64 * GIB, 512 * MIB),
)
_SHARED_STEPS = ((100 * MIB, 10 * MIB), (1000 * MIB, 50 * MIB), (10 * GIB, 100 * MIB))
_TIME_STEPS = ((HOUR, 5 * MINUTE), (6 * HOUR, 15 * MINUTE))

_WIDEST_BOUND = 1.5  # a wider bound reflects missing knowledge, not the need
_ESTIMATED = "status:"  # the source of a peak whose shared pages were not counted
SHORTEST_WORK: Seconds = 1.0  # a run that ends sooner did none of the job's work
_FILE_SHARE = 0.2  # of the peak; less mapped data is not worth a note
_FILE_FLOOR = 32 * MIB  # a program's own libraries are not mapped data
_GPU_MAKERS = frozenset(
    ("nvidia", "tesla", "geforce", "quadro", "amd", "radeon", "instinct")
)
_GPU_FAMILIES = frozenset(("rtx", "gtx", "titan"))


class RunForRequest(msgspec.Struct, frozen=True):
    """One measured run. ``granted`` is the memory it was allowed, in bytes, if known.

    ``on_gpu`` is set if it ran out of GPU memory, ``killed`` if it got SIGKILL, maybe
    for memory. ``left_out`` is the time of the batches that `--worst-batch` left out.
    """

    usage: Usage
    state: str
    granted: Bytes | None = None
    on_gpu: bool = False
    killed: bool = False
    left_out: Seconds = 0.0

    @property
    def wall_time(self) -> Seconds:
        """Return the time that the run takes with all its batches."""
        return self.usage.wall_time + self.left_out

    @property
    def completed(self) -> bool:
        """Return whether it completed, so that it needs no more than it used."""
        return self.state == COMPLETED

    @property
    def lacked_memory(self) -> bool:
        """Return whether it ran out of host memory, and needs more than was granted."""
        return self.state == OUT_OF_MEMORY and not self.on_gpu

    @property
    def may_have_lacked_memory(self) -> bool:
        """Return whether it failed perhaps for lack of host memory.

        A program that got half of what it was granted may have failed as it took that
        again, which no sample shows. A Java heap is a share of what is granted.
        """
        if self.state != "FAILED" or self.granted is None:
            return False
        usage, peak = self.usage, self.usage.peak_memory
        held = (usage.max_process_memory or 0) if peak is None else peak.high
        # without a control group, address space may be what is limited: never exceeded
        if usage.memory_limit is None and (usage.virtual_memory or 0) <= self.granted:
            held = max(held, usage.virtual_memory or 0)
        return self.killed or usage.jvm is not None or 2 * held >= self.granted


class QuantityNeed(msgspec.Struct, frozen=True):
    """What one quantity needs, before rounding, and the notes on it."""

    size: float | None  # bytes or seconds, before rounding; None: not measured
    notes: tuple[str, ...] = ()
    heap: "HeapNeed | None" = None  # None: no Java heap whose size is to be set


def from_usages(
    records: Sequence[Record],
    *,
    headroom: float = DEFAULT_HEADROOM,
    apart: str = "",
) -> Request:
    """Return the request for the largest usage in *records* plus *headroom*.

    *apart* says what runs are of that do not repeat each other, as the sizes of a scan:
    it stands in place of how much they vary.

    Raises:
        UsageError: no record has a measurement, or *headroom* is out of range.
    """
    check_headroom(headroom)
    runs = [run for record in records for run in _runs_of_record(record)]
    if not runs:
        raise UsageError(_nothing_measured(records))
    memory = _memory_need(runs, headroom)
    time = _time_need(runs, headroom)
    gpus, gpu_type, gpu_notes = _gpu_need(runs)
    # the placement of the run with the most tasks
    layout = max(map(_layout_of, records), key=lambda layout: layout.ntasks or 0)
    # each rank runs under a weigh of its own, and the node has to hold all of them
    of_weigh = layout.weigh * (layout.ntasks_per_node or 0)
    node = None if memory.size is None else memory.size + of_weigh
    return Request(
        cpus=layout.cpus or _cpus_needed(runs, records),
        memory=_rounded_request_memory(node, LEAST_MEMORY),
        virtual_memory=_rounded_request_memory(
            _virtual_of(layout, _virtual_need(runs, headroom, memory)), LEAST_VIRTUAL
        ),
        time_limit=round_time(time.size or 0),
        headroom=headroom,
        # the completed runs decide; the others count only where no run completed
        runs=sum(run.completed for run in runs) or len(runs),
        gpus=gpus,
        gpu_type=gpu_type,
        notes=(
            *_request_basis_notes(runs, headroom, apart or _mixed_commands(records)),
            *_unmeasured_notes(records),
            *memory.notes,
            *_weigh_memory_notes(layout),
            *time.notes,
            *_cpu_notes(_runs_of_whole_jobs(runs), layout),
            *((STILL_RISING,) if any(run.usage.growing for run in runs) else ()),
            *_full_gpu_notes(runs),
            *gpu_notes,
        ),
        nodes=layout.nodes,
        ntasks=layout.ntasks,
        ntasks_per_node=layout.ntasks_per_node,
        memory_per_cpu=_rounded_request_memory(
            _request_memory_per_cpu(layout, node, headroom), LEAST_MEMORY
        ),
        # with a part unmeasured or no complete run, the true need can only be larger
        lower_bound=any(record.missing for record in records)
        or not any(run.completed for run in runs),
        knob=None if memory.heap is None else memory.heap.knob,
    )


def memory_uses_of_runs(
    record: Record,
) -> tuple[tuple[Bytes | None, RunForRequest], ...]:
    """Return each run in *record* with the memory it used, or its limit if killed."""
    return tuple((_memory_use(run), run) for run in _runs_of_record(record))


class RankLayout(msgspec.Struct, frozen=True):
    """How a run's ranks were placed; all None for a run that is one task.

    ``rank`` is the memory of the largest rank, ``script`` what a node held in addition
    to its ranks, such as the job's script, ``weigh`` that of each rank's own weigh.
    """

    nodes: int | None = None  # nodes that the ranks need
    # tasks of the job: ranks, or one per node that starts its ranks itself
    ntasks: int | None = None
    ntasks_per_node: int | None = None  # the largest number that ran on a node at once
    cpus: int | None = None  # per task
    rank: Bytes | None = None  # bytes; None: measured per node only
    script: Bytes = 0
    weigh: Bytes = 0


def per_task(record: Record) -> tuple[int, Bytes | None]:
    """Return the number of tasks, and the memory that covers each in any placement.

    In bytes, with what a node held once; None if it was not measured.
    """
    layout = _layout_of(record)
    if layout.ntasks and layout.rank is not None:
        return layout.ntasks, layout.rank + layout.script + layout.weigh
    peak = record.usage.peak_memory if record.usage else None
    return 1, None if peak is None else peak.value


_TASKS = frozenset(("step", "openmpi", "pmi"))  # launchers that use one task per rank


def _layout_of(record: Record) -> RankLayout:
    ranks = [rank for rank in record.ranks if rank.size]
    if not ranks or not (record.nodes or _are_tasks(ranks)):
        return RankLayout()
    hosts: dict[str, list[RecordedRank]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host or "", []).append(rank)
    # what a node's peak holds beyond the peaks of its ranks is the job script and the
    # launcher
    peaks = {node.name: node.peak_memory for node in record.nodes}
    script = (
        peak.value - sum(rank.peak_memory or 0 for rank in hosts.get(name, ()))
        for name, peak in peaks.items()
        if peak is not None
    )
    # CPUs that each rank kept busy
    busy = {
        id(rank): (rank.cpu_time or 0.0) / rank.wall_time if rank.wall_time else 0.0
        for rank in ranks
    }
    per_node = max(_ranks_at_once(on_node) for on_node in hosts.values())
    if not _are_tasks(ranks):  # one process per node starts its ranks
        cpus = max(sum(busy[id(r)] for r in on_node) for on_node in hosts.values())
        return RankLayout(len(hosts), len(hosts), 1, max(1, math.ceil(cpus)))
    # the size that a launcher announced counts ranks that weigh did not see, too
    tasks = max(_ranks_at_once(ranks), *(rank.size or 0 for rank in ranks))
    return RankLayout(
        nodes=max(len(hosts), math.ceil(tasks / per_node)),
        ntasks=tasks,
        ntasks_per_node=per_node,
        weigh=(record.monitor.rank_memory or 0) if record.monitor else 0,
        cpus=max(usage_needs.cpus_to_request(used) for used in busy.values()),
        rank=max((rank.peak_memory or 0 for rank in ranks), default=0) or None,
        script=max(0, *script, 0),
    )


def _are_tasks(ranks: Sequence[RecordedRank]) -> bool:
    return all(rank.launcher in _TASKS for rank in ranks)


def _ranks_at_once(ranks: Sequence[RecordedRank]) -> int:
    """Return the largest number of ranks that ran at the same time."""
    starts = [rank.start or 0.0 for rank in ranks]
    ends = [(rank.start or 0.0) + (rank.wall_time or 0.0) for rank in ranks]
    count = most = 0
    # one that starts as another ends counts next to it; unknown times are 0
    events = [*((start, 0) for start in starts), *((end, 1) for end in ends)]
    for _, is_end in sorted(events):
        count += -1 if is_end else 1
        most = max(most, count)
    return max(most, 1)


def _request_memory_per_cpu(
    layout: RankLayout, node_memory: float | None, headroom: float
) -> float | None:
    """Return the memory per CPU with which any placement of the ranks has enough.

    A node that gets n ranks gets n times this, and needs at most n times the largest
    rank and, once, what was there in addition.
    """
    if layout.rank is None or not layout.ntasks_per_node or node_memory is None:
        return None
    # in the worst placement a rank is alone on its node, with the job script
    rank = _value_with_headroom(layout.rank + layout.script + layout.weigh, headroom)
    return max(rank, node_memory / layout.ntasks_per_node) / (layout.cpus or 1)


def _weigh_memory_notes(layout: RankLayout) -> Iterator[str]:
    if layout.weigh:
        each = format_size(layout.weigh)
        yield f"memory includes {each} per rank for weigh, which runs with each again"


def _virtual_of(layout: RankLayout, node_memory: float | None) -> float | None:
    """Return the virtual memory of all ranks, where that of the largest is known."""
    if node_memory is None or not layout.ntasks or not layout.ntasks_per_node:
        return node_memory
    return node_memory / layout.ntasks_per_node * layout.ntasks


def _unmeasured_notes(records: Sequence[Record]) -> Iterator[str]:
    missing = dict.fromkeys(part for record in records for part in record.missing)
    if missing:
        yield f"a lower bound, a part was not measured: {'; '.join(missing)}"


def need_without_runner(kind: "TaskKind", headroom: float) -> Bytes:
    """Return the memory that a planned task itself needs, *headroom* included.

    A need of the least that is requested was raised to that, and has room for weigh
    exec; a plan and the guard of a run have to count it alike.
    """
    if kind.item.memory != LEAST_MEMORY or not kind.used.memory:
        return kind.item.memory
    return min(LEAST_MEMORY, round(kind.used.memory * (1 + headroom)))


def why_no_request(record: Record) -> str | None:
    """Return why no request can be based on a run; None if one can.

    A run that failed immediately did none of its work.
    """
    usage = record.usage
    if usage is None:
        return "nothing was measured"
    if record.state == "RUNNING" and record.ranks:
        return "not all of its ranks have ended"
    at_once = failed_at_once(record.state, usage.wall_time)
    if at_once and not any(run.completed for run in _runs_of_record(record)):
        return "it failed within its first second"
    from weigh.work_done_elsewhere import outside_work  # noqa: PLC0415 - start-up time

    return outside_work(record)


def failed_at_once(state: str, wall_time: Seconds | None) -> bool:
    """Return whether a run failed before it can have done any of the job's work."""
    return state == "FAILED" and wall_time is not None and wall_time < SHORTEST_WORK


def parse_headroom(headroom_text: str) -> float:
    """Parse ``20%`` or ``0.2`` as 0.2.

    Raises:
        FormatError: *headroom_text* has neither form, or is out of range.
    """
    word = headroom_text.strip()
    percent = word.endswith("%")
    try:
        number = float(word.removesuffix("%"))
    except ValueError:
        number = math.nan
    # 2 could mean 2 % or 200 %: ask instead of guessing
    if 1 < number < math.inf and not percent:
        raise FormatError(
            f"headroom {headroom_text!r}: per cent, or a factor? write {number:g}% or "
            "0.2"
        )
    headroom = number / 100 if percent else number
    try:
        check_headroom(headroom)
    except UsageError as error:
        raise FormatError(
            f"not a headroom: {headroom_text!r} (write it like 20% or 0.2, at most "
            "1000%)"
        ) from error
    return headroom


def check_headroom(headroom: float) -> None:
    """Check that *headroom* lies between 0 and 1000 %.

    Raises:
        UsageError: it does not.
    """
    if not 0 <= headroom <= MOST_HEADROOM:
        raise UsageError(f"headroom must lie between 0 and 1000 %, not {headroom!r}")


def round_memory(memory_size: float) -> Bytes:
    """Round up by about a hundredth: to 10 MiB below 1000, and so on to whole GiB.

    A whole GiB in between takes precedence: 8 GiB stays 8 GiB, not 8200 MiB.
    """
    return _round_memory(memory_size, _MEMORY_STEPS)


def round_shared(memory_size: float) -> Bytes:
    """Round up coarsely, so that tasks of almost the same need share one request.

    To 10 MiB below 100, 50 below 1000, 100 below 10 GiB; or whole GiB.
    """
    return _round_memory(memory_size, _SHARED_STEPS)


def _round_memory(memory_size: float, steps: Sequence[tuple[int, int]]) -> Bytes:
    whole = math.ceil(memory_size / GIB) * GIB
    return min(whole, _round_up(memory_size, steps, GIB))


def round_time(seconds: Seconds) -> int:
    """Round up to 5 minutes below 1 hour, 15 below 6, then whole hours."""
    return max(LEAST_TIME, _round_up(seconds, _TIME_STEPS, HOUR))


def gpu_type(gpu_name: str) -> str | None:
    """Guess a site's short name of a GPU: ``Tesla V100-SXM2-32GB`` is ``v100``."""
    plain = gpu_name.lower().replace("-", " ").replace("(tm)", "")
    words = [word for word in plain.split() if word not in _GPU_MAKERS]
    # a family alone is no type: the model's number follows it
    if words[:1] and words[0] in _GPU_FAMILIES:
        words = _family_joined(words)
    if not words:
        return None
    # a MIG slice is a type of its own: A100-SXM4-40GB MIG 1g.5gb is a100_1g.5gb
    instance = f"_{words[words.index('mig') + 1]}" if "mig" in words[1:-1] else ""
    kept = [
        c for c in words[0] + instance if c.isascii() and (c.isalnum() or c in "._")
    ]
    return "".join(kept) or None


def _family_joined(model_words: list[str]) -> list[str]:
    """Join ``rtx 2080 ti`` to ``rtx2080ti``; ``rtx a6000`` becomes ``a6000``."""
    family, *rest = model_words
    if rest and family != "titan" and rest[0][0].isalpha():
        return rest
    titanium = "ti" if "ti" in rest[1:] else ""
    return [family + "".join(rest[:1]) + titanium, *rest[1:]]


def _runs_of_record(record: Record) -> Iterator[RunForRequest]:
    of_job = record.allocation.memory if record.allocation else None
    on_gpu = bool(ran_out_on_gpu(record.outcome))
    # the record's state can be that of another repeat, which completed
    failed = "FAILED" if record.state == COMPLETED else record.state
    # a run that failed in its warm-up has nothing else
    repeats = [one for one in record.repeats if not one.warmup] or record.repeats[-1:]
    runs = [
        (
            one.usage,
            COMPLETED if one.exit_code == 0 and one.signal is None else failed,
            may_be_killed_for_memory(one.signal, one.exit_code, record.outcome),
        )
        for one in repeats
    ]
    if not runs and record.usage is not None:
        killed = may_be_killed_for_memory(
            record.signal, record.exit_code, record.outcome
        )
        runs = [(record.usage, record.state, killed)]
    left_out = 0.0 if record.repeats else record.left_out_time
    for usage, state, killed in runs:
        # 0 stands for unknown here: no limit is 0 bytes
        granted = max(of_job or 0, usage.memory_limit or 0) or None
        yield RunForRequest(usage, state, granted, on_gpu, killed, left_out)


def _nothing_measured(records: Sequence[Record]) -> str:
    if not records:
        return "no run was measured: measure one with weigh run -- COMMAND"
    named = ", ".join(record.id for record in records[:3])
    return f"no measurement in {named}: measure again with weigh run -- COMMAND"


def _memory_need(runs: Sequence[RunForRequest], headroom: float) -> QuantityNeed:
    run = _run_with_largest_use(runs, _memory_use)
    # of a killed run this is what it was granted, which can be above its peak
    base = _memory_use(run) if run else None
    if run is None or base is None:
        return QuantityNeed(
            None, ("memory was not measured: request it by experience",)
        )
    if run.lacked_memory:
        where = f"memory doubled from {format_size(round(base))}, which ran out"
        return QuantityNeed(
            base * 2, (where, "the true need is unknown: it may be even more")
        )
    # the peak of a Java program shows how far its heap was allowed to fill, not its
    # need
    is_java = run.usage.jvm is not None and run.completed
    heap = usage_needs.heap_need(run.usage) if is_java else None
    if heap is not None:
        need = _value_with_headroom(heap.memory, headroom)
        return QuantityNeed(
            need, (*heap.notes, *_incomplete_run_notes("memory", run, runs)), heap
        )
    notes = [*_memory_notes(run.usage), *_incomplete_run_notes("memory", run, runs)]
    granted = _granted_lower_limit(runs)
    if granted > _value_with_headroom(base, headroom):
        notes.append(
            f"not less than the {format_size(granted)} granted: the run failed, "
            "perhaps for lack of memory"
        )
        return QuantityNeed(granted, tuple(notes))
    # an upper bound includes what samples can have missed, so it gets no headroom
    peaks = [run.usage.peak_memory for run in runs]
    reach = (_memory_reach(peak) for peak in peaks if peak is not None)
    need = max([_value_with_headroom(base, headroom), *reach])
    return QuantityNeed(need, tuple(notes))


def _granted_lower_limit(runs: Sequence[RunForRequest]) -> Bytes:
    """Return what runs were granted that failed perhaps for lack of memory, or 0."""
    # once a run completed, the failure of another is no sign of too little memory
    if any(run.completed for run in runs):
        return 0
    return max(
        (run.granted or 0 for run in runs if run.may_have_lacked_memory), default=0
    )


def _full_gpu_notes(runs: Sequence[RunForRequest]) -> Iterator[str]:
    """Yield that a GPU was full, if a run failed and none completed."""
    if any(run.completed for run in runs):
        return
    for run in runs:
        if run.state in {"FAILED", OUT_OF_MEMORY}:
            full = usage_needs.full_gpu_words(run.usage, ran_out=run.on_gpu)
            if full is not None:
                yield full
                return


def _memory_use(run: RunForRequest) -> Bytes | None:
    base = _memory_base(run.usage)
    if not run.lacked_memory:
        return base
    # it was killed for exceeding what it was granted, even if no sample shows it
    return max(base or 0, run.granted or 0) or None


def _time_need(runs: Sequence[RunForRequest], headroom: float) -> QuantityNeed:
    run = max(runs, key=lambda run: run.wall_time)
    base = run.wall_time
    # it ran up to its limit: the length of the rest is unknown
    if run.state == "TIMEOUT":
        where = f"time doubled from {format_duration(base)}, where a run was stopped"
        return QuantityNeed(
            base * 2, (where, "the true time is unknown: it may be even more")
        )
    return QuantityNeed(
        _value_with_headroom(base, headroom),
        tuple(_incomplete_run_notes("time", run, runs)),
    )


def _virtual_need(
    runs: Sequence[RunForRequest], headroom: float, memory: QuantityNeed
) -> float | None:
    if memory.heap is not None and memory.heap.virtual is not None:
        return _value_with_headroom(memory.heap.virtual, headroom)
    run = _run_with_largest_use(runs, lambda run: run.usage.virtual_memory)
    if run is None or run.usage.virtual_memory is None:
        return None
    # on Grid Engine this is the limit at which it was killed
    factor = 2 if run.lacked_memory else 1 + headroom
    return round(run.usage.virtual_memory * factor)


def _run_with_largest_use(
    runs: Sequence[RunForRequest], use: Callable[[RunForRequest], float | None]
) -> RunForRequest | None:
    measured = [(size, run) for run in runs if (size := use(run)) is not None]
    return max(measured, key=lambda pair: pair[0])[1] if measured else None


def _memory_base(usage: Usage) -> Bytes | None:
    """Return the run's peak memory in bytes; None if not measured.

    Mapped files are included: sites that poll resident memory count them.
    """
    peak = usage.peak_memory
    if peak is None:
        return usage.max_process_memory
    return peak.value


def _memory_reach(peak: PeakMemory) -> Bytes:
    """Return what a request has to cover, headroom included: the peak's upper bound.

    One that is too wide to be useful is ignored, unless the peak is an estimate.
    """
    widest = round(peak.value * _WIDEST_BOUND)
    is_too_wide = peak.high > widest and not peak.source.startswith(_ESTIMATED)
    if peak.certainty == "exact" or is_too_wide:
        return peak.value
    return min(peak.high, widest)


def _memory_notes(usage: Usage) -> Iterator[str]:
    peak = usage.peak_memory
    if peak is None:
        yield "memory is that of the largest process only: weigh run measures all"
        return
    if usage.cache is not None:
        yield from usage_needs.cache_words(usage)
    if usage.jvm is not None:
        yield from usage_needs.crawl_note(usage)
    # below the least request a wide bound changes nothing
    is_wide = peak.high > max(peak.value * _WIDEST_BOUND, LEAST_MEMORY)
    if peak.certainty != "exact" and is_wide:
        most = f"memory may have reached {format_size(peak.high)} between samples"
        if "counted by the kernel" in peak.source:
            yield (
                f"{most}, unless that was page cache: run it again, now that the files "
                "which it reads are cached"
            )
        else:
            yield (
                f"{most}: a run in a control group of its own (a batch job's step, "
                "systemd) would be exact"
            )
    mapped = 0 if peak.anonymous is None else peak.file or 0
    if mapped > max(_FILE_SHARE * peak.value, _FILE_FLOOR):
        yield (
            f"{format_size(mapped)} of it are mapped files, which the kernel "
            "can drop: under a cgroup's limit, less may be enough"
        )


def _incomplete_run_notes(
    quantity_text: str, run: RunForRequest, runs: Sequence[RunForRequest]
) -> Iterator[str]:
    # if no run completed, the basis of the request is noted as such for all of them
    if not run.completed and any(other.completed for other in runs):
        yield (
            f"the biggest {quantity_text} is of a run that did not complete "
            f"({run.state})"
        )


def _request_basis_notes(
    runs: Sequence[RunForRequest], headroom: float, apart: str
) -> Iterator[str]:
    margin = f"+ {round(headroom * 100, 1):g} %"
    completed = [run for run in runs if run.completed]
    others = len(runs) - len(completed)
    if completed and others:  # the other counts of the notes are of all runs
        margin += f", and {others} that did not complete"
    if not completed:
        states = ", ".join(sorted({run.state for run in runs}))
        yield (
            f"from {count_with_noun(len(runs), 'run')} that did not complete "
            f"({states}) {margin}"
        )
        yield "a lower bound only: measure one that completes"
    elif apart:
        yield f"from {count_with_noun(len(completed), 'run')} {margin}; {apart}"
    elif len(completed) < ENOUGH_RUNS:
        each = "it varies" if len(completed) == 1 else "they vary"
        yield (
            f"from {count_with_noun(len(completed), 'run')} {margin}; "
            f"run it three times to learn how much {each}"
        )
    else:
        yield from _spread_notes(completed, headroom, margin)


def _spread_notes(
    completed: Sequence[RunForRequest], headroom: float, margin: str
) -> Iterator[str]:
    sizes = [_memory_base(run.usage) for run in completed]
    # differences below the least request do not matter
    measured = [float(max(size, LEAST_MEMORY)) for size in sizes if size is not None]
    memory = _relative_range(measured)
    time = _relative_range([run.wall_time for run in completed])
    yield (
        f"from {count_with_noun(len(completed), 'run')} {margin}; "
        f"between runs memory varies by {100 * memory:.0f} %, "
        f"time by {100 * time:.0f} %"
    )
    # nor do those of times that the least limit holds
    apart = _relative_range([max(run.wall_time, LEAST_TIME) for run in completed])
    if max(memory, apart) > headroom:
        yield "runs vary by more than the headroom: consider a larger headroom"


def _relative_range(values: Sequence[float]) -> float:
    largest = max(values, default=0)
    return (largest - min(values)) / largest if largest > 0 else 0


def _mixed_commands(records: Sequence[Record]) -> str:
    """Return that *records* are no repeats, so that how far they vary is no spread."""
    commands = {record.command for record in records}
    if len(commands) == 1:
        return ""
    return f"the runs are of {len(commands)} different commands: the largest counts"


def _gpu_need(runs: Sequence[RunForRequest]) -> tuple[int, str | None, tuple[str, ...]]:
    used = [[gpu for gpu in run.usage.gpus if gpu.may_be_needed] for run in runs]
    count = max(len(gpus) for gpus in used)
    kinds = {gpu_type(gpu.name) for gpus in used for gpu in gpus}
    if not count:
        return 0, None, ()
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        return (
            count,
            None,
            ("measured on GPUs of several types: any type is requested",),
        )
    note = f"{kind} is a guess: your site may have another name for that GPU"
    return count, kind, (note,)


def _runs_of_whole_jobs(runs: Sequence[RunForRequest]) -> Sequence[RunForRequest]:
    """Return the runs whose CPU use is that of the job.

    A run that was killed or ended at once was busy with its start-up, whose mean says
    nothing of a run that waits most of the time.
    """
    completed = [run for run in runs if run.completed]
    long_enough = [run for run in completed if run.wall_time >= SHORTEST_WORK]
    return long_enough or completed or runs


def _cpus_needed(runs: Sequence[RunForRequest], records: Sequence[Record]) -> int:
    """Return the CPUs of the run that needs most; those it had if none is known."""
    usages = [run.usage for run in _runs_of_whole_jobs(runs)]
    if all(usage.cpus_used is None for usage in usages):
        had = [r.allocation.cpus for r in records if r.allocation is not None]
        return max((cpus for cpus in had if cpus), default=1)
    return max(
        # those that a run used, or wanted where others had them
        usage_needs.cpus_to_request(usage.cpus_used)
        if usage.cpu_wait is None
        else usage_needs.cpus_for(usage)
        for usage in usages
    )


def _cpu_notes(runs: Sequence[RunForRequest], layout: RankLayout) -> Iterator[str]:
    """Yield what the run that waited longest for CPUs would do with them.

    One that was stopped would have gone on, for a time that is unknown.
    """
    waits = [
        (run.usage.cpu_wait.time, run)
        for run in runs
        if run.completed and run.usage.cpu_wait
    ]
    # where ranks are tasks, CPUs are counted per rank, and this wait is not
    if waits and not layout.cpus:
        _, run = max(waits, key=lambda wait: wait[0])
        yield from usage_needs.need_notes(run.usage)


def memory_to_request(peak: float, headroom: float = DEFAULT_HEADROOM) -> Bytes:
    """Return the memory to request for a peak, in bytes."""
    return max(LEAST_MEMORY, round_memory(_value_with_headroom(peak, headroom)))


def time_to_request(longest: Seconds) -> int:
    """Return the time limit to request for runs that take at most *longest*."""
    return round_time(_value_with_headroom(longest, DEFAULT_HEADROOM))


def _value_with_headroom(base: float, headroom: float) -> float:
    # to the byte or millisecond, because 1.1 as a float is slightly above 1.1
    return round(base * (1 + headroom), 3)


def _rounded_request_memory(memory_size: float | None, least: Bytes) -> Bytes | None:
    return None if memory_size is None else max(least, round_memory(memory_size))


def _round_up(
    exact_value: float, steps: Sequence[tuple[int, int]], coarsest: int
) -> int:
    # the bounds rise, so the first that holds the value has its step
    step = next((step for bound, step in steps if exact_value <= bound), coarsest)
    return math.ceil(exact_value / step) * step
