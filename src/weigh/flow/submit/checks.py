"""Check the script and request of a job before it is submitted: will it start?"""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from weigh import config
from weigh.errors import FormatError, SchedulerError, UsageError
from weigh.flow.check.script import dialect_of, facts_of
from weigh.flow.site.ask import Ask, ask_scheduler
from weigh.flow.site.live_limits import live_limits
from weigh.flow.site.schedulers import current_user
from weigh.model.cluster import UNTYPED, Node, NodeGpus
from weigh.model.job import JobRequest, JobScript
from weigh.model.limits import Budget, Limits, QueueLimits
from weigh.model.lint import Finding
from weigh.render.printable import three
from weigh.render.request_lines import WIDTH, folded
from weigh.render.submit_lines import Check
from weigh.schedulers import KINDS
from weigh.schedulers.cluster_view import takes_jobs
from weigh.schedulers.command import run_as_is
from weigh.schedulers.lint.rules import acknowledged
from weigh.schedulers.protocol import Live, Who
from weigh.schedulers.script import read_script
from weigh.units import HOUR, counted, format_duration, format_limit, format_size

# findings on what weigh's own job script does on purpose
_LOGS = frozenset({"log-directory", "log-pattern"})
_OURS = frozenset(
    {"memory-per-slot", "no-soft-limit", "literal-dollar", "log-shared"}
    | {"default-time", "default-memory", "default-gpu", "starts-at-home", "no-shell"}
    | {"no-throttle", "elements-alike", "no-array"}
)
_NAMED = 3
_BALANCE_TIME = 5.0  # seconds


class Checks(msgspec.Struct, frozen=True):
    """The passed checks, one row each, the warnings, and words on the budget left."""

    rows: tuple[Check, ...] = ()
    doubts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def check_request(  # noqa: PLR0913 - keyword-only past the second
    script: JobScript,
    text: str,
    *,
    scheduler: str,
    env: Mapping[str, str],
    elements: int,
    ask: Ask = ask_scheduler,
) -> Checks:
    """Compare the script *text*, written from *script*, with the cluster's limits.

    *elements* counts the elements of all jobs of this submission, *runs* are those
    that were measured of its tasks.

    Raises:
        UsageError: the job would be refused, never start, or run other than requested;
            the message names the reason and the fix.
        FormatError: a settings file does not parse.
    """
    if scheduler not in KINDS:
        return Checks()
    return check_user_script(
        text,
        script.request,
        scheduler=scheduler,
        cwd=script.cwd,
        env=env,
        elements=elements,
        written=script,
        ask=ask,
    )


def check_user_script(  # noqa: PLR0913 - keyword-only past the second
    text: str,
    request: JobRequest,
    *,
    scheduler: str,
    cwd: str,
    env: Mapping[str, str],
    elements: int,
    written: JobScript | None = None,
    ask: Ask = ask_scheduler,
) -> Checks:
    """Check the script *text*: a user's, or the one *written* by weigh.

    Raises:
        UsageError: it would be refused, never start, or run other than meant; the
            message names the reason and the fix.
        FormatError: a settings file does not parse.
    """
    settings = config.load(cwd, env)
    live = _live(text, request, scheduler, env, settings.cluster, ask)
    found = text_findings(
        text,
        live,
        scheduler=scheduler,
        cwd=cwd,
        env=env,
        ignore=settings.ignore,
        ours=_OURS if written else frozenset(),
        site=settings.cluster,
    )
    if written:
        found = _not_ours(found, written, text, scheduler)
        found += tuple(_too_many(elements, written, live.limits))
    checks = _judged(request, live, scheduler, found)
    return _with_budget(checks, request, live, elements, settings.cluster, env)


def _not_ours(
    found: Sequence[Finding], script: JobScript, text: str, scheduler: str
) -> tuple[Finding, ...]:
    """Return the findings that are not on lines or the log that weigh wrote."""
    ours = _own_lines(script, text, scheduler)
    return tuple(
        one for one in found if one.line not in ours and not _is_our_log(script, one)
    )


def _live(  # noqa: PLR0913, PLR0917 - what the question names
    text: str,
    request: JobRequest,
    scheduler: str,
    env: Mapping[str, str],
    site: Mapping[str, Any],
    ask: Ask,
) -> Live:
    """Query the limits that apply to a submission."""
    who = Who(
        user=current_user(),
        account=request.account,
        qos=request.qos,
        after=dialect_of(scheduler).awaited(text),
    )
    return live_limits(scheduler, who, env=env, site=site, ask=ask)


