"""What the cluster has and allows now: the scheduler's word, else the site file's."""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.flow.site.ask import Ask, Reply, ask_all
from weigh.flow.site.cluster import asking_environment, gpu_totals
from weigh.flow.site.site_limits import with_site
from weigh.model.cluster import Node
from weigh.model.job import States
from weigh.model.limits import Limits
from weigh.scheduler import (
    gridengine,
    gridengine_limits,
    gridengine_view,
    slurm,
    slurm_limits,
    slurm_view,
)
from weigh.scheduler.cluster_view import closed_nodes
from weigh.units import Seconds

PATIENCE: Seconds = 6.0


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What was learnt; ``jobs`` are the states of those asked about, by id.

    ``trouble`` is why the scheduler could not be asked, ``limits`` None where nobody
    knows any.
    """

    limits: Limits | None = None
    nodes: tuple[Node, ...] = ()
    jobs: dict[str, str | None] = {}
    trouble: str | None = None


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, with what, and which jobs are to be waited for."""

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
    """Ask all that has to be known of a cluster before a job is submitted, at once.

    *site* is the site file's ``[cluster]``: it fills in what the scheduler leaves out.

    Raises:
        FormatError: the site file's values do not parse.
    """
    env = asking_environment(env)
    live = (
        _slurm(who, env, ask)
        if scheduler == slurm.NAME
        else _gridengine(who, env, ask)
        if scheduler == gridengine.NAME
        else Live()
    )
    return msgspec.structs.replace(live, limits=with_site(live.limits, site))


def _slurm(who: Who, env: Mapping[str, str], ask: Ask) -> Live:
    commands = (
        slurm_view.NODES,
        slurm_view.PARTITIONS,
        slurm_view.CONFIG,
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
        nodes=closed_nodes(slurm_view.parse_nodes(texts.nodes or ""), limits.queues),
        jobs=_slurm_jobs(who.after, jobs),
    )


def _with_submitted(
    limits: Limits, who: Who, env: Mapping[str, str], ask: Ask
) -> Limits:
    """Take from what a user may have what he has already."""
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
        gridengine_view.HOSTS,
        gridengine_view.QUEUES,
        gridengine_view.COMPLEXES,
        gridengine_limits.PARALLEL,
        gridengine_limits.PROJECTS,
        gridengine_limits.CONFIG,
        *(gridengine_limits.jobs_argvs(who.after) if who.after else ()),
    )
    replies = ask_all(commands, env=env, ask=ask, patience=PATIENCE)
    hosts, queues, complexes, parallel, projects, config, *jobs = replies
    if not queues.is_answer:
        return Live(trouble=queues.complaint())
    found = gridengine_view.parse_hosts(hosts.stdout)
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
    nodes = (gridengine_view.node(host, totals.get(host.name, {})) for host in found)
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
            found[job] = _worst_end(gridengine.parse_ended(reply.stdout), job)
        elif reply.code is not None:
            found[job] = None
    return found


def _worst_end(ended: States, job: str) -> str | None:
    states = {element.state for element in ended.get(job, {}).values()}
    bad = states - {"COMPLETED"}
    return min(bad) if bad else ("COMPLETED" if states else None)


def _said(reply: Reply) -> str | None:
    return reply.stdout if reply.is_answer else None
