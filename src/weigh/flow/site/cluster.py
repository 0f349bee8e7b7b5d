"""``weigh cluster``: what a cluster has, what is free, and who uses the rest."""

import itertools
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from weigh import config
from weigh.config import SettingKind
from weigh.errors import FormatError, SchedulerError, UsageError, WeighError
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner, ask_scheduler, query
from weigh.flow.site.schedulers import current_user
from weigh.model.cluster import (
    ClusterJob,
    ClusterNode,
    ClusterQueue,
    ClusterState,
    GpuCount,
    QueueLimits,
)
from weigh.model.job import JobRequest
from weigh.model.record import SiteComplexes, SiteFlags
from weigh.schedulers import KINDS, installed_scheduler, schedulers_on_path
from weigh.schedulers.command import query_environment
from weigh.schedulers.kind import LiveAnswers
from weigh.schedulers.reachable import queried_limits
from weigh.units import Seconds

_WORD = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


_ASKED_FOR = ("account", "qos", "queue", "time", "memory")  # of a job, by a site
_MEMORY_FORMS = {"per-node": False, "per-cpu": True}
_OPTIONS = {
    "memory": SettingKind(Literal["per-node", "per-cpu"], "'per-node' or 'per-cpu'"),
    "exclusive": SettingKind(bool, "true or false"),
    "constraint": SettingKind(
        Annotated[str, msgspec.Meta(pattern=r"^[^\s\"'\\\\]+$")], "one word"
    ),
    "account": SettingKind(Annotated[str, msgspec.Meta(min_length=1)], "a name"),
    "qos": SettingKind(Annotated[str, msgspec.Meta(min_length=1)], "a name"),
    "container": SettingKind(Literal["apptainer", "pyxis"], "'apptainer' or 'pyxis'"),
    "require": SettingKind(
        list[Literal["account", "qos", "queue", "time", "memory"]],
        f"a list of {', '.join(_ASKED_FOR)}",
    ),
}


def site_flags(kind: str, site_settings: Mapping[str, object]) -> SiteFlags:
    """Read what the ``[cluster]`` of a site wants in each request to *kind*.

    Raises:
        FormatError: a value is invalid; the message names its key.
    """
    found = {
        key: one.read(f"cluster.{key}", site_settings[key])
        for key, one in _OPTIONS.items()
        # an expression of a scheduler has blanks and quotes, which one word may not
        # have
        if key in site_settings and not (key == "constraint" and _is_expression(kind))
    }
    constraint = found.get("constraint", site_settings.get("constraint"))
    traits = KINDS[kind].traits
    if constraint is not None and not (
        traits.constraint and isinstance(constraint, str)
    ):
        raise FormatError(
            f"cluster.constraint: {KINDS[kind].title} has no constraints (remove it)"
        )
    return SiteFlags(
        # per CPU only where the scheduler has an option for it
        per_cpu=_MEMORY_FORMS[found.get("memory", "per-node")]
        and KINDS[kind].text.OPTIONS.memory_per_cpu is not None,
        exclusive=found.get("exclusive", False) and traits.exclusive,
        constraint=constraint,
        account=found.get("account"),
        qos=found.get("qos") if traits.queues else None,
    )


def site_warnings(here: Here) -> tuple[str, ...]:
    """Return a warning for each key of the settings that weigh does not know.

    Raises:
        FormatError: a settings file is invalid.
    """
    settings = here.settings
    # of the others no part of weigh reads a table
    have_tables = [name for name in KINDS if KINDS[name].traits.names_resources]
    return (*settings.warnings, *config.unknown_tables(settings, have_tables))


