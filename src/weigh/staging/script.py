"""The part of a job script that stages inputs, runs tasks, copies results back."""

import itertools
import pkgutil
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.model.staging import EarlierAttempts, StagedInput, StagingPlan
from weigh.schedulers import KINDS
from weigh.sweep.quoting import bash_quoted


def parse_staging(
    sources: Sequence[str],
    destination: str | None,
    scratch: str | None,
    *,
    cwd: str,
    home: str | None = None,
) -> StagingPlan:
    """Read the three staging options, relative to *cwd*.

    Raises:
        UsageError: a value is invalid, or two inputs have the same place.
    """
    for text in (*sources, destination, scratch):
        if text is not None and (not text or "\0" in text):
            raise UsageError("the name of a folder to stage is empty or contains a NUL")
    parsed = tuple(parse_source(text, cwd, home=home) for text in sources)
    # else the second would be copied over, or into, the first
    _check_apart(parsed)
    return StagingPlan(
        sources=parsed,
        destination=None
        if destination is None
        else _absolute_path(destination, cwd, home),
        scratch=None if scratch is None else _scratch_path(scratch, home),
    )


def parse_source(option_text: str, cwd: str, *, home: str | None = None) -> StagedInput:
    """Read ``SRC`` or ``SRC:DEST``; DEST follows the last colon.

    Raises:
        UsageError: DEST is not inside the working folder, or SRC has no name.
    """
    path, colon, place = option_text.rpartition(":")
    if not colon:
        path, place = option_text, ""
    elif not path or not place:
        raise UsageError(
            f"--stage-in {option_text!r}: the colon separates SRC and DEST, one is "
            "empty "
            "(write SRC:DEST if SRC itself contains a colon)"
        )
    absolute = _absolute_path(path, cwd, home)
    name = posixpath.basename(absolute)
    if not name:
        raise UsageError("--stage-in / would copy the whole disk (name a folder)")
    # as cp does: into a folder, under its own name
    if place.endswith("/"):
        place += name
    return StagedInput(
        path=absolute, place=_path_inside_folder(place or name, option_text)
    )


def _path_inside_folder(typed_place: str, option_text: str) -> str:
    normal = posixpath.normpath(typed_place)
    if posixpath.isabs(normal) or normal.split("/", 1)[0] == "..":
        raise UsageError(
            f"--stage-in {option_text!r}: {typed_place!r} is not inside the working "
            "folder "
            "(write DEST like data or data/train)"
        )
    return normal


def _absolute_path(path: str, cwd: str, home: str | None) -> str:
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    normal = posixpath.normpath(posixpath.join(cwd, path))
    return "/" + normal.lstrip("/")  # POSIX keeps two leading slashes


def _scratch_path(option_text: str, home: str | None) -> str:
    if option_text.startswith("$"):
        return option_text
    path = _absolute_path(option_text, "/", home)
    # the paths differ only where ~ was replaced
    if not (
        option_text.startswith("/") or path != _absolute_path(option_text, "/", None)
    ):
        raise UsageError(
            f"scratch = {option_text!r}: the path of a node's disk must be absolute "
            "(like /disk/scratch/$USER)"
        )
    return path


def _check_apart(sources: Sequence[StagedInput]) -> None:
    """Raise an error if two inputs have one place, or one is inside another."""
    # both orders, as being inside has a direction
    for one, other in itertools.permutations(sources, 2):
        if other.place == one.place or f"{other.place}/".startswith(f"{one.place}/"):
            raise UsageError(
                f"--stage-in: {one.path} and {other.path} would both be in "
                f"{one.place!r} (choose another DEST for one: SRC:DEST)"
            )


def _first_set(names: Iterable[str], otherwise: str) -> str:
    """Return the bash word for the first of the variables *names* that is set."""
    # from the last one inwards: ${A:-${B:-x}}
    for name in reversed(tuple(names)):
        otherwise = f"${{{name}:-{otherwise}}}"
    return f'"{otherwise}"'


_VARIABLES = tuple(kind.variables for kind in KINDS.values())
# outside of any job, the number of the shell keeps two runs apart
JOB = _first_set((name for one in _VARIABLES for name in one.job), "$BASHPID")
ELEMENT = _first_set((name for one in _VARIABLES for name in one.element), "")
# first the scheduler's own; folders that the tasks of a node share come before folders
# of single tasks (such as a scheduler's $TMPDIR)
USUAL_SCRATCH = (
    *(f'"${{{name}:-}}"' for one in _VARIABLES for name in one.scratch),
    '"/disk/scratch/${USER:-$UID}"',
    '"${TMPDIR:-}"',
    "/tmp",  # noqa: S108 - only a folder that only its owner can read
)

