"""Check the script, request and tasks of a job before it is sent: will it start?"""

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.check.script import dialect_of, facts_of
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner, ask_scheduler
from weigh.flow.site.cluster import live_limits
from weigh.flow.submit.submit_script import text_of_script
from weigh.model.cluster import UNTYPED, ClusterLimits, ClusterNode, QueueLimits
from weigh.model.job import JobRequest, JobScript
from weigh.model.lint import LintFinding
from weigh.model.plan import Plan
from weigh.planning import queue_order
from weigh.regular_file import only_regular
from weigh.render.printable import WIDTH
from weigh.render.request_lines import folded_lines
from weigh.schedulers import KINDS
from weigh.schedulers.kind import LiveAnswers
from weigh.schedulers.lint.rules import acknowledged
from weigh.schedulers.reachable import Scheduler
from weigh.schedulers.script import read_script
from weigh.units import Seconds, count_with_noun, format_size

# findings on what weigh's own job script does on purpose
_LOGS = frozenset({"log-directory", "log-pattern"})
_OURS = frozenset(
    {"memory-per-slot", "no-soft-limit", "literal-dollar", "log-shared", "no-shell"}
    | {"no-throttle", "elements-alike", "no-array", "starts-at-home"}
)
# of a finding: what happens where no other queue takes the job
_END_OF_REFUSED = re.compile(
    r": (?:refused|(?:accepted, )?never starts|.*never start)$"
)


# of --queue auto: a site may have a hundred partitions, and a controller that is slow
LONGEST_ASKING_QUEUES: Seconds = 30.0


class SubmitChecks(msgspec.Struct, frozen=True):
    """The warnings of a script that may be submitted, and why limits are not known."""

    doubts: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()  # weigh check SCRIPT does not have it
    has_free_nodes: bool = False  # with room for an element now


class ScriptToCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A job script that is to be submitted: a user's, or one that weigh wrote."""

    text: str
    request: JobRequest
    scheduler: str
    written: JobScript | None = None
    """None: it is the user's own."""


def script_to_check(
    scheduler: Scheduler, job_script: JobScript, job_request: JobRequest
) -> ScriptToCheck:
    """Return a script of weigh's with this request."""
    job_script = replace(job_script, request=job_request)
    return ScriptToCheck(
        text=text_of_script(scheduler, job_script),
        request=job_request,
        scheduler=scheduler.name,
        written=job_script,
    )


def check_request(here: Here, script: ScriptToCheck) -> SubmitChecks:
    """Compare a script with the cluster's limits.

    Raises:
        UsageError: the job would be refused, never start, or run other than requested;
            the message names the reason and the fix.
        FormatError: a settings file does not parse.
    """
    job_request, scheduler = script.request, script.scheduler
    if scheduler not in KINDS:  # this machine has no limits
        return SubmitChecks()
    live = _limits_for_script(here, script)
    found = _findings_on_user(here, script, live)
    refuse(found)
    # each part of the request is allowed here: is there a node with all of it?
    fit = _fitting(job_request, live, scheduler)
    refuse(tuple(_no_node(job_request, live, fit)))
    doubts = tuple(_doubt_of_finding(one) for one in found if one.severity == "note")
    unchecked: tuple[str, ...] = ()
    if live.limits is None or not live.limits.queues:
        why = live.trouble or "the scheduler names no queue"
        unchecked = (f"limits not checked: {why}",)
    return SubmitChecks(doubts, unchecked, _has_free_nodes(job_request, fit))


def _limits_for_script(here: Here, script: ScriptToCheck) -> LiveAnswers:
    awaited = dialect_of(script.scheduler).awaited(script.text)
    return live_limits(script.scheduler, awaited, env=here.env)


def _findings_on_user(
    here: Here, script: ScriptToCheck, live_answers: LiveAnswers
) -> tuple[LintFinding, ...]:
    """Lint a script; the user cannot act on what weigh wrote itself."""
    text, written = script.text, script.written
    found = text_findings(here, text, live_answers, scheduler=script.scheduler)
    if written is None:
        return found
    lines = _own_lines(written, text, script.scheduler)
    return tuple(one for one in found if not _is_finding_on_weigh(one, written, lines))


def why_needs_have_failed(here: Here, script: ScriptToCheck) -> str | None:
    """Return that a job has failed which a script waits for; None if none has."""
    if not dialect_of(script.scheduler).awaited(script.text):
        return None  # nothing to ask about
    found = _findings_on_user(here, script, _limits_for_script(here, script))
    return next((one.effect for one in found if _is_on_a_job_that_ended(one)), None)


