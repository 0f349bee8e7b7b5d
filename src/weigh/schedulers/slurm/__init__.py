"""Slurm's text formats: sizes, times, ``#SBATCH`` flags, environment of a job.

Sizes count by 1024 and a bare number is MiB; ``24:00`` is 24 minutes (sbatch(1)).
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from weigh.errors import FormatError
from weigh.lazy_modules import lazy_module
from weigh.model.record import Allocation, RecordedJob, Request, SiteFlags
from weigh.schedulers.kind import (
    Argv,
    DialectOptions,
    DialectTraits,
    DialectVariables,
    SchedulerKind,
    SchedulerText,
    late_part,
)
from weigh.schedulers.words import positive_number, whole_number
from weigh.units import DAY, HOUR, MIB, MINUTE, Bytes, Seconds, format_limit

if TYPE_CHECKING:
    from weigh.schedulers.slurm import steps as slurm_steps
else:  # imported when it is first used
    slurm_steps = lazy_module("weigh.schedulers.slurm.steps")


JOB_VARIABLE = "SLURM_JOB_ID"

_SIZE_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_UNLIMITED = ("UNLIMITED", "INFINITE", "-1")
# seconds of each field: 1-12 are days and hours, 90 are minutes, 90:00 minutes and
# seconds
_AFTER_DAYS = (HOUR, MINUTE, 1)
_WITHOUT_DAYS = {1: (MINUTE,), 2: (MINUTE, 1), 3: (HOUR, MINUTE, 1)}


def _memory_flag(request: Request, memory: Bytes) -> str:
    """Write memory per node, or per CPU where a site wants that.

    sbatch multiplies by all CPUs of the job on the node: cpus of each of its tasks.
    """
    if request.site is None or not request.site.per_cpu:
        return f"--mem={TEXT.format_memory(memory)}"
    cpus = max(1, request.cpus) * (request.ntasks_per_node or 1)
    return f"--mem-per-cpu={TEXT.format_memory(-(-memory // cpus))}"


def _slurm_site_flags(site: SiteFlags) -> Iterator[str]:
    if site.exclusive:
        yield "--exclusive"
    for name, value in (
        ("constraint", site.constraint),
        ("account", site.account),
        ("qos", site.qos),
    ):
        if value:
            yield f"--{name}={value}"


def _layout_flags(request: Request) -> Iterator[str]:
    if not request.ntasks:
        return
    per_node, nodes = request.ntasks_per_node or 1, request.nodes or 1
    yield f"--nodes={nodes}"
    # the last node has fewer tasks than the others
    if per_node * nodes != request.ntasks:
        yield f"--ntasks={request.ntasks}"
    yield f"--ntasks-per-node={per_node}"


def _of_each_layout(request: Request) -> tuple[str, ...]:
    flags = []
    flags.append(f"--cpus-per-task={request.cpus}")
    if request.time_limit is not None:
        flags.append(f"--time={TEXT.format_time(request.time_limit)}")
    if request.gpus:
        kind = f"{request.gpu_type}:" if request.gpu_type else ""
        flags.append(f"--gres=gpu:{kind}{request.gpus}")
    return tuple(flags)


def _gpus_of_slurm_job(env: Mapping[str, str]) -> int | None:
    counted = whole_number(env.get("SLURM_GPUS_ON_NODE"))
    if counted is not None:
        return counted
    listed = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS")
    return len(listed.split(",")) if listed else None


def _allocated_slurm_memory(
    env: Mapping[str, str], *, cpus: int | None, gpus: int | None
) -> Bytes | None:
    for variable, count in (
        ("SLURM_MEM_PER_NODE", 1),
        ("SLURM_MEM_PER_CPU", cpus),
        ("SLURM_MEM_PER_GPU", gpus),
    ):
        mebibytes = positive_number(env.get(variable))
        if mebibytes and count:
            return mebibytes * count * MIB
    return None


_MOST_NODES = 10_000


def node_names(listed: str) -> Iterator[str]:
    """Yield the names in a list of nodes such as ``login,node[1-3,7]``."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", listed):
        yield from _expanded_host_names(part)


