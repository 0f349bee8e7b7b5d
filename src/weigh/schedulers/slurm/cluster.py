"""What Slurm shows of a cluster, and what it allows a user.

Only formats that are stable from 20.11 to 26.05 are used: ``scontrol -o`` and columns
selected by name. ``--json`` differs between these versions.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from weigh.model.cluster import (
    UNTYPED,
    ClusterJob,
    ClusterLimits,
    ClusterNode,
    NodeGpus,
    NodeState,
    QueueLimits,
)
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.command import unanswered
from weigh.schedulers.kind import (
    Argv,
    ClusterAnswers,
    SchedulerQuery,
    SchedulerSite,
)
from weigh.schedulers.words import (
    count_elements,
    mebibytes_in,
    parsed_or_none,
    text_pairs,
    whole_number,
)

NODES = ("scontrol", "-d", "-o", "show", "node")
PARTITIONS = ("scontrol", "-o", "show", "partition")
CONFIG = ("scontrol", "show", "config")
JOBS = ("squeue", "-h", "-a", "-O", "JobArrayID:256|,Partition:128|,StateCompact:8|")
_FIELDS = 4  # with what follows the last separator
_LAST_SECOND = 1 << 36  # the year 4147: a larger number is not a time


# a key begins behind a blank: values may hold blanks themselves
_KEY = re.compile(r"(?:^|\s)([A-Za-z_]+(?:[/:][\w:]+)?)=")
_GPU = re.compile(r"(?:^|,)gpu(?::([^:,()=]+))?:(\d{1,9})(?!\d)")
_TRES_GPU = re.compile(r"(?:^|,)gres/gpu(?::([^=,]+))?=(\d{1,9})(?!\d)")
_WHO = re.compile(r"(.*?) ?\[([^\[\]@]*)@([\dT:-]*)[^\]]*\]")
_NONE = frozenset({"", "(null)", "N/A", "NONE", "None", "UNLIMITED", "Unknown"})
_FULL_STATES = frozenset({"ALLOCATED"})
_DOWN_STATES = frozenset({"DOWN", "ERROR", "FUTURE"})
# behind a plus, as in IDLE+NOT_RESPONDING; sinfo(1), NODE STATE CODES
_DOWN_FLAGS = frozenset({"NOT_RESPONDING", "INVALID_REG", "FAIL", "BLOCKED"})
_DRAIN_FLAGS = frozenset({"DRAIN", "DRAINED", "DRAINING", "POWERING_DOWN"})
_RESERVED_FLAGS = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})
_RUNNING = frozenset({"R", "S", "CF", "ST", "SI", "SO"})
_WAITING = frozenset({"PD", "RQ", "RH", "RD", "RS", "SE"})


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """Read ``scontrol -o``: one object per line, as keys and values."""
    return map(_key_value_pairs, text.splitlines())


def parse_nodes(text: str) -> tuple[ClusterNode, ...]:
    """Read ``scontrol -d -o show node``, one line per node."""
    return tuple(
        _slurm_cluster_node(row) for row in rows_of(text) if row.get("NodeName")
    )


def parse_partitions(
    text: str, config: Mapping[str, str] | None = None
) -> tuple[QueueLimits, ...]:
    """Read ``scontrol -o show partition``, one line per partition.

    The cluster's defaults in *config* stand in for those that a partition lacks.
    """
    return tuple(
        _partition_limits(row, config or {})
        for row in rows_of(text)
        if row.get("PartitionName")
    )


def parse_squeue_jobs(text: str) -> tuple[ClusterJob, ...]:
    """Read the running and waiting jobs; rows in an unknown format are skipped."""
    rows = (line.split("|") for line in text.splitlines())
    found = (
        _slurm_cluster_job(tuple(map(str.strip, row)))
        for row in rows
        if len(row) == _FIELDS
    )
    return tuple(job for job in found if job is not None)


def _slurm_cluster_job(row: tuple[str, ...]) -> ClusterJob | None:
    id_, queue, state, _ = row
    if state not in _RUNNING | _WAITING:
        return None  # a completing job holds no resources any more
    expression = id_.partition("_")[2]
    # waiting elements of an array share a line
    elements = count_elements(expression) if expression else 1
    return ClusterJob(
        queue=queue,
        state="RUNNING" if state in _RUNNING else "PENDING",
        elements=elements,
    )


def _local_time_text(text: str) -> str:
    """Write a time as local ISO 8601; the client makes Slurm print epoch seconds."""
    seconds = whole_number(text)
    if seconds is None or seconds > _LAST_SECOND:
        return text
    return datetime.fromtimestamp(seconds).astimezone().isoformat()[:19]


def _key_value_pairs(line: str) -> dict[str, str]:
    """Split ``Key=value Key=value`` whose values may hold blanks; the first key counts.

    The reason is free text and is not searched for keys; little follows it.
    """
    line, found, reason = line.partition(" Reason=")
    pairs = pairs_of(line)
    return pairs | {"Reason": reason.strip()} if found else pairs


def pairs_of(line: str) -> dict[str, str]:
    """Split ``Key=value Key=value``; the first of two equal keys counts."""
    marks = list(_KEY.finditer(line))
    ends = [*(mark.start() for mark in marks), len(line)][1:]
    return {
        mark[1]: line[mark.end() : end].strip()
        # reversed: of two equal keys the first one is written last
        for mark, end in reversed(list(zip(marks, ends, strict=True)))
    }


def _slurm_cluster_node(row: Mapping[str, str]) -> ClusterNode:
    memory = mebibytes_in(row.get("RealMemory"))
    # the system keeps that: jobs cannot have it
    kept = mebibytes_in(row.get("MemSpecLimit")) or 0
    return ClusterNode(
        name=row["NodeName"],
        state=_slurm_node_state(row.get("State", "")),
        reason=_plain_node_reason(row.get("Reason", "")),
        queues=tuple(name for name in row.get("Partitions", "").split(",") if name),
        # CPUEfctv is without the cores that the site keeps for the system
        cpus=whole_number(row.get("CPUEfctv") or row.get("CPUTot")),
        cpus_used=whole_number(row.get("CPUAlloc")),
        memory=None if memory is None else memory - kept,
        memory_used=mebibytes_in(row.get("AllocMem")),
        gpus=tuple(_node_gpus(row)),
    )


def _plain_node_reason(text: str) -> str | None:
    """Rewrite ``bad disk [root@2026-11-21T07:49:27]``; drop what follows it."""
    found = _WHO.match(text)
    if found is not None:
        date = _local_time_text(found[3]).partition("T")[0]
        text = f"{found[1]} ({', '.join(filter(None, (found[2], date)))})"
    return None if text in _NONE else text


def _slurm_node_state(text: str) -> NodeState:
    """Map Slurm's states (``MIXED+DRAIN``, ``DOWN*``, ``IDLE+CLOUD``) to ours."""
    base, *flags = (re.sub(r"[^A-Z_]", "", part) for part in text.upper().split("+"))
    words = {base, *flags}
    # an asterisk: the node does not answer
    if words & (_DOWN_STATES | _DOWN_FLAGS) or "*" in text:
        return "DOWN"
    if words & _DRAIN_FLAGS:
        return "DRAINING"
    if words & _RESERVED_FLAGS:
        return "RESERVED"
    if base in _FULL_STATES:
        return "FULL"
    states: dict[str, NodeState] = {
        "IDLE": "IDLE",
        "PLANNED": "IDLE",
        "MIXED": "MIXED",
        "COMPLETING": "MIXED",
    }
    return states.get(base, "UNKNOWN")


