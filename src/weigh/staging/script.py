"""The part of a job script that stages inputs, runs tasks, copies results back."""

import itertools
import pkgutil
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

from weigh.errors import UsageError
from weigh.model.staging import Earlier, Source, Staging
from weigh.schedulers import KINDS
from weigh.sweep.quoting import quoted


def parse_staging(
    sources: Sequence[str],
    destination: str | None,
    scratch: str | None,
    *,
    cwd: str,
    home: str | None = None,
) -> Staging:
    """Read the three staging options, relative to *cwd*.

    Raises:
        UsageError: a value is invalid, or two inputs have the same place.
    """
    for text in (*sources, destination, scratch):
        if text is not None and (not text or "\0" in text):
            raise UsageError("the name of a folder to stage is empty or contains a NUL")
    parsed = tuple(parse_source(text, cwd, home=home) for text in sources)
    _check_apart(parsed)
    return Staging(
        sources=parsed,
        destination=None if destination is None else _absolute(destination, cwd, home),
        scratch=None if scratch is None else _scratch(scratch, home),
    )


def parse_source(text: str, cwd: str, *, home: str | None = None) -> Source:
    """Read ``SRC`` or ``SRC:DEST``; DEST follows the last colon.

    Raises:
        UsageError: DEST is not inside the working folder, or SRC has no name.
    """
    path, colon, place = text.rpartition(":")
    if not colon:
        path, place = text, ""
    elif not path or not place:
        raise UsageError(
            f"--stage-in {text!r}: the colon separates SRC and DEST, one is empty "
            "(write SRC:DEST if SRC itself contains a colon)"
        )
    absolute = _absolute(path, cwd, home)
    name = posixpath.basename(absolute)
    if not name:
        raise UsageError("--stage-in / would copy the whole disk (name a folder)")
    if place.endswith("/"):
        place += name
    return Source(path=absolute, place=_inside(place or name, text))


def _inside(place: str, text: str) -> str:
    normal = posixpath.normpath(place)
    if posixpath.isabs(normal) or normal.split("/", 1)[0] == "..":
        raise UsageError(
            f"--stage-in {text!r}: {place!r} is not inside the working folder "
            "(write DEST like data or data/train)"
        )
    return normal


def _absolute(path: str, cwd: str, home: str | None) -> str:
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    normal = posixpath.normpath(posixpath.join(cwd, path))
    return "/" + normal.lstrip("/")  # POSIX keeps two leading slashes


def _scratch(text: str, home: str | None) -> str:
    if text.startswith("$"):
        return text
    path = _absolute(text, "/", home)
    if not (text.startswith("/") or path != _absolute(text, "/", None)):
        raise UsageError(
            f"--scratch {text!r}: the path of a node's disk must be absolute "
            "(like /disk/scratch/$USER)"
        )
    return path


def _check_apart(sources: Sequence[Source]) -> None:
    """Raise an error if two inputs have one place, or one is inside another."""
    for one, other in itertools.permutations(sources, 2):
        if other.place == one.place or f"{other.place}/".startswith(f"{one.place}/"):
            raise UsageError(
                f"--stage-in: {one.path} and {other.path} would both be in "
                f"{one.place!r} (choose another DEST for one: SRC:DEST)"
            )


def _first_set(names: Iterable[str], otherwise: str) -> str:
    """Return the bash word for the first of the variables *names* that is set."""
    for name in reversed(tuple(names)):
        otherwise = f"${{{name}:-{otherwise}}}"
    return f'"{otherwise}"'


_VARIABLES = tuple(kind.variables for kind in KINDS.values())
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
    """Return all lines of a job script below its directives.

    *payload* are lines of bash that run the tasks in the working folder; *job* and
    *element* are bash words for their ids. *when_home* runs once the results are copied
    back, *last* just before the script exits with ``$code``; ``$hurry`` is the signal
    that ended the tasks, if any. Relative names are relative to the current folder.
    """
    signals = dict.fromkeys((*_SIGNALS, staging.warn_signal))
    head = (
        "# staging: inputs to this node's own disk, results back (weigh)",
        _array("sources", [quoted(source.path) for source in staging.sources]),
        _array("places", [quoted(source.place) for source in staging.sources]),
        *_earlier(staging.continues),
        f"destination={_destination(staging)}",
        _array("scratch", _scratch_lines(staging.scratch)),
        f"named={'' if staging.scratch is None else 1}",
        f"grace={staging.grace}",
        f"signals=({' '.join(signals)})",
    )
    functions = (
        _function("run_tasks", payload),
        _function("results_copied", when_home),
        _function("at_end", last or ":"),
    )
    names = (f"job_id={job}", f"element_id={element}")
    return "\n".join((head[0], *names, *head[1:], *functions, "", _stage_sh()))


def _stage_sh() -> str:
    """Return the text of ``stage.sh`` below its opening comment."""
    text = pkgutil.get_data("weigh.staging", "stage.sh")
    assert text is not None  # noqa: S101 - the package is a folder or a zip file
    return text.decode().partition("\n\n")[2]


def _function(name: str, lines: str) -> str:
    return f"{name}() {{\n{lines.strip()}\n}}"


def _earlier(continues: Sequence[Earlier]) -> tuple[str, ...]:
    """Return arrays with the earlier attempt that each element continues from."""
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


def _scratch_lines(text: str | None) -> Sequence[str]:
    if text is None:
        return USUAL_SCRATCH
    return (_spliced(_VARIABLE, text, _variable),)


def _variable(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    return f'"${{{name}:?is not set on this node, and --scratch needs it}}"'


def _spliced(
    pattern: re.Pattern[str], text: str, bash: Callable[[re.Match[str]], str]
) -> str:
    """Quote *text*, except for matches of *pattern*, which *bash* replaces."""
    word, end = "", 0
    for found in pattern.finditer(text):
        word += _quoted(text[end : found.start()]) + bash(found)
        end = found.end()
    return word + _quoted(text[end:])


def _quoted(text: str) -> str:
    return quoted(text) if text else ""
