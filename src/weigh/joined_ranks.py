"""Join what was measured of a job's nodes and ranks, by several processes, into one.

A rank or node may be seen by several: by the run around it and by an agent, or by one
process after another. Each counts once, with the larger figure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    Record,
    RecordedNode,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
    mean_cpus,
    step_order,
)
from weigh.units import MIB, Bytes, Seconds, format_duration, format_size

_Number = TypeVar("_Number", int, float)
_Part = TypeVar("_Part", Record, RunMeasurement)  # has nodes and ranks
_IMBALANCE = 1.25  # of the largest or slowest rank, relative to the mean
_OfRank = Callable[[RecordedRank], float | None]
# name of the rank with the largest figure, the figure, the least worth a line, its text
_FIGURES: tuple[tuple[str, _OfRank, float, Callable[[float], str]], ...] = (
    ("largest", lambda r: r.peak_memory, 32 * MIB, lambda size: format_size(int(size))),
    ("slowest", lambda r: r.wall_time, 1.0, format_duration),
    ("busiest", lambda r: r.cpu_time, 1.0, lambda s: f"CPU time {format_duration(s)}"),
)
# of several ranks' states, the first of these is the run's
_WORST_FIRST = (
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "STUCK",
    "DIVERGED",
    "NODE_FAIL",
    "PREEMPTED",
    "FAILED",
    "CANCELLED",
    "INTERRUPTED",
    "UNKNOWN",
    "PENDING",
    "RUNNING",
)


def largest_known(values: Iterable[_Number | None]) -> _Number | None:
    """Return the largest known value; None if none is known."""
    return max((value for value in values if value is not None), default=None)


def sum_of_known(values: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _joined_figures(
    parts: Sequence[object], *, largest: str = "", sums: str = ""
) -> dict[str, Any]:
    """Return these fields of *parts* by name, each its largest value or its sum."""
    joined: dict[str, Any] = {}
    for name in largest.split():
        joined[name] = largest_known(getattr(one, name) for one in parts)
    for name in sums.split():
        joined[name] = sum_of_known(getattr(one, name) for one in parts)
    return joined


def peak_of(cluster_node: RecordedNode) -> Bytes:
    """Return a node's peak memory; 0 if it was not measured."""
    return cluster_node.peak_memory.value if cluster_node.peak_memory else 0


def largest_node(recorded_nodes: Sequence[RecordedNode]) -> RecordedNode | None:
    """Return the node with the largest peak; None if there are no nodes."""
    return max(recorded_nodes, key=peak_of, default=None)


def total_memory(recorded_nodes: Sequence[RecordedNode]) -> Bytes | None:
    """Return the sum of the peaks of several nodes; None for one node or none."""
    return (
        sum(map(peak_of, recorded_nodes)) or None if len(recorded_nodes) > 1 else None
    )


def name_order(node_name: str) -> tuple[int, str, str]:
    """Return a key that sorts cn9 before cn10."""
    # int() refuses a name of thousands of digits: the longer number is the larger one
    digits = "".join(c for c in node_name if c in "0123456789").lstrip("0")
    return len(digits), digits, node_name


def joined_ranks(ranks: Iterable[RecordedRank]) -> tuple[RecordedRank, ...]:
    """Return each rank once, with the larger of two figures, in order."""
    found: dict[tuple[str | None, str | None, int], RecordedRank] = {}
    for rank in ranks:
        # each step counts its ranks from 0
        key = rank.step, rank.launcher, rank.rank
        before = found.get(key)
        found[key] = rank if before is None else _joined_rank(before, rank)
    return tuple(
        sorted(found.values(), key=lambda one: (step_order(one.step), one.rank))
    )


def _joined_rank(recorded_rank: RecordedRank, other_rank: RecordedRank) -> RecordedRank:
    both = (recorded_rank, other_rank)
    return msgspec.structs.replace(
        other_rank,
        host=other_rank.host or recorded_rank.host,
        pid=other_rank.pid or recorded_rank.pid,
        # whoever saw it first knows best when it began
        start=min((one.start for one in both if one.start is not None), default=None),
        gpus=recorded_rank.gpus or other_rank.gpus,
        **_joined_figures(both, largest="size peak_memory cpu_time wall_time"),
    )


