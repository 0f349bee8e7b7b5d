"""``weigh submit --interactive``: a shell on a node, with a small default request."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import FormatError, UsageError
from weigh.flow.here import Here
from weigh.flow.job_scripts import refuse_job_script
from weigh.flow.site.ask import CommandRunner, ask_scheduler
from weigh.flow.site.cluster import live_limits
from weigh.flow.site.schedulers import reach
from weigh.flow.submit.checks import (
    ScriptToCheck,
    refuse,
    text_findings,
    with_queues_that_take,
)
from weigh.flow.submit.job_request import SubmitOptions, typed_request, where_to
from weigh.model.cluster import ClusterLimits
from weigh.model.job import ANY_QUEUE, JobRequest, JobSetup
from weigh.model.record import SiteComplexes
from weigh.schedulers import KINDS
from weigh.schedulers.kind import SchedulerKind, directive_line
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.units import GIB, HOUR, parse_limit

# the default request: enough to look at a job, small enough to start soon
_CPUS, _CPUS_WITH_GPU = 2, 4
_MEMORY = 8 * GIB
_TIME = HOUR // 2
_MAPPED = 4 * GIB  # of address space, which counts what is mapped as well
# options of a job that a shell on a node cannot have
_OF_JOBS = (
    *("after", "then", "throttle", "notify", "stage_in", "stage_out"),
    *("requeue", "again", "name", "nodes"),
)


class InteractiveSession(msgspec.Struct, frozen=True, kw_only=True):
    """The command line that opens a shell, or runs a command, on a node."""

    argv: tuple[str, ...]
    request: JobRequest  # with what was filled in


def session_of(
    here: Here, options: SubmitOptions, limit: str = ""
) -> InteractiveSession:
    """Return the command line that opens a shell on a node with these options.

    *limit* is the value of ``--interactive``: ``end-idle=30m``, or empty.

    Raises:
        UsageError: there is no scheduler here, or it would refuse the request.
        FormatError: a size, a time or a settings file does not parse.
    """
    if options.plan is not None:
        raise UsageError("--interactive takes no plan: a command after --, or nothing")
    idle = [
        f"--{name.replace('_', '-').replace('throttle', 'jobs')}"
        for name in _OF_JOBS
        if getattr(options, name)
    ]
    # --no-checks is the one part of the setup that a shell can have
    if idle or options.setup != JobSetup(checks=options.setup.checks):
        raise UsageError(
            "--interactive opens a shell and runs no job script: omit "
            f"{', '.join(idle) or '--setup'}"
        )
    if limit and options.command:
        raise UsageError(
            f"--interactive={limit} is for a shell: a command ends by itself (omit it)"
        )
    # the script would run in the shell, its directives without effect
    refuse_job_script(options.command, cwd=here.cwd, path=here.env.get("PATH"))
    kind = where_to(here, options)
    return interactive(
        here,
        typed_request(here, options, kind),
        options.command or _shell_that_ends_idle(limit),
        scheduler=kind,
    )


def _shell_that_ends_idle(limit: str) -> tuple[str, ...]:
    """Return the command of a shell that ends while it waits; empty: one that does not.

    Raises:
        FormatError: the value is invalid.
    """
    if not limit:
        return ()
    name, _, text = limit.partition("=")
    try:
        seconds = parse_limit(text) if name == "end-idle" else 0
    except FormatError as error:
        raise FormatError(f"--interactive={limit}: {error}") from error
    if seconds < 1:
        raise FormatError(f"--interactive={limit}: write --interactive=end-idle=30m")
    # bash(1): seconds to wait for input at the prompt. What runs is not idle: `read` of
    # a script would also end after TMOUT, so it is for this shell alone
    alone = "PROMPT_COMMAND=export -n TMOUT"
    return ("env", f"TMOUT={seconds}", alone, "bash", "-l")


def interactive(
    here: Here,
    job_request: JobRequest,
    command: Sequence[str],
    *,
    scheduler: str,
    run_command: CommandRunner = ask_scheduler,
) -> InteractiveSession:
    """Return the command line; what *job_request* leaves open is filled in.

    Raises:
        UsageError: there is no scheduler, or the cluster would refuse the request.
        FormatError: a settings file does not parse.
    """
    if scheduler == LOCAL:
        raise UsageError("no scheduler answers here: tasks run on this machine anyway")
    kind = KINDS[scheduler]
    job_request = kind.lint.read_flags(job_request)
    live = live_limits(scheduler, (), env=here.env, run_command=run_command)
    filled = _filled_interactive_request(job_request, kind)
    if kind.text.OPTIONS.resource and filled.gpus and live.limits is not None:
        filled = _one_slot_interactive_request(
            filled, live.limits, *kind.text.OPTIONS.resource
        )
    if filled.queue == ANY_QUEUE:
        filled, line = with_queues_that_take(
            here,
            reach(here, scheduler),
            filled,
            lambda one: _script_of_session(one, kind),
        )
        here.notify(line)
    flags = kind.backend.session_flags(filled)
    # checked as the script that would request the same
    script = _script_of_session(filled, kind).text
    refuse(text_findings(here, script, live, scheduler=scheduler))
    words = tuple(word for flag in flags for word in flag)
    argv = kind.backend.session_argv(words, tuple(command))
    return InteractiveSession(argv=argv, request=filled)


def _script_of_session(job_request: JobRequest, kind: SchedulerKind) -> ScriptToCheck:
    """Return the script that would request what a shell does."""
    flags = kind.backend.session_flags(job_request)
    rows = [directive_line(kind.text, *words) for words in flags]
    text = "\n".join(("#!/bin/bash", *rows, ""))
    return ScriptToCheck(text=text, request=job_request, scheduler=kind.name)


def _filled_interactive_request(
    job_request: JobRequest, kind: SchedulerKind
) -> JobRequest:
    """Fill in what was not typed; what no queue allows is refused by the checks."""
    memory = _MEMORY if job_request.memory is None else job_request.memory
    # CUDA maps far more than it uses: a limit of address space would kill it
    with_gpu = kind.traits.address_space is not None and job_request.gpus
    virtual = None if with_gpu else memory + _MAPPED
    return replace(
        job_request,
        cpus=job_request.cpus or (_CPUS_WITH_GPU if job_request.gpus else _CPUS),
        memory=memory,
        virtual_memory=job_request.virtual_memory or virtual,
        time_limit=job_request.time_limit or _TIME,
    )


def _one_slot_interactive_request(
    job_request: JobRequest, limits: ClusterLimits, name: str, value: str
) -> JobRequest:
    """Request one slot where the site counts the GPUs once per slot."""
    words = job_request.complexes or SiteComplexes()
    if words.gpus not in limits.per_slot:
        return job_request
    # one slot is one CPU unless the site has a resource for CPUs
    has_cpus = words.cpus in (limits.resources or ())
    cpus = ((name, value.format(words.cpus, job_request.cpus)),) if has_cpus else ()
    return replace(job_request, cpus=1, extra=(*job_request.extra, *cpus))
