"""``weigh cluster``: what a cluster has, what is free, and whose the rest is."""

import os
import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from weigh.errors import FormatError, WeighError
from weigh.flow.site.ask import Ask, Reply, ask_all, ask_scheduler
from weigh.flow.site.schedulers import scheduler_at_hand
from weigh.model.cluster import Cluster, ClusterJob, Node, Start
from weigh.model.complexes import Complexes
from weigh.model.job import JobRequest
from weigh.model.limits import QueueLimits
from weigh.schedulers.cluster_view import (
    closed_nodes,
    count_gpus,
    count_queues,
    count_users,
    merge_elements,
)
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.gridengine import limits as gridengine_limits
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.slurm import text as slurm_text

TABLE = "gridengine"
_WORD = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_CPUS = re.compile(r"(?:n|num)_?cpus?|cpus|(?:n|num)_?cores")
_MOST = 50  # parallel environments that are looked into


def in_site_words(
    wanted: JobRequest, kind: str, site: Mapping[str, object]
) -> JobRequest:
    """Have a job ask in the words of the site file's ``[cluster]``.

    Raises:
        FormatError: they are none; names the key.
    """
    if kind != gridengine_commands.NAME or TABLE not in site:
        return wanted
    return msgspec.structs.replace(wanted, complexes=read_complexes(site[TABLE]))


def read_complexes(table: object) -> Complexes:
    """Read the table; what it does not name has its usual name.

    Raises:
        FormatError: a key or a value is none; names it.
    """
    try:
        words = msgspec.convert(table, Complexes)
    except msgspec.ValidationError as error:
        known = ", ".join(Complexes.__struct_fields__)
        raise FormatError(f"cluster.{TABLE}: {error} (it has {known})") from error
    for name in Complexes.__struct_fields__:
        word = getattr(words, name)
        if not _WORD.fullmatch(word):
            raise FormatError(f"cluster.{TABLE}.{name}: no word of a cell: {word!r}")
    return words


def find_complexes(env: Mapping[str, str], ask: Ask) -> dict[str, str]:
    """Ask the cell for its words; those that it has none for are left out."""
    commands = (gridengine_cluster.COMPLEXES, gridengine_limits.PARALLEL)
    complexes, listed = ask_all(commands, env=env, ask=ask)
    consumed = gridengine_limits.consumables(complexes.stdout)
    known = gridengine_limits.requestable(complexes.stdout) or ()
    found = {
        "gpus": _first([name for name in consumed if gridengine_cluster.is_gpu(name)]),
        "gpu_type": _first(
            [one for one in known if gridengine_cluster.is_gpu_type(one)]
        ),
        "cpus": _first([name for name in known if _CPUS.fullmatch(name.lower())]),
        "parallel": _first(_on_one_node(listed.stdout.split(), env, ask)),
    }
    return {key: word for key, word in found.items() if word is not None}


def _on_one_node(names: Sequence[str], env: Mapping[str, str], ask: Ask) -> list[str]:
    """Name the parallel environments whose slots are all on one node."""
    asked = [name for name in names if _WORD.fullmatch(name)][:_MOST]
    argvs = [gridengine_limits.parallel_argv(name) for name in asked]
    replies = ask_all(argvs, env=env, ask=ask)
    return [
        name
        for name, reply in zip(asked, replies, strict=True)
        if gridengine_limits.is_on_one_node(reply.stdout)
    ]


def _first(names: Sequence[str]) -> str | None:
    """Choose: the usual word where it is among them."""
    usual = {getattr(Complexes(), name) for name in Complexes.__struct_fields__}
    return next((name for name in names if name in usual), next(iter(names), None))


_MOST_HOSTS = 400  # asked one by one for their totals: 20 ms each


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The job whose start is asked for; *queues* none is every open one."""

    queues: tuple[str, ...] = ()
    cpus: int = 1
    gpu: str | None = None
    time_limit: int | None = None


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler told, before anything is counted."""

    name: str | None
    version: str | None
    nodes: tuple[Node, ...]
    queues: tuple[QueueLimits, ...]
    jobs: tuple[ClusterJob, ...]
    gpus_per_user: dict[str, int]
    notes: tuple[str, ...]