def unseen_ranks(ranks: Sequence[RecordedRank]) -> tuple[str, ...]:
    """Return in words how many ranks were started and not seen."""
    seen: dict[str | None, int] = {}
    sizes: dict[str | None, int] = {}
    for rank in ranks:
        seen[rank.step] = seen.get(rank.step, 0) + 1
        sizes[rank.step] = max(sizes.get(rank.step, 0), rank.size or 0)
    # a launcher announced more ranks than were seen
    short = [step for step in seen if seen[step] < sizes[step]]
    if not short:
        return ()
    unseen = sum(sizes[step] - seen[step] for step in short)
    where = ""
    if len(seen) > 1:
        step = min(short, key=step_order)
        where = f" (step {step})" if len(short) == 1 else f" of {len(short)} steps"
    of = sum(sizes[step] for step in short)
    return (f"{unseen} of {of} ranks{where} were not seen",)


def imbalance_notes(ranks: Sequence[RecordedRank]) -> Iterator[str]:
    """Name the largest rank and the slowest, where they are far from the mean.

    The slowest ran longest. With barriers all ran equally long: then it is the busiest.
    """
    several = len({rank.step for rank in ranks}) > 1
    for name, figure, least, wrote in _FIGURES:
        # neither unmeasured nor 0: a rank without a figure would lower the mean
        known = [(value, rank) for rank in ranks if (value := figure(rank))]
        mean = sum(value for value, _ in known) / max(1, len(known))
        most, rank = max(known, key=lambda pair: pair[0], default=(0, None))
        if rank is None or most < least or most <= mean * _IMBALANCE:
            continue
        step = f" of step {rank.step}" if several and rank.step else ""
        where = f" on {rank.host}" if rank.host else ""
        yield (
            f"{name}: rank {rank.rank}{step}{where}, {wrote(most)}, "
            f"{most / mean:.1f} times the mean"
        )


def counted_ranks(
    recorded_nodes: Iterable[RecordedNode], ranks: Sequence[RecordedRank]
) -> tuple[RecordedNode, ...]:
    """Return the nodes in the order of their names, each with its number of ranks."""
    return tuple(
        msgspec.structs.replace(
            node, ranks=sum(rank.host == node.name for rank in ranks)
        )
        for node in sorted(recorded_nodes, key=lambda node: name_order(node.name))
    )


def joined_gpus(gpus: Iterable[GpuUsage]) -> tuple[GpuUsage, ...]:
    """Return each GPU once, as seen by who saw most of the job on it."""
    found: dict[str, GpuUsage] = {}
    for gpu in gpus:
        before = found.get(gpu.uuid)
        if before is None or (gpu.job_peak or 0) > (before.job_peak or 0):
            found[gpu.uuid] = gpu
    return tuple(found.values())


def with_node_figures(
    usage: Usage, recorded_nodes: Sequence[RecordedNode], cpu: Seconds | None
) -> Usage:
    """Return *usage* with the memory of its nodes, and their CPU time in seconds."""
    top = largest_node(recorded_nodes)
    return msgspec.structs.replace(
        usage,
        peak_memory=None if top is None else top.peak_memory,
        total_memory=total_memory(recorded_nodes),
        cpu_time=cpu,
        cpus_used=mean_cpus(cpu, usage.wall_time),
        cpu_wait=None,  # that of one node, or one rank
        gpus=joined_gpus(
            (*usage.gpus, *(gpu for node in recorded_nodes for gpu in node.gpus))
        ),
    )


