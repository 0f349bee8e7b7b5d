"""Check the script and request of a job before it is submitted: will it start?"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from weigh.errors import CommandNotExecutableError, CommandNotFoundError, UsageError
from weigh.flow.check.script import dialect_of, facts_of
from weigh.flow.here import Here
from weigh.flow.site.ask import Ask, ask_scheduler
from weigh.flow.site.live_limits import live_limits
from weigh.flow.site.schedulers import current_user
from weigh.model.cluster import UNTYPED, Node, NodeGpus
from weigh.model.job import JobRequest, JobScript
from weigh.model.limits import Limits, QueueLimits
from weigh.model.lint import Finding
from weigh.render.request_lines import WIDTH, folded
from weigh.render.submit_lines import Check
from weigh.schedulers import KINDS
from weigh.schedulers.cluster_view import takes_jobs
from weigh.schedulers.lint.rules import acknowledged
from weigh.schedulers.protocol import Live, Who
from weigh.schedulers.script import read_script
from weigh.units import counted, format_limit, format_size

# findings on what weigh's own job script does on purpose
_LOGS = frozenset({"log-directory", "log-pattern"})
_OURS = frozenset(
    {"memory-per-slot", "no-soft-limit", "literal-dollar", "log-shared", "no-shell"}
    | {"no-throttle", "elements-alike", "no-array", "starts-at-home"}
)
_NAMED = 3


class Checks(msgspec.Struct, frozen=True):
    """The passed checks, one row each, and the warnings."""

    rows: tuple[Check, ...] = ()
    doubts: tuple[str, ...] = ()


def check_request(  # noqa: PLR0913 - keyword-only past the third
    here: Here,
    text: str,
    request: JobRequest,
    *,
    scheduler: str,
    elements: int,
    written: JobScript | None = None,
    ask: Ask = ask_scheduler,
) -> Checks:
    """Compare a script with the cluster's limits: a user's, or the one *written* by us.

    *elements* counts the elements of all jobs of this submission.

    Raises:
        UsageError: the job would be refused, never start, or run other than requested;
            the message names the reason and the fix.
        FormatError: a settings file does not parse.
    """
    if scheduler not in KINDS:
        return Checks()
    who = Who(
        user=current_user(),
        account=request.account,
        qos=request.qos,
        after=dialect_of(scheduler).awaited(text),
    )
    live = live_limits(
        scheduler, who, env=here.env, site=here.settings.cluster, ask=ask
    )
    found = text_findings(here, text, live, scheduler=scheduler)
    if written is not None:
        lines = _own_lines(written, text, scheduler)
        found = tuple(one for one in found if not _is_ours(one, written, lines))
        found += tuple(_too_many(elements, written, live.limits))
    refuse(found)
    fit = _fitting(request, live, scheduler)
    refuse(tuple(_no_node(request, live, fit)))
    doubts = (_doubt(one) for one in found if one.severity == "note")
    return Checks(tuple(_rows(request, live, fit)), (*doubts, *_unavailable(fit)))


def text_findings(
    here: Here, text: str, live: Live, *, scheduler: str
) -> tuple[Finding, ...]:
    """Lint a script with the cluster's limits, as the settings want it."""
    facts = facts_of(here, scheduler=scheduler, live=live)
    found = dialect_of(scheduler).lint(text, facts)
    return acknowledged(text, found, here.settings.ignore)[0]


def _is_ours(one: Finding, script: JobScript, lines: frozenset[int]) -> bool:
    """Return whether a finding is about what weigh wrote, on purpose, into *script*.

    That is a rule of _OURS, one of its *lines*, or the log directory, which it makes.
    """
    named = script.log in one.text or script.log.replace("%", "%%") in one.text
    return one.rule in _OURS or one.line in lines or (named and one.rule in _LOGS)


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
    place = f"{one.text}: " if one.text else ""
    return f"{place}{one.effect}{cure} [{one.rule}]"


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


def _rows(request: JobRequest, live: Live, fit: Sequence[Node]) -> Iterator[Check]:
    """Yield what was compared: the queue with its nodes that fit, and the time."""
    if live.limits is None or not live.limits.queues:
        yield Check("limits", "?", live.trouble or "the scheduler names no queue")
        return
    queues = queues_of(request, live.limits)
    is_clear = bool(request.queue) or len(queues) == 1
    names = ", ".join(queue.name for queue in queues[:_NAMED])
    free = sum(_is_free(node, request) for node in fit)
    kind = f" with {request.gpu_type or 'GPUs'}" if request.gpus else ""
    count = f"{len(fit)} node{'' if len(fit) == 1 else 's'}"
    yield Check(
        f"queue {names}" if is_clear else "queue",
        "ok" if is_clear else "any",
        f"{count}{kind}, {free} free now" if live.nodes else "",
    )
    if request.time_limit is None:
        return  # a note names the default
    limits = [queue.time_limit for queue in queues]
    known = [limit for limit in limits if limit is not None]
    is_limited = bool(known) and len(known) == len(limits)
    allows = f"queue allows {format_limit(max(known))}" if is_limited else "no limit"
    yield Check(f"time {format_limit(request.time_limit)}", "ok", allows)


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


def log_row(script: JobScript, *, was_there: bool) -> Check:
    """Return the row on the log directory."""
    path = os.path.relpath(script.log, script.cwd)
    shown = script.log if path.startswith("..") else path
    return Check("log directory", "ok" if was_there else "made", shown)


def refuse_missing_program(script: JobScript, env: Mapping[str, str]) -> None:
    """Refuse a job of this machine whose tasks begin with a program that is missing.

    What an environment, a container or an earlier job brings is not known yet.

    Raises:
        CommandNotFoundError: there is such a program.
        CommandNotExecutableError: it is a file that cannot be executed.
    """
    setup = script.setup
    if setup.modules or setup.conda or setup.venv or setup.lines or setup.container:
        return
    for name in () if script.needs else script.programs:
        # bash, since a line may begin with one of its own words
        words = ["/bin/bash", "-c", 'command -v -- "$1"', "-", name]
        looked_up = subprocess.run(
            words,
            cwd=script.cwd,
            env=env,
            capture_output=True,
            check=False,
        )
        anyway = "--no-checks submits it anyway"
        if looked_up.returncode and os.path.exists(os.path.join(script.cwd, name)):
            raise CommandNotExecutableError(f"cannot execute {name} ({anyway})")
        if looked_up.returncode:
            raise CommandNotFoundError(f"command not found: {name} ({anyway})")
