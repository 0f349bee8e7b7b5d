"""A plan whose elements pull from one queue: its size, its order, its files."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.model.plan import PlannedQueue, TaskKind, TaskNeed
from weigh.planning.queue_order import QueuedWork, queued_work, size_of_round


def kind_of(time: float | None, bound: float | None = None) -> TaskKind:
    return TaskKind(
        item=TaskNeed(time=bound), used=TaskNeed(time=time), tasks=1, example=""
    )


def queue_of(times: list[float | None]) -> tuple[PlannedQueue, list[TaskKind]]:
    places = tuple(range(len(times)))
    tasks = tuple(at + 1 for at in places)
    queue = PlannedQueue(folder="q", tasks=tasks, kinds=places, slots=2)
    return queue, [kind_of(time) for time in times]


def work_of(times: list[float], slots: int = 1) -> QueuedWork:
    return queued_work([kind_of(time) for time in times], sum(times) / slots, slots)


@given(
    tasks=st.integers(1, 99),
    most=st.integers(1, 9),
    elements=st.integers(1, 20),
    long=st.booleans(),
)
def test_a_round_has_slots_for_its_tasks_and_no_more_than_before(
    tasks: int, most: int, elements: int, *, long: bool
) -> None:
    count, slots = size_of_round(tasks, most, elements, is_long=long)
    assert slots <= most
    assert count * slots <= most * elements
    assert count * slots >= min(tasks, most * elements)
    assert count <= tasks
    assert slots == 1 or not long


def test_worked_examples_of_queues() -> None:
    names = {"kind_of": kind_of, "queue_of": queue_of, "work_of": work_of}
    check_session(Path(__file__).with_name("queue.session"), names)