def site_requires(site_settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return what each job of the site has to request: ``account``, ``qos``.

    Raises:
        FormatError: the value is invalid.
    """
    asked = site_settings.get("require", [])
    return tuple(_OPTIONS["require"].read("cluster.require", asked))


def has_container_steps(kind: str, site_settings: Mapping[str, object]) -> bool:
    """Return whether tasks in a container are steps of Pyxis: a setting, for Slurm.

    Raises:
        FormatError: the value is invalid.
    """
    asked = site_settings.get("container", "apptainer")
    program = _OPTIONS["container"].read("cluster.container", asked)
    return kind in KINDS and KINDS[kind].traits.container_steps and program == "pyxis"


def _is_expression(kind: str) -> bool:
    return KINDS[kind].traits.constraint == "expression"


def in_site_words(
    wanted: JobRequest, kind: str, site_settings: Mapping[str, object]
) -> JobRequest:
    """Return *wanted* as the site file's ``[cluster]`` wants requests.

    It has the names of resources, and what a site wants in each request; what is typed
    takes precedence.

    Raises:
        FormatError: a value is invalid; the message names its key.
        UsageError: the site has no name for what its settings want.
    """
    if kind not in KINDS:
        return wanted
    flags, traits = site_flags(kind, site_settings), KINDS[kind].traits
    named = {name for name, _ in wanted.extra}
    # a constraint that the user typed replaces the site's
    own = {"constraint", "C"} & named
    request = msgspec.structs.replace(
        wanted,
        account=wanted.account or flags.account,
        qos=wanted.qos or flags.qos,
        site=msgspec.structs.replace(
            flags,
            exclusive=flags.exclusive and "exclusive" not in named,
            constraint=None if own else flags.constraint,
            # of the request itself: set above
            account=None,
            qos=None,
        ),
    )
    names = SiteComplexes()
    if traits.names_resources and kind in site_settings:
        names = read_complexes(kind, site_settings[kind])
        request = msgspec.structs.replace(request, complexes=names)
    if traits.names_resources and request.site.exclusive and not names.exclusive:
        raise UsageError(
            "exclusive: this site's name of a whole node is not known "
            f"(cluster.{kind}.exclusive in the settings)"
        )
    return request


def read_complexes(kind: str, table: object) -> SiteComplexes:
    """Read the table of a scheduler's resource names; missing ones are the usual.

    Raises:
        FormatError: a key or a value is invalid; the message names it.
    """
    try:
        words = msgspec.convert(table, SiteComplexes)
    except msgspec.ValidationError as error:
        known = ", ".join(SiteComplexes.__struct_fields__)
        raise FormatError(f"cluster.{kind}: {error} (it has {known})") from error
    for name in SiteComplexes.__struct_fields__:
        word = getattr(words, name)
        if not word and not getattr(SiteComplexes(), name):
            continue  # not each site has it
        if not _WORD.fullmatch(word):
            raise FormatError(f"cluster.{kind}.{name}: not a resource name: {word!r}")
    return words


def query_cluster(
    env: Mapping[str, str],
    *,
    scheduler: str | None = None,
    run_command: CommandRunner = ask_scheduler,
) -> ClusterState:
    """Query the schedulers of this machine, or *scheduler*, until one has a cluster.

    Raises:
        WeighError: there is no scheduler, it has no cluster, or it does not answer.
    """
    kinds = [scheduler] if scheduler else schedulers_on_path(env)
    for kind in kinds or [installed_scheduler(env)]:
        try:
            return _cluster_of(kind, asking_environment(env), run_command)
        except WeighError as error:
            # its commands are installed, but without a cluster: try the next one
            if not KINDS[kind].backend.NO_CLUSTER.search(str(error)):
                raise
    titles = " and ".join(KINDS[kind].title for kind in kinds)
    raise SchedulerError(
        f"{titles}: no cluster is set up here (weigh top shows this machine)"
    )


def _cluster_of(
    kind: str, env: Mapping[str, str], run_command: CommandRunner
) -> ClusterState:
    answers = KINDS[kind].site.read_cluster(query(env, run_command), env)
    nodes = closed_nodes(answers.nodes, answers.queues)
    return ClusterState(
        scheduler=kind,
        name=answers.name,
        version=answers.version,
        user=current_user(),
        time=time.strftime("%Y-%m-%dT%H:%M:%S"),
        nodes=nodes,
        gpus=count_gpus(nodes),
        queues=count_queues(answers.queues, nodes, answers.jobs),
        notes=answers.notes,
    )


PATIENCE: Seconds = 6.0  # seconds: a submission waits for the answers


def live_limits(
    scheduler: str,
    awaited_ids: tuple[str, ...],
    *,
    env: Mapping[str, str],
    run_command: CommandRunner = ask_scheduler,
) -> LiveAnswers:
    """Query everything that has to be known before a submission, in parallel.

    *awaited_ids* are the jobs that it waits for.
    """
    kind = KINDS.get(scheduler)
    if kind is None:
        return LiveAnswers()
    asking = query(asking_environment(env), run_command, PATIENCE)
    live = queried_limits(kind, awaited_ids, asking)
    limits = live.limits
    if limits is None:
        return live
    nodes = closed_nodes(limits.nodes, limits.queues)
    return msgspec.structs.replace(
        live, limits=msgspec.structs.replace(limits, nodes=nodes)
    )


def asking_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without the variables that would change the answers."""
    defaults = (kind.variables.defaults for kind in KINDS.values())
    return query_environment(env, tuple(itertools.chain.from_iterable(defaults)))


# ---- what the lists of nodes and jobs show, counted
def closed_nodes(
    cluster_nodes: Iterable[ClusterNode], queues: Iterable[QueueLimits]
) -> tuple[ClusterNode, ...]:
    """Return the nodes, marked unavailable where all queues of a node are closed."""
    # a node without a queue is left as it is: nothing shows that it is closed
    closed = {queue.name for queue in queues if not queue.open}
    return tuple(
        _closed_node(node) if node.queues and set(node.queues) <= closed else node
        for node in cluster_nodes
    )


def _closed_node(cluster_node: ClusterNode) -> ClusterNode:
    if not cluster_node.takes_jobs:
        return cluster_node
    noun = "queue" if len(cluster_node.queues) == 1 else "queues"
    reason = f"{noun} {', '.join(cluster_node.queues)} closed"
    return msgspec.structs.replace(cluster_node, state="DRAINING", reason=reason)


def count_gpus(cluster_nodes: Iterable[ClusterNode]) -> tuple[GpuCount, ...]:
    """Count the GPUs of *cluster_nodes* by type, the most numerous first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node in cluster_nodes:
        # no job can get idle GPUs on a node without a free CPU or memory
        idle = "blocked" if _is_full(node) else "free"
        idle = idle if node.takes_jobs else "down"
        for gpus in node.gpus:
            count = counts[gpus.name]
            count.update(total=gpus.total, used=gpus.used)
            count[idle] += gpus.total - gpus.used
    found = [GpuCount(name=name, **count) for name, count in counts.items()]
    return tuple(sorted(found, key=lambda one: (-one.total, one.name)))


def _is_full(cluster_node: ClusterNode) -> bool:
    """Return whether the node has no CPU or no memory left."""
    return cluster_node.state == "FULL" or any(
        # None: not listed; it does not make a node full
        used is not None and total is not None and used >= total
        for used, total in (
            (cluster_node.cpus_used, cluster_node.cpus),
            (cluster_node.memory_used, cluster_node.memory),
        )
    )


def count_queues(
    limits: Sequence[QueueLimits],
    cluster_nodes: Sequence[ClusterNode],
    jobs: Sequence[ClusterJob],
) -> tuple[ClusterQueue, ...]:
    """Count what each queue has and what is free; a node may be in several queues."""
    return tuple(
        _counted_queue(
            one,
            [node for node in cluster_nodes if one.name in node.queues],
            # a waiting job may name several queues and counts in each of them
            [job for job in jobs if one.name in job.queue.split(",")],
        )
        for one in limits
    )


def _counted_queue(
    limits: QueueLimits,
    cluster_nodes: Sequence[ClusterNode],
    jobs: Sequence[ClusterJob],
) -> ClusterQueue:
    if not limits.open:
        cluster_nodes = [_closed_node(node) for node in cluster_nodes]
    up = [node for node in cluster_nodes if node.takes_jobs]
    elements = _elements_by_state(jobs)
    return ClusterQueue(
        limits=limits,
        nodes=len(cluster_nodes),
        nodes_down=len(cluster_nodes) - len(up),
        cpus=sum(node.cpus or 0 for node in cluster_nodes),
        cpus_free=sum(node.cpus_free for node in up),
        gpus=count_gpus(cluster_nodes),
        running=elements["RUNNING"],
        waiting=elements["PENDING"],
    )


def _elements_by_state(jobs: Iterable[ClusterJob]) -> Counter[str]:
    elements: Counter[str] = Counter()
    for job in jobs:
        elements[job.state] += job.elements
    return elements
