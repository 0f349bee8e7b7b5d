"""A cluster at one moment: its nodes, GPUs and queues, and whose jobs are on it.

Bytes, seconds and whole CPUs; ``None`` is not known. Times of day are the scheduler's
own, local, in ISO 8601.
"""

from typing import Literal

import msgspec

from weigh.model.limits import QueueLimits
from weigh.model.record import State
from weigh.units import Bytes

SCHEMA = "weigh.cluster/1"
UNTYPED = "gpu"  # a GPU whose type the scheduler does not tell

NodeState = Literal["IDLE", "MIXED", "FULL", "DRAINING", "RESERVED", "DOWN", "UNKNOWN"]


class NodeGpus(msgspec.Struct, frozen=True):
    """GPUs of one type on one node, and how many of them are allocated."""

    name: str
    total: int
    used: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``DRAINING`` takes no more jobs, ``RESERVED`` only some people's.

    ``cpus_used`` and ``memory_used`` are what jobs were granted, on Grid Engine the
    memory that is in use. ``reason`` is why it takes no jobs, in the site's words.
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


class GpuCount(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of one type: ``used + free + blocked + down`` are ``total``.

    ``blocked`` are idle on nodes that have no CPU or no memory left; ``down`` are
    idle on nodes that take no jobs.
    """

    name: str
    total: int
    used: int = 0
    free: int = 0
    blocked: int = 0
    down: int = 0


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue (Slurm: partition): its limits, its nodes, and what is free there."""

    limits: QueueLimits
    nodes: int = 0
    nodes_down: int = 0
    cpus: int = 0
    cpus_free: int = 0
    gpus: tuple[GpuCount, ...] = ()
    gpus_per_user: int | None = None
    running: int = 0
    waiting: int = 0


class ClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or the elements of an array that are in one state; sums over these.

    ``start`` is when it began, or is expected to; ``reason`` why it waits.
    """

    id: str
    name: str
    user: str
    queue: str
    state: State
    elements: int = 1
    cpus: int = 0
    gpus: int = 0
    reason: str | None = None
    start: str | None = None


class UserCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one user has: elements running and waiting; CPUs and GPUs that run."""

    user: str
    running: int = 0
    waiting: int = 0
    cpus: int = 0
    gpus: int = 0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """When a job of the shape asked for would start in a queue, or why it would not."""

    queue: str
    start: str | None = None
    trouble: str | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """All that the scheduler told; ``jobs`` are the user's own."""

    schema: str = SCHEMA
    scheduler: Literal["slurm", "gridengine"]
    name: str | None = None
    version: str | None = None
    user: str
    time: str
    nodes: tuple[Node, ...] = ()
    gpus: tuple[GpuCount, ...] = ()
    queues: tuple[Queue, ...] = ()
    users: tuple[UserCount, ...] = ()
    jobs: tuple[ClusterJob, ...] = ()
    starts: tuple[Start, ...] = ()
    notes: tuple[str, ...] = ()
