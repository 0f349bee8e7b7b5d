"""Rules that compare a request with the limits, and with what the commands use."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from weigh.model.cluster import UNTYPED, ClusterLimits, ClusterNode, QueueLimits
from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    LintCase,
    Rule,
    ScriptRequest,
    did_you_mean,
    note,
    problem,
    refused,
)
from weigh.schedulers.words import whole_number
from weigh.units import MIB, Bytes, count_with_noun, format_duration, format_size


class RequestAgainstLimits:
    """A script's request and the cluster's limits."""

    def __init__(self, lint_case: LintCase, limits: ClusterLimits) -> None:
        self.requested = requested = lint_case.requested
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


def _limit_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Apply all rules that need the cluster's limits, or note what is not limited."""
    if lint_case.facts.limits is None:
        for name, option in zip(
            ("time", "memory"), lint_case.words.limits, strict=True
        ):
            if lint_case.options and name not in lint_case.requested.by:
                effect = f"no {option}: the queue's default applies"
                yield note(None, f"default-{name}", effect)
        return
    against = RequestAgainstLimits(lint_case, lint_case.facts.limits)
    for rule in (
        _unknown_queue_findings,
        _closed,
        _size_limit_findings,
        _gpu_limit_findings,
        _time_limit_findings,
        _defaults,
    ):
        yield from rule(against)
    yield from _default_gpu(lint_case, against)