def _judged(
    request: JobRequest, live: Live, scheduler: str, found: Sequence[Finding]
) -> Checks:
    """Refuse a problem; return what was checked, with the notes.

    Raises:
        UsageError: one of the findings is a problem, or no node fits.
    """
    refuse(found)
    fit = _fitting(request, live, scheduler)
    refuse(tuple(_no_node(request, live, fit)))
    doubts = (_doubt(one) for one in found if one.severity == "note")
    return Checks(tuple(_rows(request, live, scheduler)), (*doubts, *_unavailable(fit)))


def _with_budget(  # noqa: PLR0913, PLR0917 - what a budget depends on
    checks: Checks,
    request: JobRequest,
    live: Live,
    elements: int,
    site: Mapping[str, object],
    env: Mapping[str, str],
) -> Checks:
    """Add what accounts have left, and a warning if it is less than the jobs may use.

    Raises:
        FormatError: the site's command on budgets is not a command.
    """
    budgets = () if live.limits is None else live.limits.budgets
    return msgspec.structs.replace(
        checks,
        doubts=(*checks.doubts, *_over_budget(request, elements, budgets)),
        left=(*_left_words(budgets), *_site_balance(site, env)),
    )


def _left_words(budgets: Sequence[Budget]) -> Iterator[str]:
    """Yield what accounts have left, in words."""
    for one in budgets[:_NAMED]:
        pairs = ((one.gpu, "GPU"), (one.cpu, "CPU"))
        hours = [
            f"{three(left)} {unit} hours" for left, unit in pairs if left is not None
        ]
        whose = f"your share of {one.account}" if one.user else one.account
        yield f"{whose} has {' and '.join(hours)} left"


def _over_budget(
    request: JobRequest, elements: int, budgets: Sequence[Budget]
) -> Iterator[str]:
    """Warn if an account has fewer hours left than the jobs may use."""
    if request.time_limit is None:
        return
    hours = elements * request.nodes * request.time_limit / HOUR
    for one in budgets:
        needs = ((one.gpu, request.gpus, "GPU"), (one.cpu, request.cpus or 1, "CPU"))
        for left, count, unit in needs:
            if left is not None and left < count * hours:
                yield (
                    f"{one.account} has {three(left)} {unit} hours left, and the job "
                    f"may use {three(count * hours)}: it may wait, or stop halfway"
                )


def _site_balance(site: Mapping[str, object], env: Mapping[str, str]) -> Iterator[str]:
    """Yield the first line that the site's own command on budgets prints."""
    command = site.get("budget")
    if command is None:
        return
    if not isinstance(command, str):
        raise FormatError(f"cluster.budget must be a command, not {command!r}")
    try:
        ran = run_as_is(
            ("/bin/sh", "-c", command), cwd=None, env=env, timeout=_BALANCE_TIME
        )
    except SchedulerError as error:
        yield f"budget unknown ({error})"
        return
    lines = [line.strip() for line in ran.out.splitlines() if line.strip()]
    if ran.code == 0 and lines:
        yield lines[0]
    else:
        yield f"budget unknown ({command}: {ran.complaint()})"


def text_findings(  # noqa: PLR0913 - keyword-only past the second
    text: str,
    live: Live,
    *,
    scheduler: str,
    cwd: str,
    env: Mapping[str, str],
    ignore: Sequence[str] = (),
    ours: frozenset[str] = _OURS,
    site: Mapping[str, object] | None = None,
) -> tuple[Finding, ...]:
    """Lint a script with the cluster's limits, without findings of the rules *ours*."""
    dialect = dialect_of(scheduler)
    facts = facts_of(
        cwd,
        env,
        limits=live.limits,
        jobs=live.jobs,
        default_files=dialect.default_files(cwd, env),
        scheduler=scheduler,
        site=site,
    )
    found = dialect.lint(text, facts)
    kept, _ = acknowledged(text, found, ignore)
    return tuple(one for one in kept if one.rule not in ours)


def _too_many(
    elements: int, script: JobScript, limits: Limits | None
) -> Iterator[Finding]:
    """Yield an error if all parts together exceed a limit that each part keeps."""
    most = None if limits is None else limits.most_submitted
    if most is not None and script.elements <= most < elements:
        yield Finding(
            line=None,
            rule="array-size",
            severity="problem",
            text=f"{elements:,} elements in several jobs",
            effect=f"you may submit {most:,} more jobs: the last ones are refused",
            cure="put more tasks into an element (weigh plan), or submit fewer at once",
        )


def refuse(found: Sequence[Finding]) -> None:
    """Raise UsageError if one of the findings is a problem.

    Raises:
        UsageError: lists all errors, each with its fix.
    """
    errors = [one for one in found if one.severity == "problem"]
    if errors:
        raise UsageError("\n".join(_refusal(errors)))


