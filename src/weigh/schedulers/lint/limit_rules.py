"""Rules that compare a request with what the cluster has and allows."""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from weigh.model.limits import UNTYPED, ClusterLimits, NodeType, QueueLimits
from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    LintCase,
    ScriptRequest,
    did_you_mean,
    note,
    problem,
    refused,
)
from weigh.units import MIB, Bytes, format_duration, format_size


class RequestAgainstLimits:
    """A script's request and the cluster's limits."""

    def __init__(
        self, lint_case: LintCase, requested: ScriptRequest, limits: ClusterLimits
    ) -> None:
        self.requested = requested
        self.limits = limits
        self.is_slurm = lint_case.tool == "sbatch"
        self.queues = _possible_queues(requested, limits, any_queue=not self.is_slurm)
        # without a known queue the whole cluster is compared
        names = {queue.name for queue in self.queues}
        self.nodes = [
            node for node in limits.nodes if not names or names & set(node.queues)
        ]

    def beyond_node(self, name: str, effect: str, fix: str = "") -> LintFinding:
        """Report what no node has: Slurm rejects it, Grid Engine lets it wait."""
        option = self.requested.by.get(name)
        if self.is_slurm:
            return refused(option, f"{name}-beyond-node", f"{effect}: refused", fix)
        return problem(option, f"{name}-beyond-node", f"{effect}: never starts", fix)

    def beyond_queue(self, name: str, effect: str, fix: str = "") -> LintFinding:
        """Report what no queue allows: the job may be accepted and never start."""
        option = self.requested.by.get(name)
        if self.is_slurm and self.limits.enforced:
            return refused(option, f"{name}-beyond-queue", f"{effect}: refused", fix)
        effect = f"{effect}: accepted, never starts"
        return problem(option, f"{name}-beyond-queue", effect, fix)

    @property
    def where(self) -> str:
        """Return the names of the requested queues."""
        if not self.requested.queues and len(self.queues) > 1:
            return "the cluster"
        return ", ".join(queue.name for queue in self.queues) or "the cluster"


def limit_rules(lint_case: LintCase, requested: ScriptRequest) -> Iterator[LintFinding]:
    """Apply all rules that need the cluster's limits; none if they are not known.

    What the site's settings want in each job is known without them.
    """
    yield from _site_rules(lint_case, requested)
    if lint_case.facts.limits is None:
        return
    against = RequestAgainstLimits(lint_case, requested, lint_case.facts.limits)
    yield from _unknown_name_findings(against)
    for rule in (
        _memory_limit_findings,
        _cpu_limit_findings,
        _gpu_limit_findings,
        _time_limit_findings,
        _node_limit_findings,
        _array_limit_findings,
        _resource_limit_findings,
        _defaults,
    ):
        yield from rule(against)
    yield from _default_gpu(lint_case, against)


_OTHER_NAMES = {"account": ("project",), "queue": ("queues",)}


def _site_rules(lint_case: LintCase, requested: ScriptRequest) -> Iterator[LintFinding]:
    """Find what the site wants in each job, and the script does not request."""
    for name in lint_case.facts.required:
        if not any(one in requested.by for one in (name, *_OTHER_NAMES.get(name, ()))):
            effect = f"no {name} requested: this site wants one in each job"
            yield refused(None, "site-requires", effect)
    memory = requested.by.get("memory")
    if lint_case.facts.per_cpu and memory is not None and memory.name == "mem":
        size = requested.memory
        each = (
            ""
            if not size
            else f"--mem-per-cpu={_memory_per_cpu(size, requested.cpus)}M"
        )
        effect = "this site wants memory per CPU: refused"
        yield refused(memory, "site-memory", effect, each)


