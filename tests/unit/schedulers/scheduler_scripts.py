"""Schedulers that answer from captured text, and know nothing else."""

import os
from collections.abc import Mapping, Sequence

from captured_text import captured

from weigh.flow.site.ask import Ask
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.protocol import Reply
from weigh.schedulers.slurm import cluster as slurm_cluster

Answers = Mapping[tuple[str, ...], Reply]

SLURM: dict[tuple[str, ...], Reply] = {
    slurm_cluster.NODES: Reply(0, captured("slurm-22.05-node.txt")),
    slurm_cluster.PARTITIONS: Reply(0, captured("slurm-22.05-partition.txt")),
    slurm_cluster.JOBS: Reply(0, captured("slurm-22.05-squeue.txt")),
    slurm_cluster.CONFIG: Reply(0, captured("slurm-22.05-config.txt")),
}
GRIDENGINE: dict[tuple[str, ...], Reply] = {
    gridengine_cluster.HOSTS: Reply(0, captured("gridengine-8.1.9-qhost.txt")),
    gridengine_cluster.QUEUES: Reply(0, captured("gridengine-8.1.9-queues.txt")),
    gridengine_cluster.JOBS: Reply(0, captured("gridengine-8.1.9-qstat.xml")),
    gridengine_cluster.COMPLEXES: Reply(0, captured("gridengine-8.1.9-complexes.txt")),
    gridengine_cluster.VERSION: Reply(0, "SGE 8.1.9\nusage: qstat [options]\n"),
    gridengine_cluster.host_argv("rig"): Reply(
        0, captured("gridengine-8.1.9-host.txt")
    ),
}


def answering(answers: Answers, asked: list[tuple[str, ...]] | None = None) -> Ask:
    """Make an Ask of *answers*; what was asked goes to *asked*."""

    def ask(
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        patience: float = 0,
    ) -> Reply:
        del env, cwd, patience
        if asked is not None:
            asked.append(tuple(argv))
        missing = Reply(trouble=f"{argv[0]}: {os.strerror(2)}")
        return answers.get(tuple(argv), missing)

    return ask
