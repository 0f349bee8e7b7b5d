"""The cluster's current limits, from the scheduler or else from the site file."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from weigh.errors import FormatError
from weigh.flow.site.ask import CommandRunner, query
from weigh.flow.site.cluster import asking_environment, closed_nodes
from weigh.model.cluster import ClusterLimits, NodeType, QueueLimits
from weigh.schedulers import KINDS
from weigh.schedulers.protocol import LiveAnswers, SubmittingUser
from weigh.units import Seconds, parse_limit, parse_size

_QUEUES = "queues"
# what the settings may add to a queue of which the scheduler shows less
_FILLED = (
    *("time_limit", "default_time", "memory", "default_memory"),
    *("default_memory_per_cpu", "cpus", "nodes", "accounts"),
)
T = TypeVar("T")


def with_site(
    cluster_limits: ClusterLimits | None, site_settings: Mapping[str, object]
) -> ClusterLimits | None:
    """Fill in from *site_settings* what is not *cluster_limits*.

    None if no queue is known.

    Raises:
        FormatError: a value does not parse; the message names it.
    """
    listed = site_limits(site_settings)
    if not listed.queues:
        return cluster_limits
    if cluster_limits is None:
        return listed
    by_name = {queue.name: queue for queue in listed.queues}
    return msgspec.structs.replace(
        cluster_limits,
        queues=tuple(
            _filled_queue_limits(queue, by_name.get(queue.name))
            for queue in cluster_limits.queues
        )
        or listed.queues,
        nodes=cluster_limits.nodes or listed.nodes,
    )


def site_limits(site_settings: Mapping[str, object]) -> ClusterLimits:
    """Read the queues of the table, and ``nodes`` with the GPUs that it lists.

    Raises:
        FormatError: a value does not parse; the message names it.
    """
    tables = _live_table("cluster.queues", site_settings.get(_QUEUES, {}))
    queues = {
        name: _live_table(f"cluster.queues.{name}", value)
        for name, value in tables.items()
    }
    with_gpus = {name: row["gpus"] for name, row in queues.items() if "gpus" in row}
    return ClusterLimits(
        queues=tuple(_live_queue_limits(name, row) for name, row in queues.items()),
        # the file lists GPUs per queue, not per node: assume one node with all of them
        nodes=tuple(_live_node_type(name, with_gpus.get(name)) for name in queues)
        if with_gpus
        else (),
    )


def _filled_queue_limits(queue: QueueLimits, listed: QueueLimits | None) -> QueueLimits:
    if listed is None:
        return queue
    missing = {
        field: getattr(listed, field)
        for field in _FILLED
        if getattr(queue, field) is None
    }
    return msgspec.structs.replace(queue, **missing)


def _live_queue_limits(name: str, row: Mapping[str, object]) -> QueueLimits:
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
        # a queue is open unless the settings close it
        open=row.get("open") is not False,
        time_limit=read("time_limit", _live_time),
        default_time=read("default_time", _live_time),
        memory=read("memory", _live_size),
        default_memory=read("default_memory", _live_size),
        default_memory_per_cpu=read("default_memory_per_cpu", _live_size),
        cpus=read("cpus", _live_count),
        nodes=read("nodes", _live_count),
        accounts=tuple(map(str, accounts)) if isinstance(accounts, list) else None,
    )


def _live_node_type(name: str, gpus: object) -> NodeType:
    counts = {} if gpus is None else _live_table(f"cluster.queues.{name}.gpus", gpus)
    return NodeType(
        gpus={kind: _live_count(number) for kind, number in counts.items()},
        queues=(name,),
    )


def _live_table(where: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise FormatError(f"{where} must be a table, not {value!r}")
    return value


def _live_time(value: object) -> int:
    return parse_limit(_live_text(value))


def _live_size(value: object) -> int:
    return parse_size(_live_text(value))


def _live_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _live_count(value: object) -> int:
    # True is an int as well, and no count
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"not a number: {value!r}")
    return value


PATIENCE: Seconds = 6.0  # seconds: a submission waits for the answers


def live_limits(
    scheduler: str,
    who: SubmittingUser,
    *,
    env: Mapping[str, str],
    site_settings: Mapping[str, object],
    run_command: CommandRunner,
) -> LiveAnswers:
    """Query everything that has to be known before a submission, in parallel.

    *site_settings* is the site file's ``[cluster]``; it fills in what the scheduler
    omits.

    Raises:
        FormatError: a value of the site file does not parse.
    """
    kind = KINDS.get(scheduler)
    live = (
        LiveAnswers()
        if kind is None
        else kind.site.read_limits(
            who, query(asking_environment(env), run_command, PATIENCE)
        )
    )
    return msgspec.structs.replace(
        live,
        nodes=closed_nodes(
            live.nodes, () if live.limits is None else live.limits.queues
        ),
        limits=with_site(live.limits, site_settings),
    )
