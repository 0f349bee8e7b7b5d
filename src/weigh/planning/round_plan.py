"""The plan of a further round: the tasks that run again, packed for what they get."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from weigh.model.job import JobRequest
from weigh.model.plan import (
    SCHEMA_OF_QUEUES,
    Plan,
    PlannedElement,
    PlannedQueue,
    TaskKind,
    TaskNeed,
)
from weigh.planning.queue_order import size_of_round
from weigh.planning.resume_policy import ResumeChoice
from weigh.units import Bytes


class PreviousPlace(NamedTuple):
    """Where a task was: the plan of its job, its element there, its kind if known."""

    plan: Plan
    element: int  # from 0
    kind: int | None  # None: the plan does not have it


def previous_task_place(plan: Plan, element: int, task_number: int) -> PreviousPlace:
    """Return where the task at place *task_number*, from 1, of an element was."""
    kinds = plan.queue.kinds if plan.queue else plan.elements[element].kinds
    return PreviousPlace(
        plan, element, kinds[task_number - 1] if 0 < task_number <= len(kinds) else None
    )


def plan_of_round(  # noqa: PLR0913 - keyword-only past the fourth
    plan: Plan,
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
    memory: Bytes | None,
    *,
    queue: str,
    keeps: bool,
) -> Plan:
    """Return the plan of *tasks* with the same *choice*, in elements that had *memory*.

    *plan* is the first one. Its tasks are pulled from a *queue* if they were before;
    *keeps*: tasks stay with those of their element.
    """
    # a round runs all of its tasks at once: nothing waits and nothing is left out
    made = replace(plan, left_out=(), held=0, rest=None)
    if plan.queue is not None:
        return _plan_with_queue(
            made, tasks, choice, choice.at_once(memory), queue, plan.held
        )
    parts = dict[object, list[int]]()
    # elements are filled as before, or with as many tasks as have room with their new
    # need
    most = max(len(element.tasks) for element in plan.elements)
    most = choice.at_once(memory) if choice.need else most
    most = -(-len(tasks) // -(-len(tasks) // most))  # in equal parts
    # tasks of unlike kinds were packed to fit together: those stay in their element
    is_filled = (bool(choice.need) or len(plan.kinds) <= 1) and not keeps
    for place, (task, one) in enumerate(tasks.items()):
        # element numbers start again in each plan, so the plan is part of the key
        key = place // most if is_filled else (id(one.plan), one.element)
        parts.setdefault(key, []).append(task)
    if choice.sized:
        made = replace(
            made, kinds=tuple(_enlarged_kind(one, choice) for one in plan.kinds)
        )
    return replace(made, elements=tuple(_round_elements(parts.values(), tasks, choice)))


def _round_elements(
    element_tasks: Iterable[list[int]],
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
) -> Iterator[PlannedElement]:
    for number, part in enumerate(element_tasks):
        first = tasks[part[0]]
        known = [kind for task in part if (kind := tasks[task].kind) is not None]
        is_known = len(known) == len(part) and choice.memory == 1  # else underestimated
        yield replace(
            first.plan.elements[first.element],
            file=f"tasks_{number}.txt",
            tasks=tuple(part),
            kinds=tuple(known) if is_known else (),
        )


def _plan_with_queue(  # noqa: PLR0913, PLR0917 - a part of plan_of_round
    plan: Plan,
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
    most_tasks: int,
    folder: str,
    held: int,
) -> Plan:
    """Return a plan whose elements pull the tasks from a queue of their own."""
    grown = [
        _enlarged_kind(one.plan.kinds[one.kind or 0], choice) for one in tasks.values()
    ]
    # kinds of several plans meet here: equal ones become one
    kinds = list(dict.fromkeys(grown))
    long = choice.time > 1 and plan.gpu is None  # tasks may share a GPU
    # tasks that waited for the first ones had elements planned for them: so many
    before = held or len(plan.elements)
    count, slots = size_of_round(len(tasks), most_tasks, before, is_long=long)
    memory = plan.elements[0].memory * choice.memory
    if choice.sized:
        # sized from first tasks: what fits is known, and a factor on the guess is not
        memory = slots * max(one.item.memory for one in kinds)
    element = replace(plan.elements[0], tasks=(), kinds=(), memory=memory)
    return replace(
        plan,
        schema=SCHEMA_OF_QUEUES,
        kinds=tuple(kinds),
        elements=tuple(
            replace(element, file=f"tasks_{number}.txt") for number in range(count)
        ),
        queue=PlannedQueue(
            folder=folder,
            tasks=tuple(tasks),
            kinds=tuple(map(kinds.index, grown)),
            slots=slots,
            waves=-(-len(tasks) // slots),
        ),
    )


def _enlarged_kind(task_kind: TaskKind, choice: ResumeChoice) -> TaskKind:
    def grown(task_need: TaskNeed) -> TaskNeed:
        memory = (
            task_need.memory * choice.memory if choice.need is None else choice.need
        )
        # a task that ran out of time takes longer than was thought, by the factor that
        # its limit grows by
        time = None if task_need.time is None else task_need.time * choice.time
        return replace(task_need, memory=memory, time=time)

    return replace(
        task_kind, item=grown(task_kind.item), used=grown(task_kind.used), notes=()
    )


def narrowed_request(
    job_request: JobRequest, plan: Plan, most_tasks: int
) -> JobRequest:
    """Return the request with fewer CPUs where fewer tasks run at once."""
    alike = len({kind.item.cpus for kind in plan.kinds}) <= 1
    if plan.together >= most_tasks or not alike:
        return job_request
    return replace(job_request, cpus=-(-job_request.cpus * plan.together // most_tasks))
