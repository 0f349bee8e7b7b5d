"""A Grid Engine script beside its cell's limits: a slot's memory, names, holds."""

import msgspec
from some_limits import GRIDENGINE
from some_scripts import qsub

from weigh.units import GIB

LIMITED = msgspec.structs.replace(
    GRIDENGINE,
    queues=tuple(
        msgspec.structs.replace(queue, memory=4 * GIB) for queue in GRIDENGINE.queues
    ),
)


def test_a_queue_limits_the_memory_of_a_slot_and_not_of_all() -> None:
    asked = ("-q all.q", "-pe smp 4", "-l h_vmem=3G")

    assert "memory-beyond-queue" not in qsub(*asked, limits=LIMITED)
    assert "memory-beyond-queue" in qsub("-l h_vmem=5G", limits=LIMITED)


def test_gpus_that_each_slot_takes_anew_are_counted_so() -> None:
    cell = msgspec.structs.replace(GRIDENGINE, per_slot=("ngpus", "h_vmem"))
    asked = ("-pe smp 4", "-l ngpus=2")

    found = qsub(*asked, limits=cell)

    assert "8 GPUs in total" in found["gpus-per-slot"].effect
    assert "gpus-beyond-node" in found
    assert not {"gpus-per-slot", "gpus-beyond-node"} & set(
        qsub(*asked, limits=GRIDENGINE)
    )
