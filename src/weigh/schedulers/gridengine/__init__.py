"""Grid Engine's text formats: sizes, times, ``#$`` flags, environment of a job.

Lower-case k, m, g count by 1000, upper-case ones by 1024 (sge_types(1)); only the
latter are written. ``h_vmem`` limits the virtual memory of one slot.
"""

import math
import re
from collections.abc import Mapping

from weigh.errors import FormatError
from weigh.model.record import Allocation, RecordedJob, Request, SiteComplexes
from weigh.schedulers.kind import (
    Argv,
    DialectOptions,
    DialectTraits,
    DialectVariables,
    SchedulerKind,
    SchedulerText,
    late_part,
)
from weigh.schedulers.words import (
    parsed_or_none,
    positive_number,
    scaled_up,
    whole_number,
)
from weigh.units import HOUR, MINUTE, Bytes, Seconds

_SIZE_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_CLOCK = (HOUR, MINUTE, 1)  # seconds of each field
_LIMIT = re.compile(r"\b[sh]_rt=([0-9:]+)")


def _in_job(env: Mapping[str, str]) -> bool:
    # JOB_ID alone is too common a name to rely on
    marked = "SGE_TASK_ID" in env or "NSLOTS" in env
    return marked and whole_number(env.get("JOB_ID")) is not None


def memory_or_none(text: str | None) -> Bytes | None:
    """Read a size that Grid Engine prints; None without one."""
    return parsed_or_none(TEXT.parse_memory, text)


class GridEngineText(SchedulerText):
    """Grid Engine: sizes, times, flags and the environment of its jobs."""

    NAME = "gridengine"
    PREFIX = "#$"
    OPTIONS = DialectOptions(
        memory="-l h_vmem={}",
        time="-l h_rt={}",
        cpus="-pe smp {}",
        one_cpu="no -pe",
        gpus="-l ngpus={}",
        no_gpus="no -l ngpus",
        resource=("l", "{}={}"),
    )

    def parse_memory(self, text: str) -> Bytes:
        """Read a memory value: ``4G`` is 4 GiB, ``4g`` 4,000,000,000, ``4`` bytes.

        Raises:
            FormatError: Grid Engine would reject it, such as ``4GB``.
        """
        number = text.strip().removeprefix("+")
        factor: int = 1
        power = _SIZE_POWERS.get(number[-1:].lower())
        if power is not None:
            factor = int((1024 if number[-1].isupper() else 1000) ** power)
            number = number[:-1]
        size = scaled_up(number, factor)
        if size is None:
            raise FormatError(
                f"not a Grid Engine size: {text!r} (write it like 500M or 4G)"
            )
        return size

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit: ``00:05:00``, ``36:00:00``; it has no field for days."""
        whole = max(1, math.ceil(seconds))
        return f"{whole // HOUR:02d}:{whole % HOUR // MINUTE:02d}:{whole % MINUTE:02d}"

    def parse_time(self, text: str) -> int | None:
        """Read a time value in seconds; None means no limit.

        A bare number is seconds; any of the three clock fields may be empty.

        Raises:
            FormatError: Grid Engine would reject it, such as ``1h``.
        """
        word = text.strip()
        if word.upper() in ("INFINITY", "INF"):
            return None
        fields = word.split(":")
        counts = [whole_number(field or "0") for field in fields]
        if not word or None in counts or len(fields) not in {1, len(_CLOCK)}:
            raise FormatError(
                f"not a Grid Engine time: {text!r} (write it like 01:30:00 or 5400)"
            )
        units = _CLOCK[-len(fields) :]
        return sum(
            count * unit for count, unit in zip(counts, units, strict=True) if count
        )

    def directives(
        self, request: Request, complexes: SiteComplexes | None = None
    ) -> tuple[str, ...]:
        """Return *request* as ``qsub`` flags; unknown values are left out."""
        words = complexes or SiteComplexes()
        flags = []
        # one slot per CPU of each rank
        slots = request.cpus * (request.ntasks or 1)
        if request.virtual_memory is not None:
            a_slot = -(-request.virtual_memory // slots)
            flags.append(f"-l h_vmem={self.format_memory(a_slot)}")
        if slots > 1:
            several = (request.nodes or 1) > 1
            flags.append(f"-pe {words.mpi if several else words.parallel} {slots}")
        if request.time_limit is not None:
            flags.append(f"-l h_rt={self.format_time(request.time_limit)}")
        if request.gpus:
            flags.append(f"-l {words.gpus}={request.gpus}")
        site = request.site
        if site is not None and site.exclusive and words.exclusive:
            flags.append(f"-l {words.exclusive}=true")
        return tuple(flags)

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read this node's allocation; None outside a job.

        Its environment has its slots and queue, but neither its memory nor its GPUs.
        """
        if not _in_job(env):
            return None
        return Allocation(
            scheduler="gridengine",
            cpus=positive_number(env.get("NSLOTS")),
            nodes=positive_number(env.get("NHOSTS")),
            queue=env.get("QUEUE") or None,
        )

    def job_from_environment(self, env: Mapping[str, str]) -> RecordedJob | None:
        """Read the job's id, its array task index and the number of this attempt."""
        if not _in_job(env):
            return None
        return RecordedJob(
            id=env["JOB_ID"],
            element=whole_number(env.get("SGE_TASK_ID")),  # "undefined" outside arrays
            attempt=1 + (whole_number(env.get("RESTARTED")) or 0),
        )

    def limit_argv(self, env: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the command that shows the limits of this job."""
        job = env.get("JOB_ID", "")
        if "SGE_TASK_ID" not in env or not job.isdecimal():
            return None
        return "qstat", "-j", job

    def start_file(self, env: Mapping[str, str]) -> str | None:
        """Return the file in the spool folder that is written when the job starts."""
        return f"{env.get('SGE_JOB_SPOOL_DIR', '')}/config"

    def parse_left(self, command_output: str, elapsed: Seconds) -> Seconds | None:
        """Read the shorter of the limits h_rt and s_rt, of which *elapsed* has passed.

        Raises:
            FormatError: a limit is no time.
        """
        found = [self.parse_time(word) for word in _LIMIT.findall(command_output)]
        limits = [limit for limit in found if limit is not None]
        return max(0.0, min(limits) - elapsed) if limits else None


TEXT = GridEngineText()


# ---- what it is called, and in what it differs
class GridEngine(SchedulerKind):
    """Grid Engine in the table of schedulers: see `kind.SchedulerKind`."""

    title = "Grid Engine"
    lists = "qhost"
    accounts = "qacct"
    directive = re.compile(r"\s*#+\s*\$\s*-")
    commands: tuple[str, ...] = ("qsub", "qstat", "qdel", "qconf", "qhost", "qacct")
    starts = "qrsh -now no"
    probe: Argv = ("qconf", "-sql")
    nodes_argv: tuple[str, ...] = ("qconf", "-sel")
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
    )
    text = TEXT
    backend = late_part("weigh.schedulers.gridengine.scheduler", "COMMANDS")
    accounting = late_part("weigh.schedulers.gridengine.accounting", "ACCOUNTING")
    site = late_part("weigh.schedulers.gridengine.cluster", "SITE")
    lint = late_part("weigh.schedulers.gridengine.lint", "LINT")
    user_scripts = late_part("weigh.schedulers.gridengine.user_script", "USER_SCRIPTS")


KIND = GridEngine()