def join_records(record_parts: Sequence[Record]) -> Record:
    """Join the records that the ranks of one run have left, each its own part.

    A node was watched by one rank at a time, and its figures are in that rank's part.
    """
    record_parts = sorted(record_parts, key=lambda one: one.part or 0)
    first, worst = record_parts[0], min(record_parts, key=_failure_order_key)
    started = min(one.started for one in record_parts)
    # each part counts its times from its own start; the joined record from the first
    shifts = [_seconds_between(started, one.started) for one in record_parts]
    nodes, ranks = joined_places(
        part_later(one, by) for one, by in zip(record_parts, shifts, strict=True)
    )
    top = largest_node(nodes)
    monitors = [one.monitor for one in record_parts if one.monitor is not None]
    ends = [one.ended for one in record_parts]
    return msgspec.structs.replace(
        first,
        part=None,
        started=started,
        # without the end of one part, the end of the run is not known
        ended=max(end for end in ends if end) if all(ends) else None,
        state=worst.state,
        exit_code=worst.exit_code,
        signal=worst.signal,
        outcome=worst.outcome,
        usage=_usage_of_parts(record_parts, shifts, nodes),
        phases=tuple(phase for one in record_parts for phase in one.phases),
        events=tuple(event for one in record_parts for event in one.events),
        ranks=ranks,
        nodes=nodes,
        missing=_unmeasured_in_parts(record_parts, ranks),
        series=first.series if top is None else top.series,
        monitor=None
        if not monitors
        else msgspec.structs.replace(
            monitors[0],
            warnings=tuple(dict.fromkeys(w for one in monitors for w in one.warnings)),
            **_joined_figures(
                monitors, largest="memory rank_memory", sums="cpu_time samples"
            ),
        ),
    )


def _failure_order_key(failed_record: Record) -> tuple[int, str]:
    """Return a key that puts first what failed first, in the worst way."""
    # "~" sorts behind each date: a part without an end failed last
    return _state_order(failed_record.state), failed_record.ended or "~"


def _state_order(state: str) -> int:
    known = state in _WORST_FIRST
    return _WORST_FIRST.index(state) if known else len(_WORST_FIRST)


def _unmeasured_in_parts(
    record_parts: Sequence[Record], ranks: Sequence[RecordedRank]
) -> tuple[str, ...]:
    own = (word for one in record_parts for word in one.missing)
    return tuple(dict.fromkeys((*own, *unseen_ranks(ranks))))


def _usage_of_parts(
    record_parts: Sequence[Record],
    shifts: Sequence[Seconds],
    recorded_nodes: Sequence[RecordedNode],
) -> Usage | None:
    usages = [one.usage for one in record_parts if one.usage is not None]
    if not usages:
        return None
    wall = max(
        # a part that began later also ends later on the common clock
        by + (one.usage.wall_time if one.usage else 0.0)
        for one, by in zip(record_parts, shifts, strict=True)
    )
    figures = _joined_figures(
        usages,
        # ranks on one node do not add up to a single process, and can share its control
        # group: a sum would count it several times
        largest="max_process_memory cgroup_peak memory_limit",
        sums="cpu_time user_time system_time virtual_memory read_bytes write_bytes "
        "processes",
    )
    joined = msgspec.structs.replace(
        usages[0],
        wall_time=wall,
        growing=any(one.growing for one in usages),
        gpus=joined_gpus(gpu for one in usages for gpu in one.gpus),
        **figures,
    )
    return with_node_figures(joined, recorded_nodes, figures["cpu_time"])


def with_nodes(
    measurement: RunMeasurement, parts: Sequence[RunMeasurement], own: str | None
) -> RunMeasurement:
    """Join a run's own measurement with the *parts* of its nodes.

    *own* is the node that the run's own processes are on; None if it is none of the
    job's, as on a login node. There, the agent has seen the run's own processes too.
    """
    ranks = tuple(
        msgspec.structs.replace(rank, host=own or rank.host)
        for rank in measurement.ranks
    )
    mine = msgspec.structs.replace(measurement, ranks=ranks)
    if own is not None:
        # its peak may have been before the agent came
        curve = msgspec.structs.replace(measurement.series, gpu_memory=())
        peak = measurement.usage.peak_memory
        node = RecordedNode(name=own, peak_memory=peak, series=curve)
        mine = msgspec.structs.replace(mine, nodes=(node,))
    nodes, ranks = joined_places((mine, *parts))
    top = largest_node(nodes)
    if top is None:
        return measurement
    monitors = [one.monitor for one in (measurement, *parts)]
    return msgspec.structs.replace(
        measurement,
        nodes=nodes,
        ranks=ranks,
        series=top.series or SampleSeries(),
        usage=_usage_over_nodes(measurement, parts, own, nodes, ranks),
        monitor=msgspec.structs.replace(
            measurement.monitor, **_joined_figures(monitors, sums="cpu_time")
        ),
    )


