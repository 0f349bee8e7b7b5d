"""The part of a job script that stages, runs the tasks and brings results back."""

import re
from collections.abc import Callable, Sequence

from weigh.model.staging import Earlier, Staging
from weigh.staging.shell import BODY, LAST, PAYLOAD, WHEN_HOME
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
_FIRST_PATTERNS = {
    "a": '"${numbers[element_id]}"',
    "j": '"${jobs[element_id]}"',
    "%": "%",
}


def render(  # noqa: PLR0913 - keyword-only past the second
    staging: Staging,
    payload: str,
    *,
    job: str = JOB,
    element: str = ELEMENT,
    when_home: str = ":",
    last: str = "",
) -> str:
    """Write the lines between a script's directives and its end, which they are.

    *payload* are lines of bash that run the tasks, in the working folder; *job* and
    *element* are words of bash that name them. *when_home* runs once their results are
    where they belong, *last* before the script ends with ``$code``: ``$hurry`` is the
    signal that ended the tasks, if one did. The folder that the script is in when it
    comes to these lines is the one that relative names are relative to.
    """
    signals = dict.fromkeys((*_SIGNALS, staging.warn_signal))
    head = (
        "# staging: inputs to this node's own disk, results back (weigh)",
        _array("sources", [quoted(source.path) for source in staging.sources]),
        _array("places", [quoted(source.place) for source in staging.sources]),
        *_earlier(staging.continues),
        f"destination={_destination(staging)}",
        _array("scratch", _scratch(staging.scratch)),
        f"named={'' if staging.scratch is None else 1}",
        f"grace={staging.grace}",
        f"signals=({' '.join(signals)})",
    )
    text = BODY.replace(WHEN_HOME, _indented(when_home))
    text = text.replace(LAST, last and f"{last.rstrip()}\n")
    text = text.replace(PAYLOAD, _indented(payload))
    names = (f"job_id={job}", f"element_id={element}")
    return "\n".join((head[0], *names, *head[1:])) + "\n" + text


def _indented(lines: str) -> str:
    return lines.rstrip("\n").replace("\n", "\n  ")


def _earlier(continues: Sequence[Earlier]) -> tuple[str, ...]:
    """Write what each element goes on from, in arrays by its number."""
    if not continues:
        return ("continues=",)
    return (
        _array("earlier", [quoted(" ".join(one.labels)) for one in continues]),
        _array("jobs", [quoted(one.job) for one in continues]),
        _array("numbers", [str(one.element) for one in continues]),
        "continues=${earlier[element_id]}",
    )


def _array(name: str, words: Sequence[str]) -> str:
    if sum(map(len, words)) <= _ONE_LINE:
        return f"{name}=({' '.join(words)})"
    return "\n".join((f"{name}=(", *(f"  {word}" for word in words), ")"))


def _destination(staging: Staging) -> str:
    if staging.destination is None:
        return "$PWD"
    patterns = _FIRST_PATTERNS if staging.continues else _PATTERNS
    return _spliced(_PATTERN, staging.destination, lambda found: patterns[found[1]])


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