def cluster(
    env: Mapping[str, str],
    *,
    scheduler: str | None = None,
    shape: Shape | None = None,
    ask: Ask = ask_scheduler,
) -> Cluster:
    """Ask the scheduler at hand, or *scheduler*, for all of it, each thing once.

    With *shape*, also when such a job would start.

    Raises:
        WeighError: there is no scheduler here, or it does not answer.
    """
    kind = scheduler or scheduler_at_hand(env)
    env = asking_environment(env)
    told = _slurm(env, ask) if kind == slurm_text.NAME else _gridengine(env, ask)
    nodes = closed_nodes(told.nodes, told.queues)
    user = _user()
    counted = Cluster(
        scheduler="slurm" if kind == slurm_text.NAME else "gridengine",
        name=told.name,
        version=told.version,
        user=user,
        time=time.strftime("%Y-%m-%dT%H:%M:%S"),
        nodes=nodes,
        gpus=count_gpus(nodes),
        queues=count_queues(
            told.queues, nodes, told.jobs, gpus_per_user=told.gpus_per_user
        ),
        users=count_users(told.jobs),
        jobs=merge_elements(job for job in told.jobs if job.user == user),
        notes=told.notes,
    )
    counted = _with_hidden(counted)
    if shape is None:
        return counted
    return msgspec.structs.replace(
        counted, starts=tuple(_starts(counted, shape, env, ask))
    )


