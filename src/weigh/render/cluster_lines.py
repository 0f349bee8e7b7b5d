"""Screen and JSON of ``weigh cluster``."""

from collections.abc import Iterator

import msgspec

from weigh.model.cluster import ClusterQueue, ClusterState
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import WIDTH, printable_text, shortened_text
from weigh.schedulers import kind_or_first
from weigh.units import count_with_noun, format_duration

_MOST_ROWS = 12  # of reasons why nodes are out of use
_SHOWN_NAMES = 3  # names of nodes in a line
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


def cluster_screen(cluster: ClusterState) -> list[str]:
    """Write the screen: what is free, then what is out of use."""
    lines = [_cluster_title(cluster)]
    for part in (_gpu_table, _queue_table, _out_of_use_lines):
        rows = [shortened_text(line, WIDTH) for line in part(cluster)]
        lines += ["", *rows] if rows else []
    return lines


def _cluster_title(cluster: ClusterState) -> str:
    version = printable_text(cluster.version or "").removeprefix("SGE ")
    system = f"{kind_or_first(cluster.scheduler).title} {version}".strip()
    name = f"{printable_text(cluster.name)} ({system})" if cluster.name else system
    free, cpus = _free_and_all_cpus(cluster)
    nodes = count_with_noun(len(cluster.nodes), "node")
    return shortened_text(f"  {name}   {nodes}, {free:,} of {cpus:,} CPUs free", WIDTH)


def _free_and_all_cpus(cluster: ClusterState) -> tuple[int, int]:
    """Return (free, total) CPUs; CPUs of nodes that take no jobs are not free."""
    up = [node for node in cluster.nodes if node.takes_jobs]
    free = sum(node.cpus_free for node in up)
    return free, sum(node.cpus or 0 for node in cluster.nodes)


_GPU_COLUMNS = (
    TableColumn("GPU", lambda gpu: printable_text(gpu.name), right=False),
    TableColumn("total", lambda gpu: f"{gpu.total:,}"),
    TableColumn("in use", lambda gpu: f"{gpu.used:,}"),
    TableColumn("free", lambda gpu: f"{gpu.free:,}"),
    TableColumn(
        "idle, node's CPUs or memory taken",
        lambda gpu: f"{gpu.blocked:,}",
        optional=True,
    ),
    TableColumn("out of use", lambda gpu: f"{gpu.down:,}", drop=1, optional=True),
)


def _gpu_table(cluster: ClusterState) -> Iterator[str]:
    return table_lines(cluster.gpus, _GPU_COLUMNS) if cluster.gpus else iter(())


def _queue_name(queue: ClusterQueue) -> str:
    mark = " (default)" if queue.limits.default else ""
    shut = "" if queue.limits.open else " (closed)"
    return printable_text(queue.limits.name) + mark + shut


def _short_time_text(seconds: float | None) -> str:
    """Write a time limit without trailing zero units: ``3 h``."""
    text = "none" if seconds is None else format_duration(seconds)
    return text.removesuffix(" 00 s").removesuffix(" 00 m").removesuffix(" 00 h")


def _free_cpus_text(queue: ClusterQueue) -> str:
    return f"{queue.cpus_free:,} of {queue.cpus:,}"


def _free_gpus_text(queue: ClusterQueue) -> str:
    return ", ".join(f"{one.free:,} {printable_text(one.name)}" for one in queue.gpus)


_QUEUE_COLUMNS = (
    TableColumn("queue", _queue_name, right=False),
    TableColumn("time limit", lambda queue: _short_time_text(queue.limits.time_limit)),
    TableColumn(
        "nodes", lambda one: f"{one.nodes - one.nodes_down} of {one.nodes}", drop=1
    ),
    TableColumn("CPUs free", _free_cpus_text),
    TableColumn("GPUs free", _free_gpus_text, right=False, flexible=True),
    TableColumn("run", lambda queue: f"{queue.running:,}"),
    TableColumn("wait", lambda queue: f"{queue.waiting:,}"),
)


def _queue_table(cluster: ClusterState) -> Iterator[str]:
    queues = cluster.queues
    return table_lines(queues, _QUEUE_COLUMNS) if queues else iter(())


def _out_of_use_lines(cluster: ClusterState) -> Iterator[str]:
    """List nodes that take no jobs, grouped by reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in cluster.nodes:
        if not node.takes_jobs:
            names = groups.setdefault((node.state, node.reason or ""), [])
            names.append(printable_text(node.name))
    shut = sum(map(len, groups.values()))
    if shut:
        yield f"  out of use: {shut} of {len(cluster.nodes)} nodes"
    for (state, reason), names in sorted(groups.items())[:_MOST_ROWS]:
        more = len(names) - _SHOWN_NAMES
        shown = ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" * (more > 0))
        why = f": {printable_text(reason)}" if reason else ""
        yield f"    {shown}  {_OUT_OF_USE[state]}{why}"
    if len(groups) > _MOST_ROWS:
        yield f"    and {len(groups) - _MOST_ROWS} more reasons (--json lists all)"
