"""HTCondor: what it is called and can do; a job needs its text, the rest is one file.

Its submit descriptions are not checked by rules of ours: condor_submit -dry-run reads
them.
"""

import re
from typing import TYPE_CHECKING

from weigh.schedulers.htcondor.text import JOB_AD, TEXT
from weigh.schedulers.kind import DialectTraits, DialectVariables, SchedulerKind

if TYPE_CHECKING:
    from weigh.schedulers.protocol import Argv


class HTCondorScheduler(SchedulerKind):
    """HTCondor in the table of schedulers: see `kind.SchedulerKind`."""

    name = TEXT.NAME
    title = "HTCondor"
    submits = "condor_submit"
    lists = "condor_status"
    accounts = "condor_history"
    commands: tuple[str, ...] = (
        *("condor_submit", "condor_q", "condor_rm", "condor_status", "condor_history"),
        "condor_config_val",
    )
    starts = "condor_submit -interactive"
    probe: "Argv" = ("condor_q", "-totals")
    nodes_argv: "Argv" = ("condor_status", "-af", "Machine")
    suffixes: tuple[str, ...] = ("sub", "submit", "condor")
    job_variable = JOB_AD
    directive = re.compile(  # bash would not take it for an assignment
        r"\s*(?:(?:executable|universe|output|arguments)\s+="
        r"|(?:request_\w+|should_transfer_files|\+\w+)\s*=\s*\S+\s*$"
        r"|queue(?:\s+\d+)?\s*$)",
        re.IGNORECASE,
    )
    variables = DialectVariables(
        job=("CONDOR_CLUSTER_ID",),
        element=("CONDOR_PROC_ID",),
        scratch=("_CONDOR_SCRATCH_DIR",),
        gpus=("_CONDOR_AssignedGPUs",),
        in_job=(JOB_AD,),
    )
    traits = DialectTraits(
        fits_nodes=True,
        element_name="{}.{}",
        waits=False,
        queues=False,
        takes_scripts=False,
        changed_by="condor_qedit",
        constraint="expression",
        disk=True,
    )
    text = TEXT
    in_one_file = True


KIND = HTCondorScheduler()
