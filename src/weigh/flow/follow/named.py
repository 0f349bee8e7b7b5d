"""Find the jobs that a name means: of any folder, also those without weigh."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.flow.here import Here, here_of
from weigh.flow.site import schedulers
from weigh.flow.submit.own_script import FOLDER, request_of_known
from weigh.lazy_modules import lazy_module
from weigh.model.job import OwnScript, SubmittedJob
from weigh.schedulers import KINDS, find_kind
from weigh.schedulers.job_script import SHEBANG
from weigh.schedulers.kind import DialectTraits, KnownJob
from weigh.schedulers.reachable import indices_of
from weigh.schedulers.words import format_ranges, parse_ranges
from weigh.store import jobs as jobs_file
from weigh.store.location import locate_store
from weigh.store.past_calls import read_exec_runs

if TYPE_CHECKING:
    from weigh.flow.check import script as check_script
else:  # imported when it is first used: most jobs are weigh's own
    check_script = lazy_module("weigh.flow.check.script")


def named_jobs(
    here: Here,
    known_jobs: Sequence[SubmittedJob],
    name: str,
    *,
    of_others: bool = False,
) -> list[SubmittedJob]:
    """Return the jobs called *name*, as the store finds them, or else as schedulers do.

    ``123_4``, as the scheduler writes it, is one element of an array. With *of_others*
    a job of another user is found too.

    Raises:
        UsageError: there is none; or it is another user's.
        SchedulerError: a scheduler does not answer.
    """
    try:
        return jobs_file.find_jobs(known_jobs, name)
    except UsageError as error:
        if name == jobs_file.LAST:
            _refuse_exec_run(here.root)
        # without asking: the array's indices are in the store
        part = _part_of_known(known_jobs, name)
        if part is not None:
            return [part]
        asked = []
        for scheduler in _that_may_know(name, here.env):
            found = schedulers.reach(here, scheduler).known(name)
            asked.append(scheduler)
            if found is None:
                continue
            one = scheduler, found.id
            same = [job for job in known_jobs if (job.scheduler, job.id) == one]
            ours = [job for job in same if job.is_script]
            if ours:  # an element may have an id of its own
                span = found.part
                return [_narrowed(ours[-1], span, name) if span else ours[-1]]
            return [_as_job(here, found, scheduler, name, of_others=of_others)]
        if not asked:
            raise
        titles = " and ".join(KINDS[scheduler].title for scheduler in asked)
        raise UsageError(
            f"no such job: {name} (not from here, and unknown to {titles})"
        ) from error


def _refuse_job_of_other_folder(
    here: Here, known_job: KnownJob, scheduler: str
) -> None:
    """Refuse a job that weigh submitted elsewhere: its tasks are known only there.

    Raises:
        UsageError: it is one; names its folder.
    """
    root = locate_store(known_job.cwd, here.env) if known_job.cwd else here.root
    if root != here.root and any(
        (job.scheduler, job.id) == (scheduler, known_job.id)
        for job in jobs_file.read_jobs(root)
    ):
        folder = shlex.quote(known_job.cwd)
        raise UsageError(f"job {known_job.id} was submitted elsewhere: cd {folder}")


def _refuse_exec_run(root: str) -> None:
    """Refuse ``last`` where no job was submitted, but tasks were run by weigh exec.

    Raises:
        UsageError: names their report.
    """
    for run in read_exec_runs(root)[-1:]:
        name = os.path.relpath(run.task_file)
        raise UsageError(
            f"no job was submitted from here: the last run is weigh exec {name} "
            "(weigh report last)"
        )


def with_foreign(
    known_jobs: Sequence[SubmittedJob], submitted_jobs: Sequence[SubmittedJob]
) -> list[SubmittedJob]:
    """Return *known_jobs*, and those of *submitted_jobs* that weigh did not submit."""
    ids = {(job.scheduler, job.id) for job in known_jobs}
    return [
        *known_jobs,
        *(job for job in submitted_jobs if (job.scheduler, job.id) not in ids),
    ]


def _that_may_know(name: str, env: Mapping[str, str]) -> Iterator[str]:
    path = env.get("PATH", "")
    for scheduler, kind in KINDS.items():
        installed = shutil.which(kind.submits, path=path)
        # a word that cannot be an id is not worth a query of each scheduler
        if installed and kind.user_scripts.known(name).argvs:
            yield scheduler


def _part_of_known(
    known_jobs: Sequence[SubmittedJob], name: str
) -> SubmittedJob | None:
    """Return the element ``123_4`` of an array whose script is the user's own."""
    # the newest first: an id may have been used before
    for job in reversed(known_jobs):
        own = job.own
        if own is None or not own.indices or not name.startswith(job.id):
            continue
        kind = find_kind(job.scheduler)
        traits = DialectTraits() if kind is None else kind.traits
        # what stands between id and index: 7_3 or 7.3
        mark = traits.element_name.format("", "")
        rest = name.removeprefix(job.id)
        if rest.startswith(mark):
            return _narrowed(job, rest.removeprefix(mark), name)
    return None