def with_queues_that_take(
    here: Here,
    scheduler: Scheduler,
    job_request: JobRequest,
    script_of: Callable[[JobRequest], ScriptToCheck],
) -> tuple[JobRequest, str]:
    """Return the request with all queues that take it, and a line that names them.

    The scheduler starts the job in that one of them which has room first.

    Raises:
        UsageError: none takes it, or the queues are not known.
        FormatError: a settings file does not parse.
    """
    live = _limits_for_script(here, script_of(job_request))
    queues = live.limits.queues if live.limits else ()
    if not queues:
        why = live.trouble or "the scheduler names none"
        raise UsageError(f"--queue auto: no queue is known: {why} (--queue NAME)")
    reasons: dict[str, str | None] = {}
    not_asked: list[str] = []
    until = here.clock() + LONGEST_ASKING_QUEUES
    for queue in sorted(queues, key=lambda one: not one.default):
        script = script_of(replace(job_request, queue=queue.name))
        refusal = _why_limits_refuse(here, script, live) if queue.open else "closed"
        # only a queue that its limits leave open is asked: each is a dry submission
        if refusal is None and here.clock() >= until:
            not_asked.append(queue.name)
            continue
        if refusal is None:
            refusal = _why_scheduler_refuses(here, scheduler, script)
        reasons[queue.name] = refusal
    taking = [name for name, reason in reasons.items() if not reason]
    left_out = [f"{name}: {why}" for name, why in reasons.items() if why]
    if not_asked:
        left_out.append(f"not asked, name one by --queue: {', '.join(not_asked)}")
    others = "; ".join(left_out)
    if not taking:
        raise UsageError(f"--queue auto: no queue takes the job: {others}")
    line = f"--queue auto: {', '.join(taking)}" + (f" (not {others})" if others else "")
    return replace(job_request, queue=",".join(taking), is_any_queue=True), line


def within_time_of_queue(
    here: Here, job_request: JobRequest, plan: Plan, scheduler: str, reserved: int
) -> tuple[JobRequest, list[str]]:
    """Return the request with no more time than its queue allows, and notes on that.

    The *reserved* seconds that the script needs after its tasks were added to the time
    of the plan. Where that alone is too long for the queue, tasks have less instead.
    """
    planned, added = plan.request.time_limit or 0, job_request.time_limit or 0
    # another time is one of the scheduler's own flags
    is_added = added == queue_order.planned_limit(plan, reserved)
    if added <= planned or not is_added:
        return job_request, []
    limits = live_limits(scheduler, (), env=here.env).limits
    of_queue = (
        queue.time_limit
        for queue in (limits.queues if limits else ())
        if job_request.queue == queue.name or (not job_request.queue and queue.default)
    )
    allowed = math.floor(next(of_queue, None) or 0)
    least = queue_order.least_limit(plan, reserved) or 0
    if not max(planned, least) <= allowed < added:
        return job_request, []
    limit, note = queue_order.enough_time(plan, allowed, reserved)
    return replace(job_request, time_limit=limit), [note] if note else []


def _why_limits_refuse(
    here: Here, script: ScriptToCheck, live_answers: LiveAnswers
) -> str | None:
    """Return why the limits of a script's one queue refuse it; None if they do not."""
    queue = script.request.queue
    fit = _fitting(script.request, live_answers, script.scheduler)
    found = (
        *_findings_on_user(here, script, live_answers),
        *_no_node(script.request, live_answers, fit),
    )
    for one in found:
        if one.severity == "problem":
            effect = _END_OF_REFUSED.sub("", one.effect).replace(f"{queue} ", "")
            # "is 2 h": the subject stands in the script's line
            what = one.rule.partition("-")[0] if effect.startswith("is ") else ""
            return f"{what} {effect}".strip()
    return None


def _why_scheduler_refuses(
    here: Here, scheduler: Scheduler, script: ScriptToCheck
) -> str | None:
    """Return why the scheduler refuses a script: accounts, QOS, what plugins want."""
    try:
        predicted_start_of_text(scheduler, script.text, here.cwd)
    except UsageError as error:
        # without who found it, and without the way to submit it anyway
        why = str(error).partition(": ")[2].partition(" (--no-checks")[0]
        return why or "refused"
    return None


