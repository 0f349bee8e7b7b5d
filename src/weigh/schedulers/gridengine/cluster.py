"""What Grid Engine shows of a cluster, and what it allows a user.

Grid Engine has no standard name for GPUs: each site chooses one. Consumables named like
``ngpus`` or ``gpu`` count as GPUs, and ``gpu_type`` or similar as their type.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

import msgspec

from weigh.errors import FormatError
from weigh.model.cluster import (
    UNTYPED,
    ClusterJob,
    ClusterLimits,
    ClusterNode,
    NodeGpus,
    NodeState,
    QueueLimits,
    state_by_use,
)
from weigh.model.record import State
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers.command import unanswered
from weigh.schedulers.kind import (
    Argv,
    ClusterAnswers,
    SchedulerQuery,
    SchedulerSite,
)
from weigh.schedulers.words import count_elements, parsed_or_none, whole_number
from weigh.units import Bytes

HOSTS = ("qhost", "-F", "-q")
QUEUES = ("qconf", "-sq", "*")
JOBS = ("qstat", "-u", "*", "-r", "-xml")
COMPLEXES = ("qconf", "-sc")
VERSION = ("qstat", "-help")

_GPU_NAME = re.compile(r"(?:n|num_?|nvidia_?)?gpus?(?:_?(?:num|count|cards?))?")
_TYPE_NAME = re.compile(r"gpu[_.]?(?:type|model|name|arch)")
# hl:mem_total=7.6G: from host, global or queue, then the kind; c is a consumable
_RESOURCE = re.compile(r"\b([hgq][lfcv]):([\w.]+)=(\S+)")
_QUEUE = re.compile(r"\s+(\S+)\s+[BIPCTN]+\s+(?:\d+/)?(\d{1,9})/(\d{1,9})\s*(\S*)")
_TABLE_HEAD = ("HOSTNAME", "global", "-")
# letters of the states of a queue instance, see sge_status(5)
_UNREACHABLE, _DISABLED, _BROKEN = "u", "dDsSCo", "Ec"
_SHUT = frozenset(_UNREACHABLE + _DISABLED + _BROKEN)
# a load threshold is exceeded: no further job starts until the load is lower
_LOADED = frozenset("a")
_WORDS = {
    "u": "does not answer",
    "E": "a job could not be started (qstat -explain E)",
    "c": "its configuration is ambiguous",
    "d": "disabled",
    "D": "disabled by the calendar",
    "s": "suspended",
    "S": "suspended by another queue",
    "C": "suspended by the calendar",
    "o": "being removed",
}


class QhostHost(msgspec.Struct, frozen=True):
    """One execution host of ``qhost``: its resources and queues, unparsed.

    ``values`` are by name, from the last source; for consumables, what is left.
    ``queues`` are (name, used slots, slots, state letters).
    """

    name: str
    values: dict[str, str]
    consumables: frozenset[str]
    queues: tuple[tuple[str, int, int, str], ...]


_COMPLEX_COLUMNS = 7
_MOST_HOSTS = 400  # hosts are queried one by one for their totals: 20 ms each


def gpu_totals_of_hosts(
    qhost_hosts: Sequence[QhostHost], query: SchedulerQuery
) -> dict[str, dict[str, str]]:
    """Query each host with GPUs for its totals: ``qhost`` only shows what is left."""
    with_gpus = [host for host in qhost_hosts if gpu_consumables(host)]
    chosen = with_gpus[:_MOST_HOSTS]
    argvs = [host_argv(host.name) for host in chosen]
    replies = query(argvs)
    return {
        host.name: parse_host_totals(reply.out)
        for host, reply in zip(chosen, replies, strict=True)
    }


def host_argv(name: str) -> tuple[str, ...]:
    """Return the command that shows a host's totals, which ``qhost`` does not show."""
    return ("qconf", "-se", name)


def parse_hosts(text: str) -> tuple[QhostHost, ...]:
    """Read ``qhost -F -q``; the resources may be on one line or on several."""
    found: list[QhostHost] = []
    for line in text.splitlines():
        if not line[:1].isspace():
            words = line.split()
            if words and not line.startswith(_TABLE_HEAD):
                found.append(QhostHost(words[0], {}, frozenset(), ()))
        elif found:
            found[-1] = _with_line(found[-1], line)
    return tuple(found)


