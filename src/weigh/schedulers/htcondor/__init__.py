"""HTCondor's text: sizes, times, submit commands, a job's own description.

A job's environment holds neither its id nor its request: they are in the file that
``_CONDOR_JOB_AD`` names. Sizes and times were observed on 23.9.6.
"""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weigh.errors import FormatError
from weigh.model.record import Allocation, RecordedJob, Request, SiteComplexes
from weigh.schedulers import kind as dialect
from weigh.schedulers.kind import (
    DialectTraits,
    DialectVariables,
    SchedulerKind,
    SchedulerText,
)
from weigh.schedulers.words import binary_size, whole_number
from weigh.units import KIB, MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.schedulers.protocol import Argv


JOB_AD = "_CONDOR_JOB_AD"
_SIZE = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?(?:([kmgt])b?)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_ATTRIBUTE = re.compile(r"^(\w+) = (-?\d{1,18})$", re.MULTILINE)
_LONGEST_AD = 1 << 20  # characters; the file is some KiB


def _job_ad(env: Mapping[str, str]) -> dict[str, int]:
    """Read the whole numbers of this job's description; empty outside a job."""
    try:
        with open(env[JOB_AD], encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_AD)
    except (KeyError, OSError, ValueError):
        return {}
    return {name: int(value) for name, value in _ATTRIBUTE.findall(text)}


class HTCondorText(SchedulerText):
    """HTCondor: sizes, times, flags and the environment of its jobs."""

    NAME = "htcondor"
    PREFIX = ""  # submit commands are lines of their own
    OPTIONS = dialect.DialectOptions(
        memory="request_memory = {}",
        time="allowed_job_duration = {}",
        cpus="request_cpus = {}",
        gpus="request_gpus = {}",
        no_gpus="no request_gpus",
        exclude='requirements = Machine != "{}"',
    )

    def format_memory(self, size: Bytes) -> str:
        """Write *size* in whole GiB or else MiB, rounded up."""
        return binary_size(size)

    def parse_memory(self, text: str) -> Bytes:
        """Read ``request_memory``: ``4G`` and ``4GB`` are 4 GiB, ``4`` is 4 MiB.

        Raises:
            FormatError: it is an expression, or condor_submit would reject it.
        """
        found = _SIZE.fullmatch(text.strip()) if text.isascii() else None
        if found is None:
            raise FormatError(
                f"not an HTCondor size: {text!r} (write it like 500M or 4G)"
            )
        factor = 1 << 10 * _POWERS[(found[3] or "m").lower()]
        scale = int(10 ** len(found[2] or ""))
        return -(-int(found[1] + (found[2] or "")) * factor // scale)

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit, which HTCondor counts in seconds."""
        return str(max(1, math.ceil(seconds)))

    def parse_time(self, text: str) -> int | None:
        """Read ``allowed_job_duration``, in seconds.

        Raises:
            FormatError: it is no number but an expression, or condor_submit rejects it.
        """
        seconds = whole_number(text.strip())
        if seconds is None:
            raise FormatError(
                f"not an HTCondor time: {text!r} (write seconds, like 5400)"
            )
        return seconds

    def directives(
        self, request: Request, complexes: SiteComplexes | None = None
    ) -> tuple[str, ...]:
        """Return *request* as submit commands; unknown values are left out."""
        cpus = request.cpus * (request.ntasks_per_node or 1)
        lines = [f"request_cpus = {cpus}"]
        if request.memory is not None:
            lines.append(f"request_memory = {self.format_memory(request.memory)}")
        if request.time_limit is not None:
            lines.append(
                f"allowed_job_duration = {self.format_time(request.time_limit)}"
            )
        if request.gpus:
            lines.append(f"request_gpus = {request.gpus}")
        if request.site is not None and request.site.disk is not None:
            lines.append(f"request_disk = {-(-request.site.disk // KIB)}")
        return tuple(lines)

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read the resources of this job's slot; None outside a job."""
        ad = _job_ad(env)
        if "ClusterId" not in ad:
            return None
        memory = ad.get("MemoryProvisioned")
        return Allocation(
            scheduler=self.NAME,
            cpus=ad.get("CpusProvisioned") or None,
            memory=memory * MIB if memory else None,
            gpus=ad.get("RequestGPUs", 0),
            nodes=1,
        )

    def job_from_environment(self, env: Mapping[str, str]) -> RecordedJob | None:
        """Read the job's id, its place in the cluster and this attempt's number."""
        ad = _job_ad(env)
        if "ClusterId" not in ad:
            return None
        # a shadow starts for each attempt
        attempt = max(1, ad.get("NumShadowStarts", 1))
        return RecordedJob(
            id=str(ad["ClusterId"]), element=ad.get("ProcId"), attempt=attempt
        )

    def end_time(self, env: Mapping[str, str]) -> Seconds | None:
        """Read when this attempt's time limit ends, as epoch seconds, if set."""
        ad = _job_ad(env)
        begun, limit = ad.get("JobCurrentStartDate"), ad.get("AllowedJobDuration")
        return None if begun is None or limit is None else float(begun + limit)


TEXT = HTCondorText()


# ---- what it is called, and in what it differs
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
        constraint="expression",
        disk=True,
    )
    text = TEXT
    in_one_file = True


KIND = HTCondorScheduler()
