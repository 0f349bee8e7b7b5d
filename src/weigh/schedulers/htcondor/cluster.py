"""What HTCondor shows of a pool: slots and jobs. A pool has no queues: it is one."""

from collections.abc import Iterable, Mapping

import msgspec

from weigh.errors import FormatError
from weigh.model.cluster import UNTYPED, ClusterJob, Node, NodeGpus, NodeState
from weigh.model.limits import QueueLimits
from weigh.schedulers.htcondor.ads import Ad, ads_argv, number, read_ads
from weigh.schedulers.protocol import Argv, ClusterAnswers, Query, unanswered
from weigh.units import MIB

QUEUE = QueueLimits(name="pool", default=True)


class Slot(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One slot; of a partitionable one ``cpus``, ``memory`` and ``gpus`` are left."""

    machine: str
    slot_type: str = "Static"
    state: str = ""
    start: object = True
    cpus: int = 0
    memory: int = 0
    gpus: int = msgspec.field(default=0, name="GPUs")
    total_slot_cpus: float = 0
    total_slot_memory: float = 0
    total_gpus: float = msgspec.field(default=0, name="TotalSlotGPUs")
    kind: str = msgspec.field(default=UNTYPED, name="GPUs_DeviceName")
    condor_version: str = ""

    @property
    def uses(self) -> tuple[int, ...]:
        """Return how many CPUs and GPUs, and how many MiB, jobs use."""
        totals = (self.total_slot_cpus, self.total_gpus, self.total_slot_memory)
        if self.slot_type != "Partitionable":
            return tuple(map(int, totals)) if self.state == "Claimed" else (0, 0, 0)
        left = (self.cpus, self.gpus, self.memory)
        return tuple(int(one) - rest for one, rest in zip(totals, left, strict=True))


SLOTS: Argv = (
    *("condor_status", "-json", "-attributes"),
    ",".join(Slot.__struct_encode_fields__),
)
JOBS = ads_argv("condor_q", "-allusers")


def read_slots(out: str) -> list[Slot]:
    """Read condor_status; dynamic slots are parts of the partitionable ones.

    Raises:
        FormatError: the output is truncated, or no list of slots.
    """
    try:
        slots = msgspec.json.decode(out, type=list[Slot]) if out.strip() else []
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError("condor_status: its answer is cut off or no list") from error
    return [slot for slot in slots if slot.slot_type != "Dynamic"]


def nodes_of(slots: Iterable[Slot]) -> tuple[Node, ...]:
    """Return the nodes that *slots* are on."""
    found: dict[str, list[Slot]] = {}
    for slot in slots:
        found.setdefault(slot.machine, []).append(slot)
    return tuple(_node(name, group) for name, group in found.items())


def _node(name: str, slots: list[Slot]) -> Node:
    cpus_used, gpus_used, memory_used = map(
        sum, zip(*(s.uses for s in slots), strict=True)
    )
    cpus = int(sum(slot.total_slot_cpus for slot in slots))
    gpus = int(sum(slot.total_gpus for slot in slots))
    state: NodeState = "FULL" if cpus_used >= cpus else "MIXED" if cpus_used else "IDLE"
    if all(one.state in {"Drained", "Owner"} or one.start is False for one in slots):
        state = "DRAINING"
    return Node(
        name=name,
        state=state,
        queues=(QUEUE.name,),
        cpus=cpus,
        cpus_used=cpus_used,
        memory=int(sum(slot.total_slot_memory for slot in slots)) * MIB,
        memory_used=memory_used * MIB,
        gpus=(NodeGpus(slots[0].kind, gpus, gpus_used),) if gpus else (),
    )


def _cluster_job(ad: Ad) -> ClusterJob:
    state = ad.element()
    return ClusterJob(
        user=ad.owner,
        queue=QUEUE.name,
        state="PENDING" if state.is_final else state.state,
        cpus=number(ad.request_cpus) or 1,
        gpus=number(ad.gpus) or 0,
    )


def read_cluster(query: Query, env: Mapping[str, str]) -> ClusterAnswers:  # noqa: ARG001
    """Query slots and jobs. Raises WeighError if there is no answer."""
    slots, jobs = query((SLOTS, JOBS))
    slots.require("HTCondor")
    found = read_slots(slots.stdout)
    versions = (slot.condor_version.split() for slot in found)
    return ClusterAnswers(
        name=None,
        version=next((words[1] for words in versions if len(words) > 1), None),
        nodes=nodes_of(found),
        queues=(QUEUE,),
        jobs=tuple(map(_cluster_job, read_ads(jobs.text or ""))),
        notes=unanswered({"condor_q": jobs}),
    )
