"""Screen, one-line form, JSON and site file of ``weigh cluster``."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from weigh.model.cluster import (
    ClusterNode,
    ClusterQueue,
    ClusterState,
    GpuCount,
)
from weigh.render.columns import TableColumn, table_lines, text_cut_to_columns
from weigh.render.printable import count_with_commas, printable_text
from weigh.schedulers import kind_or_first
from weigh.units import count_with_noun, format_duration, format_size

WIDTH = 80
_MOST_ROWS = 12  # of nodes out of use, and of users
_SHOWN_NAMES = 3  # names of nodes or accounts in a line
# states in which a node takes no jobs, in words
_OUT_OF_USE = {
    "DOWN": "down",
    "DRAINING": "drained",
    "RESERVED": "reserved",
    "UNKNOWN": "in an unknown state",
}


def cluster_document(cluster: ClusterState) -> bytes:
    """Write the cluster as one JSON document."""
    return msgspec.json.encode(cluster)


def cluster_free_line(cluster: ClusterState) -> str:
    """Write what is free now on one line."""
    gpus = [
        f"{printable_text(one.name)} {one.free} of {one.total}" for one in cluster.gpus
    ]
    free, cpus = _free_and_all_cpus(cluster)
    words = [*gpus, f"CPUs {count_with_commas(free)} of {count_with_commas(cpus)}"]
    shut = sum(node.state in _OUT_OF_USE for node in cluster.nodes)
    tail = f"; {shut} of {len(cluster.nodes)} nodes out of use" if shut else ""
    # the nodes out of use are always shown: the list of GPUs is cut instead
    return text_cut_to_columns(f"free: {', '.join(words)}", WIDTH - len(tail)) + tail


def cluster_screen(cluster: ClusterState) -> list[str]:
    """Write the screen: resources first, then users."""
    parts = (
        _gpu_table(cluster.gpus),
        _queue_table(cluster.queues),
        _out_of_use_lines(cluster.nodes),
        _user_table(cluster),
    )
    lines = [_cluster_title(cluster)]
    for part in parts:
        rows = [text_cut_to_columns(line, WIDTH) for line in part]
        lines += ["", *rows] if rows else []
    return lines


def _cluster_title(cluster: ClusterState) -> str:
    version = printable_text(cluster.version or "").removeprefix("SGE ")
    system = f"{kind_or_first(cluster.scheduler).title} {version}".strip()
    name = f"{printable_text(cluster.name)} ({system})" if cluster.name else system
    free, cpus = _free_and_all_cpus(cluster)
    nodes = count_with_noun(len(cluster.nodes), "node")
    return text_cut_to_columns(
        f"  {name}   {nodes}, {count_with_commas(free)} of {count_with_commas(cpus)} "
        "CPUs free",
        WIDTH,
    )


def _free_and_all_cpus(cluster: ClusterState) -> tuple[int, int]:
    """Return (free, total) CPUs; CPUs of nodes that take no jobs are not free."""
    up = [node for node in cluster.nodes if node.state not in _OUT_OF_USE]
    # where CPUs are shared, more can be used than there are
    free = sum(max(0, (node.cpus or 0) - (node.cpus_used or 0)) for node in up)
    return free, sum(node.cpus or 0 for node in cluster.nodes)


def _gpu_table(gpus: Sequence[GpuCount]) -> Iterator[str]:
    if not gpus:
        return
    columns = [
        TableColumn(
            "GPU", tuple(printable_text(one.name) for one in gpus), right=False
        ),
        TableColumn("total", tuple(count_with_commas(one.total) for one in gpus)),
        TableColumn("in use", tuple(count_with_commas(one.used) for one in gpus)),
        TableColumn("free", tuple(count_with_commas(one.free) for one in gpus)),
    ]
    if any(one.blocked for one in gpus):
        cells = tuple(count_with_commas(one.blocked) for one in gpus)
        columns.append(TableColumn("idle, node's CPUs or memory taken", cells))
    if any(one.down for one in gpus):
        columns.append(
            TableColumn(
                "out of use", tuple(count_with_commas(one.down) for one in gpus), drop=1
            )
        )
    yield from table_lines(columns, WIDTH)


def _queue_table(queues: Sequence[ClusterQueue]) -> Iterator[str]:
    if not queues:
        return
    columns = [
        TableColumn("queue", tuple(map(_queue_name, queues)), right=False),
        TableColumn("time limit", tuple(_time_limit_text(one) for one in queues)),
        TableColumn(
            "default", tuple(_default_time_text(one) for one in queues), drop=2
        ),
        TableColumn("nodes", tuple(map(_nodes_up_text, queues)), drop=1),
        TableColumn("CPUs free", tuple(map(_free_cpus_text, queues))),
        TableColumn(
            "GPUs free", tuple(map(_free_gpus_text, queues)), right=False, flexible=True
        ),
        TableColumn("run", tuple(count_with_commas(one.running) for one in queues)),
        TableColumn("wait", tuple(count_with_commas(one.waiting) for one in queues)),
    ]
    if any(one.limits.default_time for one in queues):
        columns[1] = msgspec.structs.replace(columns[1], title="limit")  # room for GPUs
    else:
        del columns[2]
    yield from table_lines(columns, WIDTH)
    yield from _queue_notes(queues)


def _queue_notes(queues: Sequence[ClusterQueue]) -> Iterator[str]:
    for one in queues:
        limits = []
        if one.limits.memory is not None:
            limits.append(f"{format_size(one.limits.memory)} per node")
        if one.limits.cpus is not None:
            limits.append(f"{one.limits.cpus} CPUs per node")
        if one.limits.nodes is not None:
            limits.append(f"{one.limits.nodes} nodes per job")
        if one.limits.accounts:
            limits.append(f"only for {_shortened_name_list(one.limits.accounts)}")
        if limits:
            yield f"  {printable_text(one.limits.name)} allows {', '.join(limits)}"


def _queue_name(queue: ClusterQueue) -> str:
    mark = " (default)" if queue.limits.default else ""
    shut = "" if queue.limits.open else " (closed)"
    return printable_text(queue.limits.name) + mark + shut


def _time_limit_text(queue: ClusterQueue) -> str:
    limit = queue.limits.time_limit
    return "none" if limit is None else _short_time_text(limit)


def _default_time_text(queue: ClusterQueue) -> str:
    default = queue.limits.default_time
    return "" if default is None else _short_time_text(default)


def _short_time_text(seconds: float) -> str:
    """Write a time limit without trailing zero units."""
    text = format_duration(seconds)
    # 3 h 00 m becomes 3 h
    return text.removesuffix(" 00 s").removesuffix(" 00 m").removesuffix(" 00 h")


def _nodes_up_text(queue: ClusterQueue) -> str:
    return f"{queue.nodes - queue.nodes_down} of {queue.nodes}"


def _free_cpus_text(queue: ClusterQueue) -> str:
    return f"{count_with_commas(queue.cpus_free)} of {count_with_commas(queue.cpus)}"


def _free_gpus_text(queue: ClusterQueue) -> str:
    return ", ".join(
        f"{count_with_commas(one.free)} {printable_text(one.name)}"
        for one in queue.gpus
    )


def _out_of_use_lines(cluster_nodes: Sequence[ClusterNode]) -> Iterator[str]:
    """List nodes that take no jobs, grouped by reason."""
    shut = [node for node in cluster_nodes if node.state in _OUT_OF_USE]
    # groupby joins neighbours only, so equal reasons have to stand together
    shut.sort(key=_state_and_reason)
    groups = [(why, list(group)) for why, group in groupby(shut, key=_state_and_reason)]
    if groups:
        yield f"  out of use: {len(shut)} of {len(cluster_nodes)} nodes"
    for (state, reason), group in groups[:_MOST_ROWS]:
        names = _shortened_name_list([node.name for node in group])
        why = f": {printable_text(reason)}" if reason else ""
        yield f"    {names}  {_OUT_OF_USE[state]}{why}"
    if len(groups) > _MOST_ROWS:
        rest = sum(len(group) for _, group in groups[_MOST_ROWS:])
        yield f"    and {rest} more (--json lists all)"


def _state_and_reason(cluster_node: ClusterNode) -> tuple[str, str]:
    return cluster_node.state, cluster_node.reason or ""


def _shortened_name_list(names: Sequence[str]) -> str:
    shown = ", ".join(printable_text(name) for name in names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _user_table(cluster: ClusterState) -> Iterator[str]:
    users = cluster.users[:_MOST_ROWS]
    if not users:
        return
    names = tuple(
        printable_text(one.user) + (" (you)" if one.user == cluster.user else "")
        for one in users
    )
    columns = [
        TableColumn("user", names, right=False),
        TableColumn("running", tuple(count_with_commas(one.running) for one in users)),
        TableColumn("GPUs", tuple(count_with_commas(one.gpus) for one in users)),
        TableColumn("CPUs", tuple(count_with_commas(one.cpus) for one in users)),
        TableColumn("waiting", tuple(count_with_commas(one.waiting) for one in users)),
    ]
    if not cluster.gpus:
        del columns[2]
    yield from table_lines(columns, WIDTH)
    if len(cluster.users) > _MOST_ROWS:
        yield f"  and {len(cluster.users) - _MOST_ROWS} more users (--json)"
