"""What Grid Engine allows, from the text of its commands as 8.1.9 printed it."""

import pytest
from captured_text import captured

from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import scheduler as gridengine_commands
from weigh.schedulers.gridengine.cluster import gridengine_cluster_limits
from weigh.units import GIB, HOUR

COMPLEXES = captured("gridengine-8.1.9-complexes.txt")
TOTALS = gridengine_cluster.parse_host_totals(captured("gridengine-8.1.9-host.txt"))
ALL = {
    gridengine_cluster.HOSTS: captured("gridengine-8.1.9-qhost.txt"),
    gridengine_cluster.QUEUES: captured("gridengine-8.1.9-queues.txt"),
    gridengine_cluster.COMPLEXES: COMPLEXES,
}
HOSTS = {"rig": TOTALS}


def test_what_may_be_requested_is_known_by_both_its_names() -> None:
    told = gridengine_cluster_limits(ALL, HOSTS)

    assert told.resources is not None
    assert {"h_vmem", "ngpus", "gpu_type", "mf", "mem_free"} <= set(told.resources)
    assert "load_avg" not in told.resources


def test_queues_have_their_time_and_the_cell_s_memory_for_a_slot() -> None:
    queue = gridengine_cluster_limits(ALL, HOSTS).queues[0]

    assert (queue.name, queue.time_limit) == ("all.q", 48 * HOUR)
    assert queue.default_memory_per_cpu == GIB


def test_a_host_has_the_memory_that_the_site_gave_it() -> None:
    (node,) = gridengine_cluster_limits(ALL, HOSTS).nodes

    assert node.memory == 32 * GIB
    assert node.gpu_count() == 4


def test_what_each_slot_takes_is_distinguished_from_what_a_job_takes_once() -> None:
    assert "ngpus" in gridengine_cluster_limits(ALL, HOSTS).per_slot
    once = COMPLEXES.replace(
        "ngpus               ngpus       INT         <=    YES         YES",
        "ngpus               ngpus       INT         <=    YES         JOB",
    )

    assert once != COMPLEXES
    told = gridengine_cluster_limits(ALL | {gridengine_cluster.COMPLEXES: once}, {})
    assert "ngpus" not in told.per_slot


def test_what_was_not_answered_is_not_known() -> None:
    assert gridengine_cluster_limits({}, {}).resources is None


@pytest.mark.parametrize(
    ("column", "extra", "word"),
    [
        ("YES", "", ""),
        ("YES", "ncpus ncpus INT <= YES NO 0 0\n", "ncpus"),
        ("JOB", "", None),
    ],
)
def test_how_cpus_are_requested_next_to_gpus_follows_from_the_cell(
    column: str, extra: str, word: str | None
) -> None:
    cell = f"ngpus ngpus INT <= YES {column} 0 0\n{extra}"

    assert gridengine_commands.COMMANDS.parse_slots(cell) == word
