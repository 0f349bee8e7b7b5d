"""What a resumed job stages: the partial results of each element go in first.

The results of an element lie together, so its tasks stay together: in one element of
one job, or a stale copy of one task's results could come home after the good one.
"""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.flow.follow.choice import Choice
from weigh.model.job import Submitted, TaskState
from weigh.model.staging import Earlier, Staging

Chosen = tuple[TaskState, Choice]


def keep_together(choices: Sequence[Chosen]) -> Iterator[Chosen]:
    """Give the tasks of each element the most that one of them needs."""
    most: dict[tuple[str, int], tuple[int, int]] = {}
    for task, choice in choices:
        if choice.run:
            memory, time = most.get((task.job, task.element), (1, 1))
            more = max(memory, choice.memory), max(time, choice.time)
            most[task.job, task.element] = more
    for task, choice in choices:
        memory, time = most.get((task.job, task.element), (1, 1))
        yield task, msgspec.structs.replace(choice, memory=memory, time=time)


def continued(
    staging: Staging | None, tasks: Sequence[TaskState], jobs: Sequence[Submitted]
) -> Staging | None:
    """Say of each element to come which it goes on from; *tasks* are in its order."""
    if staging is None:
        return None
    by_id = {job.id: job for job in jobs}
    before = dict.fromkeys((task.job, task.element) for task in tasks)
    earlier = tuple(_earlier(by_id[job], element) for job, element in before)
    return msgspec.structs.replace(staging, continues=earlier)


def _earlier(job: Submitted, element: int) -> Earlier:
    """Name an element and those that it goes on from itself, the newest first."""
    number = job.first + element
    label = f"{job.id}_{number}"
    continues = () if job.staging is None else job.staging.continues
    if not continues:
        return Earlier((label,), job.id, number)
    before = continues[number]
    return Earlier((label, *before.labels), before.job, before.element)