def _expanded_host_names(part: str) -> list[str]:
    """Return the names of ``rack[1-2]n[1-3,7]``; none of a form not understood."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    spans, _, tail = rest.partition("]")
    ends = _expanded_host_names(tail) if tail else [""]
    names: list[str] = []
    for span in spans.split(","):
        first, dash, last = span.partition("-")
        low, high = whole_number(first), whole_number(last if dash else first)
        # a garbled list must not become millions of names
        if low is None or high is None or not 0 <= high - low < _MOST_NODES:
            return []
        starts = [f"{head}{n:0{len(first)}d}" for n in range(low, high + 1)]
        if len(starts) * len(ends) > _MOST_NODES:
            return []
        names += [start + end for start in starts for end in ends]
    return names


class SlurmText(SchedulerText):
    """Slurm: sizes, times, flags and the environment of its jobs."""

    NAME = "slurm"
    PREFIX = "#SBATCH"
    OPTIONS = DialectOptions(
        memory="--mem={}",
        memory_per_cpu="--mem-per-cpu={}",
        time="--time={}",
        cpus="--cpus-per-task={}",
        gpus="--gres=gpu:{}",
        no_gpus="no --gres=gpu",
    )

    def parse_memory(self, text: str) -> Bytes:
        """Read a ``--mem`` value: ``4G``, ``4GB``, ``4`` (MiB), ``1000K``.

        Slurm rounds up to whole MiB. Zero means all memory of a node.

        Raises:
            FormatError: Slurm would reject it, such as fractions and ``GiB``.
        """
        # 4GB is read as 4G, but a bare B is refused
        number, letter = text.strip().upper(), "M"
        if number[-2:-1].isalpha():
            number = number.removesuffix("B")
        if number[-1:] in _SIZE_POWERS:
            number, letter = number[:-1], number[-1]
        count = whole_number(number)
        # not decimal: fractions, GiB and signs
        if count is None:
            raise FormatError(f"not a Slurm size: {text!r} (write it like 500M or 4G)")
        return -(-count * (1 << 10 * _SIZE_POWERS[letter]) // MIB) * MIB

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit: ``00:05:00``, ``1-12:00:00``; at least 1 s: 0 is none."""
        return format_limit(seconds)

    def parse_time(self, text: str) -> int | None:
        """Read a ``--time`` value in seconds; None means no limit.

        ``90`` and ``90:00`` are 90 minutes, ``01:30:00`` too; ``1-12`` is 36 hours.

        Raises:
            FormatError: Slurm would reject it.
        """
        word = text.strip()
        if word.upper() in _UNLIMITED:
            return None
        days, dash, clock = word.rpartition("-")
        fields = clock.split(":")
        units = _AFTER_DAYS if dash else _WITHOUT_DAYS.get(len(fields), ())
        counts = [whole_number(field) for field in fields]
        day_count = whole_number(days) if dash else 0
        if len(fields) > len(units) or None in counts or day_count is None:
            raise FormatError(
                f"not a Slurm time: {text!r} (write it like 01:30:00 or 1-12:00:00)"
            )
        seconds = sum(
            count * unit for count, unit in zip(counts, units, strict=False) if count
        )
        # 0 is no limit for sbatch
        return day_count * DAY + seconds or None

    def directives(self, request: Request) -> tuple[str, ...]:
        """Return *request* as ``sbatch`` flags; unknown values are left out."""
        # tasks without nodes: any placement will do
        if request.nodes is None and request.ntasks:
            return self.any_layout(request)
        flags = [*_layout_flags(request)]
        if request.memory is not None:
            flags.append(_memory_flag(request, request.memory))
        return (
            *flags,
            *_of_each_layout(request),
            *_slurm_site_flags(request.site or SiteFlags()),
        )

    def any_layout(self, request: Request) -> tuple[str, ...]:
        """Return *request* as flags that let Slurm place the tasks on any nodes.

        Empty for a request of one task.
        """
        if not request.ntasks or (request.memory_per_cpu is None and request.nodes):
            return ()
        flags = [f"--ntasks={request.ntasks}"]
        if request.memory_per_cpu is not None:
            flags.append(f"--mem-per-cpu={self.format_memory(request.memory_per_cpu)}")
        site = _slurm_site_flags(request.site or SiteFlags())
        return (*flags, *_of_each_layout(request), *site)

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read this node's allocation; None outside a job.

        With ``--mem=0`` (all memory of the node) the memory is unknown.
        """
        if not env.get("SLURM_JOB_ID"):
            return None
        cpus = positive_number(env.get("SLURM_CPUS_ON_NODE")) or positive_number(
            env.get("SLURM_CPUS_PER_TASK")
        )
        gpus = _gpus_of_slurm_job(env)
        return Allocation(
            scheduler="slurm",
            cpus=cpus,
            memory=_allocated_slurm_memory(env, cpus=cpus, gpus=gpus),
            nodes=positive_number(env.get("SLURM_JOB_NUM_NODES"))
            or positive_number(env.get("SLURM_NNODES")),
            gpus=gpus,
            queue=env.get("SLURM_JOB_PARTITION") or None,
        )

    def job_from_environment(self, env: Mapping[str, str]) -> RecordedJob | None:
        """Read the job's id, its array task index and the number of this attempt.

        An element has the id of its array: ``481516`` and 7 for ``481516_7``.
        """
        own_id = env.get("SLURM_JOB_ID")
        if not own_id:
            return None
        element = whole_number(env.get("SLURM_ARRAY_TASK_ID"))
        array_id = env.get("SLURM_ARRAY_JOB_ID") if element is not None else None
        return RecordedJob(
            id=array_id or own_id,
            element=element,
            attempt=1 + (whole_number(env.get("SLURM_RESTART_COUNT")) or 0),
        )

    def end_time(self, env: Mapping[str, str]) -> Seconds | None:
        """Read when the time limit ends, which jobs know from Slurm 23.02 on."""
        end = env.get("SLURM_JOB_END_TIME", "")
        return float(end) if end.isdecimal() and end.isascii() else None

    def limit_argv(self, env: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the command that shows the time left, for one rank of the job."""
        job = env.get("SLURM_JOB_ID", "")
        # thousands of ranks must not query the controller at once
        if not job.isdecimal() or env.get("SLURM_PROCID", "0") != "0":
            return None
        if env.get("SLURM_JOB_END_TIME"):  # no query needed
            return None
        return "squeue", "-h", "-j", job, "-o", "%L"

    def parse_left(self, command_output: str, elapsed: Seconds) -> Seconds | None:
        """Read squeue's time left, whose short form is MM:SS.

        Raises:
            FormatError: it is no time.
        """
        left = command_output.strip()
        # MM:SS here, which --time would read the same; 00: makes it hours, minutes and
        # seconds
        has_minutes = left.count(":") == 1 and "-" not in left
        seconds = self.parse_time(f"00:{left}" if has_minutes else left)
        return None if seconds is None else float(seconds)


TEXT = SlurmText()


# ---- what it is called, and in what it differs
class SlurmScheduler(SchedulerKind):
    """Slurm in the table of schedulers: see `kind.SchedulerKind`."""

    title = "Slurm"
    lists = "sinfo"
    accounts = "sacct"
    directive = re.compile(r"\s*#+\s*(?:SB\w*|S\w*BATCH|sbatch)\s*-")
    commands: tuple[str, ...] = (
        *("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct"),
    )
    starts = "srun"
    probe: Argv = ("sinfo", "-h", "-o", "%R")
    nodes_argv: tuple[str, ...] = ("sinfo", "-h", "-N", "-o", "%N %n")
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
        constraint="word",
        exclusive=True,
        container_steps=True,
    )
    text = TEXT
    backend = late_part("weigh.schedulers.slurm.scheduler", "COMMANDS")
    accounting = late_part("weigh.schedulers.slurm.accounting", "ACCOUNTING")
    site = late_part("weigh.schedulers.slurm.cluster", "SITE")
    lint = late_part("weigh.schedulers.slurm.lint", "LINT")
    user_scripts = late_part("weigh.schedulers.slurm.user_script", "USER_SCRIPTS")
    steps = slurm_steps


KIND = SlurmScheduler()
