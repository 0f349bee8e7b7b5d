"""Grid Engine's limits, read from the output of its commands."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.job import States
from weigh.model.limits import ClusterLimits, NodeType, QueueLimits
from weigh.schedulers.backend import SchedulerSite
from weigh.schedulers.cluster_view import closed_nodes
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.protocol import (
    ClusterAnswers,
    LiveAnswers,
    SchedulerQuery,
    SubmittingUser,
)
from weigh.units import Bytes

PARALLEL = ("qconf", "-spl")
PROJECTS = ("qconf", "-sprjl")
CONFIG = ("qconf", "-sconf")
_NO_PROJECTS = "no project"
_MAX_TASKS = re.compile(r"^max_aj_tasks\s+(\d{1,9})\s*$", re.MULTILINE)
_LISTED = re.compile(r"[\w.:-]+")


class GridEngineLimitTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The output of each command; None if it did not answer.

    ``totals`` are the hosts' ``complex_values`` by name.
    """

    hosts: str | None = None
    queues: str | None = None
    complexes: str | None = None
    parallel: str | None = None
    projects: str | None = None
    config: str | None = None
    totals: Mapping[str, Mapping[str, str]] = {}


def gridengine_cluster_limits(texts: GridEngineLimitTexts) -> ClusterLimits:
    """Return the limits, from all outputs."""
    hosts = gridengine_cluster.parse_hosts(texts.hosts or "")
    queues = gridengine_cluster.with_states(
        gridengine_cluster.parse_queues(texts.queues or ""), hosts
    )
    given = _default_h_vmem(texts.complexes or "")
    longest = _MAX_TASKS.search(texts.config or "")
    return ClusterLimits(
        queues=tuple(_with_default(one, given) for one in queues),
        nodes=tuple(
            _node_type_of_host(host, texts.totals.get(host.name, {})) for host in hosts
        ),
        enforced=False,  # a job above a queue's limit waits
        most_elements=(int(longest[1]) or None) if longest else None,
        resources=gridengine_cluster.requestable(texts.complexes),
        per_slot=gridengine_cluster.per_slot(texts.complexes or ""),
        parallel=_gridengine_names(texts.parallel),
        projects=_gridengine_names(texts.projects),
    )


def parse_projects(
    command_output: str, error_output: str, *, ended_well: bool
) -> str | None:
    """Return the projects; without any, qconf prints a message and fails."""
    if ended_well:
        return command_output
    return "" if _NO_PROJECTS in error_output + command_output else None


def gridengine_jobs_argvs(job_ids: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that list the jobs and show how each one ended."""
    there = ("qstat", "-u", "*")
    return (there, *(("qacct", "-j", job) for job in job_ids))


def parse_listed(text: str) -> frozenset[str]:
    """Read the ids of the jobs that ``qstat`` lists."""
    rows = (line.split() for line in text.splitlines())
    return frozenset(row[0] for row in rows if row and row[0].isdecimal())


def _node_type_of_host(
    qhost_host: gridengine_cluster.QhostHost, totals: Mapping[str, str]
) -> NodeType:
    node = gridengine_cluster.node(qhost_host, totals)
    return NodeType(
        cpus=node.cpus,
        # where h_vmem is a consumable, a host has so much of it, whatever its memory is
        memory=gridengine_text.memory_or_none(totals.get("h_vmem")) or node.memory,
        gpus={one.name: one.total for one in node.gpus},
        queues=node.queues,
    )


def _with_default(queue: QueueLimits, given: Bytes | None) -> QueueLimits:
    return msgspec.structs.replace(queue, default_memory_per_cpu=given)


def _default_h_vmem(complexes: str) -> Bytes | None:
    """Read the default h_vmem per slot, if h_vmem is a consumable."""
    for name, _, _, _, _, consumable, default, *_ in gridengine_cluster.complex_rows(
        complexes
    ):
        if name == "h_vmem" and consumable != "NO":
            return gridengine_text.memory_or_none(default) or None
    return None


def _gridengine_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    words = (line.strip() for line in text.splitlines())
    return tuple(word for word in words if _LISTED.fullmatch(word))


def _gridengine_jobs(
    after: tuple[str, ...], replies: Sequence[CommandOutput]
) -> dict[str, str | None]:
    if not replies or not replies[0].is_answer:
        return {}
    there = parse_listed(replies[0].out)
    found: dict[str, str | None] = {}
    for job, reply in zip(after, replies[1:], strict=True):
        if job in there:
            # listed: it has not ended, which is all that a dependency needs to know
            found[job] = "RUNNING"
        elif reply.is_answer:
            found[job] = _worst_end(
                gridengine_commands.COMMANDS.parse_ended(reply.out), job
            )
        # qacct answered that it has no such job
        elif reply.trouble is None:
            found[job] = None
    return found


def _worst_end(ended: States, job_id: str) -> str | None:
    states = {element.state for element in ended.get(job_id, {}).values()}
    bad = states - {"COMPLETED"}
    return min(bad) if bad else ("COMPLETED" if states else None)


class GridEngineSite(SchedulerSite):
    """Grid Engine: its nodes, queues and limits."""

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""
        return gridengine_cluster.read_gridengine_cluster(query, env)

    def read_limits(self, who: SubmittingUser, query: SchedulerQuery) -> LiveAnswers:
        """Query the limits that apply to a submission of *who*; never raises."""
        commands = (
            gridengine_cluster.HOSTS,
            gridengine_cluster.QUEUES,
            gridengine_cluster.COMPLEXES,
            PARALLEL,
            PROJECTS,
            CONFIG,
            *(gridengine_jobs_argvs(who.after) if who.after else ()),
        )
        replies = query(commands)
        hosts, queues, complexes, parallel, projects, config, *jobs = replies
        if not queues.is_answer:
            return LiveAnswers(trouble=queues.complaint())
        found = gridengine_cluster.parse_hosts(hosts.out)
        totals = gridengine_cluster.gpu_totals_of_hosts(found, query)
        texts = GridEngineLimitTexts(
            hosts=hosts.text,
            queues=queues.text,
            complexes=complexes.text,
            parallel=parallel.text,
            projects=parse_projects(
                projects.out, projects.err, ended_well=projects.is_answer
            ),
            config=config.text,
            totals=totals,
        )
        nodes = (
            gridengine_cluster.node(host, totals.get(host.name, {})) for host in found
        )
        known = gridengine_cluster_limits(texts)
        return LiveAnswers(
            limits=known,
            nodes=closed_nodes(nodes, known.queues),
            jobs=_gridengine_jobs(who.after, jobs),
        )


SITE = GridEngineSite()
