"""The clusters that the golden scripts were put to, as the lint is told of them."""

from weigh.model.cluster import ClusterLimits, NodeType, QueueLimits
from weigh.units import DAY, GIB, HOUR, MIB, MINUTE

ALL, FAST = ("short", "long", "gpu"), ("short", "gpu")

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
        NodeType(cpus=8, memory=32000 * MIB, gpus={"v100": 4}, queues=FAST),
        NodeType(cpus=8, memory=32000 * MIB, gpus={"a100": 4}, queues=ALL),
        NodeType(cpus=8, memory=32000 * MIB, queues=("short", "long")),
    ),
    enforced=True,
    largest_index=1000,
)

GRIDENGINE = ClusterLimits(
    queues=(
        QueueLimits(name="all.q", default=True, time_limit=48 * HOUR),
        QueueLimits(name="short.q", time_limit=30 * MINUTE),
        QueueLimits(name="gpu.q", time_limit=4 * HOUR),
    ),
    nodes=(
        NodeType(
            cpus=8,
            memory=32 * GIB,
            gpus={"v100": 4},
            queues=("all.q", "short.q", "gpu.q"),
        ),
    ),
    enforced=False,
    most_elements=75000,
    resources=("h_rt", "s_rt", "h_vmem", "mem_free", "ngpus", "gpu_type", "num_proc"),
)
