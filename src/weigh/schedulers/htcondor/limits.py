"""HTCondor's limits: a job has to fit on a slot."""

from weigh.errors import FormatError
from weigh.model.cluster import Node
from weigh.model.limits import Limits, NodeType
from weigh.schedulers import absent
from weigh.schedulers.htcondor.cluster import QUEUE, SLOTS, nodes_of, read_slots
from weigh.schedulers.protocol import Live, Query, Who

resource_names = absent.resource_names


def read_limits(who: Who, query: Query) -> Live:  # noqa: ARG001 - the same for all
    """Query the slots, whose size limits a job; never raises."""
    (slots,) = query((SLOTS,))
    try:
        nodes = nodes_of(read_slots(slots.stdout)) if slots.is_answer else None
    except FormatError as error:
        return Live(trouble=str(error))
    if nodes is None:
        return Live(trouble=slots.complaint())
    types = (
        NodeType(cpus=one.cpus, memory=one.memory, queues=one.queues, gpus=_gpus(one))
        for one in nodes
    )
    known = Limits(queues=(QUEUE,), nodes=tuple(types), enforced=False)
    return Live(limits=known, nodes=nodes)


def _gpus(node: Node) -> dict[str, int]:
    return {gpus.name: gpus.total for gpus in node.gpus}
