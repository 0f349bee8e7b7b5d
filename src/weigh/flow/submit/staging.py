"""Staging for `weigh submit`: its options, the size of inputs, the script's lines."""

import math
import os
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from weigh.config import Value
from weigh.errors import UsageError, why_nothing_is_at
from weigh.flow.here import Here
from weigh.flow.submit.submit_script import programs_of
from weigh.model.job import JobScript, SubmittedJob, TaskState
from weigh.model.plan import Plan
from weigh.model.staging import EarlierAttempts, StagedInput, StagingPlan
from weigh.regular_file import is_regular_file
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import requeue_lines, staged_lines, when_home
from weigh.schedulers.launched import launched_by_line
from weigh.schedulers.this_machine import LOCAL_RULES
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.staging.script import JOB, StagedJobWords, parse_staging, staged_script_lines
from weigh.units import GIB, MIB, Bytes, format_size, parse_size

_MOST_STAGED = 10 * GIB  # copied to a node unless the user confirms more
# what ends a name in a command, or in one that a shell gets within it
_NO_NAME = re.compile(r"[\s;|&<>()'\"=]+")
_MOST_OF_PROGRAMS = 50 * MIB  # staged without being named
_PROGRAM_SUFFIXES = (".py", ".sh", ".R", ".pl", ".jl", ".rb")
_MOST_ENTRIES = 500_000  # counted at most: submitting must not take minutes


def staging_of(
    here: Here, stage_in: Sequence[str], destination: str | None
) -> StagingPlan:
    """Read ``--stage-in`` and ``--stage-out``; the node's disk is a setting.

    By default results go to the working directory of the submission.

    Raises:
        UsageError: a name or path is not allowed there.
    """
    scratch = here.settings.value("scratch")
    return parse_staging(
        stage_in,
        # % begins a pattern in a destination
        here.cwd.replace("%", "%%") if destination is None else destination,
        None if scratch is None else str(scratch),
        cwd=here.cwd,
        home=here.env.get("HOME"),
    )


def refuse_missing(staging: StagingPlan) -> None:
    """Check that the inputs exist.

    Raises:
        UsageError: one does not.
    """
    for source in staging.sources:
        why_not = why_nothing_is_at(source.path)
        if why_not is not None:
            raise UsageError(f"--stage-in {source.path}: {why_not}")
        if not (os.path.isdir(source.path) or is_regular_file(source.path)):
            raise UsageError(
                f"--stage-in {source.path}: not a regular file or a folder"
            )


def refuse_large(staging: StagingPlan, most: Value | None) -> Iterator[str]:
    """Compare the size of the inputs with the bound; yield notes on links.

    Raises:
        UsageError: they are larger, or a link leads to a directory above itself.
        FormatError: *most* is not a size.
    """
    bound = _MOST_STAGED if most is None else parse_size(str(most))
    extents = [measure_source(source.path) for source in staging.sources]
    for source, extent in zip(staging.sources, extents, strict=True):
        if extent.links:
            noun = "link leads" if extent.links == 1 else "links lead"
            yield f"{extent.links:,} {noun} out of {source.path}: copied too"
    total = sum(extent.size for extent in extents)
    if total > bound:
        least = "" if all(extent.is_whole for extent in extents) else "at least "
        raise UsageError(
            f"--stage-in copies {least}{format_size(total)} to each node; more than "
            f"{format_size(bound)} must be confirmed: export "
            f"WEIGH_STAGE_MAX={math.ceil(total / GIB)}GiB"
        )


class InputExtent(msgspec.Struct):
    """What copying an input copies: bytes, and links that lead out of it.

    ``is_whole`` is False if there were too many entries to count.
    """

    size: Bytes = 0
    links: int = 0
    is_whole: bool = True


