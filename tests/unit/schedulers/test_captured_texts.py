"""All that weigh reads in what real schedulers printed, whole: captured_texts.txt."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from captured_text import captured
from read_structs import written
from transcript import check_texts

from weigh.schedulers import htcondor
from weigh.schedulers.gridengine import accounting as qacct
from weigh.schedulers.gridengine import cluster as cell
from weigh.schedulers.gridengine import scheduler as gridengine
from weigh.schedulers.kind import Argv, PastAccounting
from weigh.schedulers.slurm import accounting as sacct
from weigh.schedulers.slurm import cluster, script
from weigh.schedulers.slurm import scheduler as slurm

Reader = Callable[[str], object]
HOSTS = cell.parse_hosts(captured("gridengine-8.1.9-qhost.txt"))
TOTALS = cell.parse_host_totals(captured("gridengine-8.1.9-host.txt"))


def texts_of(cluster_name: str, names: Mapping[Argv, str]) -> dict[Argv, str]:
    """Return what each question was answered on a cluster, by the name of its file."""
    return {argv: captured(f"{cluster_name}-{names[argv]}.txt") for argv in names}


SLURM_TEXTS = texts_of(
    "slurm-22.05",
    {
        cluster.NODES: "node",
        cluster.PARTITIONS: "partition",
        cluster.CONFIG: "config",
    },
)
CELL_TEXTS = texts_of(
    "gridengine-8.1.9",
    {cell.HOSTS: "qhost", cell.QUEUES: "queues", cell.COMPLEXES: "complexes"},
)


def past_jobs(accounting: PastAccounting) -> Reader:
    """Return the reader of all jobs, which gets lines with their ends."""
    return lambda text: accounting.read_past(text.splitlines(keepends=True))


READERS: dict[str, Reader] = {
    "slurm-22.05-node.txt": cluster.parse_nodes,
    "slurm-25.05-node.txt": cluster.parse_nodes,
    "slurm-22.05-partition.txt": cluster.parse_partitions,
    "slurm-25.05-partition.txt": cluster.parse_partitions,
    "slurm-22.05-squeue.txt": cluster.parse_squeue_jobs,
    "slurm-22.05-config.txt": lambda _: cluster.slurm_cluster_limits(SLURM_TEXTS),
    "slurm-22.05-squeue-elements.txt": slurm.COMMANDS.parse_queue,
    "slurm-22.05-sacct-ended.txt": slurm.COMMANDS.parse_ended,
    "slurm-22.05-scontrol-job.txt": script.parse_scontrol_job,
    "slurm-22.05-sacct-past.txt": past_jobs(sacct.ACCOUNTING),
    "gridengine-8.1.9-qhost.txt": lambda _: tuple(
        cell.node_of_host(host, TOTALS) for host in HOSTS
    ),
    "gridengine-8.1.9-queues.txt": lambda text: cell.with_states(
        cell.parse_queues(text), HOSTS
    ),
    "gridengine-8.1.9-complexes.txt": lambda _: cell.gridengine_cluster_limits(
        CELL_TEXTS, {"rig": TOTALS}
    ),
    "gridengine-8.1.9-qstat.xml": cell.parse_qstat_jobs,
    "gridengine-8.1.9-qstat-states.xml": gridengine.COMMANDS.parse_queue,
    "gridengine-8.1.9-qstat-job.txt": gridengine.parse_qstat_job,
    "gridengine-8.1.9-qacct.txt": past_jobs(qacct.ACCOUNTING),
    "htcondor-23.9-queue.json": htcondor.COMMANDS.parse_queue,
    "htcondor-23.9-history.json": htcondor.COMMANDS.parse_ended,
    "htcondor-23.9-status.json": htcondor.nodes_of_slots,
}


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read local times as those of UTC: the file is the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_utc")
def test_each_captured_answer_reads_as_it_was_reviewed() -> None:
    texts = {
        name: written(read(captured(name))).replace("; ", "\n")
        for name, read in READERS.items()
    }

    check_texts(Path(__file__).with_name("captured_texts.txt"), texts)