def _fitting(request: JobRequest, live: Live, scheduler: str) -> list[Node]:
    """Return the nodes that are large enough for an element, whatever their state."""
    queues = queues_of(request, live.limits) if live.limits else ()
    names = {queue.name for queue in queues}
    return [
        node
        for node in live.nodes
        if names & set(node.queues) and _fits(node, request, scheduler)
    ]


def _fits(node: Node, request: JobRequest, scheduler: str) -> bool:
    """Return whether an element fits on the node when it is empty.

    Where CPUs and memory depend on the queue, only GPUs are compared.
    """
    gpus = sum(one.total for one in _gpus_of(node, request))
    if not KINDS[scheduler].traits.fits_nodes:
        return bool(gpus) or not request.gpus
    return (
        _left(node.cpus, 0) >= request.cpus
        and _left(node.memory, 0) >= (request.memory or 0)
        and gpus >= request.gpus
    )


def _no_node(request: JobRequest, live: Live, fit: Sequence[Node]) -> Iterator[Finding]:
    """Yield an error if no node has all of the request, though each part is allowed."""
    if fit or not live.nodes or not live.limits or not queues_of(request, live.limits):
        return
    cpus = request.cpus or 1
    parts = [counted(cpus, "CPU")]
    if request.memory is not None:
        parts.append(format_size(request.memory))
    if request.gpus:
        kind = f"{request.gpu_type} " if request.gpu_type else ""
        parts.append(counted(request.gpus, f"{kind}GPU"))
    yield Finding(
        line=None,
        rule="no-such-node",
        severity="problem",
        text=f"each: {', '.join(parts)}",
        effect="no node of the queue has all of that: the job would never start",
        cure="weigh cluster shows what nodes have",
    )


def _unavailable(fit: Sequence[Node]) -> Iterator[str]:
    """Yield a warning if no node that fits takes jobs now: the job would wait."""
    if not fit or any(takes_jobs(node) for node in fit):
        return
    which = f"the only node that fits, {fit[0].name},"
    if len(fit) > 1:
        names = ", ".join(node.name for node in fit[:_NAMED])
        more = f" and {len(fit) - _NAMED} more" if len(fit) > _NAMED else ""
        which = f"all nodes that fit ({names}{more})"
    reasons = {node.reason or node.state.lower() for node in fit}
    why = f" ({', '.join(sorted(reasons)[:_NAMED])})"
    verb = "takes" if len(fit) == 1 else "take"
    yield f"{which} {verb} no jobs now{why}: the job waits until that changes"


def _is_our_log(script: JobScript, one: Finding) -> bool:
    """Return whether the finding is about the log directory, which weigh creates."""
    named = script.log in one.text or script.log.replace("%", "%%") in one.text
    return named and one.rule in _LOGS


def _own_lines(script: JobScript, text: str, scheduler: str) -> frozenset[int]:
    """Return the line numbers of the commands that weigh wrote; no directives."""
    theirs = set(script.setup.lines)
    is_directive = KINDS[scheduler].directive.match
    return frozenset(
        line.line
        for line in read_script(text).lines
        if not line.text.startswith("#")
        and not is_directive(line.text)
        and line.text not in theirs
    )


def _refusal(errors: Sequence[Finding]) -> Iterator[str]:
    yield "not submitted (--no-checks submits it anyway):"
    for one in errors:
        yield from _indented(one.text, 2)
        cure = f" ({one.cure})" if one.cure else ""
        yield from _indented(f"{one.effect}{cure} [{one.rule}]", 6)


def _indented(text: str, room: int) -> Iterator[str]:
    return (" " * room + line for line in folded(text, WIDTH - room) if line)


def _doubt(one: Finding) -> str:
    cure = f" ({one.cure})" if one.cure else ""
    return f"{one.text or one.rule}: {one.effect}{cure} [{one.rule}]"


def _rows(request: JobRequest, live: Live, scheduler: str) -> Iterator[Check]:
    limits = live.limits
    if limits is None or not limits.queues:
        yield Check("limits", "?", live.trouble or "the scheduler names no queue")
        return
    queues = queues_of(request, limits)
    yield _queue_row(request, queues, live.nodes, _fitting(request, live, scheduler))
    yield _time_row(request, queues)
    if request.memory is None and request.virtual_memory is None:
        yield _memory_row(request, queues, scheduler)
    yield from _gpu_row(request, queues, live.nodes)
    yield from _account_row(request, limits)


def queues_of(request: JobRequest, limits: Limits) -> tuple[QueueLimits, ...]:
    """Return the queues that the job may run in: those named, the default, or all."""
    if request.queue is not None:
        names = [name.partition("@")[0] for name in request.queue.split(",")]
        return tuple(
            queue
            for queue in limits.queues
            if any(fnmatchcase(queue.name, name) for name in names)
        )
    return tuple(one for one in limits.queues if one.default) or limits.queues


