"""What the first tasks of a plan used, and which tasks wait for them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from weigh.errors import WeighError
from weigh.flow.follow.tasks import LOGS, lines_of
from weigh.flow.follow.view import View, merged
from weigh.flow.here import Here
from weigh.flow.plan.directory import plan_of
from weigh.flow.submit.rounds import Sendings, reaching
from weigh.model.job import Submitted, TaskState
from weigh.model.record import State
from weigh.planning.first_tasks import NOT_SENT, Used, is_rest, kinds_of
from weigh.runner import events
from weigh.store.find import find
from weigh.store.jobs import chain_of, read_jobs
from weigh.store.lines import UNREADABLE

_ENDED = b'{"event":"ended"'
_ACTIVE: frozenset[State] = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
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


def with_unsent(views: Sequence[View], *, comes: bool) -> list[View]:
    """Return the views of a plan's jobs, the first one also with tasks never submitted.

    They wait if somebody will send them (*comes*), else they were left.
    """
    first = views[0]
    state: State = "PENDING" if comes else "INTERRUPTED"
    unsent = list[TaskState]()
    with suppress(WeighError):  # a plan that was deleted
        if first.job.own is None:
            unsent = [
                msgspec.structs.replace(task, state=state, reason=NOT_SENT)
                for task in never_sent(views)
            ]
    return [msgspec.structs.replace(first, tasks=(*first.tasks, *unsent)), *views[1:]]


def is_unsent(task: TaskState) -> bool:
    """Return whether a task was not submitted yet."""
    return task.reason == NOT_SENT


def sends_rest(chain: Sequence[Submitted]) -> bool:
    """Return whether the tasks that wait for the first ones were not sent yet."""
    with suppress(WeighError):
        return bool(plan_of(chain[0]).held) and not any(map(is_rest, chain))
    return False


def rest_comes(here: Here, views: Sequence[View]) -> bool:
    """Return whether a healer waits or runs that may send more tasks, or just has."""
    last = views[-1].job
    if last.heal is None:
        return False
    sendings = Sendings(views[0].job.folder, root=here.root, reach=reaching(here))
    healers, scheduler = sendings.healers()[-1:], views[-1].scheduler
    states = {scheduler.states(healers).of(one, 0).state for one in healers}
    if sendings.stopped() is not None or states & {"PENDING", "RUNNING"}:
        return sendings.stopped() is None
    return len(chain_of(read_jobs(here.root), last)) > len(views)


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