def _memory_per_cpu(size: Bytes, cpus: int | None) -> int:
    return -(-size // ((cpus or 1) * MIB))


def _possible_queues(
    requested: ScriptRequest, limits: ClusterLimits, *, any_queue: bool
) -> list[QueueLimits]:
    """Return the queues that the job may run in; Grid Engine has no default queue."""
    if requested.queues:
        return [
            queue
            for queue in limits.queues
            # qsub takes patterns (-q 'gpu*'); a plain name matches itself
            if any(fnmatchcase(queue.name, name) for name in requested.queues)
        ]
    default = [queue for queue in limits.queues if queue.default]
    return list(limits.queues) if any_queue and not default else default


def _unknown_name_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested, limits = against.requested, against.limits
    known = [queue.name for queue in limits.queues]
    for name in requested.queues:
        if known and not any(fnmatchcase(one, name) for one in known):
            fix = did_you_mean(name, known)
            effect = f"queue {name} does not exist: refused"
            yield refused(requested.by.get("queues"), "unknown-queue", effect, fix)
    yield from _closed(against)
    yield from _membership(against, "account", limits.accounts)
    yield from _membership(against, "qos", limits.qos)
    unknown = [
        name
        for name in requested.node_names
        if limits.node_names is not None and name not in limits.node_names
    ]
    for name in requested.node_names:
        # one unknown node is reported: a misspelled range would be as many findings
        if limits.node_names is not None and name in unknown[:1]:
            fix = did_you_mean(name, limits.node_names)
            effect = f"node {name} does not exist: refused"
            yield refused(requested.by.get("node_names"), "unknown-node", effect, fix)
        theirs, ours = limits.queues_of_node.get(name), {q.name for q in against.queues}
        if theirs is not None and ours and not ours & set(theirs):
            effect = f"node {name} is not in {against.where}: refused"
            fix = f"it is in {', '.join(theirs)}" if theirs else ""
            option = requested.by.get("node_names")
            yield refused(option, "unknown-node", effect, fix)
    known_features = sorted({word for node in limits.nodes for word in node.features})
    for feature in requested.features:
        if limits.nodes and feature not in known_features:
            fix = did_you_mean(feature, known_features)
            effect = f"no node has the feature {feature}: refused"
            option = requested.by.get("features")
            yield refused(option, "unknown-constraint", effect, fix)


def _closed(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    """Warn about each requested queue that is closed, or if all queues are."""
    option = against.requested.by.get("queues")
    closed = [queue.name for queue in against.queues if not queue.open]
    # of several queues that were not named, a closed one is no obstacle
    if against.requested.queues or len(against.queues) == 1:
        for name in closed:
            yield note(option, "closed-queue", f"queue {name} starts no jobs now")
    elif closed and len(closed) == len(against.queues):
        yield note(option, "closed-queue", "no queue starts jobs now")


def _membership(
    against: RequestAgainstLimits, name: str, mine: tuple[str, ...] | None
) -> Iterator[LintFinding]:
    word = against.requested.account if name == "account" else against.requested.qos
    option = against.requested.by.get(name)
    if word is None:
        return
    if mine is not None and word not in mine:
        fix = did_you_mean(word, mine)
        effect = f"you have no {name} {word}: refused"
        yield refused(option, f"unknown-{name}", effect, fix)
        return
    for queue in against.queues:
        allowed = queue.accounts if name == "account" else queue.qos
        if allowed is not None and word not in allowed:
            effect = f"queue {queue.name} does not accept {name} {word}"
            fix = f"it accepts {', '.join(allowed[:4])}"
            option = against.requested.by.get(name)
            yield problem(option, f"unknown-{name}", f"{effect}: never starts", fix)


def _memory_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested = against.requested.memory
    largest = _maximum_over_nodes(against.nodes, lambda node: node.memory)
    allowed = _loosest(against.queues, lambda queue: queue.memory)
    if not requested:
        return
    size = format_size(requested)
    if largest is not None and requested > largest:
        have = f"the largest node of {against.where} has {format_size(largest)}"
        yield against.beyond_node("memory", f"{size} on one node; {have}")
        return
    slot = against.requested.slot_memory
    counted = requested if slot is None else slot
    if allowed is not None and counted > allowed:
        have = f"{against.where} allows {format_size(allowed)}"
        what = (
            f"{size} on one node" if slot is None else f"{format_size(slot)} per slot"
        )
        yield against.beyond_queue("memory", f"{what}; {have}")


def _cpu_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested = against.requested.cpus
    largest = _maximum_over_nodes(against.nodes, lambda node: node.cpus)
    allowed = _loosest(against.queues, lambda queue: queue.cpus)
    if not requested:
        return
    if largest is not None and requested > largest:
        effect = f"{requested} CPUs on one node; the largest of {against.where} has"
        yield against.beyond_node("cpus", f"{effect} {largest}")
    elif allowed is not None and requested > allowed:
        effect = f"{requested} CPUs on one node; {against.where} allows {allowed}"
        yield against.beyond_queue("cpus", effect)


def _gpu_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested, kind = against.requested.gpus, against.requested.gpu_type
    if not requested or not against.limits.nodes:
        return
    here, anywhere = _gpu_counts(against.nodes), _gpu_counts(against.limits.nodes)
    if kind and UNTYPED in here:
        return  # the scheduler does not list the GPU types
    if kind and kind not in anywhere:
        fix = did_you_mean(kind, sorted(set(anywhere) - {UNTYPED}))
        yield against.beyond_node("gpus", f"GPU type {kind} does not exist", fix)
    elif kind and kind not in here:
        queues = {
            queue
            for node in against.limits.nodes
            if kind in node.gpus
            for queue in node.queues
        }
        effect = f"{against.where} has no GPU of type {kind}"
        fix = f"queue {', '.join(sorted(queues))} has" if queues else ""
        yield against.beyond_node("gpus", effect, fix)
    else:
        most = here.get(kind, 0) if kind else max(here.values(), default=0)
        # without a type, GPUs of several types on a node count together
        most = most if kind else max(most, _most_on_a_node(against.nodes))
        if requested > most:
            what = f"{kind} GPUs" if kind else "GPUs"
            effect = (
                f"{requested} {what} on one node; {against.where} has {most} on one"
            )
            yield against.beyond_node("gpus", effect)


def _gpu_counts(nodes: list[NodeType] | tuple[NodeType, ...]) -> dict[str, int]:
    most: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus.items():
            most[kind] = max(count, most.get(kind, 0))
    return most


def _most_on_a_node(nodes: list[NodeType]) -> int:
    return max((sum(node.gpus.values()) for node in nodes), default=0)


def _time_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested = against.requested.time
    allowed = _loosest(against.queues, lambda queue: queue.time_limit)
    if allowed is not None and against.requested.no_end:
        effect = f"no time limit; {against.where} allows {format_duration(allowed)}"
        yield against.beyond_queue("time", effect)
    if requested is None or allowed is None or requested <= allowed:
        return
    effect = f"is {format_duration(requested)}; {against.where} allows"
    # of all queues, not of those requested: where the job could go
    longer = [
        queue.name
        for queue in against.limits.queues
        if queue.time_limit is None or queue.time_limit >= requested
    ]
    fix = f"queue {longer[0]} allows it" if longer else ""
    if len(longer) > 1:
        fix = f"queues {', '.join(longer[:3])} allow it"
    yield against.beyond_queue("time", f"{effect} {format_duration(allowed)}", fix)


def _node_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested = against.requested.nodes
    allowed = _loosest(against.queues, lambda queue: queue.nodes)
    if requested is not None and allowed is not None and requested > allowed:
        effect = f"{requested} nodes; {against.where} allows {allowed}"
        yield against.beyond_queue("nodes", effect)


def _array_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested, limits = against.requested, against.limits
    option = requested.by.get("elements")
    last, count = requested.last_index, requested.elements
    if last is None or count is None:
        return
    if limits.largest_index is not None and last > limits.largest_index:
        effect = f"the last index here is {limits.largest_index:,}: refused"
        fix = "split the array, and add an offset to the index in the script"
        yield refused(option, "array-size", effect, fix)
    elif limits.most_elements is not None and count > limits.most_elements:
        effect = f"{count:,} elements; an array may have {limits.most_elements:,}"
        yield refused(option, "array-size", f"{effect}: refused", "split the array")
    # each element counts as a job of the user's
    elif limits.most_submitted is not None and count > limits.most_submitted:
        effect = f"{count:,} elements; you may have {limits.most_submitted:,} jobs"
        fix = "split the array, submit the parts one after another"
        yield refused(option, "array-size", f"{effect} at once: refused", fix)


def _resource_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested, limits = against.requested, against.limits
    for name in requested.resources:
        if limits.resources is not None and name not in limits.resources:
            fix = did_you_mean(name, limits.resources)
            effect = f"resource {name} does not exist: refused"
            option = requested.by.get("gres" if against.is_slurm else name)
            yield refused(option, "unknown-resource", effect, fix)
    for what, key, word, known in (
        ("parallel environment", "parallel", requested.parallel, limits.parallel),
        ("project", "project", requested.project, limits.projects),
    ):
        if word is not None and known is not None and word not in known:
            effect = f"{what} {word} does not exist: refused"
            fix = did_you_mean(word, known)
            yield refused(requested.by.get(key), f"unknown-{key}", effect, fix)


def _defaults(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    """Note the queue's defaults for what the job does not request."""
    if not against.queues:
        return
    queue, requested = against.queues[0], against.requested
    if len(against.queues) > 1:
        yield from _several_defaults(requested)
        return
    if requested.time is None and "time" not in requested.by:
        # without a default time a partition's limit is the default
        seconds = queue.default_time or queue.time_limit
        given = "no limit" if seconds is None else format_duration(seconds)
        yield note(
            None,
            "default-time",
            f"no time limit requested: the default of {queue.name} is {given}",
        )
    if requested.memory is None and "memory" not in requested.by:
        yield note(
            None, "default-memory", _default_memory_of_queue_text(against, queue)
        )


_OF_GPUS = re.compile(r"gpu|cuda|nvidia|torch|tensorflow|jax\b", re.IGNORECASE)


def _default_gpu(
    lint_case: LintCase, against: RequestAgainstLimits
) -> Iterator[LintFinding]:
    """Note that no GPU is requested where the queue or a command is about GPUs."""
    if len(against.queues) != 1 or against.requested.gpus or not against.nodes:
        return
    name = against.queues[0].name
    words = (name, *(one.text for one in lint_case.body.commands))
    # a queue of GPU nodes only, or a name that is about GPUs
    if all(node.gpus for node in against.nodes) and any(map(_OF_GPUS.search, words)):
        effect = f"no GPU requested: {name} has GPUs, but the job gets none"
        yield note(None, "default-gpu", effect)


def _several_defaults(requested: ScriptRequest) -> Iterator[LintFinding]:
    if requested.time is None and "time" not in requested.by:
        effect = (
            "no time limit requested: the limit of the queue that it runs in applies"
        )
        yield note(None, "default-time", effect)
    if requested.memory is None and "memory" not in requested.by:
        effect = "no memory requested: the default of the queue that it runs in applies"
        yield note(None, "default-memory", effect)


def _default_memory_of_queue_text(
    against: RequestAgainstLimits, queue: QueueLimits
) -> str:
    given = queue.default_memory
    if given is None and queue.default_memory_per_cpu is not None:
        given = queue.default_memory_per_cpu * (against.requested.cpus or 1)
    prefix = f"no memory requested: the default of {queue.name} is"
    if given is not None:
        return f"{prefix} {format_size(given)}"
    if against.is_slurm:
        return f"{prefix} a whole node, and the job waits for one"
    return f"{prefix} the site's default"


def _maximum_over_nodes(
    nodes: list[NodeType], of: Callable[[NodeType], float | None]
) -> int | None:
    """Return the maximum over the nodes; None if the value of any is not known."""
    values = [of(node) for node in nodes]
    known = [value for value in values if value is not None]
    return int(max(known)) if known and len(known) == len(values) else None


def _loosest(
    queues: list[QueueLimits], of: Callable[[QueueLimits], float | None]
) -> int | None:
    """Return the highest limit of the queues; None if one has no limit."""
    values = [of(queue) for queue in queues]
    known = [value for value in values if value is not None]
    return int(max(known)) if known and len(known) == len(values) else None
