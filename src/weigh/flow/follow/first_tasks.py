"""What the first tasks of a plan used, and which tasks wait for them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from weigh.errors import WeighError
from weigh.flow.follow.task_history import history_of
from weigh.flow.follow.view import JobView, PlanWork, latest_task_states
from weigh.flow.here import Here
from weigh.flow.plan.directory import plan_in_folder_of
from weigh.flow.submit.rounds import rounds_of_plan
from weigh.model.job import SubmittedJob, TaskState
from weigh.model.record import State
from weigh.planning.first_tasks import NOT_SENT, FirstTaskUsage, is_rest, kinds_of
from weigh.runner import events
from weigh.store.find import find_stored_record
from weigh.store.jobs import chain_of, read_jobs

# of these the peak may still rise
_ACTIVE: frozenset[State] = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
_WORDS = {
    "FAILED": "failed",
    "OUT_OF_MEMORY": "ran out of memory",
    "TIMEOUT": "ran out of time",
    "NODE_FAIL": "lost its node",
    "CANCELLED": "was cancelled",
}


def never_sent(views: Sequence[JobView]) -> Iterator[TaskState]:
    """Yield the tasks of the elements of a plan that were not submitted."""
    first, work = views[0].job, views[0].work
    # the record of the first job is gone, so what it was to send is not known
    if first.resumes is not None or not isinstance(work, PlanWork):
        return
    there = latest_task_states(views)
    for number, element in enumerate(work.plan.elements):
        for seq, task in enumerate(element.tasks, start=1):
            if task not in there:
                yield TaskState(
                    task=task,
                    job=first.id,
                    element=number - first.first,  # it counts from the job's first one
                    seq=seq,
                    state="UNKNOWN",
                )


def with_unsent(views: Sequence[JobView], *, comes: bool) -> list[JobView]:
    """Return the views of a plan's jobs, the first one also with tasks never submitted.

    They wait if somebody will send them (*comes*), else they were left.
    """
    first = views[0]
    state: State = "PENDING" if comes else "INTERRUPTED"
    unsent = list[TaskState]()
    with suppress(WeighError):  # a plan that was deleted
        unsent = [
            replace(task, state=state, reason=NOT_SENT) for task in never_sent(views)
        ]
    return [replace(first, tasks=(*first.tasks, *unsent)), *views[1:]]


def is_unsent(task_state: TaskState) -> bool:
    """Return whether a task was not submitted yet."""
    return task_state.reason == NOT_SENT


def sends_rest(chain: Sequence[SubmittedJob]) -> bool:
    """Return whether the tasks that wait for the first ones were not sent yet."""
    with suppress(WeighError):
        return bool(plan_in_folder_of(chain[0]).held) and not any(map(is_rest, chain))
    return False


def rest_comes(here: Here, views: Sequence[JobView]) -> bool:
    """Return whether a healer waits or runs that may send more tasks, or just has."""
    last = views[-1].job
    if last.heal is None:
        return False
    sendings = rounds_of_plan(here, views[0].job.folder)
    healers, scheduler = sendings.healers()[-1:], views[-1].scheduler
    states = {scheduler.states(healers).of(one, 0).state for one in healers}
    if sendings.stopped() is not None or states & {"PENDING", "RUNNING"}:
        return sendings.stopped() is None
    # it may have ended because it sent the next round after these views were taken
    return len(chain_of(read_jobs(here.root), last)) > len(views)


def usages_of_first_tasks(views: Sequence[JobView], root: str) -> list[FirstTaskUsage]:
    """Return what each task that was sent used, and why that is no measure.

    *root* is the store with their records.

    Raises:
        WeighError: the plan cannot be read.
    """
    plan = views[0].work.known_plan
    kinds = {} if plan is None else kinds_of(plan)
    ends: dict[int, events.AttemptEnded | None] = {}
    for view in views:
        history = history_of(view.job)
        for task in view.tasks:
            for one in history.element(task.element).attempts.get(task.seq, []):
                # the last attempt counts
                ends[task.task] = one.ended or ends.get(task.task)
    return [
        _usage_of_first_task(task, ends.get(number), kinds.get(number, 0), root)
        for number, task in sorted(latest_task_states(views).items())
    ]


def _usage_of_first_task(
    task_state: TaskState, end: events.AttemptEnded | None, kind: int, root: str
) -> FirstTaskUsage:
    trouble = None
    if task_state.state != "COMPLETED":
        trouble = (
            f"task {task_state.task} {_WORDS.get(task_state.state, 'has not ended')}"
        )
    elif end is None:
        trouble = f"task {task_state.task} was not measured"
    # such a task may need more with a longer run: its peak is no bound
    elif _grew(end.record, root):
        trouble = f"the memory of task {task_state.task} still rose at its end"
    peak = None if end is None else end.peak_memory
    return FirstTaskUsage(kind, peak, trouble, task_state.state not in _ACTIVE)


def _grew(record: str, root: str) -> bool:
    try:
        usage = find_stored_record(root, record).usage
    except WeighError:  # removed, or not written: the peak is known all the same
        return False
    return usage is not None and bool(usage.growing)