def _queue_row(
    request: JobRequest,
    queues: Sequence[QueueLimits],
    nodes: Sequence[Node],
    fit: Sequence[Node],
) -> Check:
    free = sum(_is_free(node, request) for node in fit)
    kind = f" with {request.gpu_type or 'GPUs'}" if request.gpus else ""
    count = counted(len(fit), "node")
    what = f"queue {_named(queues)}" if request.queue or len(queues) == 1 else "queue"
    detail = f"{count}{kind}, {free} free now" if nodes else ""
    return Check(what, "ok" if request.queue or len(queues) == 1 else "any", detail)


def _gpus_of(node: Node, request: JobRequest) -> list[NodeGpus]:
    """Return the GPUs of a node that are, or may be, of the requested type.

    A type may be a part of the model's name: ``v100`` of ``Tesla V100-SXM2-32GB``.
    """
    kind = (request.gpu_type or "").lower()
    return [one for one in node.gpus if kind in one.name.lower() or one.name == UNTYPED]


def _is_free(node: Node, request: JobRequest) -> bool:
    """Return whether a node has space for an element now."""
    gpus = sum(one.total - one.used for one in _gpus_of(node, request))
    return (
        takes_jobs(node)
        and _left(node.cpus, node.cpus_used) >= request.cpus
        and _left(node.memory, node.memory_used) >= (request.memory or 0)
        and gpus >= request.gpus
    )


def _left(total: int | None, used: int | None) -> float:
    return float("inf") if total is None else total - (used or 0)


def _time_row(request: JobRequest, queues: Sequence[QueueLimits]) -> Check:
    if request.time_limit is not None:
        limits = [queue.time_limit for queue in queues]
        known = [limit for limit in limits if limit is not None]
        allows = (
            f"queue allows {format_limit(max(known))}"
            if known and len(known) == len(limits)
            else "no limit here"
        )
        return Check(f"time {format_limit(request.time_limit)}", "ok", allows)
    defaults = (
        f"{queue.name} gives {_duration(queue.default_time or queue.time_limit)}"
        for queue in queues[:_NAMED]
    )
    return Check("time", "default", f"no --time: queue {', '.join(defaults)}")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "no limit"
    text = format_duration(seconds).replace(" m", " min")
    return text.removesuffix(" 00 s").removesuffix(" 00 min").removesuffix(" 00 h")


def _memory_row(
    request: JobRequest, queues: Sequence[QueueLimits], scheduler: str
) -> Check:
    given = [_default_memory(queue, request, scheduler) for queue in queues]
    if len(set(given)) == 1 < len(given):
        words = f"every queue gives {given[0]}"
    else:
        pairs = list(zip(queues, given, strict=True))[:_NAMED]
        words = "queue " + ", ".join(f"{one.name} gives {text}" for one, text in pairs)
    return Check("memory", "default", f"no --memory: {words}")


def _default_memory(queue: QueueLimits, request: JobRequest, scheduler: str) -> str:
    if queue.default_memory is not None:
        return format_size(queue.default_memory)
    if queue.default_memory_per_cpu is not None:
        return format_size(queue.default_memory_per_cpu * max(1, request.cpus))
    return KINDS[scheduler].traits.no_memory


def _gpu_row(
    request: JobRequest, queues: Sequence[QueueLimits], nodes: Sequence[Node]
) -> Iterator[Check]:
    names = {queue.name for queue in queues}
    here = [node for node in nodes if names & set(node.queues)]
    if request.gpus or request.queue is None or not here:
        return
    if all(node.gpus for node in here):
        kinds = dict.fromkeys(one.name for node in here for one in node.gpus)
        has = ", ".join("GPUs" if kind == UNTYPED else kind for kind in kinds)
        detail = f"no --gpus: the job gets none (the nodes have {has})"
        yield Check("GPU", "default", detail)


def _account_row(request: JobRequest, limits: Limits) -> Iterator[Check]:
    if limits.accounts is None:
        return
    if request.account is not None or len(limits.accounts) == 1:
        yield Check("account", "ok", request.account or limits.accounts[0])
    elif limits.accounts:
        yours = ", ".join(limits.accounts[:_NAMED])
        yield Check("account", "default", f"your default account, one of {yours}")


def _named(queues: Sequence[QueueLimits]) -> str:
    return ", ".join(queue.name for queue in queues[:_NAMED])


def log_row(script: JobScript, *, was_there: bool) -> Check:
    """Return the row on the log directory."""
    path = os.path.relpath(script.log, script.cwd)
    shown = script.log if path.startswith("..") else path
    return Check("log directory", "ok" if was_there else "made", shown)