def predicted_start_of_text(
    scheduler: Scheduler, text: str, cwd: str
) -> Seconds | None:
    """Return when a script that is in no file would start, if that is predicted.

    Raises:
        UsageError: it would be refused, or never start.
    """
    with tempfile.NamedTemporaryFile("w", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        return scheduler.predict_start(file.name, cwd=cwd)


def text_findings(
    here: Here, text: str, live_answers: LiveAnswers, *, scheduler: str
) -> tuple[LintFinding, ...]:
    """Lint a script with the cluster's limits, as the settings want it."""
    facts = facts_of(here, scheduler=scheduler, live_answers=live_answers)
    found = dialect_of(scheduler).lint(text, facts)
    return acknowledged(text, found, here.settings.ignore)[0]


def _is_finding_on_weigh(
    lint_finding: LintFinding, job_script: JobScript, lines: frozenset[int]
) -> bool:
    """Return whether a finding is about what weigh wrote on purpose into *job_script*.

    That is a rule of _OURS, one of its *lines*, the log directory, which it makes, or a
    hold that ends with a failure: the script itself looks at what it needs.
    """
    named = (
        job_script.log in lint_finding.text
        or job_script.log.replace("%", "%%") in lint_finding.text
    )
    return bool(
        lint_finding.rule in _OURS
        or lint_finding.line in lines
        or (job_script.needs and _is_on_a_job_that_ended(lint_finding))
        or (named and lint_finding.rule in _LOGS)
    )


def _is_on_a_job_that_ended(lint_finding: LintFinding) -> bool:
    # one that is not known is a mistake, whatever the script looks at
    return lint_finding.rule == "dependency" and " ended " in lint_finding.effect


def refuse(lint_findings: Sequence[LintFinding]) -> None:
    """Raise UsageError if one of the findings is a problem.

    Raises:
        UsageError: lists all errors, each with its fix.
    """
    lines = list[str]()
    for one in lint_findings:
        if one.severity == "problem":
            cure = f" ({one.cure})" if one.cure else ""
            lines += _indented(one.text, 2)
            lines += _indented(f"{one.effect}{cure} [{one.rule}]", 6)
    if lines:
        head = "not submitted (--no-checks submits it anyway):"
        raise UsageError(head, *lines)


def _fitting(
    job_request: JobRequest, live_answers: LiveAnswers, scheduler: str
) -> list[ClusterNode]:
    """Return the nodes that are large enough for an element, whatever their state."""
    limits = live_answers.limits or ClusterLimits()
    names = {queue.name for queue in queues_of(job_request, limits)}
    return [
        node
        for node in limits.nodes
        if names & set(node.queues) and _node_fits_request(node, job_request, scheduler)
    ]


def excluding_if_others_fit(
    here: Here,
    job_request: JobRequest,
    scheduler: str,
    run_command: CommandRunner = ask_scheduler,
) -> JobRequest:
    """Return the request; it excludes no node where no other could run the job.

    It would be refused or never start: the node that is left is better than none.
    """
    if not job_request.exclude:
        return job_request
    if scheduler in KINDS:  # else it is this machine
        live = live_limits(scheduler, (), env=here.env, run_command=run_command)
        excluded = {name.partition(".")[0] for name in job_request.exclude}
        fit = {one.name for one in _fitting(job_request, live, scheduler)}
        others = {name.partition(".")[0] for name in fit} - excluded
        # without a list of nodes nothing follows
        if others or live.limits is None or not live.limits.nodes:
            return job_request
    return replace(job_request, exclude=())


def _has_room(
    cluster_node: ClusterNode, job_request: JobRequest, *, is_free: bool = False
) -> bool:
    """Return whether an element fits on a node when it is empty, or as it *is_free*."""
    free = int(is_free)
    # a type may be a part of the model's name: v100 of Tesla V100-SXM2-32GB
    kind = (job_request.gpu_type or "").lower()
    gpus = sum(
        one.total - free * one.used
        for one in cluster_node.gpus
        if kind in one.name.lower() or one.name == UNTYPED
    )

    def left(total: int | None, used: int | None) -> float:
        # what the cluster does not show is assumed to be enough
        return math.inf if total is None else total - free * (used or 0)

    return (
        left(cluster_node.cpus, cluster_node.cpus_used) >= job_request.cpus
        and left(cluster_node.memory, cluster_node.memory_used)
        >= (job_request.memory or 0)
        and gpus >= job_request.gpus
    )


def _node_fits_request(
    cluster_node: ClusterNode, job_request: JobRequest, scheduler: str
) -> bool:
    """Return whether an element fits on the node when it is empty."""
    if not KINDS[scheduler].traits.fits_nodes:
        # CPUs and memory depend on the queue there: only GPUs are compared
        has_gpu = replace(job_request, cpus=0, memory=None, gpus=1)
        return not job_request.gpus or _has_room(cluster_node, has_gpu)
    return _has_room(cluster_node, job_request)


def _no_node(
    job_request: JobRequest,
    live_answers: LiveAnswers,
    fitting_nodes: Sequence[ClusterNode],
) -> Iterator[LintFinding]:
    """Yield an error if no node has all of the request, though each part is allowed."""
    if (
        # without the list of nodes, or a queue that is known, nothing follows from it
        fitting_nodes
        or not live_answers.limits
        or not live_answers.limits.nodes
        or not queues_of(job_request, live_answers.limits)
    ):
        return
    cpus = job_request.cpus or 1
    parts = [count_with_noun(cpus, "CPU")]
    if job_request.memory is not None:
        parts.append(format_size(job_request.memory))
    if job_request.gpus:
        kind = f"{job_request.gpu_type} " if job_request.gpu_type else ""
        parts.append(count_with_noun(job_request.gpus, f"{kind}GPU"))
    yield LintFinding(
        line=None,
        rule="no-such-node",
        severity="problem",
        text=f"each: {', '.join(parts)}",
        effect="no node of the queue has all of that: the job would never start",
        cure="weigh cluster shows what nodes have",
    )


def _own_lines(job_script: JobScript, text: str, scheduler: str) -> frozenset[int]:
    """Return the line numbers of the commands that weigh wrote; no directives."""
    # lines of --setup are the user's, though weigh wrote them into the script
    theirs = set(job_script.setup.lines)
    is_directive = KINDS[scheduler].directive.match
    return frozenset(
        line.line
        for line in read_script(text).lines
        if not line.text.startswith("#")
        and not is_directive(line.text)
        and line.text not in theirs
    )


def _indented(text: str, room: int) -> Iterator[str]:
    return (" " * room + line for line in folded_lines(text, WIDTH - room) if line)


def _doubt_of_finding(lint_finding: LintFinding) -> str:
    cure = f" ({lint_finding.cure})" if lint_finding.cure else ""
    place = f"{lint_finding.text}: " if lint_finding.text else ""
    return f"{place}{lint_finding.effect}{cure} [{lint_finding.rule}]"


def queues_of(
    job_request: JobRequest, limits: ClusterLimits
) -> tuple[QueueLimits, ...]:
    """Return the queues that the job may run in: those named, the default, or all."""
    if job_request.queue is not None:
        # Grid Engine: a queue on one host is written queue@host, and may be a pattern
        names = [name.partition("@")[0] for name in job_request.queue.split(",")]
        return tuple(
            queue
            for queue in limits.queues
            if any(fnmatchcase(queue.name, name) for name in names)
        )
    # without a default queue the scheduler takes any that fits
    return tuple(one for one in limits.queues if one.default) or limits.queues


def _has_free_nodes(
    job_request: JobRequest, fitting_nodes: Sequence[ClusterNode]
) -> bool:
    """Return whether nodes that an element fits have room for it now."""
    takers = [node for node in fitting_nodes if node.takes_jobs]
    free = sum(_has_room(node, job_request, is_free=True) for node in takers)
    return free >= job_request.nodes


# these cannot be imported without torch
_NEED_TORCH = re.compile(
    r"(?:^|;|[\"'])[ \t]*(?:import|from)[ \t]+(?:[\w., \t]*,[ \t]*)?"
    r"(?:torch|torchvision|torchaudio|lightning|pytorch_lightning|timm|accelerate"
    r"|deepspeed|flair|stanza|fastai|sentence_transformers)\b",
    re.MULTILINE,
)
# they come with torch, so what they start uses it
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
# letters; imports stand at the top
_LONGEST_FILE = 1 << 20


def imports_torch(plan: Plan, cwd: str, job_request: JobRequest) -> bool:
    """Return whether a task of *plan*, started in *cwd*, is known to import torch.

    It is looked for in the lines, and in the programs that those name; not in the
    modules that these import. Only a job with a GPU tries torch on the node: without,
    no file is read.
    """
    return job_request.gpus > 0 and any(
        _line_needs_torch(kind.example, cwd) for kind in plan.kinds
    )


def _line_needs_torch(line: str, cwd: str) -> bool:
    words = line.split()
    if any(os.path.basename(word) in _LAUNCHERS for word in words):
        return True
    # the word after -m is a module of this folder, or one that is installed
    modules = (word.replace(".", "/") + ".py" for word in words)
    names = [*filter(lambda word: word.endswith((".py", ".sh")), words), *modules]
    texts = (_text_of_program(os.path.join(cwd, name)) for name in names)
    return any(_NEED_TORCH.search(text) for text in (line, *texts))


def _text_of_program(path: str) -> str:
    try:
        with open(
            path, encoding="utf-8", errors="replace", opener=only_regular
        ) as file:
            return file.read(_LONGEST_FILE)
    except OSError:
        return ""
