"""What a cluster has and allows: queues, kinds of node, limits of a user.

Bytes and seconds; ``None`` is not known, or no limit where the field says so.
"""

import msgspec

from weigh.units import Bytes, Seconds

UNTYPED = "gpu"


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike, and the queues that hold them; ``gpus`` counts by type.

    A GPU whose type the scheduler does not tell has the name ``UNTYPED``.
    """

    count: int = 1
    cpus: int | None = None
    memory: Bytes | None = None
    gpus: dict[str, int] = {}
    features: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue allows a job, and gives one that does not ask.

    ``accounts`` and ``qos`` are those it takes, None where it takes all;
    ``memory`` and ``cpus`` are the most on one node, ``nodes`` the most nodes.
    """

    name: str
    default: bool = False
    open: bool = True
    time_limit: Seconds | None = None
    default_time: Seconds | None = None
    memory: Bytes | None = None
    default_memory: Bytes | None = None
    default_memory_per_cpu: Bytes | None = None
    cpus: int | None = None
    nodes: int | None = None
    accounts: tuple[str, ...] | None = None
    qos: tuple[str, ...] | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What could be learnt of a cluster; ``queues`` empty is not known.

    ``accounts`` and ``qos`` are the user's, None where the scheduler does not mind;
    ``enforced`` is False where a job beyond its queue is accepted and waits for ever;
    ``largest_index`` is the last of an array, ``most_elements`` how many it may have;
    ``node_names`` are all nodes', None where they are not known;
    ``resources`` are Grid Engine's complexes or Slurm's generic ones, ``per_slot``
    those that each slot takes anew, ``parallel`` its environments, ``projects`` those
    of ``-P``.
    """

    queues: tuple[QueueLimits, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    accounts: tuple[str, ...] | None = None
    qos: tuple[str, ...] | None = None
    enforced: bool | None = None
    largest_index: int | None = None
    most_elements: int | None = None
    most_submitted: int | None = None
    node_names: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    per_slot: tuple[str, ...] = ()
    parallel: tuple[str, ...] | None = None
    projects: tuple[str, ...] | None = None
