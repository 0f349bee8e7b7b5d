"""Slurm: its text, job scripts, commands, limits, lint and accounting."""

import re
from typing import TYPE_CHECKING

from weigh.schedulers.kind import DialectTraits, DialectVariables, SchedulerKind
from weigh.schedulers.slurm.text import JOB_VARIABLE, TEXT

if TYPE_CHECKING:
    from weigh.schedulers.backend import StepStarter
    from weigh.schedulers.protocol import Argv


class SlurmScheduler(SchedulerKind):
    """Slurm in the table of schedulers: see `kind.SchedulerKind`."""

    name = TEXT.NAME
    title = "Slurm"
    submits = "sbatch"
    lists = "sinfo"
    accounts = "sacct"
    job_variable = JOB_VARIABLE
    directive = re.compile(r"\s*#+\s*(?:SB\w*|S\w*BATCH|sbatch)\s*-")
    commands: tuple[str, ...] = (
        *("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct"),
    )
    starts = "srun"
    probe: "Argv" = ("sinfo", "-h", "-o", "%R")
    nodes_argv: tuple[str, ...] = ("sinfo", "-h", "-N", "-o", "%N %n")
    suffixes: tuple[str, ...] = ("sbatch", "slurm")
    variables = DialectVariables(
        job=("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
        element=("SLURM_ARRAY_TASK_ID",),
        scratch=("SLURM_TMPDIR",),
        gpus=("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
        nodes="SLURM_JOB_NUM_NODES",
        cluster="SLURM_CLUSTER_NAME",
        unset=("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT"),
        fixed=(("SLURM_TIME_FORMAT", "%s"), ("SLURM_BITSTR_LEN", "0")),
        defaults=("SBATCH_",),
        in_job=("SLURM_JOB_ID", "SLURM_JOBID"),
        of_job=("SLURM_", "SBATCH_", "SRUN_"),
        # these select the cluster, or are needed for it to accept the user's jobs
        kept=frozenset(
            {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER", "SLURM_JWT"}
            | {"SLURM_ROOT", "SBATCH_ACCOUNT", "SBATCH_CLUSTERS", "SBATCH_PARTITION"}
            | {"SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_WCKEY"}
        ),
    )
    traits = DialectTraits(
        several_nodes=True,
        fits_nodes=True,
        can_change=True,
        changed_by="scontrol update",
        constraint="word",
        exclusive=True,
        disk=True,
    )
    text = TEXT

    @property
    def steps(self) -> "StepStarter":
        """Return how its jobs start processes on their nodes."""
        from weigh.schedulers.slurm import steps  # noqa: PLC0415 - rarely

        return steps


KIND = SlurmScheduler()
