"""The cluster's current limits, from the scheduler or else from the site file."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from weigh.errors import FormatError
from weigh.flow.site.ask import Ask, Reply, ask_all
from weigh.flow.site.cluster import asking_environment, gpu_totals
from weigh.model.cluster import Node
from weigh.model.job import States
from weigh.model.limits import Limits, NodeType, QueueLimits
from weigh.schedulers.cluster_view import closed_nodes
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.gridengine import limits as gridengine_limits
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.slurm import commands as slurm_commands
from weigh.schedulers.slurm import limits as slurm_limits
from weigh.units import Seconds, parse_limit, parse_size

_QUEUES = "queues"
_FILLED = (
    *("time_limit", "default_time", "memory", "default_memory"),
    *("default_memory_per_cpu", "cpus", "nodes", "accounts"),
)
T = TypeVar("T")


def with_site(known: Limits | None, site: Mapping[str, object]) -> Limits | None:
    """Fill in from *site* what is not *known*; None if no queue is known.

    Raises:
        FormatError: a value does not parse; the message names it.
    """
    listed = site_limits(site)
    if not listed.queues:
        return known
    if known is None:
        return listed
    by_name = {queue.name: queue for queue in listed.queues}
    return msgspec.structs.replace(
        known,
        queues=tuple(_filled(queue, by_name.get(queue.name)) for queue in known.queues)
        or listed.queues,
        nodes=known.nodes or listed.nodes,
    )


def site_limits(site: Mapping[str, object]) -> Limits:
    """Read the queues of the table, and ``nodes`` with the GPUs that it lists.

    Raises:
        FormatError: a value does not parse; the message names it.
    """
    tables = _table("cluster.queues", site.get(_QUEUES, {}))
    queues = {
        name: _table(f"cluster.queues.{name}", value) for name, value in tables.items()
    }
    with_gpus = {name: row["gpus"] for name, row in queues.items() if "gpus" in row}
    return Limits(
        queues=tuple(_queue(name, row) for name, row in queues.items()),
        # the file lists GPUs per queue, not per node: assume one node with all of them
        nodes=tuple(_node(name, with_gpus.get(name)) for name in queues)
        if with_gpus
        else (),
    )


def _filled(queue: QueueLimits, listed: QueueLimits | None) -> QueueLimits:
    if listed is None:
        return queue
    missing = {
        field: getattr(listed, field)
        for field in _FILLED
        if getattr(queue, field) is None
    }
    return msgspec.structs.replace(queue, **missing)


def _queue(name: str, row: Mapping[str, object]) -> QueueLimits:
    def read(key: str, how: Callable[[object], T]) -> T | None:
        value = row.get(key)
        try:
            return None if value is None else how(value)
        except (FormatError, TypeError, ValueError) as error:
            raise FormatError(
                f"cluster.queues.{name}.{key}: invalid value: {value!r}"
            ) from error

    accounts = row.get("accounts")
    return QueueLimits(
        name=name,
        default=row.get("default") is True,
        open=row.get("open") is not False,
        time_limit=read("time_limit", _time),
        default_time=read("default_time", _time),
        memory=read("memory", _size),
        default_memory=read("default_memory", _size),
        default_memory_per_cpu=read("default_memory_per_cpu", _size),
        cpus=read("cpus", _count),
        nodes=read("nodes", _count),
        accounts=tuple(map(str, accounts)) if isinstance(accounts, list) else None,
    )


def _node(name: str, gpus: object) -> NodeType:
    counts = {} if gpus is None else _table(f"cluster.queues.{name}.gpus", gpus)
    return NodeType(
        gpus={kind: _count(number) for kind, number in counts.items()}, queues=(name,)
    )


def _table(where: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise FormatError(f"{where} must be a table, not {value!r}")
    return value


def _time(value: object) -> int:
    return parse_limit(_text(value))


def _size(value: object) -> int:
    return parse_size(_text(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"not a number: {value!r}")
    return value


PATIENCE: Seconds = 6.0


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the scheduler; ``jobs`` are the states of the given jobs by id.

    ``trouble`` is why the scheduler does not answer; ``limits`` is None if none are
    knows any.
    """

    limits: Limits | None = None
    nodes: tuple[Node, ...] = ()
    jobs: dict[str, str | None] = {}
    trouble: str | None = None


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """The user who submits, the account and QOS, and the jobs to wait for."""

    user: str
    account: str | None = None
    qos: str | None = None
    after: tuple[str, ...] = ()


