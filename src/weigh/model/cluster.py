"""A cluster at one moment: its nodes, GPUs, queues and jobs.

Units are bytes, seconds and whole CPUs; ``None`` means unknown. Times of day are local
times of the scheduler, in ISO 8601.
"""

from typing import Literal

import msgspec

from weigh.model.record import State
from weigh.units import Bytes, Seconds

SCHEMA = "weigh.cluster/1"
UNTYPED = "gpu"  # a GPU whose type the scheduler does not report

NodeState = Literal["IDLE", "MIXED", "FULL", "DRAINING", "RESERVED", "DOWN", "UNKNOWN"]


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue allows a job, and its defaults.

    ``memory`` and ``cpus`` are the most on one node, ``nodes`` the most nodes;
    ``start_mode`` is how Grid Engine starts a script, empty if not known.
    """

    name: str
    default: bool = False  # where a job without a queue goes
    open: bool = True  # it accepts jobs
    time_limit: Seconds | None = None
    default_time: Seconds | None = None  # of a job that requests none
    memory: Bytes | None = None
    default_memory: Bytes | None = None  # of a job that requests none, per node
    default_memory_per_cpu: Bytes | None = None
    cpus: int | None = None
    nodes: int | None = None
    start_mode: str = ""


def state_by_use(cpus_used: int, cpus: int | None) -> NodeState:
    """Return the state of a node that takes jobs."""
    if not cpus_used:
        return "IDLE"
    return "FULL" if cpus is not None and cpus_used >= cpus else "MIXED"


class NodeGpus(msgspec.Struct, frozen=True):
    """GPUs of one type on one node, and how many of them are allocated."""

    name: str
    total: int  # on the node
    used: int = 0


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``DRAINING`` takes no more jobs, ``RESERVED`` only those of some users.

    ``FULL`` starts none now: its CPUs are allocated, or its load is too high.

    ``cpus_used`` and ``memory_used`` are allocated to jobs; on Grid Engine the memory
    is that in use. ``reason`` is the site's reason why it takes no jobs.
    """

    name: str
    state: NodeState
    reason: str | None = None
    queues: tuple[str, ...] = ()
    cpus: int | None = None
    cpus_used: int | None = None
    memory: Bytes | None = None
    memory_used: Bytes | None = None
    gpus: tuple[NodeGpus, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        """Return whether it accepts jobs, now or after its current ones have ended."""
        return self.state in {"IDLE", "MIXED", "FULL"}

    @property
    def cpus_free(self) -> int:
        """Return the CPUs that a job could get now, if the node takes jobs."""
        if self.state == "FULL":  # by its load, too
            return 0
        # where CPUs are shared, more can be used than there are
        return max(0, (self.cpus or 0) - (self.cpus_used or 0))

    def gpu_count(self, gpu_type: str = "") -> int:
        """Return how many GPUs of a type the node has; without one, of all types."""
        return sum(one.total for one in self.gpus if gpu_type in {"", one.name})


class ClusterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The known limits of a cluster; ``queues`` is empty if they are unknown.

    ``enforced`` is False if a job beyond the limits of its queue is accepted and never
    starts; the ``nodes`` have what jobs can have of them; ``resources`` are Grid
    Engine's complexes, ``per_slot`` those counted per slot.
    """

    queues: tuple[QueueLimits, ...] = ()
    nodes: tuple[ClusterNode, ...] = ()
    enforced: bool | None = None
    resources: tuple[str, ...] | None = None
    per_slot: tuple[str, ...] = ()

    @property
    def start_mode(self) -> str:
        """Return how all queues start a script; empty if they differ or are unknown."""
        # the queue of a job may be any of them
        modes = {queue.start_mode for queue in self.queues}
        return modes.pop() if len(modes) == 1 else ""


class GpuCount(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of one type: ``used + free + blocked + down`` are ``total``.

    ``blocked`` GPUs are idle on nodes without free CPUs or memory; ``down`` ones are
    idle on nodes that take no jobs.
    """

    name: str
    total: int
    used: int = 0
    free: int = 0
    blocked: int = 0
    down: int = 0


class ClusterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue (Slurm: partition): its limits, nodes and free resources."""

    limits: QueueLimits
    nodes: int = 0
    nodes_down: int = 0
    cpus: int = 0  # of all nodes of the queue
    cpus_free: int = 0
    gpus: tuple[GpuCount, ...] = ()
    running: int = 0  # elements, as those that wait
    waiting: int = 0


class ClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or elements of an array in one state."""

    queue: str
    state: State
    elements: int = 1


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the scheduler reports."""

    schema: str = SCHEMA
    scheduler: str
    name: str | None = None
    version: str | None = None
    user: str
    time: str  # of the query
    nodes: tuple[ClusterNode, ...] = ()
    gpus: tuple[GpuCount, ...] = ()
    queues: tuple[ClusterQueue, ...] = ()
    notes: tuple[str, ...] = ()