def measure_source(path: str) -> InputExtent:
    """Return the size of *path* when copied: links that lead out of it are followed.

    Raises:
        UsageError: a link leads to a directory above itself: the copy has no end.
    """
    if os.path.isfile(path):
        return InputExtent(size=os.stat(path).st_size)
    # links are followed by os.walk, as the copy follows those that lead out
    extent, top, entries = InputExtent(), os.path.realpath(path), 0
    for folder, folders, files in os.walk(path, followlinks=True):
        entries += len(folders) + len(files)
        if entries > _MOST_ENTRIES:
            extent.is_whole = False
            break
        for name in (*folders, *files):
            entry = os.path.join(folder, name)
            # copied as a link: what it leads to is copied, and counted, anyway
            if os.path.islink(entry) and not _leads_out(entry, top):
                folders[:] = [other for other in folders if other != name]
                continue
            extent.links += os.path.islink(entry)
            if name not in folders:
                extent.size += _staged_file_size(entry, path)
            elif os.path.islink(entry) and _is_met_again(entry, path):
                raise UsageError(
                    f"--stage-in {path}: the link {entry} leads to a directory above "
                    "it (the copy would never end)"
                )
    return extent


def _staged_file_size(entry: str, top: str) -> Bytes:
    """Return the bytes of a file; a dangling link, copied as a link, has none."""
    if os.path.islink(entry) and os.path.exists(entry) and not is_regular_file(entry):
        raise UsageError(
            f"--stage-in {top}: the link {entry} leads to {os.path.realpath(entry)}, a "
            "device or FIFO (the copy might never end)"
        )
    try:
        return os.stat(entry).st_size
    except OSError:
        return 0


def _leads_out(link: str, top: str) -> bool:
    """Return whether a link's target is copied instead: not one inside of *top*."""
    is_inside = _is_below(os.path.realpath(link), top)
    # an absolute target would lead back to the original, not into the copy
    return os.path.isabs(os.readlink(link)) or not is_inside


def _is_met_again(link: str, top: str) -> bool:
    """Return whether a link leads to a directory on its own way down from *top*."""
    # only its own way down: two links to one directory are no circle
    target, above = os.path.realpath(link), os.path.dirname(link)
    while _is_below(above, top):
        if _is_below(os.path.realpath(above), target):
            return True
        above = os.path.dirname(above)
    return False


def continued(
    staging: StagingPlan | None,
    task_states: Sequence[TaskState],
    submitted_jobs: Sequence[SubmittedJob],
) -> StagingPlan | None:
    """Return the staging with, per new element, the element that it continues."""
    if staging is None:
        return None
    by_id = {job.id: job for job in submitted_jobs}
    # tasks of one element stay together, so each new element continues one
    before = dict.fromkeys((task.job, task.element) for task in task_states)
    earlier = tuple(
        _earlier_attempts_of(by_id[job], element) for job, element in before
    )
    return replace(staging, continues=earlier)


def _earlier_attempts_of(submitted_job: SubmittedJob, element: int) -> EarlierAttempts:
    """Return an element and the ones that it continues, the newest first."""
    number = submitted_job.first + element
    label = f"{submitted_job.id}_{number}"
    if submitted_job.staging is None or not submitted_job.staging.continues:
        return EarlierAttempts((label,), submitted_job.id, number)
    # a destination is named by the job and element of the first attempt
    before = submitted_job.staging.continues[number]
    return EarlierAttempts((label, *before.labels), before.job, before.element)


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def staged(job_script: JobScript, staging: StagingPlan, scheduler: str) -> JobScript:
    """Return *job_script* with the lines that stage files in and out."""
    is_local = scheduler == LOCAL
    rules = LOCAL_RULES if is_local else KINDS[scheduler].backend.RULES
    last = ("by=$hurry", *requeue_lines(rules.requeue)) if job_script.requeue else ()
    lines = staged_script_lines(
        staging,
        staged_lines(job_script, rules),
        # no scheduler sets an id there: the script of this machine has a variable
        ids=StagedJobWords('"$job"' if is_local else JOB, '"$element"'),
        when_home=when_home(),
        last_lines="\n".join(last),
    )
    return replace(job_script, staged=lines)


