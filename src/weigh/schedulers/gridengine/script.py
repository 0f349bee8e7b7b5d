"""A job script for ``qsub``, which counts elements from 1 and has its own quoting."""

from collections.abc import Iterator

from weigh.errors import UsageError
from weigh.model.element_time import GRACE
from weigh.model.job import JobScript
from weigh.model.record import SiteComplexes
from weigh.schedulers.gridengine.text import TEXT
from weigh.schedulers.job_script import (
    AGAIN,
    ScriptRules,
    render_job_script,
    request_of,
    warning,
)

RULES = ScriptRules(
    job_id="$JOB_ID",
    requeue=f"code={AGAIN}",
    forget='$([ "${RESTARTED:-0}" = 0 ] || echo --forget-survivors)',
    takes_gpus=True,
    checks_needs=True,
)
_NAME = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+=%"
)
# in a path, $ begins a variable, a colon ends the host, a comma ends the path
_NOT_IN_PATHS = frozenset("\"'\\$:,")
_LONGEST_NAME = 60
_WARNING = 2 * GRACE  # from s_rt, which warns, to h_rt, which kills
# weigh exec knows the limit, and stops its tasks itself GRACE before it: a warning
# before that would take time from them that was granted
_LATE_WARNING = GRACE // 2
_LOG = '"$JOB_ID.$SGE_TASK_ID.out"'
_PLAIN_LOG = '"$JOB_ID.out"'


def gridengine_script(job_script: JobScript) -> str:
    """Return the script of a job.

    Raises:
        UsageError: a directive cannot hold a value.
    """
    own = (
        None
        if can_hold_path(job_script.log)
        else (_LOG if job_script.is_array else _PLAIN_LOG)
    )
    return render_job_script(
        (f"{TEXT.PREFIX} {flag}" for flag in _gridengine_flags(job_script)),
        job_script,
        element=_gridengine_element_expression(job_script),
        log=None if can_hold_path(job_script.log) else own,
        rules=RULES,
    )


def gridengine_log_name(job_id: str, element: int, *, is_array: bool) -> str:
    """Return the name of an element's log; Grid Engine numbers elements from 1."""
    return f"{job_id}.{element + 1}.out" if is_array else f"{job_id}.out"


def can_hold_path(text: str) -> bool:
    """Return whether ``-o`` can hold the path *text*, in double quotes if necessary."""
    return text.isprintable() and not _NOT_IN_PATHS & set(text)


def _gridengine_element_expression(job_script: JobScript) -> str:
    if not job_script.is_array:
        return str(job_script.first)
    beyond = job_script.first - 1  # Grid Engine counts from 1
    return f'"$((SGE_TASK_ID {"+" if beyond > 0 else "-"} {abs(beyond)}))"'


def _gridengine_flags(job_script: JobScript) -> Iterator[str]:
    wanted = job_script.request
    yield "-S /bin/bash"
    yield "-cwd"
    yield f"-N {job_name(job_script.name)}"
    if job_script.token and not any(flag in {"ac", "sc"} for flag, _ in wanted.extra):
        yield f"-ac weigh={job_script.token}"
    yield "-j y"
    if can_hold_path(job_script.log):
        name = "$JOB_ID.$TASK_ID.out" if job_script.is_array else "$JOB_ID.out"
        yield f"-o {_gridengine_quoted(f'{job_script.log}/{name}')}"
    else:
        yield "-o /dev/null"
    if job_script.is_array:
        yield f"-t 1-{job_script.elements}"
        if wanted.throttle:
            yield f"-tc {wanted.throttle}"
    yield from TEXT.directives(request_of(wanted), wanted.complexes)
    if wanted.gpu_type:
        words = wanted.complexes or SiteComplexes()
        yield f"-l {words.gpu_type}={_gridengine_quoted(wanted.gpu_type)}"
    yield from _warnings(job_script)
    if wanted.exclude:
        yield f"-l h={_gridengine_quoted('!(' + '|'.join(wanted.exclude) + ')')}"
    for flag, value in (
        ("q", wanted.queue),
        ("P", wanted.account),
        # it waits for the end only: that the jobs of after succeeded, the script checks
        ("hold_jid", ",".join((*wanted.after, *wanted.after_end)) or None),
        ("M", wanted.mail),
        ("m", "ea" if wanted.mail else None),
        *wanted.extra,
    ):
        if value is not None:
            yield f"-{flag} {_gridengine_quoted(value)}" if value else f"-{flag}"


def _warnings(job_script: JobScript) -> Iterator[str]:
    """Yield the flags for signals: USR1 before the limit, USR2 before qdel kills."""
    warn_time, limit = warning(job_script), job_script.request.time_limit
    if warn_time is not None or job_script.request.notify is not None:
        yield "-notify"
    if job_script.requeue:
        yield "-r y"
    late = _WARNING if job_script.command else _LATE_WARNING
    if limit is not None and limit > 2 * _WARNING:
        yield f"-l s_rt={TEXT.format_time(limit - (warn_time or late))}"


def job_name(name: str) -> str:
    """Return a name that qsub accepts: no slash, at sign or space, no digit first."""
    kept = "".join(c if c in _NAME else "_" for c in name)[:_LONGEST_NAME]
    return kept if kept[:1].isalpha() else f"j{kept}"


def _gridengine_quoted(text: str) -> str:
    if not text.isprintable() or set("\"'\\") & set(text):
        raise UsageError(f"a directive for qsub cannot hold {text!r}")
    return f'"{text}"' if " " in text else text
