"""The cluster's current limits, from the scheduler or else from the site file."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from weigh.errors import FormatError
from weigh.flow.site.ask import Ask, query
from weigh.flow.site.cluster import asking_environment
from weigh.model.limits import Limits, NodeType, QueueLimits
from weigh.schedulers import KINDS
from weigh.schedulers.protocol import Live, Who
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
    kind = KINDS.get(scheduler)
    live = (
        Live()
        if kind is None
        else kind.site.read_limits(who, query(asking_environment(env), ask, PATIENCE))
    )
    return msgspec.structs.replace(live, limits=with_site(live.limits, site))