def gpu_consumables(qhost_host: QhostHost) -> tuple[str, ...]:
    """Return the names of the consumables of *qhost_host* that count GPUs."""
    return tuple(sorted(name for name in qhost_host.consumables if is_gpu(name)))


def is_gpu(name: str) -> bool:
    """Return whether a resource of that name counts GPUs."""
    return _GPU_NAME.fullmatch(name.lower()) is not None


def is_gpu_type(name: str) -> bool:
    """Return whether a resource of that name is a GPU type."""
    return _TYPE_NAME.fullmatch(name.lower()) is not None


def parse_host_totals(text: str) -> dict[str, str]:
    """Read the ``complex_values`` of ``qconf -se``."""
    return _host_values(_attributes(text).get("complex_values", ""))


def node_of_host(qhost_host: QhostHost, totals: Mapping[str, str]) -> ClusterNode:
    """Return a node from ``qhost`` and the host's configured totals."""
    state, reason = _node_state_of_queues(qhost_host)
    used = sum(slots for _, slots, _, _ in qhost_host.queues)
    # slots as a consumable limit all queues of the host together
    left = (
        _count_or_none(qhost_host.values.get("slots"))
        if "slots" in qhost_host.consumables
        else None
    )
    # without that a host's queues usually share its CPUs: the largest, not the sum
    most = max((slots for _, _, slots, _ in qhost_host.queues), default=None)
    cpus = used + left if left is not None else most
    return ClusterNode(
        name=qhost_host.name,
        state=state or state_by_use(used, cpus),
        reason=reason,
        queues=tuple(name for name, *_ in qhost_host.queues),
        cpus=cpus
        if cpus is not None
        else _count_or_none(qhost_host.values.get("num_proc")),
        cpus_used=used,
        memory=gridengine_text.memory_or_none(qhost_host.values.get("mem_total")),
        memory_used=gridengine_text.memory_or_none(qhost_host.values.get("mem_used")),
        gpus=tuple(_gpus_of_host(qhost_host, totals)),
    )


def parse_queues(text: str) -> tuple[QueueLimits, ...]:
    """Read ``qconf -sq '*'``: one block per queue, which begins with its name."""
    blocks = re.split(r"(?m)^(?=qname\s)", text)
    rows = (_attributes(block) for block in blocks)
    return tuple(_gridengine_queue_limits(row) for row in rows if row.get("qname"))


def with_states(
    queues: Sequence[QueueLimits], qhost_hosts: Sequence[QhostHost]
) -> tuple[QueueLimits, ...]:
    """Mark a queue as closed if all its instances are closed."""
    letters: dict[str, list[str]] = {}
    for host in qhost_hosts:
        for name, _, _, state in host.queues:
            letters.setdefault(name, []).append(state)
    shut = {
        name
        for name, states in letters.items()
        if all(_SHUT & set(each) for each in states)
    }
    return tuple(
        msgspec.structs.replace(one, open=one.open and one.name not in shut)
        for one in queues
    )


def requestable(complexes: str | None) -> tuple[str, ...] | None:
    """Return the names and shortcuts of the resources that jobs may request."""
    rows = [] if complexes is None else complex_rows(complexes)
    names = dict.fromkeys(name for row in rows if row[4] != "NO" for name in row[:2])
    return tuple(names) or None


def per_slot(complexes: str) -> tuple[str, ...]:
    """Return the consumables that are counted per slot and not per job."""
    rows = [row for row in complex_rows(complexes) if row[5] == "YES"]
    return tuple(dict.fromkeys(name for row in rows for name in row[:2]))


def complex_rows(complexes: str) -> list[list[str]]:
    """Return the columns of each resource that ``qconf -sc`` lists."""
    rows = (line.split() for line in complexes.splitlines())
    return [
        row
        for row in rows
        if len(row) >= _COMPLEX_COLUMNS and not row[0].startswith("#")
    ]


def qstat_entries(text: str) -> Iterator[ET.Element]:
    """Return the entries of jobs that ``qstat -xml`` lists.

    Raises:
        FormatError: the output is cut off, or not XML.
    """
    try:
        root = ET.fromstring(text)  # noqa: S314 - the scheduler's own output
    except ET.ParseError as error:
        raise FormatError(f"qstat's answer is cut off or not XML: {error}") from error
    return root.iter("job_list")


