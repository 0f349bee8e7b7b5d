"""Count what the lists of nodes and jobs show: GPUs by type, queues, users."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from weigh.model.cluster import (
    ClusterJob,
    GpuCount,
    Node,
    NodeGpus,
    Queue,
    UserCount,
)
from weigh.model.limits import QueueLimits

_TAKES_JOBS = frozenset({"IDLE", "MIXED", "FULL"})


def takes_jobs(node: Node) -> bool:
    """Return whether *node* accepts jobs, now or after its current ones have ended."""
    return node.state in _TAKES_JOBS


def closed_nodes(
    nodes: Iterable[Node], queues: Iterable[QueueLimits]
) -> tuple[Node, ...]:
    """Return *nodes*, marked unavailable where all queues of a node are closed."""
    closed = {queue.name for queue in queues if not queue.open}
    return tuple(
        _closed_node(node) if node.queues and set(node.queues) <= closed else node
        for node in nodes
    )


def _closed_node(node: Node) -> Node:
    if not takes_jobs(node):
        return node
    noun = "queue" if len(node.queues) == 1 else "queues"
    reason = f"{noun} {', '.join(node.queues)} closed"
    return msgspec.structs.replace(node, state="DRAINING", reason=reason)


def count_gpus(nodes: Iterable[Node]) -> tuple[GpuCount, ...]:
    """Count the GPUs of *nodes* by type, the most numerous first."""
    counts: dict[str, GpuCount] = {}
    for node in nodes:
        for gpus in node.gpus:
            counts[gpus.name] = _with_node(
                counts.get(gpus.name, GpuCount(name=gpus.name, total=0)), gpus, node
            )
    return tuple(sorted(counts.values(), key=lambda one: (-one.total, one.name)))


def count_queues(
    limits: Sequence[QueueLimits],
    nodes: Sequence[Node],
    jobs: Sequence[ClusterJob],
) -> tuple[Queue, ...]:
    """Count what each queue has and what is free; a node may be in several queues."""
    return tuple(
        _counted_queue(
            one,
            [node for node in nodes if one.name in node.queues],
            [job for job in jobs if one.name in job.queue.split(",")],
        )
        for one in limits
    )


def count_users(jobs: Iterable[ClusterJob]) -> tuple[UserCount, ...]:
    """Count the jobs, GPUs and CPUs of each user, the largest users first."""
    mine: defaultdict[str, list[ClusterJob]] = defaultdict(list)
    for job in jobs:
        mine[job.user].append(job)
    counts = (_counted_user(user, owned) for user, owned in mine.items())
    return tuple(
        sorted(counts, key=lambda one: (-one.gpus, -one.cpus, -one.running, one.user))
    )


def _with_node(count: GpuCount, gpus: NodeGpus, node: Node) -> GpuCount:
    idle = gpus.total - gpus.used
    blocked = takes_jobs(node) and _is_full(node)
    return GpuCount(
        name=count.name,
        total=count.total + gpus.total,
        used=count.used + gpus.used,
        free=count.free + (idle if takes_jobs(node) and not blocked else 0),
        blocked=count.blocked + (idle if blocked else 0),
        down=count.down + (0 if takes_jobs(node) else idle),
    )


def _is_full(node: Node) -> bool:
    """Return whether the node has no CPU or no memory left."""
    pairs = ((node.cpus_used, node.cpus), (node.memory_used, node.memory))
    return node.state == "FULL" or any(
        used is not None and total is not None and used >= total
        for used, total in pairs
    )


def _counted_queue(
    limits: QueueLimits,
    nodes: Sequence[Node],
    jobs: Sequence[ClusterJob],
) -> Queue:
    if not limits.open:
        nodes = [_closed_node(node) for node in nodes]
    up = [node for node in nodes if takes_jobs(node)]
    return Queue(
        limits=limits,
        nodes=len(nodes),
        nodes_down=len(nodes) - len(up),
        cpus=sum(node.cpus or 0 for node in nodes),
        cpus_free=sum(max(0, (n.cpus or 0) - (n.cpus_used or 0)) for n in up),
        gpus=count_gpus(nodes),
        running=sum(job.elements for job in jobs if job.state == "RUNNING"),
        waiting=sum(job.elements for job in jobs if job.state == "PENDING"),
    )


def _counted_user(user: str, jobs: Sequence[ClusterJob]) -> UserCount:
    running = [job for job in jobs if job.state == "RUNNING"]
    return UserCount(
        user=user,
        running=sum(job.elements for job in running),
        waiting=sum(job.elements for job in jobs if job.state == "PENDING"),
        cpus=sum(job.cpus for job in running),
        gpus=sum(job.gpus for job in running),
    )