def _node_gpus(row: Mapping[str, str]) -> Iterator[NodeGpus]:
    totals = _counts_by_name(_GPU, row.get("Gres", ""))
    totals = totals or tres_gpus(row.get("CfgTRES", ""))
    # printed with -d; else AllocTRES has what is in use
    if "GresUsed" in row:
        used = _counts_by_name(_GPU, row["GresUsed"])
    else:
        used = tres_gpus(row.get("AllocTRES", ""))
    # GPUs in use without a type: they are some of those of the types, filled in their
    # order
    unnamed = sum(count for name, count in used.items() if name not in totals)
    for name, total in totals.items():
        here = min(total, used.get(name, 0) + unnamed)
        unnamed -= max(0, here - used.get(name, 0))
        if total:
            yield NodeGpus(name, total, here)


def tres_gpus(tres: str) -> dict[str, int]:
    """Count GPUs in ``gres/gpu=2,gres/gpu:v100=2``: typed entries repeat the sum."""
    counts = _counts_by_name(_TRES_GPU, tres)
    typed = {name: count for name, count in counts.items() if name != UNTYPED}
    # the sum has no type: what is left of it are GPUs without one
    rest = counts.get(UNTYPED, 0) - sum(typed.values())
    return typed | {UNTYPED: rest} if rest > 0 else typed


