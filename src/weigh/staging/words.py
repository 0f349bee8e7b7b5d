"""The words of ``--stage-in``, ``--stage-out`` and ``--scratch`` as a Staging."""

import itertools
import posixpath
from collections.abc import Sequence

from weigh.errors import UsageError
from weigh.model.staging import Source, Staging


def parse_staging(
    sources: Sequence[str],
    destination: str | None,
    scratch: str | None,
    *,
    cwd: str,
    home: str | None = None,
) -> Staging:
    """Read what the three options say, relative to *cwd*.

    Raises:
        UsageError: a name cannot stand for what it is meant for, or two inputs are to
            lie in one place.
    """
    for text in (*sources, destination, scratch):
        if text is not None and (not text or "\0" in text):
            raise UsageError("the name of a folder to stage is empty or holds a NUL")
    parsed = tuple(parse_source(text, cwd, home=home) for text in sources)
    _check_apart(parsed)
    return Staging(
        sources=parsed,
        destination=None if destination is None else _absolute(destination, cwd, home),
        scratch=None if scratch is None else _scratch(scratch, home),
    )


def parse_source(text: str, cwd: str, *, home: str | None = None) -> Source:
    """Read ``SRC`` or ``SRC:DEST``; what follows the last colon is DEST.

    Raises:
        UsageError: DEST is not inside the working folder, or SRC has no name.
    """
    path, colon, place = text.rpartition(":")
    if not colon:
        path, place = text, ""
    elif not path or not place:
        raise UsageError(
            f"--stage-in {text!r}: a colon parts SRC and DEST, and one is empty "
            "(give DEST where SRC has a colon in its name: SRC:DEST)"
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
    return "/" + normal.lstrip("/")  # POSIX keeps two slashes at the front


def _scratch(text: str, home: str | None) -> str:
    if text.startswith("$"):
        return text
    path = _absolute(text, "/", home)
    if not (text.startswith("/") or path != _absolute(text, "/", None)):
        raise UsageError(
            f"--scratch {text!r}: a node's own disk has an absolute name "
            "(like /disk/scratch/$USER)"
        )
    return path


def _check_apart(sources: Sequence[Source]) -> None:
    """Refuse two inputs of one place, or one inside the other's."""
    for one, other in itertools.permutations(sources, 2):
        if other.place == one.place or f"{other.place}/".startswith(f"{one.place}/"):
            raise UsageError(
                f"--stage-in: {one.path} and {other.path} would both lie in "
                f"{one.place!r} (give one another DEST: SRC:DEST)"
            )
