"""Grid Engine: its text, job scripts, commands, limits, lint and accounting."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weigh.schedulers.dialect import Traits, Variables
from weigh.schedulers.gridengine import text

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
        Who,
    )


class GridEngine:
    """Grid Engine in the table of schedulers: see `protocol.Kind`.

    Each part is imported when it is used, so that ``weigh run`` starts quickly.
    """

    name = text.NAME
    title = "Grid Engine"
    submits = "qsub"
    lists = "qhost"
    accounts = "qacct"
    nodes_argv: tuple[str, ...] = ("qconf", "-sel")
    job_variable = "SGE_TASK_ID"
    directive = re.compile(r"\s*#+\s*\$\s*-")
    commands: tuple[str, ...] = ("qsub", "qstat", "qdel", "qconf", "qhost", "qacct")
    starts = "qrsh -now no"
    probe: "Argv" = ("qconf", "-sql")
    suffixes: tuple[str, ...] = ("sge",)
    variables = Variables(
        job=("JOB_ID",),
        element=("SGE_TASK_ID",),
        gpus=("SGE_HGR_gpu",),
        cluster="SGE_CLUSTER_NAME",
        in_job=("SGE_TASK_ID", "JOB_ID"),
        of_job=(
            *("JOB_", "SGE_TASK_", "SGE_O_", "SGE_STD", "SGE_JOB_", "SGE_CWD_"),
            *("RESTARTED", "NSLOTS", "NHOSTS", "NQUEUES", "PE_"),
        ),
    )
    traits = Traits(
        address_space="h_vmem",
        waits_for_any_end=True,
        # this exit code puts a job in error state, and dependent jobs wait
        hold_code=100,
        first_element=1,
        element_name="{}.{}",
        names_resources=True,
        no_start="not now",
        is_common=True,
    )
    text: "Dialect" = text

    @property
    def backend(self) -> "Backend":
        """Return its commands."""
        from weigh.schedulers.gridengine import commands  # noqa: PLC0415 - start-up time

        return commands

    @property
    def lint(self) -> "Lint":
        """Return the checks of its scripts."""
        from weigh.schedulers.gridengine import lint  # noqa: PLC0415 - start-up time

        return lint

    @property
    def accounting(self) -> "Accounting":
        """Return its accounting."""
        from weigh.schedulers.gridengine import accounting  # noqa: PLC0415 - start-up time

        return accounting

    @property
    def reasons(self) -> "Reasons":
        """Return its words on why jobs wait and end."""
        from weigh.schedulers.gridengine import reasons  # noqa: PLC0415 - start-up time

        return reasons

    @property
    def script_rules(self) -> "ScriptRules":
        """Return what the body of its job scripts contains."""
        from weigh.schedulers.gridengine.script import RULES  # noqa: PLC0415 - start-up time

        return RULES

    @property
    def steps(self) -> None:
        """Return None: what it starts on a node takes one of the job's slots."""

    def read_cluster(
        self,
        query: "Query",
        env: Mapping[str, str],
    ) -> "ClusterAnswers":
        """Query nodes, queues and jobs."""
        from weigh.schedulers.gridengine import cluster  # noqa: PLC0415 - start-up time

        return cluster.read_cluster(query, env)

    def read_limits(self, who: "Who", query: "Query") -> "Live":
        """Query the limits that apply to a submission."""
        from weigh.schedulers.gridengine import limits  # noqa: PLC0415 - start-up time

        return limits.read_limits(who, query)

    def resource_names(self, query: "Query") -> dict[str, str]:
        """Query the site's own names of resources."""
        from weigh.schedulers.gridengine import limits  # noqa: PLC0415 - start-up time

        return limits.resource_names(query)

    def start_argv(
        self,
        queue: str,
        *,
        cpus: int = 1,
        gpu: str | None = None,
        time: int | None = None,
    ) -> "Argv":
        """Return the command that shows when a small job would start in a queue."""
        from weigh.schedulers.gridengine import cluster  # noqa: PLC0415 - start-up time

        return cluster.start_argv(queue, cpus=cpus, gpu=gpu, time=time)

    def parse_start(self, output: str) -> tuple[str | None, str | None]:
        """Read (when it would start, or why not)."""
        from weigh.schedulers.gridengine import cluster  # noqa: PLC0415 - start-up time

        return cluster.parse_start(output)


GRIDENGINE = GridEngine()