def live_limits(
    scheduler: str,
    who: Who,
    *,
    env: Mapping[str, str],
    site: Mapping[str, object],
    ask: Ask,
) -> Live:
    """Query everything that has to be known before a submission, in parallel.

    *site* is the site file's ``[cluster]``; it fills in what the scheduler omits.

    Raises:
        FormatError: a value of the site file does not parse.
    """
    env = asking_environment(env)
    live = (
        _slurm(who, env, ask)
        if scheduler == slurm_commands.NAME
        else _gridengine(who, env, ask)
        if scheduler == gridengine_commands.NAME
        else Live()
    )
    return msgspec.structs.replace(live, limits=with_site(live.limits, site))


def _slurm(who: Who, env: Mapping[str, str], ask: Ask) -> Live:
    commands = (
        slurm_cluster.NODES,
        slurm_cluster.PARTITIONS,
        slurm_cluster.CONFIG,
        slurm_limits.associations_argv(who.user),
        slurm_limits.QOS,
        *(slurm_limits.jobs_argvs(who.after) if who.after else ()),
    )
    replies = ask_all(commands, env=env, ask=ask, patience=PATIENCE)
    nodes, partitions, config, associations, qos, *jobs = replies
    if not (partitions.is_answer and config.is_answer):
        trouble = partitions if not partitions.is_answer else config
        return Live(trouble=trouble.complaint())
    texts = slurm_limits.Texts(
        nodes=_said(nodes),
        partitions=_said(partitions),
        config=_said(config),
        associations=_said(associations),
        qos=_said(qos),
    )
    limits = slurm_limits.limits(texts, account=who.account, qos=who.qos)
    return Live(
        limits=_with_submitted(limits, who, env, ask),
        nodes=closed_nodes(slurm_cluster.parse_nodes(texts.nodes or ""), limits.queues),
        jobs=_slurm_jobs(who.after, jobs),
    )


def _with_submitted(
    limits: Limits, who: Who, env: Mapping[str, str], ask: Ask
) -> Limits:
    """Subtract the user's current jobs from the limit on submitted jobs."""
    if limits.most_submitted is None:
        return limits
    listed = ask(slurm_limits.submitted_argv(who.user), env=env, patience=PATIENCE)
    there = len(listed.stdout.split()) if listed.is_answer else 0
    left = max(0, limits.most_submitted - there)
    return msgspec.structs.replace(limits, most_submitted=left)


def _slurm_jobs(
    after: tuple[str, ...], replies: Sequence[Reply]
) -> dict[str, str | None]:
    if not replies:
        return {}
    queue, accounting = replies
    listed = _said(queue)
    if listed is None and slurm_limits.is_unknown_job(queue.complaint()):
        listed = ""
    return slurm_limits.parse_jobs(after, listed, _said(accounting))


def _gridengine(who: Who, env: Mapping[str, str], ask: Ask) -> Live:
    commands = (
        gridengine_cluster.HOSTS,
        gridengine_cluster.QUEUES,
        gridengine_cluster.COMPLEXES,
        gridengine_limits.PARALLEL,
        gridengine_limits.PROJECTS,
        gridengine_limits.CONFIG,
        *(gridengine_limits.jobs_argvs(who.after) if who.after else ()),
    )
    replies = ask_all(commands, env=env, ask=ask, patience=PATIENCE)
    hosts, queues, complexes, parallel, projects, config, *jobs = replies
    if not queues.is_answer:
        return Live(trouble=queues.complaint())
    found = gridengine_cluster.parse_hosts(hosts.stdout)
    totals = gpu_totals(found, env, ask)
    texts = gridengine_limits.Texts(
        hosts=_said(hosts),
        queues=_said(queues),
        complexes=_said(complexes),
        parallel=_said(parallel),
        projects=gridengine_limits.parse_projects(
            projects.stdout, projects.stderr, ended_well=projects.is_answer
        ),
        config=_said(config),
        totals=totals,
    )
    nodes = (gridengine_cluster.node(host, totals.get(host.name, {})) for host in found)
    limits = gridengine_limits.limits(texts)
    return Live(
        limits=limits,
        nodes=closed_nodes(nodes, limits.queues),
        jobs=_gridengine_jobs(who.after, jobs),
    )


def _gridengine_jobs(
    after: tuple[str, ...], replies: Sequence[Reply]
) -> dict[str, str | None]:
    if not replies or not replies[0].is_answer:
        return {}
    there = gridengine_limits.parse_listed(replies[0].stdout)
    found: dict[str, str | None] = {}
    for job, reply in zip(after, replies[1:], strict=True):
        if job in there:
            found[job] = "RUNNING"
        elif reply.is_answer:
            found[job] = _worst_end(gridengine_commands.parse_ended(reply.stdout), job)
        elif reply.code is not None:
            found[job] = None
    return found


def _worst_end(ended: States, job: str) -> str | None:
    states = {element.state for element in ended.get(job, {}).values()}
    bad = states - {"COMPLETED"}
    return min(bad) if bad else ("COMPLETED" if states else None)


def _said(reply: Reply) -> str | None:
    return reply.stdout if reply.is_answer else None
