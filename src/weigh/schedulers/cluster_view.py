"""Count what the lists of nodes and jobs show: GPUs by type, queues, users."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from weigh.model.cluster import (
    ClusterJob,
    ClusterNode,
    ClusterQueue,
    GpuCount,
    NodeGpus,
    UserCount,
)
from weigh.model.limits import QueueLimits

# FULL as well: its jobs end
_TAKES_JOBS = frozenset({"IDLE", "MIXED", "FULL"})


def takes_jobs(cluster_node: ClusterNode) -> bool:
    """Return whether a node accepts jobs, now or after its current ones have ended."""
    return cluster_node.state in _TAKES_JOBS


def closed_nodes(
    cluster_nodes: Iterable[ClusterNode], queues: Iterable[QueueLimits]
) -> tuple[ClusterNode, ...]:
    """Return the nodes, marked unavailable where all queues of a node are closed."""
    # a node without a queue is left as it is: nothing shows that it is closed
    closed = {queue.name for queue in queues if not queue.open}
    return tuple(
        _closed_node(node) if node.queues and set(node.queues) <= closed else node
        for node in cluster_nodes
    )


def _closed_node(cluster_node: ClusterNode) -> ClusterNode:
    if not takes_jobs(cluster_node):
        return cluster_node
    noun = "queue" if len(cluster_node.queues) == 1 else "queues"
    reason = f"{noun} {', '.join(cluster_node.queues)} closed"
    return msgspec.structs.replace(cluster_node, state="DRAINING", reason=reason)


def count_gpus(cluster_nodes: Iterable[ClusterNode]) -> tuple[GpuCount, ...]:
    """Count the GPUs of *cluster_nodes* by type, the most numerous first."""
    counts: dict[str, GpuCount] = {}
    for node in cluster_nodes:
        for gpus in node.gpus:
            counts[gpus.name] = _with_node(
                counts.get(gpus.name, GpuCount(name=gpus.name, total=0)), gpus, node
            )
    return tuple(sorted(counts.values(), key=lambda one: (-one.total, one.name)))


def count_queues(
    limits: Sequence[QueueLimits],
    cluster_nodes: Sequence[ClusterNode],
    jobs: Sequence[ClusterJob],
) -> tuple[ClusterQueue, ...]:
    """Count what each queue has and what is free; a node may be in several queues."""
    return tuple(
        _counted_queue(
            one,
            [node for node in cluster_nodes if one.name in node.queues],
            # a waiting job may name several queues and counts in each of them
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


def _with_node(count: GpuCount, gpus: NodeGpus, cluster_node: ClusterNode) -> GpuCount:
    idle = gpus.total - gpus.used
    # idle GPUs on a node without a free CPU or memory: no job can get them
    blocked = takes_jobs(cluster_node) and _is_full(cluster_node)
    return GpuCount(
        name=count.name,
        total=count.total + gpus.total,
        used=count.used + gpus.used,
        free=count.free + (idle if takes_jobs(cluster_node) and not blocked else 0),
        blocked=count.blocked + (idle if blocked else 0),
        down=count.down + (0 if takes_jobs(cluster_node) else idle),
    )


def _is_full(cluster_node: ClusterNode) -> bool:
    """Return whether the node has no CPU or no memory left."""
    pairs = (
        (cluster_node.cpus_used, cluster_node.cpus),
        (cluster_node.memory_used, cluster_node.memory),
    )
    return cluster_node.state == "FULL" or any(
        # None: not listed; it does not make a node full
        used is not None and total is not None and used >= total
        for used, total in pairs
    )


def _counted_queue(
    limits: QueueLimits,
    cluster_nodes: Sequence[ClusterNode],
    jobs: Sequence[ClusterJob],
) -> ClusterQueue:
    if not limits.open:
        cluster_nodes = [_closed_node(node) for node in cluster_nodes]
    up = [node for node in cluster_nodes if takes_jobs(node)]
    return ClusterQueue(
        limits=limits,
        nodes=len(cluster_nodes),
        nodes_down=len(cluster_nodes) - len(up),
        cpus=sum(node.cpus or 0 for node in cluster_nodes),
        cpus_free=sum(max(0, (n.cpus or 0) - (n.cpus_used or 0)) for n in up),
        gpus=count_gpus(cluster_nodes),
        running=sum(job.elements for job in jobs if job.state == "RUNNING"),
        waiting=sum(job.elements for job in jobs if job.state == "PENDING"),
    )


def _counted_user(user_name: str, jobs: Sequence[ClusterJob]) -> UserCount:
    running = [job for job in jobs if job.state == "RUNNING"]
    return UserCount(
        user=user_name,
        running=sum(job.elements for job in running),
        waiting=sum(job.elements for job in jobs if job.state == "PENDING"),
        # what is waiting holds nothing
        cpus=sum(job.cpus for job in running),
        gpus=sum(job.gpus for job in running),
    )
