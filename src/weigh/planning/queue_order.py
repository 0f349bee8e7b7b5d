"""The shared queue of a plan: how many elements pull from it, in which order.

The tasks with the longest predicted time come first: then the last ones to start are
short, and all elements end together (Graham 1969). Elements claim units: one task each,
or several where there are very many tasks.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import msgspec

from weigh.errors import UsageError
from weigh.model.element_time import limit_for_tasks, time_for_tasks
from weigh.model.plan import (
    RESOURCES,
    PackedBin,
    Plan,
    PlannedQueue,
    TaskKind,
    TaskNeed,
)
from weigh.request import round_time
from weigh.units import HOUR, MINUTE, Seconds, format_duration, format_limit

AT_ONCE = 10  # elements that run at once unless --jobs is given
# each unit is a file of its own in the queue's directory once it is claimed
MOST_UNITS = 4096
SHORT = 30 * MINUTE  # the time limit of an element of short tasks
_AHEAD = 32  # units among which one that fits is looked for
_WINDOW = 4  # units per element among which one is chosen
_SURE = 2  # times the predicted time that have to be left for a task to start


class QueueUnit(msgspec.Struct, frozen=True, gc=False):
    """Tasks that are claimed together, by their numbers from 1 in the task file."""

    tasks: tuple[int, ...]


def units_of(queue: PlannedQueue, kinds: Sequence[TaskKind]) -> tuple[QueueUnit, ...]:
    """Return the units in the order in which they are claimed: longest tasks first.

    Tasks of unknown time come first. Every reader of a plan gets the same units: one
    for each task; above 4,096 tasks 4,096 units whose sizes differ by at most one.
    """
    times = [_expected_kind_time(kinds, kind) for kind in queue.kinds]
    return tuple(_queue_units(times))


def _queue_units(times: Sequence[Seconds]) -> Iterator[QueueUnit]:
    # equal times in file order: without a fixed order two readers would disagree on
    # units
    order = sorted(range(len(times)), key=lambda at: (-times[at], at))
    count = min(len(order), MOST_UNITS)
    # dealt out in turn, so that each unit gets long and short tasks
    for first in range(count):
        yield QueueUnit(tuple(at + 1 for at in order[first::count]))


def _expected_kind_time(kinds: Sequence[TaskKind], kind_number: int) -> Seconds:
    # plan files can be edited: an index without a kind is an unknown time
    time = kinds[kind_number].used.time if 0 <= kind_number < len(kinds) else None
    # unknown counts as longest: it starts first, while there is time to run long
    return math.inf if time is None else time


def time_to_start(task_kind: TaskKind) -> Seconds | None:
    """Return how much time has to be left to start a task; None if that is unknown.

    :func:`sized_elements` grants it to elements, so the two cannot disagree. The upper
    bound of a fit is too small for that: of 1,000 tasks with a predicted time that is
    wrong by sigma .3, 1.2 times the prediction cuts off 22, twice it 2. It is never
    rounded: a request of five minutes is what a job asks for, not what a task needs.
    """
    if task_kind.used.time is None:
        return None
    # a predicted time may be wrong by more than the factor: its own bound counts, too
    bounds = (one.bound for one in task_kind.predictions if one.quantity == "time")
    return max((_SURE * task_kind.used.time, *bounds))


def least_limit(plan: Plan, reserved: int = 0) -> int | None:
    """Return the least time limit of an element in which each task may start.

    *reserved* seconds of it belong to the job script. None if a time is not known.
    """
    needed = [time_to_start(kind) for kind in plan.kinds]
    # an element with tasks of its own starts them all at once: none waits
    if plan.queue is None:
        needed = [kind.used.time for kind in plan.kinds]
    known = [one for one in needed if one is not None]
    # one unknown time may be the longest
    if not known or len(known) < len(needed):
        return None
    return limit_for_tasks(max(known), reserved)


def planned_limit(plan: Plan, reserved: int) -> int | None:
    """Return the time limit that an element requests, with *reserved* added to it.

    None if the tasks' time is not known.
    """
    limit = plan.request.time_limit
    if limit is None or not reserved:
        return limit
    if plan.queue is not None:
        # the tasks keep the time that they have without a reserve
        return max(limit, limit_for_tasks(time_for_tasks(limit, 0), reserved))
    return max(limit, least_limit(plan, reserved) or limit)


def enough_time(plan: Plan, limit: int, reserved: int = 0) -> tuple[int, str | None]:
    """Return a time *limit* in which each task may start, and a note where it differs.

    The note also says if the elements run only some of the tasks in that time.
    """
    least = least_limit(plan, reserved)
    # without a queue each element runs its tasks whatever the limit is
    if plan.queue is None or least is None:
        return limit, None
    needed = max(time_to_start(kind) or 0.0 for kind in plan.kinds)
    if limit < least:
        left = max(0, time_for_tasks(limit, reserved))
        return least, (
            f"time limit {format_limit(least)} instead of {format_limit(limit)}: a "
            f"task starts only if {format_duration(needed)} is left, not "
            f"{format_duration(left)}"
        )
    available, expected = time_for_tasks(limit, reserved), plan.queue.expected
    if not expected or available >= expected:
        return limit, None
    return limit, (
        f"in {format_limit(limit)} the elements run about {available / expected:.0%} "
        "of the tasks: omit --time, or weigh resume runs the others"
    )


def element_capacity_for_tasks(plan: Plan) -> TaskNeed | None:
    """Return what an element has for its tasks; None where all need the same.

    Then the number of slots is the limit.
    """
    queue = plan.queue
    if queue is None:
        return None
    # equal tasks fill an element by their number alone, without adding up resources
    if len({_resource_needs(item) for item in _queue_items(plan, queue)}) == 1:
        return None
    elements = plan.elements
    return TaskNeed(
        gpu_memory=max(element.gpu_memory for element in elements),
        memory=max(element.memory for element in elements),
        cpus=max(element.cpus for element in elements),
        # whole GPUs are the same for all tasks of a plan, see make_plan
        gpus=plan.kinds[queue.kinds[0]].item.gpus,
    )


def _queue_items(plan: Plan, queue: PlannedQueue) -> list[TaskNeed]:
    return [plan.kinds[kind].item for kind in dict.fromkeys(queue.kinds)]


def _resource_needs(task_need: TaskNeed) -> tuple[int, ...]:
    return tuple(getattr(task_need, name) for name in RESOURCES)


class SizedElements(msgspec.Struct, frozen=True):
    """The elements of a plan: how many, their time limit and their expected time."""

    elements: int  # how many
    limit: int  # seconds
    expected: Seconds  # until all tasks are done, if all start at once


class QueuedWork(msgspec.Struct, frozen=True):
    """The tasks of a queue, the longest first, as one element would run them.

    ``times`` are the predicted ones, ``done`` their sum up to each. ``to_start`` has
    how much time has to be left to start a task, by the place of the last one that
    needs it. ``work`` is the time in which one element runs all in its ``slots``.
    """

    times: tuple[Seconds, ...]
    done: tuple[Seconds, ...]
    to_start: tuple[tuple[int, Seconds], ...]
    work: Seconds
    slots: int  # tasks at once in one element

    def time_of(self, elements: int, headroom: float) -> Seconds:
        """Return how long tasks have to run in each of *elements* that share them all.

        The first tasks start at once, one per slot. Another one waits at most until the
        elements have done the work before it, and that of the tasks which other
        elements look at first.
        """
        # done is as if one task ran at a time: work is shorter by what slots run in
        # parallel
        share = self.work / (self.done[-1] or 1.0) / elements
        share *= 1 + headroom / 2  # a sum of many tasks varies less than each
        most = 0.0
        ahead, at_once = units_looked_ahead(elements), elements * self.slots
        # place counts from the longest task on, in the order in which they are claimed
        for place, needed in self.to_start:
            # others may take tasks from behind this one while they look for one that
            # fits: of the first tasks each element takes those of its turn
            last = min(place + ahead, len(self.done) - 1)
            is_first = place < min(ahead, at_once) or len(self.done) <= at_once
            waits = 0.0 if is_first else share * self.done[last]
            most = max(most, waits + needed)
        return most

    def end_of_last_task(self, elements: int) -> Seconds:
        """Return after what time *elements* that start at once have done all tasks.

        Each slot takes the longest task that is left: 16 equal ones in 10 slots take
        twice the time of one.
        """
        # resources other than slots may let fewer tasks run at a time
        ends = end_of_turns(self.times, elements * self.slots)
        return max(ends, self.work / elements)


def end_of_turns(times: Sequence[Seconds], at_once: int) -> Seconds:
    """Return when all are done that take turns, so many at once, in their order."""
    ends = [0.0] * at_once
    for time in times:
        heapq.heapreplace(ends, ends[0] + time)
    return max(ends)


def queued_work(
    kinds: Sequence[TaskKind], work_time: Seconds, slots: int, *, slower: float = 1.0
) -> QueuedWork:
    """Return the tasks of these *kinds*, one per task, of which each time is known.

    *slower*: how much longer they take when they run together.
    """
    times = sorted(
        ((kind.used.time or 0.0, time_to_start(kind) or 0.0) for kind in kinds),
        reverse=True,
    )
    # later places overwrite earlier ones: the last task that needs so much time left is
    # the one that waits longest
    last_of = {needed: place for place, (_, needed) in enumerate(times)}
    return QueuedWork(
        times=tuple(time * slower for time, _ in times),
        done=tuple(accumulate(time * slower for time, _ in times)),
        to_start=tuple((place, needed * slower) for needed, place in last_of.items()),
        work=work_time * slower,
        slots=slots,
    )


def units_looked_ahead(elements: int) -> int:
    """Return the number of units among which an element looks for one that fits."""
    return max(_AHEAD, _WINDOW * elements)


def sized_elements(
    queued: QueuedWork,
    *,
    headroom: float,
    waves: int,
    limit: Seconds | None = None,
) -> SizedElements:
    """Return the elements for *queued*, and a time limit in which all tasks may start.

    *waves* elements would be needed if each ran one wave of tasks. There are never
    fewer elements than would run at once. *limit* is the time limit that was stated
    for an element.

    Raises:
        UsageError: a task takes too long for *limit*.
    """
    last = max(needed for _, needed in queued.to_start)
    least = limit_for_tasks(last)
    if limit is not None and math.floor(limit) < least:
        raise UsageError(
            f"a task takes {format_duration(queued.times[0])}, and starts only if "
            f"{format_duration(last)} is left: "
            f"--hours {math.ceil(10 * least / HOUR) / 10:g} or more"
        )
    # half an hour, or room for two of the longest tasks one after another
    most = max(SHORT, limit_for_tasks(last + queued.times[0]))
    most = most if limit is None else math.floor(limit)
    # few elements wait less in the scheduler's queue; more are needed if the work of
    # each would exceed the limit
    elements = _smallest_sufficient(
        lambda count: limit_for_tasks(queued.time_of(count, headroom)) <= most,
        min(AT_ONCE, waves),
        waves,
    )
    needed = limit_for_tasks(queued.time_of(elements, headroom))
    granted = round_time(needed)
    if limit is not None:
        granted = min(granted, most)
    return SizedElements(elements, granted, queued.end_of_last_task(elements))


def _smallest_sufficient(
    suffices: Callable[[int], bool], least: int, largest_number: int
) -> int:
    """Return the smallest number from *least* on that suffices, or *largest_number*."""
    # bisection: if a number suffices, so does each larger one
    return least + bisect_left(range(least, largest_number), x=True, key=suffices)


def size_of_round(
    tasks: int, most_tasks: int, elements: int, *, is_long: bool
) -> tuple[int, int]:
    """Return how many elements pull unfinished tasks, and their slots.

    There were *elements* before. *is_long*: the tasks took too long, and how long is
    not known. Then each slot is an element, so that none waits for another.
    """
    if is_long:
        return min(tasks, most_tasks * elements), 1
    # fewer elements than before where fewer tasks are left, and then evenly filled
    count = min(elements, -(-tasks // most_tasks))
    return count, min(most_tasks, -(-tasks // count))


def slots_per_element(
    items: Sequence[TaskNeed],
    packed_bins: Sequence[PackedBin],
    *,
    task_limit: int | None,
) -> int:
    """Return how many tasks may run at once in an element that holds any of the bins.

    That is how many of the tasks with the smallest needs fit, by each resource.
    """
    # the fullest bin shows that so many fit, whatever the sums of resources are
    most = max(len(bin_.items) for bin_ in packed_bins)
    alike = len({(item.cpus, item.memory, item.gpu_memory) for item in items}) == 1
    if alike:
        return most
    limits = [
        _fitting_count(
            [item.cpus for item in items], max(bin_.cpus for bin_ in packed_bins)
        ),
        _fitting_count(
            [item.memory for item in items], max(bin_.memory for bin_ in packed_bins)
        ),
        _fitting_count(
            [i.gpu_memory for i in items], max(bin_.gpu_memory for bin_ in packed_bins)
        ),
    ]
    return max(most, min(limit for limit in (*limits, task_limit) if limit is not None))


def _fitting_count(needs: Sequence[int], limit: int) -> int | None:
    """Return how many of the smallest *needs* fit; None if one needs nothing."""
    held = 0
    for count, need in enumerate(sorted(needs)):
        if not need:
            return None
        held += need
        if held > limit:
            return count
    return len(needs)


def least_element_time(
    items: Sequence[TaskNeed], times: Sequence[Seconds], full: TaskNeed, slots: int
) -> Seconds:
    """Return the least time in which one element can run all tasks.

    *full* is what an element has: the scarcest resource counts.
    """
    pairs = list(zip(items, times, strict=True))
    shares = [sum(times) / slots]
    if full.cpus:
        shares.append(sum(i.cpus * t for i, t in pairs) / full.cpus)
    if full.memory:
        shares.append(sum(i.memory * t for i, t in pairs) / full.memory)
    if full.gpu_memory:
        shares.append(sum(i.gpu_memory * t for i, t in pairs) / full.gpu_memory)
    return max(shares)