def parse_qstat_jobs(text: str) -> tuple[ClusterJob, ...]:
    """Read ``qstat -u '*' -r -xml``.

    Raises:
        FormatError: the output is cut off, or not XML.
    """
    return tuple(map(_gridengine_cluster_job, qstat_entries(text)))


def parse_version(text: str) -> str | None:
    """Read the version from the first line of ``qstat -help``."""
    first = text.partition("\n")[0].strip()
    return first if any(letter.isdigit() for letter in first) else None


def _with_line(qhost_host: QhostHost, line: str) -> QhostHost:
    queue = _QUEUE.fullmatch(line.rstrip())
    if queue is not None:
        row = (queue[1], int(queue[2]), int(queue[3]), queue[4])
        return msgspec.structs.replace(qhost_host, queues=(*qhost_host.queues, row))
    resources = _RESOURCE.findall(line)
    consumed = {name for source, name, _ in resources if source.endswith("c")}
    return msgspec.structs.replace(
        qhost_host,
        values=qhost_host.values | {name: value for _, name, value in resources},
        consumables=qhost_host.consumables | consumed,
    )


def _node_state_of_queues(
    qhost_host: QhostHost,
) -> tuple[NodeState | None, str | None]:
    """Combine the states of a host's queues; None if one of them takes jobs."""
    letters = [state for *_, state in qhost_host.queues]
    if not letters:
        return "UNKNOWN", "in no queue"
    letters_seen = {letter for each in letters for letter in each}
    reason = "; ".join(
        text for letter, text in _WORDS.items() if letter in letters_seen
    )
    # one queue that still takes jobs is enough for the host to be up
    if all(set(each) & set(_UNREACHABLE + _BROKEN) for each in letters):
        return "DOWN", reason
    if all(_SHUT & set(each) for each in letters):
        return "DRAINING", reason
    if all((_SHUT | _LOADED) & set(each) for each in letters):
        return "FULL", None
    return None, None


def _gpus_of_host(
    qhost_host: QhostHost, totals: Mapping[str, str]
) -> Iterator[NodeGpus]:
    kind = next(
        (value for name, value in qhost_host.values.items() if is_gpu_type(name)),
        UNTYPED,
    )
    for name in gpu_consumables(qhost_host):
        left = _count_or_none(qhost_host.values[name]) or 0
        # None: a host beyond the number queried
        total = _count_or_none(totals.get(name))
        if total is None:
            total = left
        if total:
            yield NodeGpus(kind, total, max(0, total - left))


def _gridengine_queue_limits(row: Mapping[str, str]) -> QueueLimits:
    return QueueLimits(
        name=row["qname"],
        open="disabled" not in row.get("initial_state", ""),
        time_limit=parsed_or_none(
            gridengine_text.TEXT.parse_time,
            _default_without_exceptions(row.get("h_rt", "")),
        ),
        memory=gridengine_text.memory_or_none(
            _default_without_exceptions(row.get("h_vmem", ""))
        ),
        start_mode=_default_without_exceptions(row.get("shell_start_mode", "")),
    )


def _gridengine_cluster_job(element: ET.Element) -> ClusterJob:
    tasks = element.findtext("tasks")
    wanted = element.findtext("hard_req_queue") or ""
    return ClusterJob(
        # a waiting job has no queue yet, only the one that it requests
        queue=(element.findtext("queue_name") or wanted).partition("@")[0],
        state=_job_state(element.findtext("state", "")),
        elements=count_elements(tasks) if tasks else 1,
    )


def _job_state(letters: str) -> State:
    """Map ``qw``, ``hqw``, ``Eqw``, ``r``, ``dr``... to states: see sge_status(5)."""
    # E: it waits in an error state, and holds nothing
    return "PENDING" if set(letters) & set("Ew") else "RUNNING"


def _attributes(text: str) -> dict[str, str]:
    """Read ``name   value`` lines; a backslash continues a line."""
    # qconf breaks long values
    joined = re.sub(r"\\\n\s*", "", text)
    rows = (line.split(None, 1) for line in joined.splitlines())
    return {row[0]: row[1].strip() for row in rows if len(row) > 1}