def _site_rules(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find what the site wants in each job, and the script does not request."""
    requested = lint_case.requested
    for name in lint_case.facts.required:
        if {"queue": "queues"}.get(name, name) not in requested.by:
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


def _unknown_queue_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    """Find the first queue that the cluster does not have.

    What else is misspelled the scheduler refuses at once, in its own words.
    """
    known = [queue.name for queue in against.limits.queues]
    for name in against.requested.queues if known else ():
        # qsub takes patterns of queues; any other name matches itself
        if not any(fnmatchcase(one, name) for one in known):
            said = f"queue {name} does not exist: refused"
            spot = against.requested.by.get("queues")
            yield refused(spot, "unknown-queue", said, did_you_mean(name, known))
            break


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


def _size_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    """Find more memory, CPUs or nodes than a node has, or a queue allows."""
    requested = against.requested
    slot = requested.slot_memory
    for name, amount, text, where in (
        ("memory", requested.memory, format_size, " on one node"),
        ("cpus", requested.cpus, "{} CPUs".format, " on one node"),
        ("nodes", requested.nodes, "{} nodes".format, ""),
    ):
        # the number of nodes is no figure of a node
        largest = _largest_of(against.nodes, name) if where else None
        allowed = _largest_of(against.queues, name)
        # a queue of Grid Engine limits the memory of each slot
        counted = slot if name == "memory" and slot else amount
        if amount and largest is not None and amount > largest:
            have = f"the largest node of {against.where} has {text(largest)}"
            yield against.beyond_node(name, f"{text(amount)}{where}; {have}")
        elif counted and allowed is not None and counted > allowed:
            each = " per slot" if name == "memory" and slot else where
            effect = f"{text(counted)}{each}; {against.where} allows {text(allowed)}"
            yield against.beyond_queue(name, effect)


def _gpu_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested, kind = against.requested.gpus, against.requested.gpu_type
    anywhere = against.limits.nodes
    if not requested or not anywhere:
        return
    types = {one.name for node in anywhere for one in node.gpus}
    # with a node here that has UNTYPED the scheduler does not list the GPU types
    if kind and any(node.gpu_count(UNTYPED) for node in against.nodes):
        return
    if kind and kind not in types:
        fix = did_you_mean(kind, sorted(types - {UNTYPED}))
        yield against.beyond_node("gpus", f"GPU type {kind} does not exist", fix)
        return
    # without a type, GPUs of several types on a node count together
    most = max((node.gpu_count(kind) for node in against.nodes), default=0)
    if requested > most:
        able = (node for node in anywhere if node.gpu_count(kind) >= requested)
        queues = sorted({queue for node in able for queue in node.queues})
        what = count_with_noun(requested, f"{kind} GPU".strip())
        effect = f"{what} on one node; {against.where} has {most or 'none'}"
        fix = f"queue {', '.join(queues)} has" if queues else ""
        yield against.beyond_node("gpus", effect, fix)


def _time_limit_findings(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    requested = against.requested.time
    allowed = _largest_of(against.queues, "time_limit")
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


def _defaults(against: RequestAgainstLimits) -> Iterator[LintFinding]:
    """Note the queue's defaults for what the job does not request."""
    requested = against.requested
    # of several queues it is not known which one the job will run in
    queue = against.queues[0] if len(against.queues) == 1 else None
    of_queue = "of the queue that it runs in applies"
    if against.queues and requested.time is None and "time" not in requested.by:
        given = f"limit {of_queue}"
        if queue is not None:
            # without a default time a partition's limit is the default
            seconds = queue.default_time or queue.time_limit
            limit = "no limit" if seconds is None else format_duration(seconds)
            given = f"default of {queue.name} is {limit}"
        yield note(None, "default-time", f"no time limit requested: the {given}")
    if against.queues and requested.memory is None and "memory" not in requested.by:
        given = f"default {of_queue}"
        if queue is not None:
            size = _default_memory_of_queue_text(against, queue)
            given = f"default of {queue.name} is {size}"
        yield note(None, "default-memory", f"no memory requested: the {given}")


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


def _default_memory_of_queue_text(
    against: RequestAgainstLimits, queue: QueueLimits
) -> str:
    given = queue.default_memory
    if given is None and queue.default_memory_per_cpu is not None:
        given = queue.default_memory_per_cpu * (against.requested.cpus or 1)
    if given is not None:
        return format_size(given)
    if against.is_slurm:
        return "a whole node, and the job waits for one"
    return "the site's default"


def _largest_of(
    nodes_or_queues: Sequence[ClusterNode | QueueLimits], name: str
) -> int | None:
    """Return the largest of these figures; None if one of them is not known."""
    values = [getattr(one, name) for one in nodes_or_queues]
    return int(max(values)) if values and None not in values else None


_THREADS = frozenset(
    {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    | {"NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "JULIA_NUM_THREADS"}
    | {"NUMBA_NUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS", "GOMP_NUM_THREADS"}
)


def _thread_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    cpus = lint_case.requested.most_cpus
    if cpus is None:
        return
    for command, name, value in lint_case.assignments():
        count = whole_number(value)
        if name not in _THREADS or count is None or count <= cpus:
            continue
        effect = f"{count} threads, but the job gets {count_with_noun(cpus, 'CPU')}"
        # CPUs that nobody requested may be more, by a default of the site
        make = problem if lint_case.requested.sets_cpus else note
        yield make(command, "threads-beyond-cpus", effect, _more_cpus(lint_case, count))
        return


def _more_cpus(lint_case: LintCase, count: int) -> str:
    if lint_case.tool == "sbatch":
        return f"--cpus-per-task={count}, or ${{SLURM_CPUS_PER_TASK}} threads"
    return f"-pe smp {count}, or $NSLOTS threads" if lint_case.tool == "qsub" else ""


_WANTS_GPU = re.compile(
    r"--device[= ][\"']?(?:cuda|gpu)|--accelerator[= ][\"']?(?:gpu|cuda)"
    r"|--gpus?[= ][1-9]\d*\b|--use[-_](?:cuda|gpu)(?:[= ][Tt]rue|\s|$)|-nb gpu\b"
)


def _no_gpu(lint_case: LintCase) -> Iterator[LintFinding]:
    # None: a queue or a default may bring GPUs
    if lint_case.requested.most_gpus != 0:
        return
    for command in lint_case.body.commands:
        if command.name not in ("echo", "printf") and _WANTS_GPU.search(command.text):
            fix = "add #SBATCH --gres=gpu:1" if lint_case.tool == "sbatch" else ""
            yield problem(command, "no-gpu", "no GPU was requested: finds none", fix)
            return


RULES: tuple[Rule, ...] = (
    _site_rules,
    _limit_findings,
    _thread_findings,
    _no_gpu,
)
