"""Grid Engine's limits, read from the output of its commands."""

import re
from collections.abc import Mapping

import msgspec

from weigh.errors import FormatError
from weigh.model.limits import Limits, NodeType, QueueLimits
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.units import Bytes

PARALLEL = ("qconf", "-spl")
PROJECTS = ("qconf", "-sprjl")
CONFIG = ("qconf", "-sconf")
_NO_PROJECTS = "no project"
_MAX_TASKS = re.compile(r"^max_aj_tasks\s+(\d{1,9})\s*$", re.MULTILINE)
_COMPLEX_COLUMNS = 7
_LISTED = re.compile(r"[\w.:-]+")


class Texts(msgspec.Struct, frozen=True, kw_only=True):
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


def limits(texts: Texts) -> Limits:
    """Return the limits, from all outputs."""
    hosts = gridengine_cluster.parse_hosts(texts.hosts or "")
    queues = gridengine_cluster.with_states(
        gridengine_cluster.parse_queues(texts.queues or ""), hosts
    )
    given = _default_memory(texts.complexes or "")
    longest = _MAX_TASKS.search(texts.config or "")
    return Limits(
        queues=tuple(_with_default(one, given) for one in queues),
        nodes=tuple(_node(host, texts.totals.get(host.name, {})) for host in hosts),
        enforced=False,
        most_elements=(int(longest[1]) or None) if longest else None,
        resources=requestable(texts.complexes),
        per_slot=per_slot(texts.complexes or ""),
        parallel=_names(texts.parallel),
        projects=_names(texts.projects),
    )


def requestable(complexes: str | None) -> tuple[str, ...] | None:
    """Return the names and shortcuts of the resources that jobs may request."""
    rows = [] if complexes is None else _rows(complexes)
    names = dict.fromkeys(name for row in rows if row[4] != "NO" for name in row[:2])
    return tuple(names) or None


def per_slot(complexes: str) -> tuple[str, ...]:
    """Return the consumables that are counted per slot and not per job."""
    rows = [row for row in _rows(complexes) if row[5] == "YES"]
    return tuple(dict.fromkeys(name for row in rows for name in row[:2]))


def consumables(complexes: str) -> tuple[str, ...]:
    """Return the consumables, counted per slot or per job."""
    rows = [row for row in _rows(complexes) if row[5] != "NO" and row[4] != "NO"]
    return tuple(dict.fromkeys(row[0] for row in rows))


def parallel_argv(name: str) -> tuple[str, ...]:
    """Return the command that shows a parallel environment."""
    return ("qconf", "-sp", name)


def is_on_one_node(text: str) -> bool:
    """Return whether all slots of the environment are on one node."""
    return any(
        line.split() == ["allocation_rule", "$pe_slots"] for line in text.splitlines()
    )


def parse_projects(out: str, err: str, *, ended_well: bool) -> str | None:
    """Return the projects; without any, qconf prints a message and fails."""
    if ended_well:
        return out
    return "" if _NO_PROJECTS in err + out else None


def jobs_argvs(jobs: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that list the jobs and show how each one ended."""
    there = ("qstat", "-u", "*")
    return (there, *(("qacct", "-j", job) for job in jobs))


def parse_listed(text: str) -> frozenset[str]:
    """Read the ids of the jobs that ``qstat`` lists."""
    rows = (line.split() for line in text.splitlines())
    return frozenset(row[0] for row in rows if row and row[0].isdecimal())


def _node(host: gridengine_cluster.Host, totals: Mapping[str, str]) -> NodeType:
    node = gridengine_cluster.node(host, totals)
    return NodeType(
        cpus=node.cpus,
        memory=_size(totals.get("h_vmem")) or node.memory,
        gpus={one.name: one.total for one in node.gpus},
        queues=node.queues,
    )


def _with_default(queue: QueueLimits, given: Bytes | None) -> QueueLimits:
    return msgspec.structs.replace(queue, default_memory_per_cpu=given)


def _rows(complexes: str) -> list[list[str]]:
    rows = (line.split() for line in complexes.splitlines())
    return [
        row
        for row in rows
        if len(row) >= _COMPLEX_COLUMNS and not row[0].startswith("#")
    ]


def _default_memory(complexes: str) -> Bytes | None:
    """Read the default h_vmem per slot, if h_vmem is a consumable."""
    for name, _, _, _, _, consumable, default, *_ in _rows(complexes):
        if name == "h_vmem" and consumable != "NO":
            return _size(default) or None
    return None


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    words = (line.strip() for line in text.splitlines())
    return tuple(word for word in words if _LISTED.fullmatch(word))


def _size(text: str | None) -> Bytes | None:
    try:
        return None if text is None else gridengine_text.parse_memory(text)
    except FormatError:
        return None