def _host_values(text: str) -> dict[str, str]:
    """Read ``ngpus=4(0 1 2 3),gpu_type=v100``; NONE means none."""
    return dict(re.findall(r"([\w.]+)=([^,(\s]+)", text))


def _default_without_exceptions(value: str) -> str:
    """Return the default of ``48:00:00,[node7=24:00:00]``, without host exceptions."""
    return value.partition(",")[0].strip()


def _count_or_none(text: str | None) -> int | None:
    try:
        # 4.000000 of a load value, 4(0 1 2 3) with the ids of the GPUs
        return None if text is None else int(float(text.partition("(")[0]))
    except (ValueError, OverflowError):
        return None


# ---- what it allows a user


def gridengine_cluster_limits(
    texts: Mapping[Argv, str], totals: Mapping[str, Mapping[str, str]]
) -> ClusterLimits:
    """Return the limits, from what each command printed that answered.

    *totals* are the hosts' ``complex_values`` by name.
    """
    hosts = parse_hosts(texts.get(HOSTS, ""))
    queues = with_states(parse_queues(texts.get(QUEUES, "")), hosts)
    given = _default_h_vmem(texts.get(COMPLEXES, ""))
    return ClusterLimits(
        queues=tuple(
            msgspec.structs.replace(one, default_memory_per_cpu=given) for one in queues
        ),
        nodes=tuple(
            _node_with_h_vmem(host, totals.get(host.name, {})) for host in hosts
        ),
        enforced=False,  # a job above a queue's limit waits
        resources=requestable(texts.get(COMPLEXES)),
        per_slot=per_slot(texts.get(COMPLEXES, "")),
    )


def most_elements_of(config: str) -> int | None:
    """Read max_aj_tasks of ``qconf -sconf``; 0 means no limit."""
    return whole_number(_attributes(config).get("max_aj_tasks")) or None


def _node_with_h_vmem(qhost_host: QhostHost, totals: Mapping[str, str]) -> ClusterNode:
    node = node_of_host(qhost_host, totals)
    # where h_vmem is a consumable, a host has so much of it, whatever its memory is
    memory = gridengine_text.memory_or_none(totals.get("h_vmem")) or node.memory
    return msgspec.structs.replace(node, memory=memory)


def _default_h_vmem(complexes: str) -> Bytes | None:
    """Read the default h_vmem per slot, if h_vmem is a consumable."""
    for name, _, _, _, _, consumable, default, *_ in complex_rows(complexes):
        if name == "h_vmem" and consumable != "NO":
            return gridengine_text.memory_or_none(default) or None
    return None


class GridEngineSite(SchedulerSite):
    """Grid Engine: its nodes, queues and limits."""

    LIMITS: Mapping[Argv, bool] = {HOSTS: False, QUEUES: True, COMPLEXES: False}

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query hosts, queues and jobs. Raises WeighError if there is no answer."""
        hosts, queues, jobs, version = query((HOSTS, QUEUES, JOBS, VERSION))
        for reply in (hosts, queues):
            reply.require("Grid Engine")
        found = parse_hosts(hosts.out)
        totals = gpu_totals_of_hosts(found, query)
        listed: tuple[ClusterJob, ...] = ()
        notes = unanswered({"qstat": jobs})
        try:
            listed = parse_qstat_jobs(jobs.out) if jobs.is_answer else ()
        except FormatError as error:
            notes = (str(error),)
        return ClusterAnswers(
            name=env.get("SGE_CLUSTER_NAME") or env.get("SGE_CELL") or None,
            version=parse_version(version.out),
            nodes=tuple(node_of_host(one, totals.get(one.name, {})) for one in found),
            queues=with_states(parse_queues(queues.out), found),
            jobs=listed,
            notes=notes,
        )

    def limits_of(
        self, texts: Mapping[Argv, str], query: SchedulerQuery
    ) -> ClusterLimits:
        """Return the limits, with the totals of each host, for which it asks."""
        hosts = parse_hosts(texts.get(HOSTS, ""))
        return gridengine_cluster_limits(texts, gpu_totals_of_hosts(hosts, query))


SITE = GridEngineSite()
