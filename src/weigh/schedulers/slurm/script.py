"""A job script for ``sbatch``: its directives, then the shared body."""

from collections.abc import Iterator

from weigh.errors import UsageError
from weigh.model.job import JobRequest, JobScript
from weigh.schedulers.job_script import (
    ScriptRules,
    render_job_script,
    request_of,
    warning,
)
from weigh.schedulers.slurm.text import TEXT

_OWN_ELEMENT = "${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"
_JOB_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"
RULES = ScriptRules(
    job_id=_JOB_ID,
    # the job id of an array's last element is that of the whole array
    requeue=f'scontrol requeue "{_JOB_ID}{_OWN_ELEMENT}"',
    forget="${SLURM_RESTART_COUNT:+--forget-survivors}",
)
# sbatch splits directives itself; these characters need no quotes
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./[]*~^"
)
_LOG = (
    '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}'
    '${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.out"'
)


def slurm_script(job_script: JobScript) -> str:
    """Return the script of a job.

    Raises:
        UsageError: a directive cannot hold a value.
    """
    return render_job_script(
        (f"{TEXT.PREFIX} {flag}" for flag in _slurm_flags(job_script)),
        job_script,
        element=_slurm_element_expression(job_script.first),
        log=None if can_hold(job_script.log) else _LOG,
        rules=RULES,
    )


def slurm_log_name(job_id: str, element: int, *, is_array: bool) -> str:
    """Return the name of an element's log."""
    return f"{job_id}_{element}.out" if is_array else f"{job_id}.out"


def can_hold(text: str) -> bool:
    """Return whether a directive can hold *text*, in double quotes if necessary."""
    return text.isprintable() and not set('"\\') & set(text)


def _slurm_element_expression(first: int) -> str:
    number = "${SLURM_ARRAY_TASK_ID:-0}"
    return f'"$(({number} + {first}))"' if first else f'"{number}"'


def _slurm_flags(job_script: JobScript) -> Iterator[str]:
    wanted = job_script.request
    yield f"--job-name={_slurm_quoted(_slurm_job_name(job_script.name))}"
    # the user's own comment stays; the token is in the script's path, too
    if job_script.token and not any(flag == "comment" for flag, _ in wanted.extra):
        yield f"--comment=weigh:{job_script.token}"
    if can_hold(job_script.log):
        pattern = "%A_%a" if job_script.is_array else "%j"
        # in a pattern a percent sign stands for itself only if it is doubled
        log_folder = job_script.log.replace("%", "%%")
        yield f"--output={_slurm_quoted(f'{log_folder}/{pattern}.out')}"
    else:
        # the script redirects its output itself, to the name in _LOG
        yield "--output=/dev/null"
    if job_script.is_array:
        throttle = f"%{wanted.throttle}" if wanted.throttle else ""
        yield f"--array=0-{job_script.elements - 1}{throttle}"
    if wanted.nodes > 1 and not wanted.ntasks:
        yield f"--nodes={wanted.nodes}"
        yield "--ntasks-per-node=1"
    yield from TEXT.directives(request_of(wanted))
    warn_time = warning(job_script)
    if warn_time is not None:  # to the shell, which passes it on to the tasks
        yield f"--signal=B:USR1@{warn_time}"
    if job_script.requeue:
        yield "--requeue"
        # a further attempt writes to the same log
        yield "--open-mode=append"
    for flag, value in (
        ("partition", wanted.queue),
        ("account", wanted.account),
        ("qos", wanted.qos),
        ("exclude", ",".join(wanted.exclude) or None),
        ("dependency", _dependency(wanted)),
        # weigh resume lets it hang on another job
        ("kill-on-invalid-dep", "no" if wanted.after else None),
        ("mail-user", wanted.mail),
        ("mail-type", "END,FAIL" if wanted.mail else None),
        *wanted.extra,
    ):
        if value is not None:
            yield f"--{flag}={_slurm_quoted(value)}" if value else f"--{flag}"


def _dependency(wanted: JobRequest) -> str | None:
    kinds = (("afterok", wanted.after), ("afterany", wanted.after_end))
    return ",".join(":".join((how, *jobs)) for how, jobs in kinds if jobs) or None


def _slurm_job_name(name: str) -> str:
    return name if can_hold(name) else "".join(c if can_hold(c) else "_" for c in name)


def _slurm_quoted(text: str) -> str:
    """Quote *text* for a directive.

    Raises:
        UsageError: sbatch cannot read it, however it is quoted.
    """
    if not can_hold(text):
        raise UsageError(f"an sbatch directive cannot hold {text!r}")
    return text if _PLAIN.issuperset(text) else f'"{text}"'
