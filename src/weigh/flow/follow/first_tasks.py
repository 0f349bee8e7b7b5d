"""What the first tasks of a plan used, and which tasks wait for them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.tasks import LOGS, lines_of
from weigh.flow.follow.view import View, merged
from weigh.flow.plan.directory import plan_of
from weigh.model.job import TaskState
from weigh.planning.first_tasks import Used, kinds_of
from weigh.runner import events
from weigh.store.find import find
from weigh.store.lines import UNREADABLE

_ENDED = b'{"event":"ended"'
_ACTIVE = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
_WORDS = {
    "FAILED": "failed",
    "OUT_OF_MEMORY": "ran out of memory",
    "TIMEOUT": "ran out of time",
    "NODE_FAIL": "lost its node",
    "CANCELLED": "was cancelled",
}


def never_sent(views: Sequence[View]) -> Iterator[TaskState]:
    """Yield the tasks of the elements of a plan that were not submitted."""
    first = views[0].job
    if first.resumes is not None:
        return
    there = merged(views)
    for number, element in enumerate(plan_of(first).elements):
        for seq, task in enumerate(element.tasks, start=1):
            if task not in there:
                yield TaskState(
                    task=task,
                    job=first.id,
                    element=number - first.first,
                    seq=seq,
                    state="UNKNOWN",
                )


def held_tasks(views: Sequence[View]) -> Iterator[TaskState]:
    """Yield the tasks that wait until the first ones of their plan have ended."""
    job = views[0].job
    if job.heal is None or job.own is not None:
        return
    with suppress(WeighError):
        if plan_of(job).held:
            yield from never_sent(views)


def uses_of(views: Sequence[View], root: str) -> list[Used]:
    """Return what each task that was sent used, and why that is no measure.

    *root* is the store with their records.

    Raises:
        WeighError: the plan cannot be read.
    """
    kinds = kinds_of(plan_of(views[0].job))
    ends: dict[int, events.Ended] = {}
    for view in views:
        plan, job = plan_of(view.job), view.job
        for element in plan.elements[job.first : job.first + job.elements]:
            name = element.file.removesuffix(".txt")
            joblog = os.path.join(job.folder, LOGS, f"{name}.joblog")
            for end in read_ends(joblog):
                if 0 < end.seq <= len(element.tasks):
                    ends[element.tasks[end.seq - 1]] = end
    return [
        _used(task, ends.get(number), kinds.get(number, 0), root)
        for number, task in sorted(merged(views).items())
    ]


def read_ends(joblog: str) -> Iterator[events.Ended]:
    """Yield how the attempts of the tasks of *joblog* ended."""
    for line in lines_of(joblog + events.SUFFIX):
        if line.startswith(_ENDED):
            with suppress(*UNREADABLE):
                yield msgspec.json.decode(line, type=events.Ended)


def _used(task: TaskState, end: events.Ended | None, kind: int, root: str) -> Used:
    trouble = None
    if task.state != "COMPLETED":
        trouble = f"task {task.task} {_WORDS.get(task.state, 'has not ended')}"
    elif end is None:
        trouble = f"task {task.task} was not measured"
    elif _grew(end.record, root):
        trouble = f"the memory of task {task.task} still rose at its end"
    peak = None if end is None else end.peak_memory
    return Used(kind, peak, trouble, task.state not in _ACTIVE)


def _grew(record: str, root: str) -> bool:
    try:
        usage = find(root, record).usage
    except WeighError:  # removed, or not written: the peak is known all the same
        return False
    return usage is not None and bool(usage.growing)
