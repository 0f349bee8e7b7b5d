"""A plan whose elements pull from one queue: its size, its order, its files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from planning import Weigh

from weigh.errors import UsageError
from weigh.model.plan import (
    BinCapacity,
    NeedPrediction,
    PlannedQueue,
    TaskKind,
    TaskNeed,
)
from weigh.planning.bin_packing import pack_items
from weigh.planning.queue_order import (
    AT_ONCE,
    MOST_UNITS,
    QueuedWork,
    queued_work,
    size_of_round,
    sized_elements,
    slots_per_element,
    time_to_start,
    units_of,
)

MIN = 60.0
SECONDS = st.floats(1, 1e5)


def _kind(time: float | None, bound: float | None = None) -> TaskKind:
    return TaskKind(
        item=TaskNeed(time=bound), used=TaskNeed(time=time), tasks=1, example=""
    )


def _queue(times: list[float | None]) -> tuple[PlannedQueue, list[TaskKind]]:
    places = tuple(range(len(times)))
    tasks = tuple(at + 1 for at in places)
    queue = PlannedQueue(folder="q", tasks=tasks, kinds=places, slots=2)
    return queue, [_kind(time) for time in times]


def _work(times: list[float], slots: int = 1) -> QueuedWork:
    return queued_work([_kind(time) for time in times], sum(times) / slots, slots)


# order


def test_the_longest_task_comes_first_and_unknown_ones_before_it() -> None:
    queue, kinds = _queue([5.0, None, 70.0, 5.0])
    assert [unit.tasks for unit in units_of(queue, kinds)] == [
        (2,),
        (3,),
        (1,),
        (4,),
    ]


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_each_task_is_in_one_unit(times: list[float]) -> None:
    units = units_of(*_queue([*times]))
    assert sorted(seq for unit in units for seq in unit.tasks) == [
        at + 1 for at in range(len(times))
    ]


def test_very_many_tasks_are_few_units_of_one_size() -> None:
    count = 3 * MOST_UNITS
    queue = PlannedQueue(
        folder="q", tasks=tuple(range(count)), kinds=(0,) * count, slots=2
    )
    units = units_of(queue, [_kind(MIN)])
    assert sorted(seq for unit in units for seq in unit.tasks) == [*range(1, count + 1)]
    assert {len(unit.tasks) for unit in units} == {3}


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


# size


def test_a_thousand_minutes_are_ten_elements_instead_of_hundreds() -> None:
    found = sized_elements(_work([MIN] * 1000, slots=4), headroom=0.2, waves=250)
    assert found.elements == AT_ONCE
    assert found.limit == 30 * MIN
    assert found.expected == 25 * MIN


@pytest.mark.parametrize(
    ("times", "slots", "expected"),
    [
        ([30.0] * 16, 1, 60.0),  # a second wave, if only for six of them
        ([30.0] * 16, 2, 30.0),
        ([90.0, *[30.0] * 19], 1, 90.0),  # the longest, beside two waves
    ],
)
def test_tasks_end_when_the_last_wave_does(
    times: list[float], slots: int, expected: float
) -> None:
    found = sized_elements(_work(times, slots), headroom=0.2, waves=16)
    assert (found.elements, found.expected) == (AT_ONCE, expected)


def test_a_time_limit_in_which_a_task_cannot_start_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--hours 3\.4 or more"):
        sized_elements(_work([6000.0] * 17), headroom=0.2, waves=20, limit=3600.0)


@pytest.mark.parametrize(
    ("used", "bound", "needed"), [(60.0, 72.0, 120.0), (60.0, 200.0, 200.0)]
)
def test_a_task_starts_if_twice_its_time_is_left_or_the_bound_of_a_fit(
    used: float, bound: float, needed: float
) -> None:
    fit = NeedPrediction("time", "n", 9, (1, 2, 3), 3, expected=used, bound=bound)
    kind = replace(_kind(used, bound=3600.0), predictions=(fit,))
    assert time_to_start(kind) == needed
    assert time_to_start(_kind(None)) is None


def test_unlike_tasks_have_a_slot_for_each_that_can_fit() -> None:
    items = [TaskNeed(memory=memory) for memory in (1, 1, 2, 6, 8)]
    bins = pack_items(items, BinCapacity(memory=10)).bins
    cpus = max(bin_.cpus for bin_ in bins)
    assert slots_per_element(items, bins, task_limit=None) == min(
        4, cpus
    )  # 1 + 1 + 2 + 6
    assert slots_per_element(items, bins, task_limit=2) == max(2, cpus)


# the verb

MANY = "".join(f"python one.py --seed {seed}\n" for seed in range(1, 101))
SAID = ("--memory", "1GiB", "--cpus", "1")


def _plan(folder: Path, name: str = "tasks") -> dict[str, object]:
    found: dict[str, object] = json.loads(
        (folder / f"plan/{name}/plan.json").read_text()
    )
    return found


def test_many_short_tasks_are_pulled_from_one_queue(
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
