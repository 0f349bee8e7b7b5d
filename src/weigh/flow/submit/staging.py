"""Staging for `weigh submit`: its options, the size of inputs, the script's lines."""

import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec

from weigh.config import Config
from weigh.errors import FormatError, UsageError
from weigh.model.job import JobScript, Submitted, TaskState
from weigh.model.plan import Plan
from weigh.model.staging import Earlier, Staging
from weigh.regular_file import is_regular_file
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import (
    ScriptRules,
    requeue_lines,
    staged_lines,
    when_home,
)
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.schedulers.local.script import RULES as LOCAL_RULES
from weigh.schedulers.script import SHELLS
from weigh.staging.script import JOB, parse_staging, render
from weigh.units import GIB, Bytes, format_size, parse_size

_SETTING = "scratch"
_MOST_STAGED = 10 * GIB  # copied to a node unless the user confirms more
_MOST_ENTRIES = 500_000  # counted at most: submitting must not take minutes


def staging_of(
    words: tuple[Sequence[str], str | None, str | None],
    config: Config,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Staging | None:
    """Read ``--stage-in``, ``--stage-out`` and ``--scratch``; None without any of them.

    By default results go to the working directory of the submission.

    Raises:
        UsageError: a name or path is not allowed there.
        FormatError: the setting is not text.
    """
    sources, destination, scratch = words
    if not sources and destination is None and scratch is None:
        return None
    return parse_staging(
        sources,
        cwd.replace("%", "%%") if destination is None else destination,
        scratch or _site_scratch(config),
        cwd=cwd,
        home=env.get("HOME"),
    )


def refuse_missing(staging: Staging) -> None:
    """Check that the inputs exist.

    Raises:
        UsageError: one does not.
    """
    for source in staging.sources:
        if not os.path.exists(source.path):
            raise UsageError(f"--stage-in {source.path}: no such file")
        if not (os.path.isdir(source.path) or is_regular_file(source.path)):
            raise UsageError(
                f"--stage-in {source.path}: not a regular file or a folder"
            )


class Extent(msgspec.Struct):
    """What copying an input copies: bytes, entries, and links that lead out of it.

    ``is_whole`` is False if there were too many entries to count.
    """

    size: Bytes = 0
    entries: int = 0
    links: int = 0
    is_whole: bool = True


def refuse_large(staging: Staging, most: str | None) -> Iterator[str]:
    """Compare the size of the inputs with the bound; yield notes on links.

    Raises:
        UsageError: they are larger, or a link leads to a directory above itself.
        FormatError: *most* is not a size.
    """
    bound = _MOST_STAGED if most is None else parse_size(most)
    total, is_whole = 0, True
    for source in staging.sources:
        extent = measure_source(source.path)
        total += extent.size
        is_whole &= extent.is_whole
        if extent.links:
            noun = "link leads" if extent.links == 1 else "links lead"
            yield (
                f"{extent.links:,} {noun} out of {source.path}: the targets are "
                "copied too"
            )
    if total > bound:
        least = "" if is_whole else "at least "
        raise UsageError(
            f"--stage-in copies {least}{format_size(total)} to each node; more than "
            f"{format_size(bound)} must be confirmed: "
            f"--stage-max {math.ceil(total / GIB)}GiB"
        )


def measure_source(path: str) -> Extent:
    """Return the size of *path* when copied: links that lead out of it are followed.

    Raises:
        UsageError: a link leads to a directory above itself: the copy has no end.
    """
    extent = Extent()
    waiting = [_Folder(path, os.path.realpath(path))]
    top = waiting[0]
    if os.path.isfile(path):
        extent.size = os.stat(path).st_size
        return extent
    while waiting:
        folder = waiting.pop()
        try:
            found = list(os.scandir(folder.path))
        except OSError:  # the copy will report it
            continue
        extent.entries += len(found)
        if extent.entries > _MOST_ENTRIES:
            extent.is_whole = False
            return extent
        for entry in found:
            with suppress(OSError):  # a dangling link is copied as a link
                below = _count(entry, folder, top, extent)
                if below is not None:
                    waiting.append(below)
    return extent


class _Folder(msgspec.Struct, frozen=True):
    """A directory to count: its path, its real path, the links that led to it."""

    path: str
    real: str
    through: frozenset[str] = frozenset()


def _count(
    entry: os.DirEntry[str], folder: _Folder, top: _Folder, extent: Extent
) -> _Folder | None:
    """Add one entry to *extent*; return the directory that it is or leads to."""
    if not entry.is_symlink():
        if entry.is_dir():
            return _Folder(entry.path, f"{folder.real}/{entry.name}", folder.through)
        extent.size += entry.stat().st_size
        return None
    target = os.path.realpath(entry.path)
    if os.path.exists(target) and not (entry.is_dir() or is_regular_file(target)):
        raise UsageError(
            f"--stage-in {top.path}: the link {entry.path} leads to {target}, a device "
            "or FIFO (the copy might never end)"
        )
    if _is_below(target, top.real) and not os.path.isabs(os.readlink(entry.path)):
        return None
    extent.links += 1
    if not entry.is_dir():
        extent.size += entry.stat().st_size
        return None
    if target in folder.through or _is_below(folder.real, target):
        raise UsageError(
            f"--stage-in {top.path}: the link {entry.path} leads to a directory above "
            "it (the copy would never end)"
        )
    return _Folder(entry.path, target, folder.through | {target})


def continued(
    staging: Staging | None, tasks: Sequence[TaskState], jobs: Sequence[Submitted]
) -> Staging | None:
    """Return the staging with, per new element, the element that it continues."""
    if staging is None:
        return None
    by_id = {job.id: job for job in jobs}
    before = dict.fromkeys((task.job, task.element) for task in tasks)
    earlier = tuple(_earlier(by_id[job], element) for job, element in before)
    return msgspec.structs.replace(staging, continues=earlier)


def _earlier(job: Submitted, element: int) -> Earlier:
    """Return an element and the ones that it continues, the newest first."""
    number = job.first + element
    label = f"{job.id}_{number}"
    if job.staging is None or not job.staging.continues:
        return Earlier((label,), job.id, number)
    before = job.staging.continues[number]
    return Earlier((label, *before.labels), before.job, before.element)


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def staged(script: JobScript, scheduler: str) -> JobScript:
    """Return *script* with the lines that stage files in and out."""
    if script.staging is None:
        return script
    lines = render(
        script.staging,
        staged_lines(script, _rules(scheduler)),
        job='"$job"' if scheduler == LOCAL else JOB,
        element='"$element"',
        when_home=when_home(),
        last=_last(script, scheduler),
    )
    return msgspec.structs.replace(script, staged=lines)


def _rules(scheduler: str) -> ScriptRules:
    return LOCAL_RULES if scheduler == LOCAL else KINDS[scheduler].script_rules


def _last(script: JobScript, scheduler: str) -> str:
    if not script.requeue:
        return ""
    return "\n".join(("by=$hurry", *requeue_lines(_rules(scheduler).requeue)))


def left_behind(plan: Plan, staging: Staging | None, cwd: str) -> Iterator[str]:
    """Yield warnings on files that tasks name and that are not staged in.

    Those in the working directory would not be found, those elsewhere in the home
    directory would be read from there by every task.
    """
    if staging is None:
        return
    home = os.path.expanduser("~")
    words = (word for kind in plan.kinds for word in _words(kind.example))
    for word in dict.fromkeys(os.path.normpath(os.path.expanduser(w)) for w in words):
        if os.path.isabs(word):
            if _is_below(word, home) and os.path.isfile(word):
                yield from _read_from_home(word, staging)
            continue
        name = word.split("/")[0]
        is_here = name not in {"", ".", ".."} and os.path.exists(f"{cwd}/{name}")
        if is_here and not _is_staged(name, staging):
            name = shlex.quote(name)
            yield f"{name} is not staged in: tasks cannot read it (--stage-in {name})"


def _read_from_home(path: str, staging: Staging) -> Iterator[str]:
    folder, name = os.path.split(path)
    source = next((s for s in staging.sources if _is_below(path, s.path)), None)
    above = os.path.dirname(folder)
    if source is None and _is_environment(above):
        yield f"{shlex.quote(above)}, an environment, is read from home by each task"
    elif source is None:
        cure = f"--stage-in {shlex.quote(folder)}:. and the name {shlex.quote(name)}"
        yield f"{shlex.quote(path)} is read from home: {cure} copy it to the node"
    else:
        place = os.path.normpath(f"{source.place}/{os.path.relpath(path, source.path)}")
        yield f"{shlex.quote(path)} is read from home: its copy is {shlex.quote(place)}"


def _is_environment(folder: str) -> bool:
    """Return whether *folder* is a venv or conda, which runs at its place only."""
    marks = ("pyvenv.cfg", "conda-meta")
    return any(os.path.exists(os.path.join(folder, mark)) for mark in marks)


def _is_staged(name: str, staging: Staging) -> bool:
    return any(
        source.place.split("/")[0] == name
        or (source.place == "." and os.path.exists(f"{source.path}/{name}"))
        for source in staging.sources
    )


def _words(line: str) -> Iterator[str]:
    """Yield the words of a line, and those of a command that it gives to a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return
    for word in words:
        option, equals, value = word.partition("=")
        yield value if equals and option.startswith("-") else word
    for place, word in enumerate(words):
        if os.path.basename(word) in SHELLS:
            yield from _words(_line_of(words[place + 1 :]))


def _line_of(words: Sequence[str]) -> str:
    """Return what a shell runs by ``-c`` with *words*, such as ``-o pipefail -c``."""
    before = ""
    for word, line in pairwise(words):
        if re.fullmatch("-[a-z]*c", word):
            return line
        if not word.startswith(("-", "+")) and not re.fullmatch("[-+][a-z]*o", before):
            break
        before = word
    return ""


def _site_scratch(config: Config) -> str | None:
    """Return the node's local disk, from the setting or the site's file."""
    value = config.value(_SETTING) or config.cluster.get(_SETTING)
    if value is None or isinstance(value, str):
        return value or None
    raise FormatError(f"cluster.scratch must be text, not {value!r}")
