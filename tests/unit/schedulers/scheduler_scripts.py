"""Schedulers that answer from captured text, and know nothing else."""

import os
from collections.abc import Mapping, Sequence

from captured_text import captured

from weigh.flow.site.ask import CommandRunner
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.slurm import cluster as slurm_cluster

Answers = Mapping[tuple[str, ...], CommandOutput]

SLURM: dict[tuple[str, ...], CommandOutput] = {
    slurm_cluster.NODES: CommandOutput(0, captured("slurm-22.05-node.txt")),
    slurm_cluster.PARTITIONS: CommandOutput(0, captured("slurm-22.05-partition.txt")),
    slurm_cluster.JOBS: CommandOutput(0, captured("slurm-22.05-squeue.txt")),
    slurm_cluster.CONFIG: CommandOutput(0, captured("slurm-22.05-config.txt")),
}
GRIDENGINE: dict[tuple[str, ...], CommandOutput] = {
    gridengine_cluster.HOSTS: CommandOutput(0, captured("gridengine-8.1.9-qhost.txt")),
    gridengine_cluster.QUEUES: CommandOutput(
        0, captured("gridengine-8.1.9-queues.txt")
    ),
    gridengine_cluster.JOBS: CommandOutput(0, captured("gridengine-8.1.9-qstat.xml")),
    gridengine_cluster.COMPLEXES: CommandOutput(
        0, captured("gridengine-8.1.9-complexes.txt")
    ),
    gridengine_cluster.VERSION: CommandOutput(0, "SGE 8.1.9\nusage: qstat [options]\n"),
    gridengine_cluster.host_argv("rig"): CommandOutput(
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
    ) -> CommandOutput:
        del env, cwd, patience
        if asked is not None:
            asked.append(tuple(argv))
        missing = CommandOutput(trouble=f"{argv[0]}: {os.strerror(2)}")
        return answers.get(tuple(argv), missing)

    return ask
