"""Slurm's limits for a user, read from the output of its commands."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.model.cluster import ClusterNode
from weigh.model.limits import ClusterLimits, NodeType, QueueLimits
from weigh.schedulers.backend import SchedulerSite
from weigh.schedulers.cluster_view import closed_nodes
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.protocol import (
    ClusterAnswers,
    LiveAnswers,
    SchedulerQuery,
    SubmittingUser,
)
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.words import mebibytes_in, whole_number
from weigh.units import Bytes

_ASSOCIATION = "format=Account,Partition,QOS,MaxSubmit"
_COLUMNS = 4
QOS = ("sacctmgr", "-nP", "show", "qos", "format=Name,MaxSubmitPU")
_UNKNOWN_JOB = "Invalid job id"


class SlurmLimitTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The output of each command; None if it did not answer."""

    nodes: str | None = None
    partitions: str | None = None
    config: str | None = None
    associations: str | None = None
    qos: str | None = None


def associations_argv(user_name: str) -> tuple[str, ...]:
    """Return the command that lists a user's accounts and QOS with their limits."""
    return ("sacctmgr", "-nP", "show", "assoc", f"user={user_name}", _ASSOCIATION)


def submitted_argv(user_name: str) -> tuple[str, ...]:
    """Return the command that lists each waiting or running element of a user."""
    return ("squeue", "-h", "-r", "-u", user_name, "-o", "%A")


def slurm_cluster_limits(
    texts: SlurmLimitTexts, *, account: str | None = None, qos: str | None = None
) -> ClusterLimits:
    """Return the limits; *account* and *qos* are those that the job will request."""
    config = _config(texts.config or "")
    # sacctmgr lists limits that this site does not enforce: they do not count
    enforced = config.get("AccountingStorageEnforce", "none").lower().split(",")
    nodes = texts.nodes or ""
    mine = tuple(_associations(texts.associations or ""))
    knows_mine = texts.associations is not None
    most = [
        *_most_of_account(mine, account),
        *_most_of_qos(texts.qos or "", mine, qos),
    ]
    has_limits = "limits" in enforced or "safe" in enforced
    size = whole_number(config.get("MaxArraySize"))
    return ClusterLimits(
        queues=tuple(_partition_queue_limits(texts.partitions or "", config)),
        nodes=_node_types(nodes),
        # 26.05 lists them in a different order than older versions
        accounts=tuple(sorted({one[0] for one in mine}))
        if knows_mine and "associations" in enforced
        else None,
        qos=tuple(dict.fromkeys(name for one in mine for name in one[2]))
        if knows_mine and "qos" in enforced
        else None,
        enforced=config.get("EnforcePartLimits", "NO").upper() != "NO"
        if texts.config is not None
        else None,
        largest_index=size - 1 if size else None,
        most_submitted=min(most, default=None) if has_limits else None,
        resources=_generic(config.get("GresTypes")),
        node_names=tuple(one.name for one in slurm_cluster.parse_nodes(nodes)) or None,
        queues_of_node={
            one.name: one.queues for one in slurm_cluster.parse_nodes(nodes)
        },
    )


