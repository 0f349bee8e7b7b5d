"""The clusters that the golden scripts were put to, as the lint is told of them."""

from weigh.model.cluster import ClusterLimits, ClusterNode, NodeGpus, QueueLimits
from weigh.units import DAY, GIB, HOUR, MIB, MINUTE

ALL, FAST = ("short", "long", "gpu"), ("short", "gpu")


def idle_node(memory: int, queues: tuple[str, ...], *gpu_types: str) -> ClusterNode:
    """Return a node of 8 CPUs and four GPUs of each type."""
    gpus = tuple(NodeGpus(name, 4) for name in gpu_types)
    return ClusterNode(
        name="n", state="IDLE", cpus=8, memory=memory, queues=queues, gpus=gpus
    )


SLURM = ClusterLimits(
    queues=(
        QueueLimits(
            name="short",
            default=True,
            time_limit=30 * MINUTE,
            default_time=10 * MINUTE,
            default_memory_per_cpu=1000 * MIB,
            nodes=3,
        ),
        QueueLimits(
            name="long",
            time_limit=2 * DAY,
            default_time=HOUR,
            nodes=2,
            default_memory=GIB,
        ),
        QueueLimits(name="gpu", time_limit=4 * HOUR, memory=16000 * MIB, nodes=2),
    ),
    nodes=(
        idle_node(32000 * MIB, FAST, "v100"),
        idle_node(32000 * MIB, ALL, "a100"),
        idle_node(32000 * MIB, ("short", "long")),
    ),
    enforced=True,
)

GRIDENGINE = ClusterLimits(
    queues=(
        QueueLimits(name="all.q", default=True, time_limit=48 * HOUR),
        QueueLimits(name="short.q", time_limit=30 * MINUTE),
        QueueLimits(name="gpu.q", time_limit=4 * HOUR),
    ),
    nodes=(idle_node(32 * GIB, ("all.q", "short.q", "gpu.q"), "v100"),),
    enforced=False,
    resources=("h_rt", "s_rt", "h_vmem", "mem_free", "ngpus", "gpu_type", "num_proc"),
)