_ONE_LINE = 60  # characters of a one-line array
_SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "XCPU")  # to end or warn a job
# $NAME or ${NAME}; and %a, %j or %% as in a scheduler's log names
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_PATTERN = re.compile("%([aj%])")
_PATTERNS = {"a": '"$element_id"', "j": '"$job_id"', "%": "%"}
# of a resumed job: its results go where those of the first attempt went
_FIRST_PATTERNS = {
    "a": '"${numbers[element_id]}"',
    "j": '"${jobs[element_id]}"',
    "%": "%",
}


class StagedJobWords(msgspec.Struct, frozen=True):
    """The bash words for the ids of a job and of its element."""

    job: str = JOB
    element: str = ELEMENT


IDS_OF_SCHEDULER = StagedJobWords()


def staged_script_lines(
    staging: StagingPlan,
    payload: str,
    *,
    ids: StagedJobWords = IDS_OF_SCHEDULER,
    when_home: str = ":",
    last_lines: str = "",
) -> str:
    """Return all lines of a job script below its directives.

    *payload* are lines of bash that run the tasks in the working folder. *when_home*
    runs once the results are copied back, *last_lines* just before the script exits
    with ``$code``; ``$hurry`` is the signal that ended the tasks, if any. Relative
    names are relative to the current folder.
    """
    # each once, as the warning may be one of them
    signals = dict.fromkeys((*_SIGNALS, staging.warn_signal))
    head = (
        "# staging: inputs to this node's own disk, results back (weigh)",
        _bash_array(
            "sources", [bash_quoted(source.path) for source in staging.sources]
        ),
        _bash_array(
            "places", [bash_quoted(source.place) for source in staging.sources]
        ),
        *_earlier_attempt_arrays(staging.continues),
        f"destination={_destination_path(staging)}",
        _bash_array("scratch", _scratch_lines(staging.scratch)),
        f"named={'' if staging.scratch is None else 1}",
        f"grace={staging.grace}",
        f"signals=({' '.join(signals)})",
    )
    functions = (
        _bash_function("run_tasks", payload),
        _bash_function("results_copied", when_home),
        _bash_function("at_end", last_lines or ":"),
    )
    names = (f"job_id={ids.job}", f"element_id={ids.element}")
    return "\n".join((head[0], *names, *head[1:], *functions, "", _stage_sh()))


def _stage_sh() -> str:
    """Return the text of ``stage.sh`` below its opening comment."""
    text = pkgutil.get_data("weigh.staging", "stage.sh")
    assert text is not None  # noqa: S101 - the package is a folder or a zip file
    return text.decode().partition("\n\n")[2]


def _bash_function(function_name: str, body_lines: str) -> str:
    return f"{function_name}() {{\n{body_lines.strip()}\n}}"


def _earlier_attempt_arrays(continues: Sequence[EarlierAttempts]) -> tuple[str, ...]:
    """Return arrays with the earlier attempt that each element continues from."""
    if not continues:
        return ("continues=",)
    return (
        _bash_array(
            "earlier", [bash_quoted(" ".join(one.labels)) for one in continues]
        ),
        _bash_array("jobs", [bash_quoted(one.job) for one in continues]),
        _bash_array("numbers", [str(one.element) for one in continues]),
        "continues=${earlier[element_id]}",
    )


def _bash_array(array_name: str, array_words: Sequence[str]) -> str:
    if sum(map(len, array_words)) <= _ONE_LINE:
        return f"{array_name}=({' '.join(array_words)})"
    return "\n".join((f"{array_name}=(", *(f"  {word}" for word in array_words), ")"))


def _destination_path(staging: StagingPlan) -> str:
    if staging.destination is None:
        return "$PWD"
    patterns = _FIRST_PATTERNS if staging.continues else _PATTERNS
    return _quoted_except_matches(
        _PATTERN, staging.destination, lambda found: patterns[found[1]]
    )


def _scratch_lines(scratch_text: str | None) -> Sequence[str]:
    if scratch_text is None:
        return USUAL_SCRATCH
    return (_quoted_except_matches(_VARIABLE, scratch_text, _required_variable),)


def _required_variable(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    # unset, it would make another path of the rest: $DISK/job would be /job
    return f'"${{{name}:?is not set on this node, and the setting scratch needs it}}"'


def _quoted_except_matches(
    pattern: re.Pattern[str], bash_text: str, bash: Callable[[re.Match[str]], str]
) -> str:
    """Quote *bash_text*, except for matches of *pattern*, which *bash* replaces."""
    word, end = "", 0
    for found in pattern.finditer(bash_text):
        word += _quoted_or_empty(bash_text[end : found.start()]) + bash(found)
        end = found.end()
    return word + _quoted_or_empty(bash_text[end:])


def _quoted_or_empty(bash_text: str) -> str:
    return bash_quoted(bash_text) if bash_text else ""
