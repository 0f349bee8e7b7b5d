"""Schedulers that answer from captured text, and know nothing else."""

import os
from collections.abc import Mapping, Sequence

from captured_text import captured

from weigh.flow.site.ask import CommandRunner
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.protocol import CommandReply
from weigh.schedulers.slurm import cluster as slurm_cluster

Answers = Mapping[tuple[str, ...], CommandReply]

SLURM: dict[tuple[str, ...], CommandReply] = {
    slurm_cluster.NODES: CommandReply(0, captured("slurm-22.05-node.txt")),
    slurm_cluster.PARTITIONS: CommandReply(0, captured("slurm-22.05-partition.txt")),
    slurm_cluster.JOBS: CommandReply(0, captured("slurm-22.05-squeue.txt")),
    slurm_cluster.CONFIG: CommandReply(0, captured("slurm-22.05-config.txt")),
}
GRIDENGINE: dict[tuple[str, ...], CommandReply] = {
    gridengine_cluster.HOSTS: CommandReply(0, captured("gridengine-8.1.9-qhost.txt")),
    gridengine_cluster.QUEUES: CommandReply(0, captured("gridengine-8.1.9-queues.txt")),
    gridengine_cluster.JOBS: CommandReply(0, captured("gridengine-8.1.9-qstat.xml")),
    gridengine_cluster.COMPLEXES: CommandReply(
        0, captured("gridengine-8.1.9-complexes.txt")
    ),
    gridengine_cluster.VERSION: CommandReply(0, "SGE 8.1.9\nusage: qstat [options]\n"),
    gridengine_cluster.host_argv("rig"): CommandReply(
        0, captured("gridengine-8.1.9-host.txt")
    ),
}


def answering(
    answers: Answers, asked: list[tuple[str, ...]] | None = None
) -> CommandRunner:
    """Make an Ask of *answers*; what was asked goes to *asked*."""

    def ask(
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        patience: float = 0,
    ) -> CommandReply:
        del env, cwd, patience
        if asked is not None:
            asked.append(tuple(argv))
        missing = CommandReply(trouble=f"{argv[0]}: {os.strerror(2)}")
        return answers.get(tuple(argv), missing)

    return ask
