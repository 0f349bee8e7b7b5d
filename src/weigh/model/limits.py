"""What a cluster has and allows: queues, types of node, limits of a user.

Units are bytes and seconds; ``None`` means unknown or, where stated, unlimited.
"""

import msgspec

from weigh.units import Bytes, Seconds

UNTYPED = "gpu"


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """Identical nodes, and the queues they belong to; ``gpus`` counts by type.

    A GPU whose type the scheduler does not report has the type ``UNTYPED``.
    """

    count: int = 1
    cpus: int | None = None  # of one node, as the memory
    memory: Bytes | None = None
    gpus: dict[str, int] = {}
    features: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue allows a job, and its defaults.

    ``accounts`` and ``qos`` are those it accepts, None if it accepts all; ``memory``
    and ``cpus`` are the most on one node, ``nodes`` the most nodes; ``start_mode`` is
    how Grid Engine starts a script, empty if not known.
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
    accounts: tuple[str, ...] | None = None
    qos: tuple[str, ...] | None = None
    start_mode: str = ""


class ClusterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The known limits of a cluster; ``queues`` is empty if they are unknown.

    ``accounts`` and ``qos`` are the user's, None if the scheduler does not check them;
    ``enforced`` is False if a job beyond the limits of its queue is accepted and never
    starts; ``largest_index`` is the largest array index, ``most_elements`` the largest
    number of elements; ``node_names`` are all nodes, None if unknown; ``resources`` are
    Grid Engine's complexes or Slurm's generic resources, ``per_slot`` those counted per
    slot, ``parallel`` Grid Engine's parallel environments, ``projects`` those of
    ``-P``; ``queues_of_node`` are the queues of each node by its name, where known.
    """

    queues: tuple[QueueLimits, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    accounts: tuple[str, ...] | None = None
    qos: tuple[str, ...] | None = None
    enforced: bool | None = None
    largest_index: int | None = None
    most_elements: int | None = None
    most_submitted: int | None = None  # elements that the user may still submit now
    node_names: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    per_slot: tuple[str, ...] = ()
    parallel: tuple[str, ...] | None = None
    projects: tuple[str, ...] | None = None
    queues_of_node: dict[str, tuple[str, ...]] = {}

    @property
    def start_mode(self) -> str:
        """Return how all queues start a script; empty if they differ or are unknown."""
        # the queue of a job may be any of them
        modes = {queue.start_mode for queue in self.queues}
        return modes.pop() if len(modes) == 1 else ""
