"""The part of a job script that stages, runs the tasks and brings results back."""

import re
from collections.abc import Callable, Sequence

from weigh.model.staging import Staging
from weigh.staging.shell import BODY, PAYLOAD
from weigh.sweep.quoting import quoted

JOB = '"${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-${JOB_ID:-$BASHPID}}}"'
ELEMENT = '"${SLURM_ARRAY_TASK_ID:-${SGE_TASK_ID:-}}"'
# one that the scheduler made comes first; what tasks of a node share before what is
# each task's own ($TMPDIR of Grid Engine)
USUAL_SCRATCH = (
    '"${SLURM_TMPDIR:-}"',
    '"/disk/scratch/${USER:-$UID}"',
    '"${TMPDIR:-}"',
    "/tmp",  # noqa: S108 - nothing is made there but a folder that only its owner reads
)

_ONE_LINE = 60  # characters of an array that is still easily read
_SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "XCPU")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_PATTERN = re.compile("%([aj%])")
_PATTERNS = {"a": '"$element_id"', "j": '"$job_id"', "%": "%"}


def render(
    staging: Staging, payload: str, *, job: str = JOB, element: str = ELEMENT
) -> str:
    """Write the lines between a script's directives and its end, which they are.

    *payload* is the line of bash that runs the tasks, in the working folder; *job* and
    *element* are words of bash that name them. The folder that the script is in when it
    comes to these lines is the one that relative names are relative to.
    """
    signals = dict.fromkeys((*_SIGNALS, staging.warn_signal))
    head = (
        "# staging: inputs to this node's own disk, results back (weigh)",
        _array("sources", [quoted(source.path) for source in staging.sources]),
        _array("places", [quoted(source.place) for source in staging.sources]),
        f"destination={_destination(staging.destination)}",
        _array("scratch", _scratch(staging.scratch)),
        f"named={'' if staging.scratch is None else 1}",
        f"continues={quoted(staging.continues) if staging.continues else ''}",
        f"grace={staging.grace}",
        f"signals=({' '.join(signals)})",
    )
    text = BODY.replace(PAYLOAD, payload.rstrip("\n"))
    names = (f"job_id={job}", f"element_id={element}")
    return "\n".join((head[0], *names, *head[1:])) + "\n" + text


def _array(name: str, words: Sequence[str]) -> str:
    if sum(map(len, words)) <= _ONE_LINE:
        return f"{name}=({' '.join(words)})"
    return "\n".join((f"{name}=(", *(f"  {word}" for word in words), ")"))


def _destination(text: str | None) -> str:
    if text is None:
        return "$PWD"
    return _spliced(_PATTERN, text, lambda found: _PATTERNS[found[1]])


def _scratch(text: str | None) -> Sequence[str]:
    if text is None:
        return USUAL_SCRATCH
    return (_spliced(_VARIABLE, text, _variable),)


def _variable(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    return f'"${{{name}:?is not set on this node, and --scratch needs it}}"'


def _spliced(
    pattern: re.Pattern[str], text: str, bash: Callable[[re.Match[str]], str]
) -> str:
    """Quote *text* but for what matches *pattern*, which *bash* writes."""
    word, end = "", 0
    for found in pattern.finditer(text):
        word += _quoted(text[end : found.start()]) + bash(found)
        end = found.end()
    return word + _quoted(text[end:])


def _quoted(text: str) -> str:
    return quoted(text) if text else ""
