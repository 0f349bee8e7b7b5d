"""A job script for ``sbatch``: directives on top, as ``sbatch`` itself reads them."""

from collections.abc import Iterator

from weigh.errors import UsageError
from weigh.model.job import JobRequest, JobScript
from weigh.schedulers.job_script import render, request_of, warning
from weigh.schedulers.slurm.text import PREFIX, directives

# sbatch splits a directive into words on its own: these it takes as they are
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./[]*~^"
)
_LOG = (
    '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}'
    '${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.out"'
)


def slurm_script(script: JobScript) -> str:
    """Write the script of a job.

    Raises:
        UsageError: a value cannot stand in a directive.
    """
    return render(
        (f"{PREFIX} {flag}" for flag in _flags(script)),
        script,
        element=_element(script.first),
        log=None if can_hold(script.log) else _LOG,
        scheduler="slurm",
    )


def log_name(job: str, element: int, *, is_array: bool) -> str:
    """Name the log of an element."""
    return f"{job}_{element}.out" if is_array else f"{job}.out"


def can_hold(text: str) -> bool:
    """Say whether a directive can say *text*, in double quotes if need be."""
    return text.isprintable() and not set('"\\') & set(text)


def _element(first: int) -> str:
    number = "${SLURM_ARRAY_TASK_ID:-0}"
    return f'"$(({number} + {first}))"' if first else f'"{number}"'


def _flags(script: JobScript) -> Iterator[str]:
    wanted = script.request
    yield f"--job-name={_word(_name(script.name))}"
    if script.token and not any(flag == "comment" for flag, _ in wanted.extra):
        yield f"--comment=weigh:{script.token}"
    if can_hold(script.log):
        pattern = "%A_%a" if script.is_array else "%j"
        yield f"--output={_word(script.log.replace('%', '%%') + f'/{pattern}.out')}"
    else:
        yield "--output=/dev/null"
    if script.is_array:
        throttle = f"%{wanted.throttle}" if wanted.throttle else ""
        yield f"--array=0-{script.elements - 1}{throttle}"
    if wanted.nodes > 1:
        yield f"--nodes={wanted.nodes}"
        yield "--ntasks-per-node=1"
    yield from directives(request_of(wanted))
    warn_time = warning(script)
    if warn_time is not None:  # to the shell, which tells the tasks
        yield f"--signal=B:USR1@{warn_time}"
    if script.requeue:
        yield "--requeue"
        yield "--open-mode=append"
    for flag, value in (
        ("partition", wanted.queue),
        ("account", wanted.account),
        ("qos", wanted.qos),
        ("exclude", ",".join(wanted.exclude) or None),
        ("dependency", _dependency(wanted)),
        ("mail-user", wanted.mail),
        ("mail-type", "END,FAIL" if wanted.mail else None),
        *wanted.extra,
    ):
        if value is not None:
            yield f"--{flag}={_word(value)}" if value else f"--{flag}"


def _dependency(wanted: JobRequest) -> str | None:
    return f"afterok:{':'.join(wanted.after)}" if wanted.after else None


def _name(name: str) -> str:
    return name if can_hold(name) else "".join(c if can_hold(c) else "_" for c in name)


def _word(text: str) -> str:
    """Quote *text* for a directive.

    Raises:
        UsageError: no quoting makes sbatch read it.
    """
    if not can_hold(text):
        raise UsageError(f"a directive for sbatch cannot hold {text!r}")
    return text if _PLAIN.issuperset(text) else f'"{text}"'
