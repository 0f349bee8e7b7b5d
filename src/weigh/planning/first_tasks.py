"""Choose which tasks of a plan run first, and size the others from what these used.

The first tasks of a file are alike more often than tasks at random, and the largest
input needs most. On six public workflow traces, a request of 10 % above the most that
three tasks of each kind used wastes 22 % and kills 22 % of the others if the three are
the first of the file, 19 % and 7 % if they are drawn, 15 % and 1.4 % if they are the
smallest, a middle one and the largest by their input.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from weigh.model.job import SubmittedJob
from weigh.model.plan import SCHEMA, Plan
from weigh.planning.resume_policy import HELD, ResumeChoice
from weigh.units import MIB, Bytes, count_with_noun

_LEAST_MARGIN, _FALLING = 0.03, 0.21  # the latter over the number of first tasks
_OF_WEIGH = 24 * MIB  # what a task holds at most whose peak was below that of weigh
# stored as the reason of a job: is_rest recognizes it by the beginning
_SIZED, NOT_SENT = "sized from", "was not submitted"
_MOST_FIRST = 0.5  # of all tasks: more kinds would leave too few to wait
_VARIES = 1.05  # sizes of files that differ by less do not count


class TaskTraits(msgspec.Struct, frozen=True):
    """What is known of a task before it starts.

    ``kind`` is that of the plan, ``files`` the bytes of the files that its command
    names, ``numbers`` its sizes.
    """

    kind: int  # index in the plan
    files: Bytes = 0
    numbers: Mapping[str, float] = {}


class FirstTasks(msgspec.Struct, frozen=True):
    """The places of the tasks to run first; ``by`` is what their sizes are."""

    places: tuple[int, ...]
    by: str | None  # in words; None: drawn


def choose_first(task_traits: Sequence[TaskTraits], task_count: int) -> FirstTasks:
    """Choose tasks of each kind: of all sizes, with the largest, or at random.

    All are of one kind if else more than half of the tasks would run first.
    """
    kinds = {line.kind for line in task_traits}
    # a sample of each kind may be most of the plan, and then little is left to size by
    # it
    is_one = task_count * len(kinds) > _MOST_FIRST * len(task_traits)
    by, sizes = _task_sizes(task_traits)
    places: dict[int, list[int]] = defaultdict(list)
    for place, line in enumerate(task_traits):
        places[0 if is_one else line.kind].append(place)
    picked = (
        place
        for one in places.values()
        for place in _picked_places(one, sizes, task_count)
    )
    return FirstTasks(tuple(sorted(picked)), by)


def _task_sizes(
    task_traits: Sequence[TaskTraits],
) -> tuple[str | None, Sequence[float]]:
    """Return what the sizes are, and that of each task; None if none is known."""
    files = [line.files for line in task_traits]
    # the numbers count only where the files are alike
    if max(files) > _VARIES * max(1, min(files)):
        return "the size of their files", files
    # ranks instead of values: numbers of unlike units can be added, and 1e6 does not
    # drown 0.1
    ranks: dict[str, dict[float, float]] = {}
    for name in dict.fromkeys(name for line in task_traits for name in line.numbers):
        values = sorted({line.numbers.get(name, 0.0) for line in task_traits})
        if len(values) > 1:
            ranks[name] = {one: at / len(values) for at, one in enumerate(values)}
    if not ranks:
        return None, ()
    sizes = [
        sum(rank[line.numbers.get(name, 0.0)] for name, rank in ranks.items())
        for line in task_traits
    ]
    return ", ".join(ranks), sizes


def _picked_places(
    group: Sequence[int], task_sizes: Sequence[float], task_count: int
) -> Iterator[int]:
    """Yield *task_count* places: spread over the sizes, the largest first, or drawn."""
    if len(group) <= task_count:
        yield from group
    elif not task_sizes:
        yield from sorted(group, key=_pseudo_random_key)[:task_count]
    else:
        # stable: of equal sizes the first in the file
        order = sorted(group, key=lambda place: -task_sizes[place])
        last = len(order) - 1
        for number in range(task_count):
            yield order[round(number * last / max(1, task_count - 1))]


def _pseudo_random_key(task_place: int) -> bytes:
    """Return a number that has nothing to do with the order of the file."""
    # not random: a plan that is made again chooses the same tasks
    return hashlib.blake2b(b"%d" % task_place).digest()


def first_plan(plan: Plan, first_tasks: FirstTasks) -> Plan:
    """Return the plan with *first_tasks* in elements of their own, before the rest.

    The tasks of a queue are dealt to elements, and the queue is kept for the rest.
    """
    kinds = kinds_of(plan)
    numbers = sorted(kinds)
    # places count from 0 among the planned tasks; numbers are those of the task file
    early = [numbers[place] for place in first_tasks.places]
    # tasks of unlike kinds were not packed with each other, so each gets an element
    together = plan.together if len({kinds[task] for task in early}) == 1 else 1
    begin = [early[at : at + together] for at in range(0, len(early), together)]
    rest = list(_waiting_tasks(plan, frozenset(early)))
    elements = tuple(
        replace(
            plan.elements[0],
            file=f"tasks_{number}.txt",
            tasks=tuple(tasks),
            kinds=tuple(kinds[task] for task in tasks),
        )
        for number, tasks in enumerate((*begin, *rest))
    )
    return replace(
        plan,
        # the first elements have tasks of their own; the queue comes with the rest
        schema=SCHEMA,
        elements=elements,
        queue=None,
        rest=plan.queue,
        held=len(rest),
    )


def kinds_of(plan: Plan) -> dict[int, int]:
    """Return the kind of each task by its number; 0 where it is not known."""
    if plan.queue is not None:
        return dict(zip(plan.queue.tasks, plan.queue.kinds, strict=True))
    return {
        # plans of an older weigh have no kinds in their elements
        task: kind
        for element in plan.elements
        for task, kind in zip(
            element.tasks, element.kinds or (0,) * len(element.tasks), strict=True
        )
    }


def _waiting_tasks(plan: Plan, first_numbers: frozenset[int]) -> Iterator[list[int]]:
    """Yield the tasks of each element that waits; those of a queue in equal parts."""
    files = [element.tasks for element in plan.elements]
    if plan.queue is not None:
        left = [task for task in plan.queue.tasks if task not in first_numbers]
        # the queue's elements have no tasks: its tasks are divided to write the plan's
        # files
        size = -(-len(left) // len(plan.elements))
        files = [tuple(left[at : at + size]) for at in range(0, len(left), size)]
    for tasks in files:
        kept = [task for task in tasks if task not in first_numbers]
        if kept:
            yield kept


class FirstTaskUsage(msgspec.Struct, frozen=True):
    """What a first task used: its kind, its peak memory, and why that is no measure.

    The peak is None where it was below that of weigh, which started the task.
    """

    kind: int  # index in the plan
    peak: Bytes | None = None  # None: below that of weigh
    trouble: str | None = None  # None: its peak is a measure
    has_ended: bool = True


def first_tasks_margin(first_count: int) -> float:
    """Return the margin above the most that *first_count* tasks used, as a share.

    A tenth for three; public traces of Nextflow: see benchmarks/estimate_history.py.
    """
    return _LEAST_MARGIN + _FALLING / max(1, first_count)


def rest_choices(
    first_usages: Sequence[FirstTaskUsage],
    kinds: Sequence[int],
    together: int,
    *,
    strict: bool,
) -> list[ResumeChoice]:
    """Return the decision on each of the other tasks, by their *kinds*.

    They are sent once the *first_usages* ones have ended; if *strict*, only if each of
    these was measured. A task of a kind that none of these had gets the most of all
    kinds.
    """
    trouble = next(
        (one.trouble for one in first_usages if one.trouble is not None), None
    )
    # a task that still runs may yet become a measure: the others wait for it
    if trouble is not None and (
        strict or not all(one.has_ended for one in first_usages)
    ):
        return [ResumeChoice(run=False, reason=HELD + trouble)] * len(kinds)
    peaks: dict[int, list[Bytes]] = {}
    for one in first_usages:
        if one.trouble is None:
            peaks.setdefault(one.kind, []).append(one.peak or _OF_WEIGH)
    if not peaks:
        return [ResumeChoice(run=True, reason=NOT_SENT)] * len(kinds)
    measured = sum(one.trouble is None for one in first_usages)
    reason = f"{_SIZED} {count_with_noun(measured, 'first task')}"
    needs = {kind: _memory_with_margin(of) for kind, of in peaks.items()}
    most = max(needs.values())
    return [
        ResumeChoice(
            run=True,
            reason=reason,
            # a kind of which no first task was measured: the most of all is the safest
            # guess
            need=needs.get(kind, most),
            together=together,
            sized=True,
        )
        for kind in kinds
    ]


def _memory_with_margin(peaks: Sequence[Bytes]) -> Bytes:
    return math.ceil((1 + first_tasks_margin(len(peaks))) * max(peaks))


def is_rest(submitted_job: SubmittedJob) -> bool:
    """Return whether a job runs the tasks that waited for the first ones."""
    return (submitted_job.reason or "").startswith(_SIZED)
