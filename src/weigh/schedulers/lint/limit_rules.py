"""What was asked for against what the cluster has and allows."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from weigh.model.limits import UNTYPED, Limits, NodeType, QueueLimits
from weigh.model.lint import Finding
from weigh.schedulers.lint.case import (
    Asked,
    Case,
    did_you_mean,
    error,
    note,
    refused,
    warning,
)
from weigh.units import format_duration, format_size


class Against:
    """One script's demands beside one cluster's limits."""

    def __init__(self, case: Case, asked: Asked, limits: Limits) -> None:
        self.asked = asked
        self.limits = limits
        self.is_slurm = case.tool == "sbatch"
        self.queues = _queues(asked, limits, any_queue=not self.is_slurm)
        names = {queue.name for queue in self.queues}
        self.nodes = [
            node for node in limits.nodes if not names or names & set(node.queues)
        ]

    def beyond_node(self, name: str, effect: str, cure: str = "") -> Finding:
        """Say what no node has: Slurm refuses it, Grid Engine lets it wait."""
        option = self.asked.by.get(name)
        if self.is_slurm:
            return refused(option, f"{name}-beyond-node", f"{effect}: refused", cure)
        return error(option, f"{name}-beyond-node", f"{effect}: waits for ever", cure)

    def beyond_queue(self, name: str, effect: str, cure: str = "") -> Finding:
        """Say what a queue does not allow: it may be accepted, and never start."""
        option = self.asked.by.get(name)
        if self.is_slurm and self.limits.enforced:
            return refused(option, f"{name}-beyond-queue", f"{effect}: refused", cure)
        effect = f"{effect}: accepted, waits for ever"
        return error(option, f"{name}-beyond-queue", effect, cure)

    @property
    def where(self) -> str:
        """Name the queues asked for."""
        if not self.asked.queues and len(self.queues) > 1:
            return "the cluster"
        return ", ".join(queue.name for queue in self.queues) or "the cluster"


def limit_rules(case: Case, asked: Asked) -> Iterator[Finding]:
    """Ask all rules that need to know the cluster; none where it is not known."""
    if case.facts.limits is None:
        return
    against = Against(case, asked, case.facts.limits)
    yield from _names(against)
    for rule in (_memory, _cpus, _gpus, _time, _nodes, _array, _resources, _defaults):
        yield from rule(against)


def _queues(asked: Asked, limits: Limits, *, any_queue: bool) -> list[QueueLimits]:
    """Give the queues that it may run in; Grid Engine has no default among them."""
    if asked.queues:
        return [
            queue
            for queue in limits.queues
            if any(fnmatchcase(queue.name, name) for name in asked.queues)
        ]
    default = [queue for queue in limits.queues if queue.default]
    return list(limits.queues) if any_queue and not default else default


def _names(against: Against) -> Iterator[Finding]:
    asked, limits = against.asked, against.limits
    known = [queue.name for queue in limits.queues]
    for name in asked.queues:
        if known and not any(fnmatchcase(one, name) for one in known):
            cure = did_you_mean(name, known)
            effect = f"there is no queue {name}: refused"
            yield refused(asked.by.get("queues"), "unknown-queue", effect, cure)
    yield from _closed(against)
    yield from _membership(against, "account", limits.accounts)
    yield from _membership(against, "qos", limits.qos)
    for name in asked.node_names:
        if limits.node_names is not None and name not in limits.node_names:
            cure = did_you_mean(name, limits.node_names)
            effect = f"there is no node {name}: refused"
            yield refused(asked.by.get("node_names"), "unknown-node", effect, cure)
    known_features = sorted({word for node in limits.nodes for word in node.features})
    for feature in asked.features:
        if limits.nodes and feature not in known_features:
            cure = did_you_mean(feature, known_features)
            effect = f"no node has the feature {feature}: refused"
            option = asked.by.get("features")
            yield refused(option, "unknown-constraint", effect, cure)


def _closed(against: Against) -> Iterator[Finding]:
    """Warn of each closed queue that was named; else where no queue is open."""
    option = against.asked.by.get("queues")
    closed = [queue.name for queue in against.queues if not queue.open]
    if against.asked.queues or len(against.queues) == 1:
        for name in closed:
            yield warning(option, "closed-queue", f"queue {name} takes no jobs now")
    elif closed and len(closed) == len(against.queues):
        yield warning(option, "closed-queue", "no queue takes jobs now")


def _membership(
    against: Against, name: str, mine: tuple[str, ...] | None
) -> Iterator[Finding]:
    word = against.asked.account if name == "account" else against.asked.qos
    option = against.asked.by.get(name)
    if word is None:
        return
    if mine is not None and word not in mine:
        cure = did_you_mean(word, mine)
        effect = f"{name} {word} is none of yours: refused"
        yield refused(option, f"unknown-{name}", effect, cure)
        return
    for queue in against.queues:
        allowed = queue.accounts if name == "account" else queue.qos
        if allowed is not None and word not in allowed:
            effect = f"queue {queue.name} does not take {name} {word}"
            cure = f"it takes {', '.join(allowed[:4])}"
            yield against.beyond_queue(name, effect, cure)


def _memory(against: Against) -> Iterator[Finding]:
    asked = against.asked.memory
    largest = _most(against.nodes, lambda node: node.memory)
    allowed = _loosest(against.queues, lambda queue: queue.memory)
    if not asked:
        return
    size = format_size(asked)
    if largest is not None and asked > largest:
        have = f"the largest node of {against.where} has {format_size(largest)}"
        yield against.beyond_node("memory", f"{size} on one node; {have}")
        return
    slot = against.asked.slot_memory
    counted = asked if slot is None else slot
    if allowed is not None and counted > allowed:
        have = f"{against.where} allows {format_size(allowed)}"
        what = f"{size} on one node" if slot is None else f"{format_size(slot)} a slot"
        yield against.beyond_queue("memory", f"{what}; {have}")


def _cpus(against: Against) -> Iterator[Finding]:
    asked = against.asked.cpus
    largest = _most(against.nodes, lambda node: node.cpus)
    allowed = _loosest(against.queues, lambda queue: queue.cpus)
    if not asked:
        return
    if largest is not None and asked > largest:
        effect = f"{asked} CPUs on one node; the largest of {against.where} has"
        yield against.beyond_node("cpus", f"{effect} {largest}")
    elif allowed is not None and asked > allowed:
        effect = f"{asked} CPUs on one node; {against.where} allows {allowed}"
        yield against.beyond_queue("cpus", effect)


def _gpus(against: Against) -> Iterator[Finding]:
    asked, kind = against.asked.gpus, against.asked.gpu_type
    if not asked or not against.limits.nodes:
        return
    here, anywhere = _gpu_counts(against.nodes), _gpu_counts(against.limits.nodes)
    if kind and UNTYPED in here:
        return  # the scheduler does not tell what they are
    if kind and kind not in anywhere:
        cure = did_you_mean(kind, sorted(set(anywhere) - {UNTYPED}))
        yield against.beyond_node("gpus", f"there is no GPU {kind}", cure)
    elif kind and kind not in here:
        queues = {
            queue
            for node in against.limits.nodes
            if kind in node.gpus
            for queue in node.queues
        }
        effect = f"{against.where} has no GPU {kind}"
        cure = f"queue {', '.join(sorted(queues))} has" if queues else ""
        yield against.beyond_node("gpus", effect, cure)
    else:
        most = here.get(kind, 0) if kind else max(here.values(), default=0)
        most = most if kind else max(most, _most_on_a_node(against.nodes))
        if asked > most:
            what = f"{kind} GPUs" if kind else "GPUs"
            effect = f"{asked} {what} on one node; {against.where} has {most} on one"
            yield against.beyond_node("gpus", effect)


def _gpu_counts(nodes: list[NodeType] | tuple[NodeType, ...]) -> dict[str, int]:
    most: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus.items():
            most[kind] = max(count, most.get(kind, 0))
    return most


def _most_on_a_node(nodes: list[NodeType]) -> int:
    return max((sum(node.gpus.values()) for node in nodes), default=0)


def _time(against: Against) -> Iterator[Finding]:
    asked = against.asked.time
    allowed = _loosest(against.queues, lambda queue: queue.time_limit)
    if allowed is not None and against.asked.no_end:
        effect = f"asks for no limit; {against.where} allows {format_duration(allowed)}"
        yield against.beyond_queue("time", effect)
    if asked is None or allowed is None or asked <= allowed:
        return
    effect = f"is {format_duration(asked)}; {against.where} allows"
    longer = [
        queue.name
        for queue in against.limits.queues
        if queue.time_limit is None or queue.time_limit >= asked
    ]
    cure = f"queue {', '.join(longer[:3])} takes it" if longer else ""
    yield against.beyond_queue("time", f"{effect} {format_duration(allowed)}", cure)


def _nodes(against: Against) -> Iterator[Finding]:
    asked = against.asked.nodes
    allowed = _loosest(against.queues, lambda queue: queue.nodes)
    if asked is not None and allowed is not None and asked > allowed:
        effect = f"{asked} nodes; {against.where} allows {allowed}"
        yield against.beyond_queue("nodes", effect)


def _array(against: Against) -> Iterator[Finding]:
    asked, limits = against.asked, against.limits
    option = asked.by.get("elements")
    last, count = asked.last_index, asked.elements
    if last is None or count is None:
        return
    if limits.largest_index is not None and last > limits.largest_index:
        effect = f"the last index here is {limits.largest_index:,}: refused"
        cure = "split the array, and add an offset to the index in the script"
        yield refused(option, "array-index", effect, cure)
    elif limits.most_elements is not None and count > limits.most_elements:
        effect = f"{count:,} elements; an array has {limits.most_elements:,} at most"
        yield refused(option, "array-size", f"{effect}: refused", "split the array")
    elif limits.most_submitted is not None and count > limits.most_submitted:
        effect = f"{count:,} elements; you may have {limits.most_submitted:,} jobs"
        cure = "split the array, submit the parts one after another"
        yield refused(option, "max-submit", f"{effect} at once: refused", cure)


def _resources(against: Against) -> Iterator[Finding]:
    asked, limits = against.asked, against.limits
    for name in asked.resources:
        if limits.resources is not None and name not in limits.resources:
            cure = did_you_mean(name, limits.resources)
            effect = f"there is no resource {name}: refused"
            option = asked.by.get("gres" if against.is_slurm else name)
            yield refused(option, "unknown-resource", effect, cure)
    for what, key, word, known in (
        ("parallel environment", "parallel", asked.parallel, limits.parallel),
        ("project", "project", asked.project, limits.projects),
    ):
        if word is not None and known is not None and word not in known:
            effect = f"there is no {what} {word}: refused"
            cure = did_you_mean(word, known)
            yield refused(asked.by.get(key), f"unknown-{key}", effect, cure)


def _defaults(against: Against) -> Iterator[Finding]:
    """Say what the queue gives a job that does not ask."""
    if not against.queues:
        return
    queue, asked = against.queues[0], against.asked
    if len(against.queues) > 1:
        yield from _several_defaults(asked)
        return
    if asked.time is None and "time" not in asked.by:
        seconds = queue.default_time or queue.time_limit
        given = "no limit" if seconds is None else format_duration(seconds)
        yield note(
            None, "default-time", f"no time asked for: {queue.name} gives {given}"
        )
    if asked.memory is None and "memory" not in asked.by:
        yield note(None, "default-memory", _default_memory(against, queue))
    if not asked.gpus and all(node.gpus for node in against.nodes) and against.nodes:
        effect = (
            f"no GPU asked for: {queue.name} gives none, though its nodes have some"
        )
        yield warning(None, "default-gpu", effect)


def _several_defaults(asked: Asked) -> Iterator[Finding]:
    if asked.time is None and "time" not in asked.by:
        effect = "no time asked for: the limit of the queue that it runs in applies"
        yield note(None, "default-time", effect)
    if asked.memory is None and "memory" not in asked.by:
        effect = "no memory asked for: the default of the queue that it runs in applies"
        yield note(None, "default-memory", effect)


def _default_memory(against: Against, queue: QueueLimits) -> str:
    given = queue.default_memory
    if given is None and queue.default_memory_per_cpu is not None:
        given = queue.default_memory_per_cpu * (against.asked.cpus or 1)
    said = f"no memory asked for: {queue.name} gives"
    if given is not None:
        return f"{said} {format_size(given)}"
    if against.is_slurm:
        return f"{said} all of a node, and the job waits for a whole one"
    return f"{said} what the site's default is"


def _most(nodes: list[NodeType], of: Callable[[NodeType], float | None]) -> int | None:
    """Give the most that one node has, None where that of any is not known."""
    values = [of(node) for node in nodes]
    known = [value for value in values if value is not None]
    return int(max(known)) if known and len(known) == len(values) else None


def _loosest(
    queues: list[QueueLimits], of: Callable[[QueueLimits], float | None]
) -> int | None:
    """Give what the most generous of the queues allows, None where one has no limit."""
    values = [of(queue) for queue in queues]
    known = [value for value in values if value is not None]
    return int(max(known)) if known and len(known) == len(values) else None
