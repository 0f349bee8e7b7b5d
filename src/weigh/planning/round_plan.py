"""The plan of a further round: the tasks that run again, packed for what they get."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from weigh.model.job import JobRequest
from weigh.model.plan import SCHEMA_OF_QUEUES, Element, Item, Kind, Plan, Queue
from weigh.planning.queue_order import size_of_round
from weigh.planning.resume_policy import Choice
from weigh.units import Bytes


class Was(NamedTuple):
    """Where a task was: the plan of its job, its element there, its kind if known."""

    plan: Plan
    element: int
    kind: int | None


def was(plan: Plan, element: int, seq: int) -> Was:
    """Return where the task at place *seq*, from 1, of an element was."""
    kinds = plan.queue.kinds if plan.queue else plan.elements[element].kinds
    return Was(plan, element, kinds[seq - 1] if 0 < seq <= len(kinds) else None)


def plan_of_round(  # noqa: PLR0913 - keyword-only past the fourth
    plan: Plan,
    tasks: Mapping[int, Was],
    choice: Choice,
    memory: Bytes | None,
    *,
    queue: str,
    keeps: bool,
) -> Plan:
    """Return the plan of *tasks* with the same *choice*, in elements that had *memory*.

    *plan* is the first one. Its tasks are pulled from a *queue* if they were before;
    *keeps*: tasks stay with those of their element.
    """
    made = replace(plan, left_out=(), held=0, rest=None)
    if plan.queue is not None:
        return _pulled(made, tasks, choice, choice.at_once(memory), queue, plan.held)
    parts = dict[object, list[int]]()
    most = max(len(element.tasks) for element in plan.elements)
    most = choice.at_once(memory) if choice.need else most
    most = -(-len(tasks) // -(-len(tasks) // most))  # in equal parts
    is_filled = (bool(choice.need) or len(plan.kinds) <= 1) and not keeps
    for place, (task, one) in enumerate(tasks.items()):
        key = place // most if is_filled else (id(one.plan), one.element)
        parts.setdefault(key, []).append(task)
    if choice.sized:
        made = replace(made, kinds=tuple(_grown(one, choice) for one in plan.kinds))
    return replace(made, elements=tuple(_elements(parts.values(), tasks, choice)))


def _elements(
    parts: Iterable[list[int]], tasks: Mapping[int, Was], choice: Choice
) -> Iterator[Element]:
    for number, part in enumerate(parts):
        first = tasks[part[0]]
        known = [kind for task in part if (kind := tasks[task].kind) is not None]
        is_known = len(known) == len(part) and choice.memory == 1  # else underestimated
        yield replace(
            first.plan.elements[first.element],
            file=f"tasks_{number}.txt",
            tasks=tuple(part),
            kinds=tuple(known) if is_known else (),
        )


def _pulled(  # noqa: PLR0913, PLR0917 - a part of plan_of_round
    plan: Plan,
    tasks: Mapping[int, Was],
    choice: Choice,
    most: int,
    folder: str,
    held: int,
) -> Plan:
    """Return a plan whose elements pull the tasks from a queue of their own."""
    grown = [_grown(one.plan.kinds[one.kind or 0], choice) for one in tasks.values()]
    kinds = list(dict.fromkeys(grown))
    long = choice.time > 1 and plan.gpu is None  # tasks may share a GPU
    before = held or len(plan.elements)
    count, slots = size_of_round(len(tasks), most, before, long=long)
    memory = plan.elements[0].memory * choice.memory
    if choice.sized:
        memory = slots * max(one.item.memory for one in kinds)
    element = replace(plan.elements[0], tasks=(), kinds=(), memory=memory)
    return replace(
        plan,
        schema=SCHEMA_OF_QUEUES,
        kinds=tuple(kinds),
        elements=tuple(
            replace(element, file=f"tasks_{number}.txt") for number in range(count)
        ),
        queue=Queue(
            folder=folder,
            tasks=tuple(tasks),
            kinds=tuple(map(kinds.index, grown)),
            slots=slots,
            waves=-(-len(tasks) // slots),
        ),
    )


def _grown(kind: Kind, choice: Choice) -> Kind:
    def grown(item: Item) -> Item:
        memory = item.memory * choice.memory if choice.need is None else choice.need
        time = None if item.time is None else item.time * choice.time
        return replace(item, memory=memory, time=time)

    return replace(kind, item=grown(kind.item), used=grown(kind.used), notes=())


def narrowed(request: JobRequest, plan: Plan, most: int) -> JobRequest:
    """Return the request with fewer CPUs where fewer tasks than *most* run at once."""
    alike = len({kind.item.cpus for kind in plan.kinds}) <= 1
    if plan.together >= most or not alike:
        return request
    return replace(request, cpus=-(-request.cpus * plan.together // most))