def asking_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Take away what would change the form of the answers."""
    kept = {
        name: value
        for name, value in env.items()
        if not name.startswith(slurm_cluster.UNSET)
    }
    return kept | slurm_cluster.SET


def _slurm(env: Mapping[str, str], ask: Ask) -> _Told:
    commands = (
        slurm_cluster.NODES,
        slurm_cluster.PARTITIONS,
        slurm_cluster.JOBS,
        slurm_cluster.CONFIG,
        slurm_cluster.QOS,
    )
    nodes, partitions, jobs, config, qos = ask_all(commands, env=env, ask=ask)
    for reply in (nodes, partitions):
        _check(reply, "Slurm")
    name, version = slurm_cluster.parse_identity(config.stdout)
    return _Told(
        name=name,
        version=version,
        nodes=slurm_cluster.parse_nodes(nodes.stdout),
        queues=slurm_cluster.parse_partitions(partitions.stdout),
        jobs=slurm_cluster.parse_jobs(jobs.stdout),
        gpus_per_user=_of_partitions(partitions, qos),
        notes=_unanswered({"squeue": jobs}),
    )


def _of_partitions(partitions: Reply, qos: Reply) -> dict[str, int]:
    limits = slurm_cluster.parse_gpus_per_user(qos.stdout) if qos.is_answer else {}
    named = slurm_cluster.partition_qos(partitions.stdout)
    return {queue: limits[name] for queue, name in named.items() if name in limits}


def _gridengine(env: Mapping[str, str], ask: Ask) -> _Told:
    commands = (
        gridengine_cluster.HOSTS,
        gridengine_cluster.QUEUES,
        gridengine_cluster.JOBS,
        gridengine_cluster.COMPLEXES,
        gridengine_cluster.QUOTAS,
        gridengine_cluster.VERSION,
    )
    replies = ask_all(commands, env=env, ask=ask)
    hosts, queues, jobs, complexes, quotas, version = replies
    for reply in (hosts, queues):
        _check(reply, "Grid Engine")
    found = gridengine_cluster.parse_hosts(hosts.stdout)
    limits = gridengine_cluster.parse_queues(queues.stdout)
    listed, trouble = _jobs(jobs, complexes)
    names = [one.name for one in limits]
    return _Told(
        name=env.get("SGE_CLUSTER_NAME") or env.get("SGE_CELL") or None,
        version=gridengine_cluster.parse_version(version.stdout),
        nodes=_nodes(found, env, ask),
        queues=gridengine_cluster.with_states(limits, found),
        jobs=listed,
        gpus_per_user=gridengine_cluster.parse_gpus_per_user(quotas.stdout, names),
        notes=trouble,
    )


def _jobs(
    jobs: Reply, complexes: Reply
) -> tuple[tuple[ClusterJob, ...], tuple[str, ...]]:
    if not jobs.is_answer:
        return (), _unanswered({"qstat": jobs})
    once = gridengine_cluster.per_job(complexes.stdout)
    try:
        return gridengine_cluster.parse_jobs(jobs.stdout, once=once), ()
    except FormatError as error:
        return (), (str(error),)


def _nodes(
    hosts: Sequence[gridengine_cluster.Host], env: Mapping[str, str], ask: Ask
) -> tuple[Node, ...]:
    totals = gpu_totals(hosts, env, ask)
    return tuple(
        gridengine_cluster.node(host, totals.get(host.name, {})) for host in hosts
    )


def gpu_totals(
    hosts: Sequence[gridengine_cluster.Host], env: Mapping[str, str], ask: Ask
) -> dict[str, dict[str, str]]:
    """Ask each host with GPUs what the site gave it: ``qhost`` tells what is left."""
    with_gpus = [host for host in hosts if gridengine_cluster.gpu_consumables(host)]
    asked = with_gpus[:_MOST_HOSTS]
    argvs = [gridengine_cluster.host_argv(host.name) for host in asked]
    replies = ask_all(argvs, env=env, ask=ask)
    return {
        host.name: gridengine_cluster.parse_host_totals(reply.stdout)
        for host, reply in zip(asked, replies, strict=True)
    }


def _starts(
    seen: Cluster, shape: Shape, env: Mapping[str, str], ask: Ask
) -> list[Start]:
    """Ask of each queue when the job would start there."""
    names = shape.queues or tuple(
        queue.limits.name for queue in seen.queues if queue.limits.open
    )
    is_slurm = seen.scheduler == slurm_text.NAME
    argv = slurm_cluster.start_argv if is_slurm else gridengine_cluster.start_argv
    argvs = [
        argv(name, cpus=shape.cpus, gpu=shape.gpu, time=shape.time_limit)
        for name in names
    ]
    replies = ask_all(argvs, env=env, ask=ask)
    read = slurm_cluster.parse_start if is_slurm else gridengine_cluster.parse_start
    return [
        _start(name, reply, *read(reply.stderr + reply.stdout))
        for name, reply in zip(names, replies, strict=True)
    ]


def _start(queue: str, reply: Reply, start: str | None, trouble: str | None) -> Start:
    if start is None and trouble is None:
        trouble = reply.complaint()
    return Start(queue=queue, start=start, trouble=trouble)


def _with_hidden(seen: Cluster) -> Cluster:
    """Say so where the site hides other people's jobs."""
    in_use = sum(count.used for count in seen.gpus)
    known = sum(user.gpus for user in seen.users)
    others = any(user.user != seen.user for user in seen.users)
    if in_use <= known or others or seen.notes:
        return seen
    note = "other users' jobs are hidden here: only nodes tell what they use"
    return msgspec.structs.replace(seen, notes=(*seen.notes, note))


def _check(reply: Reply, name: str) -> None:
    if reply.is_answer:
        return
    if reply.code is None:
        raise WeighError(
            f"{name}: {reply.complaint()} (weigh gpus shows this machine's own)"
        )
    raise WeighError(f"{name} does not answer: {reply.complaint()}")


def _unanswered(replies: Mapping[str, Reply]) -> tuple[str, ...]:
    return tuple(
        f"{name} does not answer: {reply.complaint()}"
        for name, reply in replies.items()
        if not reply.is_answer
    )


def _user() -> str:
    try:
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
