"""What Slurm allows a job: the text of its commands, in the forms of each version.

22.05.8 was captured; what is called 23.02 to 25.05 is written after their forms.
"""

import pytest
from captured_text import captured

from weigh.model.cluster import ClusterLimits
from weigh.schedulers.protocol import Argv
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.slurm.cluster import slurm_cluster_limits
from weigh.units import MIB

NODES = captured("slurm-22.05-node.txt")
PARTITIONS = captured("slurm-22.05-partition.txt")
CONFIG = (
    "Configuration data as of 2026-11-21T10:00:00\n"
    "DefMemPerCPU            = 1000\n"
    "EnforcePartLimits       = ALL\n"
    "MaxMemPerNode           = UNLIMITED\n"
    "SLURM_VERSION           = 22.05.8\n"
)
ALL = {
    slurm_cluster.NODES: NODES,
    slurm_cluster.PARTITIONS: PARTITIONS,
    slurm_cluster.CONFIG: CONFIG,
}


def limits_with(argv: Argv, text: str) -> ClusterLimits:
    """Return the limits where a command prints *text*."""
    return slurm_cluster_limits(ALL | {argv: text})


def test_what_the_cluster_enforces_is_known() -> None:
    assert slurm_cluster_limits(ALL).enforced


def test_the_cluster_s_defaults_fill_in_what_a_partition_leaves_open() -> None:
    short = slurm_cluster_limits(ALL).queues[0]

    assert short.default_memory_per_cpu == 1000 * MIB
    per_node = CONFIG.replace("DefMemPerCPU ", "DefMemPerNode")
    assert (
        limits_with(slurm_cluster.CONFIG, per_node).queues[0].default_memory
        == 1000 * MIB
    )


def test_a_job_cannot_have_more_nodes_than_its_partition() -> None:
    assert [queue.nodes for queue in slurm_cluster_limits(ALL).queues][:2] == [3, 2]


def test_memory_that_a_node_keeps_for_itself_is_not_there_to_request() -> None:
    told = limits_with(slurm_cluster.NODES, captured("slurm-25.05-node.txt"))

    assert max(node.memory or 0 for node in told.nodes) == (1031000 - 8192) * MIB


@pytest.mark.parametrize(
    ("state", "word"),
    [("DOWN", False), ("UP", True), ("DRAIN", False), ("INACTIVE", False)],
)
def test_a_partition_that_is_not_up_takes_no_jobs(state: str, *, word: bool) -> None:
    text = PARTITIONS.replace("State=UP", f"State={state}")

    assert limits_with(slurm_cluster.PARTITIONS, text).queues[0].open is word


@pytest.mark.parametrize(
    "text", ["", "\n", "garbage\n", "NodeName=\n", "PartitionName=\n", "=|=|\n"]
)
def test_text_that_is_none_of_slurm_s_reports_nothing(text: str) -> None:
    told = slurm_cluster_limits(dict.fromkeys(ALL, text))

    assert (told.queues, told.nodes) == ((), ())
