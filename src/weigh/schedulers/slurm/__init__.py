"""Slurm: its text, job scripts, commands, limits, lint and accounting."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weigh.schedulers.dialect import Traits, Variables
from weigh.schedulers.slurm import text

if TYPE_CHECKING:
    from weigh.schedulers.dialect import Dialect
    from weigh.schedulers.job_script import ScriptRules
    from weigh.schedulers.protocol import (
        Accounting,
        Argv,
        Backend,
        ClusterAnswers,
        Lint,
        Live,
        Query,
        Reasons,
        Steps,
        Who,
    )


class Slurm:
    """Slurm in the table of schedulers: see `protocol.Kind`.

    Each part is imported when it is used, so that ``weigh run`` starts quickly.
    """

    name = text.NAME
    title = "Slurm"
    submits = "sbatch"
    lists = "sinfo"
    accounts = "sacct"
    nodes_argv: tuple[str, ...] = ("sinfo", "-h", "-N", "-o", "%N %n")
    job_variable = text.JOB_VARIABLE
    directive = re.compile(r"\s*#+\s*(?:SB\w*|S\w*BATCH|sbatch)\s*-")
    commands: tuple[str, ...] = (
        *("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct"),
    )
    starts = "srun"
    probe: "Argv" = ("sinfo", "-h", "-o", "%R")
    suffixes: tuple[str, ...] = ("sbatch", "slurm")
    variables = Variables(
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
    traits = Traits(
        several_nodes=True, fits_nodes=True, no_memory="all of a node", is_common=True
    )
    text: "Dialect" = text

    @property
    def backend(self) -> "Backend":
        """Return its commands."""
        from weigh.schedulers.slurm import commands  # noqa: PLC0415 - start-up time

        return commands

    @property
    def lint(self) -> "Lint":
        """Return the checks of its scripts."""
        from weigh.schedulers.slurm import lint  # noqa: PLC0415 - start-up time

        return lint

    @property
    def accounting(self) -> "Accounting":
        """Return its accounting."""
        from weigh.schedulers.slurm import accounting  # noqa: PLC0415 - start-up time

        return accounting

    @property
    def reasons(self) -> "Reasons":
        """Return its words on why jobs wait and end."""
        from weigh.schedulers.slurm import reasons  # noqa: PLC0415 - start-up time

        return reasons

    @property
    def script_rules(self) -> "ScriptRules":
        """Return what the body of its job scripts contains."""
        from weigh.schedulers.slurm.script import RULES  # noqa: PLC0415 - start-up time

        return RULES

    @property
    def steps(self) -> "Steps":
        """Return how its jobs start processes on their nodes."""
        from weigh.schedulers.slurm import steps  # noqa: PLC0415 - rarely

        return steps

    def read_cluster(
        self,
        query: "Query",
        env: Mapping[str, str],  # noqa: ARG002 - Slurm names its cluster
    ) -> "ClusterAnswers":
        """Query nodes, queues and jobs."""
        from weigh.schedulers.slurm import cluster  # noqa: PLC0415 - start-up time

        return cluster.read_cluster(query)

    def read_limits(self, who: "Who", query: "Query") -> "Live":
        """Query the limits that apply to a submission."""
        from weigh.schedulers.slurm import limits  # noqa: PLC0415 - start-up time

        return limits.read_limits(who, query)

    def resource_names(self, query: "Query") -> dict[str, str]:  # noqa: ARG002 - sites choose none
        """Return no names: Slurm has its own for all resources."""
        return {}

    def start_argv(
        self,
        queue: str,
        *,
        cpus: int = 1,
        gpu: str | None = None,
        time: int | None = None,
    ) -> "Argv":
        """Return the command that shows when a small job would start in a queue."""
        from weigh.schedulers.slurm import cluster  # noqa: PLC0415 - start-up time

        return cluster.start_argv(queue, cpus=cpus, gpu=gpu, time=time)

    def parse_start(self, output: str) -> tuple[str | None, str | None]:
        """Read (when it would start, or why not)."""
        from weigh.schedulers.slurm import cluster  # noqa: PLC0415 - start-up time

        return cluster.parse_start(output)


SLURM = Slurm()
