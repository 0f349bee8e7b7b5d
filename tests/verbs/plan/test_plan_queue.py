"""A plan whose elements pull from one queue: its size, its order, its files."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from planning import Weigh
from sessions import check_session

from weigh.model.plan import (
    PlannedQueue,
    TaskKind,
    TaskNeed,
)
from weigh.planning.queue_order import (
    QueuedWork,
    queued_work,
    size_of_round,
    units_of,
)

MIN = 60.0
SECONDS = st.floats(1, 1e5)


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


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_each_task_is_in_one_unit(times: list[float]) -> None:
    units = units_of(*queue_of([*times]))
    assert sorted(seq for unit in units for seq in unit.tasks) == [
        at + 1 for at in range(len(times))
    ]


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


# the verb

MANY = "".join(f"python one.py --seed {seed}\n" for seed in range(1, 101))
SAID = ("--memory", "1GiB", "--cpus", "1")


def _plan(folder: Path, name: str = "tasks") -> dict[str, object]:
    found: dict[str, object] = json.loads(
        (folder / f"plan/{name}/plan.json").read_text()
    )
    return found


def test_many_short_tasks_are_pulled_from_onequeue_of(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "tasks.txt").write_text(MANY)
    assert weigh("plan", "tasks.txt", *SAID, "--time", "2m")[0] == 0
    plan = _plan(tmp_path)
    queue = plan["queue"]
    assert isinstance(queue, dict)
    folder = tmp_path / "plan/tasks" / queue["folder"]
    assert (folder / "tasks.txt").read_text() == MANY
    assert json.loads((folder / "plan.json").read_text()) == plan
    assert sorted(path.name for path in (tmp_path / "plan/tasks").iterdir()) == [
        "plan.json",
        folder.name,
    ]


def test_a_replaced_plan_has_a_queue_of_its_own(weigh: Weigh, tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text(MANY)
    folders = []
    for _ in range(2):
        said = (*SAID, "--time", "2m", "--replace")
        assert weigh("plan", "tasks.txt", *said)[0] == 0
        queue = _plan(tmp_path)["queue"]
        assert isinstance(queue, dict)
        folders.append(tmp_path / "plan/tasks" / queue["folder"])
        if len(folders) == 1:
            (folders[0] / "w.tasks_0.0").touch()  # somebody pulls
    assert all(folder.is_dir() for folder in folders)
    assert folders[0] != folders[1]
