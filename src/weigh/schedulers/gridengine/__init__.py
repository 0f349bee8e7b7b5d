"""Grid Engine: its text, job scripts, commands, limits, lint and accounting."""

import re
from typing import TYPE_CHECKING

from weigh.schedulers.gridengine.text import TEXT
from weigh.schedulers.kind import DialectTraits, DialectVariables, SchedulerKind

if TYPE_CHECKING:
    from weigh.schedulers.protocol import Argv


class GridEngine(SchedulerKind):
    """Grid Engine in the table of schedulers: see `kind.SchedulerKind`."""

    name = TEXT.NAME
    title = "Grid Engine"
    submits = "qsub"
    lists = "qhost"
    accounts = "qacct"
    job_variable = "SGE_TASK_ID"
    directive = re.compile(r"\s*#+\s*\$\s*-")
    commands: tuple[str, ...] = ("qsub", "qstat", "qdel", "qconf", "qhost", "qacct")
    starts = "qrsh -now no"
    probe: "Argv" = ("qconf", "-sql")
    nodes_argv: tuple[str, ...] = ("qconf", "-sel")
    suffixes: tuple[str, ...] = ("sge",)
    variables = DialectVariables(
        job=("JOB_ID",),
        element=("SGE_TASK_ID",),
        gpus=("SGE_HGR_gpu",),
        cluster="SGE_CLUSTER_NAME",
        in_job=("SGE_TASK_ID", "JOB_ID"),
        of_job=(
            *("JOB_", "SGE_TASK_", "SGE_O_", "SGE_STD", "SGE_JOB_", "SGE_CWD_"),
            *("RESTARTED", "NSLOTS", "NHOSTS", "NQUEUES", "PE_"),
        ),
        kept=frozenset(
            {"SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"}
            | {"SGE_CLUSTER_NAME"}
        ),
    )
    traits = DialectTraits(
        address_space="h_vmem",
        # this exit code puts a job in error state, and dependent jobs wait
        first_element=1,
        element_name="{}.{}",
        names_resources=True,
        exclusive=True,
        disk=True,
        can_change=True,
        changed_by="qalter",
    )
    text = TEXT


KIND = GridEngine()