def _narrowed(submitted_job: SubmittedJob, part: str, name: str) -> SubmittedJob:
    """Return a job that has only the elements *part* of an array.

    Raises:
        UsageError: the array has no such index.
    """
    own = submitted_job.own or OwnScript()
    indices = indices_of(submitted_job)
    chosen = sorted(set(parse_ranges(part)) & set(indices))
    if not chosen:
        there = format_ranges(indices)
        raise UsageError(
            f"no such element: {name} (job {submitted_job.id} has {there})"
        )
    some = replace(own, indices=format_ranges(chosen), part=True)
    return replace(submitted_job, own=some, elements=len(chosen), tasks=len(chosen))


def _as_job(
    here: Here, known_job: KnownJob, scheduler: str, name: str, *, of_others: bool
) -> SubmittedJob:
    user = schedulers.current_user()
    if known_job.user != user and not of_others:
        raise UsageError(
            f"job {known_job.id} is {known_job.user}'s, not yours "
            f"(weigh report {name} shows what accounting has)"
        )
    if not of_others:
        _refuse_job_of_other_folder(here, known_job, scheduler)
    cwd = known_job.cwd or os.getcwd()
    script, flags, arguments = script_and_flags_of(known_job, cwd, scheduler)
    own = OwnScript(
        flags=flags,
        arguments=arguments,
        indices=known_job.indices,
        output=known_job.output,
        logs=known_job.logs,
        foreign=True,
        user="" if known_job.user == user else known_job.user,
        is_line_known=bool(known_job.line),
    )
    own, throttle = _with_pattern(own, script, cwd, scheduler)
    request = request_of_known(known_job)
    number = len(set(parse_ranges(known_job.indices))) or 1
    job = SubmittedJob(
        scheduler=scheduler,
        id=known_job.id,
        name=known_job.name,
        # it is not made
        folder=os.path.join(here.root, FOLDER, f"{scheduler}-{known_job.id}"),
        cwd=cwd,
        script=script,
        elements=number,
        tasks=number,
        submitted=known_job.submitted,
        request=replace(request, throttle=throttle or request.throttle),
        own=own,
    )
    return _narrowed(job, known_job.part, name) if known_job.part else job


def script_and_flags_of(
    known_job: KnownJob, cwd: str, scheduler: str
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the script, its flags and arguments, as they were typed if that is known.

    A scheduler that keeps the line quotes nothing: a word that belongs to no option
    continues the value before it, up to the script.
    """
    scripts = KINDS[scheduler].user_scripts
    words, flags = list(known_job.line), list[str]()
    # a scheduler that names the script by its first word may have cut it at a space
    known_path, known_arguments = next(
        _scripts_with_arguments(known_job, cwd),
        (known_job.script, known_job.arguments),
    )
    typed: list[str] | None = None  # the options, where the script is gone
    for place, word in enumerate(words):
        if word.startswith("--wrap"):  # the command's own words follow, and no script
            return "", tuple(flags), ()
        # a value may be the second word of its flag: -pe smp 4
        is_value = any(not scripts.is_misread([*flags[-n:], word]) for n in (1, 2))
        if word.startswith("-") or (flags and is_value):
            flags.append(word)
            continue
        typed = flags[:] if typed is None else typed
        # a path with spaces arrives as several words
        for end in range(place + 1, len(words) + 1):
            path = os.path.join(cwd, " ".join(words[place:end]))
            if path == known_path or os.path.isfile(path):
                return path, tuple(flags), tuple(words[end:])
        if flags:
            flags[-1] += f" {word}"
    # no word was a script: the line is not known, or is all options
    if typed is None:
        return known_path, (), known_arguments
    return known_path, tuple(typed), known_arguments


def _scripts_with_arguments(
    known_job: KnownJob, cwd: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the script, whose spaces schedulers do not quote, and its arguments."""
    words = (known_job.script, *known_job.arguments)
    for end in range(1, len(words) + 1):
        path = os.path.join(cwd, " ".join(words[:end]))
        if os.path.isfile(path):
            yield path, words[end:]


def _with_pattern(
    own_script: OwnScript, script: str, cwd: str, scheduler: str
) -> tuple[OwnScript, int | None]:
    """Return *own_script* with the pattern of its logs, and the throttle of its array.

    Both are read from the flags and the script, which may have changed since: logs
    that the scheduler named come first.
    """
    is_there = os.path.isfile(script)
    try:
        # of a script that is gone the flags alone are read
        text = check_script.read_script_file(script, script) if is_there else SHEBANG
        facts = check_script.facts_of(here_of(cwd, os.environ))
        scripts = KINDS[scheduler].user_scripts
        described = scripts.describe(text, own_script.flags, script, facts)
    except UsageError:
        return own_script, None
    if own_script.output or not is_there:
        return own_script, described.throttle
    return replace(own_script, output=described.output), described.throttle
