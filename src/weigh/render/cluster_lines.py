"""Screen, one-line form, JSON and site file of ``weigh cluster``."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from weigh.model.cluster import (
    Cluster,
    GpuCount,
    Node,
    Queue,
)
from weigh.render.columns import Column, shortened, table
from weigh.render.printable import count, printable
from weigh.schedulers import kind_or_first
from weigh.units import counted, format_duration, format_size

WIDTH = 80
_MOST_ROWS = 12
_SHOWN_NAMES = 3
_OUT_OF_USE = {
    "DOWN": "down",
    "DRAINING": "drained",
    "RESERVED": "reserved",
    "UNKNOWN": "in an unknown state",
}


def cluster_document(cluster: Cluster) -> bytes:
    """Write the cluster as one JSON document."""
    return msgspec.json.encode(cluster)


def cluster_free_line(cluster: Cluster) -> str:
    """Write what is free now on one line."""
    gpus = [f"{printable(one.name)} {one.free} of {one.total}" for one in cluster.gpus]
    free, cpus = _free_and_all_cpus(cluster)
    words = [*gpus, f"CPUs {count(free)} of {count(cpus)}"]
    shut = sum(node.state in _OUT_OF_USE for node in cluster.nodes)
    tail = f"; {shut} of {len(cluster.nodes)} nodes out of use" if shut else ""
    return shortened(f"free: {', '.join(words)}", WIDTH - len(tail)) + tail


def cluster_screen(cluster: Cluster) -> list[str]:
    """Write the screen: resources first, then users."""
    parts = (
        _gpu_table(cluster.gpus),
        _queue_table(cluster.queues),
        _out_of_use(cluster.nodes),
        _user_table(cluster),
    )
    lines = [_cluster_title(cluster)]
    for part in parts:
        rows = [shortened(line, WIDTH) for line in part]
        lines += ["", *rows] if rows else []
    return lines


def _cluster_title(cluster: Cluster) -> str:
    version = printable(cluster.version or "").removeprefix("SGE ")
    system = f"{kind_or_first(cluster.scheduler).title} {version}".strip()
    name = f"{printable(cluster.name)} ({system})" if cluster.name else system
    free, cpus = _free_and_all_cpus(cluster)
    nodes = counted(len(cluster.nodes), "node")
    return shortened(
        f"  {name}   {nodes}, {count(free)} of {count(cpus)} CPUs free",
        WIDTH,
    )


def _free_and_all_cpus(cluster: Cluster) -> tuple[int, int]:
    """Return (free, total) CPUs; CPUs of nodes that take no jobs are not free."""
    up = [node for node in cluster.nodes if node.state not in _OUT_OF_USE]
    free = sum(max(0, (node.cpus or 0) - (node.cpus_used or 0)) for node in up)
    return free, sum(node.cpus or 0 for node in cluster.nodes)


def _gpu_table(gpus: Sequence[GpuCount]) -> Iterator[str]:
    if not gpus:
        return
    columns = [
        Column("GPU", tuple(printable(one.name) for one in gpus), right=False),
        Column("total", tuple(count(one.total) for one in gpus)),
        Column("in use", tuple(count(one.used) for one in gpus)),
        Column("free", tuple(count(one.free) for one in gpus)),
    ]
    if any(one.blocked for one in gpus):
        cells = tuple(count(one.blocked) for one in gpus)
        columns.append(Column("idle, node's CPUs or memory taken", cells))
    if any(one.down for one in gpus):
        columns.append(
            Column("out of use", tuple(count(one.down) for one in gpus), drop=1)
        )
    yield from table(columns, WIDTH)


def _queue_table(queues: Sequence[Queue]) -> Iterator[str]:
    if not queues:
        return
    columns = [
        Column("queue", tuple(map(_queue_name, queues)), right=False),
        Column("time limit", tuple(_time_limit_text(one) for one in queues)),
        Column("default", tuple(_default_time_text(one) for one in queues), drop=2),
        Column("nodes", tuple(map(_nodes_up_text, queues)), drop=1),
        Column("CPUs free", tuple(map(_free_cpus_text, queues))),
        Column(
            "GPUs free", tuple(map(_free_gpus_text, queues)), right=False, flexible=True
        ),
        Column("run", tuple(count(one.running) for one in queues)),
        Column("wait", tuple(count(one.waiting) for one in queues)),
    ]
    if any(one.limits.default_time for one in queues):
        columns[1] = msgspec.structs.replace(columns[1], title="limit")  # room for GPUs
    else:
        del columns[2]
    yield from table(columns, WIDTH)
    yield from _queue_notes(queues)


def _queue_notes(queues: Sequence[Queue]) -> Iterator[str]:
    for one in queues:
        limits = []
        if one.limits.memory is not None:
            limits.append(f"{format_size(one.limits.memory)} per node")
        if one.limits.cpus is not None:
            limits.append(f"{one.limits.cpus} CPUs per node")
        if one.limits.nodes is not None:
            limits.append(f"{one.limits.nodes} nodes per job")
        if one.limits.accounts:
            limits.append(f"only for {_some(one.limits.accounts)}")
        if limits:
            yield f"  {printable(one.limits.name)} allows {', '.join(limits)}"


def _queue_name(queue: Queue) -> str:
    mark = " (default)" if queue.limits.default else ""
    shut = "" if queue.limits.open else " (closed)"
    return printable(queue.limits.name) + mark + shut


def _time_limit_text(queue: Queue) -> str:
    limit = queue.limits.time_limit
    return "none" if limit is None else _short_time_text(limit)


def _default_time_text(queue: Queue) -> str:
    default = queue.limits.default_time
    return "" if default is None else _short_time_text(default)


def _short_time_text(seconds: float) -> str:
    """Write a time limit without trailing zero units."""
    text = format_duration(seconds)
    return text.removesuffix(" 00 s").removesuffix(" 00 m").removesuffix(" 00 h")


def _nodes_up_text(queue: Queue) -> str:
    return f"{queue.nodes - queue.nodes_down} of {queue.nodes}"


def _free_cpus_text(queue: Queue) -> str:
    return f"{count(queue.cpus_free)} of {count(queue.cpus)}"


def _free_gpus_text(queue: Queue) -> str:
    return ", ".join(f"{count(one.free)} {printable(one.name)}" for one in queue.gpus)


def _out_of_use(nodes: Sequence[Node]) -> Iterator[str]:
    """List nodes that take no jobs, grouped by reason."""
    shut = [node for node in nodes if node.state in _OUT_OF_USE]
    shut.sort(key=_why_out)
    groups = [(why, list(group)) for why, group in groupby(shut, key=_why_out)]
    if groups:
        yield f"  out of use: {len(shut)} of {len(nodes)} nodes"
    for (state, reason), group in groups[:_MOST_ROWS]:
        names = _some([node.name for node in group])
        why = f": {printable(reason)}" if reason else ""
        yield f"    {names}  {_OUT_OF_USE[state]}{why}"
    if len(groups) > _MOST_ROWS:
        rest = sum(len(group) for _, group in groups[_MOST_ROWS:])
        yield f"    and {rest} more (--json lists all)"


def _why_out(node: Node) -> tuple[str, str]:
    return node.state, node.reason or ""


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _user_table(cluster: Cluster) -> Iterator[str]:
    users = cluster.users[:_MOST_ROWS]
    if not users:
        return
    names = tuple(
        printable(one.user) + (" (you)" if one.user == cluster.user else "")
        for one in users
    )
    columns = [
        Column("user", names, right=False),
        Column("running", tuple(count(one.running) for one in users)),
        Column("GPUs", tuple(count(one.gpus) for one in users)),
        Column("CPUs", tuple(count(one.cpus) for one in users)),
        Column("waiting", tuple(count(one.waiting) for one in users)),
    ]
    if not cluster.gpus:
        del columns[2]
    yield from table(columns, WIDTH)
    if len(cluster.users) > _MOST_ROWS:
        yield f"  and {len(cluster.users) - _MOST_ROWS} more users (--json)"