def with_programs_of_tasks(
    plan: Plan, staging: StagingPlan, cwd: str, *, may_come: bool
) -> tuple[StagingPlan, str | None]:
    """Return the staging with the tasks' programs in *cwd* that it lacks, and a note.

    *may_come*: an earlier job may still make what is missing.

    Raises:
        UsageError: a program is missing, too large, or outside of *cwd*.
    """
    relative = [word for word in _words_of_tasks(plan) if not os.path.isabs(word)]
    programs = [*_programs_to_stage(plan, relative, cwd)]
    # a relative program without a folder is one on PATH
    started = [one for one in programs_of(plan) if one in relative and "/" in one]
    lacking = [
        name
        for name in dict.fromkeys(map(os.path.normpath, (*programs, *started)))
        if not _is_staged_file(name, staging)
        and not (may_come and not os.path.exists(os.path.join(cwd, name)))
    ]
    if not lacking:
        return staging, None
    size = sum(_size_of_program(name, cwd, staging) for name in lacking)
    names = ", ".join(lacking)
    if size > _MOST_OF_PROGRAMS:
        raise UsageError(
            f"{names}: {format_size(size)} of programs are too much to stage in "
            f"unasked (--stage-in {' --stage-in '.join(lacking)})"
        )
    added = (StagedInput(path=os.path.join(cwd, one), place=one) for one in lacking)
    note = f"staged in too: {names}, without what it imports (--stage-in FOLDER:.)"
    return replace(staging, sources=(*staging.sources, *added)), note


def _size_of_program(name: str, cwd: str, staging: StagingPlan) -> Bytes:
    """Return the size of a program that can be staged as *name*.

    Raises:
        UsageError: it is missing, or its place is taken or outside of the folder.
    """
    if not os.path.exists(os.path.join(cwd, name)):
        raise UsageError(f"the tasks' program {name} is missing (--stage-in FOLDER:.)")
    if name.startswith("../") or _is_staged(name.partition("/")[0], staging):
        raise UsageError(
            f"the tasks' program {name} would be missing on the node "
            f"(--stage-in {name}:PLACE, and PLACE in the tasks)"
        )
    return os.path.getsize(os.path.join(cwd, name))


def _programs_to_stage(plan: Plan, names: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield those of *names* that are a script in *cwd*, or a program that tasks run.

    That a file is executable is not enough: on SMB and vfat every file is.
    """
    run = {
        name
        for kind in plan.kinds
        for script in launched_by_line(kind.example)
        for name in script.files
    }
    for name in names:
        path = os.path.join(cwd, name)
        is_script = name.endswith(_PROGRAM_SUFFIXES)
        if is_regular_file(path) and (
            is_script or (name in run and os.access(path, os.X_OK))
        ):
            yield name


def _is_staged_file(name: str, staging: StagingPlan) -> bool:
    """Return whether a relative path exists in the folder of the tasks."""
    return any(
        os.path.exists(
            os.path.normpath(f"{source.path}/{os.path.relpath(name, place)}")
        )
        for source in staging.sources
        if (place := source.place) == "." or _is_below(name, place)
    )


def _words_of_tasks(plan: Plan) -> list[str]:
    """Return the words of an example of each kind of task; other tasks are not read."""
    words = (word for kind in plan.kinds for word in _NO_NAME.split(kind.example))
    return list(dict.fromkeys(os.path.expanduser(word) for word in words if word))


def left_behind(plan: Plan, staging: StagingPlan, cwd: str) -> Iterator[str]:
    """Yield warnings on files that tasks name and that are not staged in.

    Those in the working directory would not be found, those elsewhere in the home
    directory would be read from there by every task.
    """
    home = os.path.expanduser("~")
    for word in dict.fromkeys(map(os.path.normpath, _words_of_tasks(plan))):
        name = word.split("/")[0]
        is_here = name not in {"", ".", ".."} and os.path.exists(f"{cwd}/{name}")
        if _is_below(word, home) and os.path.isfile(word):
            yield f"{word} is read from home by each task"
        elif is_here and not _is_staged(name, staging):
            yield f"{name} is not staged in: tasks cannot read it (--stage-in {name})"


def _is_staged(name: str, staging: StagingPlan) -> bool:
    return any(
        source.place.split("/")[0] == name
        or (source.place == "." and os.path.exists(f"{source.path}/{name}"))
        for source in staging.sources
    )