def _usage_over_nodes(
    measurement: RunMeasurement,
    parts: Sequence[RunMeasurement],
    own: str | None,
    recorded_nodes: Sequence[RecordedNode],
    ranks: Sequence[RecordedRank],
) -> Usage:
    usage = measurement.usage
    usages = [usage, *(part.usage for part in parts)]
    # the run's own processes are seen by the agent too: the larger number has all
    processes: dict[str, int] = {}
    names = (own or "", *(part.nodes[0].name for part in parts))
    for name, one in zip(names, usages, strict=True):
        processes[name] = max(processes.get(name, 0), one.processes or 0)
    counted = {rank.pid for rank in measurement.ranks}
    # CPU time of ranks on this node is in the run's own already
    elsewhere = (rank.cpu_time for rank in ranks if rank.pid not in counted)
    joined = msgspec.structs.replace(
        usage,
        user_time=None,
        system_time=None,
        processes=sum(processes.values()),
        **_joined_figures(usages, largest="max_process_memory virtual_memory"),
    )
    cpu = sum_of_known((usage.cpu_time, *elsewhere))
    return with_node_figures(joined, recorded_nodes, cpu)


def unmeasured_nodes(
    joined: RunMeasurement, heard: int, expected: int, current_time: Seconds
) -> tuple[str, ...]:
    """Return in words what was not measured of a job of which *heard* nodes reported.

    It has *expected* nodes, and was to end now.
    """
    missing = []
    if heard < expected:
        missing.append(f"{expected - heard} of {expected} nodes sent no figures")
    for node in joined.nodes:
        if node.heard is not None and not node.final:
            ago = format_duration(max(0.0, current_time - node.heard))
            missing.append(f"{node.name} was last heard {ago} before the end")
    return (*missing, *unseen_ranks(joined.ranks))


def joined_nodes(recorded_nodes: Iterable[RecordedNode]) -> Iterable[RecordedNode]:
    """Return each node once, of those that watched it one after another."""
    found: dict[str, RecordedNode] = {}
    for node in recorded_nodes:
        before = found.get(node.name)
        found[node.name] = node if before is None else _joined_node(before, node)
    return found.values()


def _joined_node(recorded_node: RecordedNode, other_node: RecordedNode) -> RecordedNode:
    """Join the figures of one node from two that watched it one after another.

    The curve is that of the one who saw the peak.
    """
    top = max(recorded_node, other_node, key=peak_of)
    return msgspec.structs.replace(
        top,
        final=recorded_node.final or other_node.final,
        gpus=joined_gpus((*recorded_node.gpus, *other_node.gpus)),
        **_joined_figures((recorded_node, other_node), largest="cpus heard"),
    )


def _seconds_between(early: str, late: str) -> Seconds:
    try:
        times = [datetime.fromisoformat(text) for text in (early, late)]
    except ValueError:
        return 0.0
    # clocks of nodes differ: a part cannot begin before the run
    return max(0.0, (times[1] - times[0]).total_seconds())


def joined_places(
    parts: Iterable[_Part],
) -> tuple[tuple[RecordedNode, ...], tuple[RecordedRank, ...]]:
    """Return the nodes and the ranks of a run of several parts, in its times."""
    parts = tuple(parts)
    ranks = joined_ranks(rank for one in parts for rank in one.ranks)
    nodes = joined_nodes(node for one in parts for node in one.nodes)
    return counted_ranks(nodes, ranks), ranks


def part_later(
    part: _Part, time_shift: Seconds, *, heard: Seconds | None = None
) -> _Part:
    """Return what was measured from *time_shift* seconds on, in the times of the run.

    If given, its nodes were last *heard* then.
    """
    ranks = [
        msgspec.structs.replace(rank, start=_later(rank.start, time_shift))
        for rank in part.ranks
    ]
    nodes = []
    for node in part.nodes:
        peak, series = node.peak_memory, node.series
        if peak is not None:
            at = _later(peak.time, time_shift)
            peak = msgspec.structs.replace(peak, time=at)
        if series is not None:
            times = tuple(at + time_shift for at in series.t)
            series = msgspec.structs.replace(series, t=times)
        then = _later(node.heard, time_shift) if heard is None else heard
        nodes.append(
            msgspec.structs.replace(node, peak_memory=peak, series=series, heard=then)
        )
    return msgspec.structs.replace(part, nodes=tuple(nodes), ranks=tuple(ranks))


def _later(at: Seconds | None, time_shift: Seconds) -> Seconds | None:
    return None if at is None else at + time_shift
