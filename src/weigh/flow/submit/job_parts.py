"""Cut one submission into several jobs: long arrays, and `--first N`.

With ``--first N`` only some tasks of each kind are sent. The healer that follows them
sizes the others from what these used, and sends them, so that nothing runs on a login
node in between.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import SchedulerError, UsageError, WeighError
from weigh.flow.plan.directory import refuse_changed_tasks, tasks_of
from weigh.lazy_modules import lazy_module
from weigh.model.job import JobScript, SubmittedJob
from weigh.model.plan import Plan
from weigh.units import Bytes

if TYPE_CHECKING:
    from weigh.planning import first_tasks, record_match
    from weigh.runner import task_source
else:  # each is imported when it is first used
    first_tasks = lazy_module("weigh.planning.first_tasks")
    record_match = lazy_module("weigh.planning.record_match")
    task_source = lazy_module("weigh.runner.task_source")

TOO_LONG = "the array was too long for one job"


class JobOrigin(msgspec.Struct, frozen=True):
    """The job that another job continues, the reason, and which round this is."""

    job: str
    reason: str
    round: int = 1  # the submissions of a plan, from 1


def split_into_job_parts(
    job_script: JobScript, limit: int | None
) -> Iterator[JobScript]:
    """Cut an array that is too long for one job; the parts share the throttle."""
    if limit is None or job_script.elements <= limit:
        yield job_script
        return
    count = -(-job_script.elements // limit)
    throttle = job_script.request.throttle
    # the parts run at the same time, so each gets its part of the throttle
    share = None if throttle is None else max(1, throttle // count)
    request = msgspec.structs.replace(job_script.request, throttle=share)
    for first in range(0, job_script.elements, limit):
        yield msgspec.structs.replace(
            job_script,
            first=job_script.first + first,
            elements=min(limit, job_script.elements - first),
            request=request,
        )


def halfway(
    error: WeighError,
    submitted_jobs: Sequence[SubmittedJob],
    job_scripts: Sequence[JobScript],
) -> SchedulerError:
    """Return the error on a part that was refused after others had been accepted."""
    there, total = (
        sum(job.elements for job in submitted_jobs),
        sum(one.elements for one in job_scripts),
    )
    ids = ", ".join(job.id for job in submitted_jobs)
    return SchedulerError(
        f"{error}\nonly {there:,} of {total:,} elements were submitted, as job {ids}: "
        f"weigh resume {submitted_jobs[0].id} submits the rest"
    )


def with_first(folder: str, plan: Plan, count: int, *, cwd: str) -> tuple[Plan, str]:
    """Return the plan with *count* tasks of each kind first, and a note on them.

    Raises:
        UsageError: no task would wait.
        FormatError, StoreError: the task files cannot be read.
    """
    with ExitStack() as opened:
        text_of = texts_of(folder, plan, opened)
        kinds = first_tasks.kinds_of(plan)
        words = {task: text_of(task).decode("utf-8", "replace") for task in kinds}
    # sizes by path: tasks of a sweep name the same files again and again
    files: dict[str, Bytes] = {}
    lines = [
        _task_traits(kinds[task], words[task], cwd, files) for task in sorted(kinds)
    ]
    first = first_tasks.choose_first(lines, count)
    if len(first.places) == len(lines):
        raise UsageError(
            f"--first {count}: the plan has only {len(lines)} tasks, so none would wait"
        )
    how = "drawn at random" if first.by is None else f"of all sizes by {first.by}"
    note = f"{len(first.places)} of {len(lines):,} tasks run first, {how}"
    return first_tasks.first_plan(plan, first), note


def texts_of(
    folder: str, plan: Plan, opened: ExitStack, file: str | None = None
) -> Callable[[int], bytes]:
    """Return a function for the line of a task; *opened* closes the task files."""
    files = [(element.file, element.tasks) for element in plan.elements]
    if plan.queue is not None:
        # a job's queue may lie elsewhere: `file` is its absolute path
        files = [(file or plan.queue.file, plan.queue.tasks)]
    digests = {element.file: element.digest for element in plan.elements}
    if plan.queue is not None:
        digests = {files[0][0]: plan.queue.digest}
    places = {
        task: (file, seq) for file, tasks in files for seq, task in enumerate(tasks, 1)
    }
    sources: dict[str, task_source.TaskSource] = {}

    def text_of(task: int) -> bytes:
        file, seq = places[task]
        if file not in sources:
            refuse_changed_tasks(os.path.join(folder, file), digests.get(file, ""))
            # one open file at a time: a plan may have more than a process may open
            for source in sources.values():
                source.close()
            sources.clear()
            sources[file] = task_source.TaskSource(os.path.join(folder, file))
            opened.callback(sources[file].close)
        return sources[file].text(seq)

    return text_of


def texts_of_job(
    submitted_job: SubmittedJob, plan: Plan, opened: ExitStack
) -> Callable[[int], bytes]:
    """Return a function for the line of a task of *submitted_job*."""
    if plan.queue is None:
        return texts_of(submitted_job.plan_folder, plan, opened)
    return texts_of(
        submitted_job.folder, plan, opened, file=tasks_of(submitted_job, plan.queue)
    )


def _task_traits(
    kind: int, text: str, cwd: str, files: dict[str, Bytes]
) -> "first_tasks.TaskTraits":
    """Return what the line of a task shows; *files* are sizes that are known."""
    words = record_match.task_line_words(text)
    # --input=FILE names a file too
    values = (word.partition("=")[2] for word in words)
    pieces = dict.fromkeys((*words, *filter(None, values)))
    for piece in pieces:
        if piece not in files:
            path = os.path.join(cwd, piece)
            files[piece] = os.path.getsize(path) if os.path.isfile(path) else 0
    size = sum(files[piece] for piece in pieces)
    return first_tasks.TaskTraits(kind, size, record_match.sizes_in(words, {}))