def _counts_by_name(pattern: re.Pattern[str], text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, number in pattern.findall(text):
        counts[name or UNTYPED] = counts.get(name or UNTYPED, 0) + int(number)
    return counts


def _partition_limits(row: Mapping[str, str], config: Mapping[str, str]) -> QueueLimits:
    node = mebibytes_in(row.get("DefMemPerNode"))
    cpu = mebibytes_in(row.get("DefMemPerCPU"))
    # either of a partition's two defaults replaces both of the cluster's
    if node is None and cpu is None:
        node = mebibytes_in(config.get("DefMemPerNode")) or None
        cpu = mebibytes_in(config.get("DefMemPerCPU")) or None
    most = mebibytes_in(row.get("MaxMemPerNode"))
    # a partition without MaxNodes has the nodes that it has
    counts = map(whole_number, (row.get("MaxNodes"), row.get("TotalNodes")))
    return QueueLimits(
        name=row["PartitionName"],
        default=row.get("Default") == "YES",
        open=row.get("State", "UP") == "UP",
        time_limit=_partition_limit_seconds(row.get("MaxTime")),
        default_time=_partition_limit_seconds(row.get("DefaultTime")),
        memory=most or mebibytes_in(config.get("MaxMemPerNode")) or None,
        default_memory=node,
        default_memory_per_cpu=cpu,
        cpus=whole_number(row.get("MaxCPUsPerNode")),
        nodes=min((n for n in counts if n is not None), default=None),
    )


def _partition_limit_seconds(text: str | None) -> int | None:
    known = None if text in _NONE else text
    return parsed_or_none(slurm_text.TEXT.parse_time, known)


# ---- what it allows a user
def slurm_cluster_limits(texts: Mapping[Argv, str]) -> ClusterLimits:
    """Return the limits of all users, from what each command printed that answered."""
    config = text_pairs(texts.get(CONFIG, ""), "=")
    return ClusterLimits(
        queues=parse_partitions(texts.get(PARTITIONS, ""), config),
        nodes=parse_nodes(texts.get(NODES, "")),
        enforced=config.get("EnforcePartLimits", "NO").upper() != "NO"
        if CONFIG in texts
        else None,
    )


class SlurmSite(SchedulerSite):
    """Slurm: its nodes, queues and limits."""

    LIMITS: Mapping[Argv, bool] = {NODES: False, PARTITIONS: True, CONFIG: True}

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""
        nodes, partitions, jobs, config = query((NODES, PARTITIONS, JOBS, CONFIG))
        # without these there is nothing to show; jobs and configuration may be missing
        for reply in (nodes, partitions):
            reply.require("Slurm")
        settings = text_pairs(config.out, "=")
        return ClusterAnswers(
            name=settings.get("ClusterName") or None,
            version=settings.get("SLURM_VERSION") or None,
            nodes=parse_nodes(nodes.out),
            queues=parse_partitions(partitions.out),
            jobs=parse_squeue_jobs(jobs.out),
            notes=unanswered({"squeue": jobs}),
        )

    def limits_of(
        self, texts: Mapping[Argv, str], query: SchedulerQuery
    ) -> ClusterLimits:
        """Return the limits, from what each command printed that answered."""
        return slurm_cluster_limits(texts)


SITE = SlurmSite()
