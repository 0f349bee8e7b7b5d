from datetime import datetime

import pytest
from captured_text import captured
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.cluster import ClusterLimits, ClusterNode, NodeGpus
from weigh.schedulers.kind import Argv
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.slurm.cluster import slurm_cluster_limits
from weigh.schedulers.words import count_elements
from weigh.units import DAY, HOUR, MIB

OLD = slurm_cluster.parse_nodes(captured("slurm-22.05-node.txt"))
NEW = {
    node.name: node
    for node in slurm_cluster.parse_nodes(captured("slurm-25.05-node.txt"))
}


def a_node(**fields: str) -> ClusterNode:
    words = {"NodeName": "n", "State": "IDLE", "CPUTot": "8"} | fields
    line = " ".join(f"{key}={value}" for key, value in words.items())
    (node,) = slurm_cluster.parse_nodes(line)
    return node


def test_a_node_of_22_05_reads_as_it_was() -> None:
    assert OLD[0] == ClusterNode(
        name="node1",
        state="MIXED",
        queues=("short", "gpu"),
        cpus=8,
        cpus_used=5,
        memory=32000 * MIB,
        memory_used=5120 * MIB,
        gpus=(NodeGpus("v100", 4, 2),),
    )


def test_a_drained_node_has_its_reason_and_who_gave_it() -> None:
    assert OLD[2].state == "DRAINING"
    assert OLD[2].reason == "bad disk a=b, see ticket 7 (root, 2026-11-21)"


def test_a_reason_does_not_change_what_else_is_read() -> None:
    node = a_node(Reason="State=DOWN Gres=gpu:9 [root@2026-01-01T00:00:00]")
    assert node.state == "IDLE"
    assert node.gpus == ()


def test_what_follows_a_reason_is_no_part_of_it() -> None:
    reason = "gres/gpu count reported lower than configured (7 < 8) (slurm, 2025-09-30)"
    assert NEW["gpu03"].reason == reason


def test_shards_are_not_counted_as_gpus() -> None:
    assert NEW["gpu01"].gpus == (NodeGpus("h100", 4, 3),)


def test_cpus_are_those_that_jobs_can_have() -> None:
    assert NEW["gpu01"].cpus == 62


def test_mig_slices_are_types_of_their_own() -> None:
    assert NEW["gpu02"].gpus == (
        NodeGpus("a100_1g.5gb", 7, 2),
        NodeGpus("a100_3g.20gb", 2, 0),
    )


def test_states_fold_into_ours() -> None:
    states = {name: node.state for name, node in NEW.items()}
    assert states == {
        "gpu01": "MIXED",
        "gpu02": "IDLE",
        "gpu03": "DOWN",
        "cpu01": "DRAINING",
        "cpu02": "RESERVED",
        "new01": "UNKNOWN",
    }


def test_a_node_that_does_not_respond_is_down() -> None:
    assert a_node(State="IDLE*").state == "DOWN"
    assert a_node(State="MIXED+NOT_RESPONDING").state == "DOWN"


def test_without_details_the_allocated_tres_report_what_is_used() -> None:
    node = a_node(Gres="gpu:a100:4", AllocTRES="cpu=2,gres/gpu=3,gres/gpu:a100=3")
    assert node.gpus == (NodeGpus("a100", 4, 3),)


def test_use_that_is_reported_without_a_type_is_not_lost() -> None:
    node = a_node(Gres="gpu:a100:4", GresUsed="gpu:3")
    assert node.gpus == (NodeGpus("a100", 4, 3),)


def test_the_partitions_of_22_05_have_their_limits() -> None:
    short, long, gpu = slurm_cluster.parse_partitions(
        captured("slurm-22.05-partition.txt")
    )
    assert (short.name, short.default, short.time_limit) == ("short", True, HOUR / 2)
    assert (long.time_limit, long.default_time) == (2 * DAY, HOUR)
    assert gpu.memory == 16000 * MIB


def test_the_partitions_of_25_05_have_their_limits() -> None:
    gpu, cpu = slurm_cluster.parse_partitions(captured("slurm-25.05-partition.txt"))
    assert (gpu.nodes, gpu.cpus, gpu.default_memory_per_cpu) == (3, 48, 4000 * MIB)
    assert (cpu.open, cpu.time_limit, cpu.default_time) == (False, None, None)


def test_jobs_of_22_05_count_elements() -> None:
    jobs = slurm_cluster.parse_squeue_jobs(captured("slurm-22.05-squeue.txt"))
    assert (jobs[0].elements, jobs[0].queue) == (8, "gpu")
    assert "RUNNING" in {job.state for job in jobs}


def test_times_in_seconds_become_local_time() -> None:
    moment = datetime(2026, 11, 21, 8, 19, 27)  # noqa: DTZ001 - local, as Slurm's
    seconds = int(moment.timestamp())
    node = a_node(Reason=f"bad disk [root@{seconds}]")
    assert node.reason == "bad disk (root, 2026-11-21)"


@given(
    st.lists(st.integers(0, 999), min_size=1, max_size=30, unique=True),
    st.integers(1, 50),
)
def test_as_many_elements_are_counted_as_were_written(
    elements: list[int], throttle: int
) -> None:
    expression = ",".join(map(str, elements)) + f"%{throttle}"
    assert count_elements(expression) == len(elements)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 20))
def test_a_range_counts_as_pythons_does(first: int, more: int, step: int) -> None:
    last = first + more
    oracle = len(range(first, last + 1, step))
    assert count_elements(f"{first}-{last}:{step}") == oracle


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