def slurm_jobs_argvs(job_ids: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that show the states of jobs: the queue, accounting."""
    ids = ",".join(job_ids)
    return (
        ("squeue", "-h", "-t", "all", "-j", ids, "-o", "%F|%T"),
        ("sacct", "-X", "-n", "-P", "-j", ids, "-o", "JobID,State"),
    )


def parse_states_of_jobs(
    job_ids: tuple[str, ...], queue: str | None, accounting: str | None
) -> dict[str, str | None]:
    """Return the state of each job, None for one that Slurm does not know.

    *queue* and *accounting* are their outputs, None if one did not answer. A job in
    neither does not exist. For an array the worst outcome counts.
    """
    known: dict[str, set[str]] = {}
    for text in (accounting or "", queue or ""):
        here: dict[str, set[str]] = {}
        for line in text.splitlines():
            name, _, state = line.partition("|")
            words = here.setdefault(name.partition("_")[0], set())
            words.add(state.partition(" ")[0].rstrip("+"))
        known |= here  # the queue is more current than accounting
    found: dict[str, str | None] = {}
    for job in job_ids:
        if job in known:
            found[job] = _worst(known[job])
        # only two answers without the job show that there is none
        elif queue is not None and accounting is not None:
            found[job] = None
    return found


def is_unknown_job(complaint: str) -> bool:
    """Return whether squeue failed because it knows none of the jobs."""
    return _UNKNOWN_JOB in complaint


def _worst(states: set[str]) -> str:
    # a job that was reduced while it ran is listed twice, first as this
    if "RESIZING" in states:
        states = (states - {"RESIZING"}) or {"RUNNING"}
    going = states & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"}
    bad = states - going - {"COMPLETED"}
    if bad:
        return min(bad)
    return "RUNNING" if going else "COMPLETED"


def _config(text: str) -> dict[str, str]:
    rows = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def _generic(text: str | None) -> tuple[str, ...] | None:
    """Read GresTypes: ``gpu,license`` or ``(null)``."""
    if text is None:
        return None
    return tuple(filter(None, text.removeprefix("(null)").split(",")))


def _associations(text: str) -> Iterator[tuple[str, str, tuple[str, ...], int | None]]:
    """Yield (account, partition, QOS, maximum of jobs) of each association."""
    for line in text.splitlines():
        row = line.split("|")
        if len(row) >= _COLUMNS and row[0]:
            qos = tuple(filter(None, row[2].split(",")))
            yield row[0], row[1], qos, whole_number(row[3])


def _most_of_account(
    mine: tuple[tuple[str, str, tuple[str, ...], int | None], ...], account: str | None
) -> list[int]:
    """Return the job limit of the account; None if an association has no limit."""
    ours = [one[3] for one in mine if account in {None, one[0]}]
    known = [most for most in ours if most is not None]
    # the job may use any of the associations: the highest limit decides, none if one
    # has none
    return [max(known)] if known and len(known) == len(ours) else []


def _most_of_qos(
    text: str,
    mine: tuple[tuple[str, str, tuple[str, ...], int | None], ...],
    qos: str | None,
) -> list[int]:
    """Return the job limit of the QOS, if it is clear which QOS applies."""
    names = {name for one in mine for name in one[2]}
    wanted = qos or (next(iter(names)) if len(names) == 1 else None)
    rows = dict(line.split("|", 1) for line in text.splitlines() if "|" in line)
    most = whole_number(rows.get(wanted or "", "").partition("|")[0])
    return [] if most is None else [most]


def _partition_queue_limits(
    partitions: str, config: Mapping[str, str]
) -> Iterator[QueueLimits]:
    """Yield the partitions; the cluster's defaults fill in missing values."""
    node = mebibytes_in(config.get("DefMemPerNode")) or None
    cpu = mebibytes_in(config.get("DefMemPerCPU")) or None
    most = mebibytes_in(config.get("MaxMemPerNode")) or None
    # a partition without MaxNodes has the nodes that it has
    totals = {
        row["PartitionName"]: whole_number(row.get("TotalNodes"))
        for row in slurm_cluster.rows_of(partitions)
        if row.get("PartitionName")
    }
    for one in slurm_cluster.parse_partitions(partitions):
        # either of a partition's two defaults replaces both of the cluster's
        silent = one.default_memory is None and one.default_memory_per_cpu is None
        counts = [n for n in (one.nodes, totals.get(one.name)) if n is not None]
        yield msgspec.structs.replace(
            one,
            memory=one.memory or most,
            default_memory=node if silent else one.default_memory,
            default_memory_per_cpu=cpu if silent else one.default_memory_per_cpu,
            nodes=min(counts, default=None),
        )


def _node_types(text: str) -> tuple[NodeType, ...]:
    """Group nodes with equal hardware, and count each group."""
    rows = {row.get("NodeName", ""): row for row in slurm_cluster.rows_of(text)}
    counted = Counter(
        _node_type_key(node, rows[node.name])
        for node in slurm_cluster.parse_nodes(text)
    )
    return tuple(
        NodeType(
            count=count,
            cpus=cpus,
            memory=memory,
            gpus=dict(gpus),
            features=features,
            queues=queues,
        )
        for (cpus, memory, gpus, features, queues), count in counted.items()
    )


_Gpus = tuple[tuple[str, int], ...]
_Names = tuple[str, ...]


def _node_type_key(
    cluster_node: ClusterNode, row: Mapping[str, str]
) -> tuple[int | None, Bytes | None, _Gpus, _Names, _Names]:
    features = row.get("AvailableFeatures", "")
    # the system keeps that: jobs cannot have it
    kept = mebibytes_in(row.get("MemSpecLimit")) or 0
    memory = None if cluster_node.memory is None else cluster_node.memory - kept
    return (
        cluster_node.cpus,
        memory,
        tuple((one.name, one.total) for one in cluster_node.gpus),
        () if features in {"", "(null)"} else tuple(features.split(",")),
        cluster_node.queues,
    )


def _with_use(
    limits: ClusterLimits, who: SubmittingUser, query: SchedulerQuery
) -> ClusterLimits:
    """Subtract the user's jobs from those that may be submitted."""
    if limits.most_submitted is None:
        return limits
    (listed,) = query([submitted_argv(who.user)])
    # each element of an array counts as a job
    there = len(listed.out.split()) if listed.is_answer else 0
    left = max(0, limits.most_submitted - there)
    return msgspec.structs.replace(limits, most_submitted=left)


def _slurm_jobs(
    after: tuple[str, ...], replies: Sequence[CommandOutput]
) -> dict[str, str | None]:
    if not replies:
        return {}
    queue, accounting = replies
    listed = queue.text
    if listed is None and is_unknown_job(queue.complaint()):
        listed = ""
    return parse_states_of_jobs(after, listed, accounting.text)


class SlurmSite(SchedulerSite):
    """Slurm: its nodes, queues and limits."""

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""
        return slurm_cluster.read_slurm_cluster(query)

    def read_limits(self, who: SubmittingUser, query: SchedulerQuery) -> LiveAnswers:
        """Query the limits that apply to a submission of *who*; never raises."""
        commands = (
            slurm_cluster.NODES,
            slurm_cluster.PARTITIONS,
            slurm_cluster.CONFIG,
            associations_argv(who.user),
            QOS,
            *(slurm_jobs_argvs(who.after) if who.after else ()),
        )
        replies = query(commands)
        nodes, partitions, config, associations, qos, *jobs = replies
        # sacctmgr may be missing: a site without accounting still has partitions
        if not (partitions.is_answer and config.is_answer):
            trouble = partitions if not partitions.is_answer else config
            return LiveAnswers(trouble=trouble.complaint())
        texts = SlurmLimitTexts(
            nodes=nodes.text,
            partitions=partitions.text,
            config=config.text,
            associations=associations.text,
            qos=qos.text,
        )
        found = slurm_cluster_limits(texts, account=who.account, qos=who.qos)
        return LiveAnswers(
            limits=_with_use(found, who, query),
            nodes=closed_nodes(
                slurm_cluster.parse_nodes(texts.nodes or ""), found.queues
            ),
            jobs=_slurm_jobs(who.after, jobs),
        )


SITE = SlurmSite()
