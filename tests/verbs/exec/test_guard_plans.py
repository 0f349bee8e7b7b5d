"""The memory guard where a plan says what each task needs."""

import random
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from batches import HOLD, Batch
from hypothesis import given
from hypothesis import strategies as st

from weigh.flow.exec.exec import PlannedTasks
from weigh.model.plan import (
    BinCapacity,
    Plan,
    PlannedElement,
    PlanRequest,
    TaskKind,
    TaskNeed,
)
from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import GuardedMemory, MemoryKind, MemoryRoom
from weigh.runner.slots import NO_RESERVATION, RunSlot, TaskReservation
from weigh.units import GIB, MIB

STEP = 0.05


def _attempt(
    seq: int, plan: int = 0, now: int = 0, *, began: float = 0.0
) -> TaskAttempt:
    attempt = TaskAttempt(seq, 1, b"", RunSlot(1), plan=TaskReservation(plan, plan))
    attempt.launch.began = began
    _hold(attempt, now)
    return attempt


def _hold(attempt: TaskAttempt, now: int) -> None:
    attempt.host.now = attempt.gpu.now = now
    attempt.host.peak = attempt.gpu.peak = max(attempt.host.peak, now)


def _stopped(guard: GuardedMemory, rng: random.Random, *, over: bool) -> list[int]:
    """Let tasks grow as they like, and return those that the guard stops; 0 is over."""
    plans = [rng.randint(50, 2000) * MIB for _ in range(rng.randint(2, 8))]
    others = rng.choice([0, 0, 30 * MIB])
    slack = rng.choice([others, others, sum(plans) // 10 + others])
    limit = sum(plans) + slack
    tasks = [_attempt(seq, plan, began=rng.random()) for seq, plan in enumerate(plans)]
    ends = [round(plan * rng.uniform(0.3, 1.0)) for plan in plans]
    if over:
        ends[0] = round(plans[0] * 1.05) + limit - sum(ends[1:])
    paths = [_path(rng, end) for end in ends]
    lag = rng.randint(0, 8)
    found: list[int] = []
    for step in range(len(paths[0])):
        used = sum(
            path[step]
            for task, path in zip(tasks, paths, strict=True)
            if task.seq not in found
        )
        running = [task for task in tasks if task.seq not in found]
        for task in running:
            if rng.random() < 0.7 or step == lag:
                _hold(task, paths[task.seq][max(0, step - lag)])
        if used + others > limit:
            return found or [0]  # the kernel kills before anybody can look
        room = MemoryRoom(used + others, limit)
        if guard.is_short(step * STEP, room, running):
            victim = guard.victim(running, step * STEP)
            if victim is not None:
                found.append(victim.seq)
    return found


def _path(rng: random.Random, end: int) -> list[int]:
    """Grow to *end* at some time, all at once or slowly."""
    begin, length = rng.randint(0, 40), rng.choice([1, 5, 60])
    held = [min(1.0, max(0, step - begin) / length) * end for step in range(140)]
    return [round(one) for one in held]


@pytest.mark.parametrize("kind", get_args(MemoryKind))
@given(seed=st.integers(0, 1 << 30))
def test_tasks_that_fit_by_plan_are_never_stopped(kind: MemoryKind, seed: int) -> None:
    assert _stopped(GuardedMemory(kind), random.Random(seed), over=False) == []


@pytest.mark.parametrize("kind", get_args(MemoryKind))
@given(seed=st.integers(0, 1 << 30))
def test_a_task_over_its_plan_is_the_one_that_is_stopped(
    kind: MemoryKind, seed: int
) -> None:
    assert _stopped(GuardedMemory(kind), random.Random(seed), over=True) == [0]


@pytest.mark.parametrize(
    ("tasks", "victim"),
    [
        # of several over their plans the furthest; without a plan before all others
        ([_attempt(1, 100, 110), _attempt(2, 100, 150), _attempt(3, 300, 290)], 2),
        ([_attempt(1, 100, 90, began=2.0), _attempt(2, now=90), _attempt(3, 9, 8)], 2),
        ([_attempt(1, 100, 200)], None),  # alone
    ],
)
def test_the_victim_is_the_one_that_takes_what_others_were_promised(
    tasks: list[TaskAttempt], victim: int | None
) -> None:
    found = GuardedMemory().victim(tasks)
    assert (None if found is None else found.seq) == victim


def test_a_plan_that_does_not_fit_still_leaves_the_guard_at_work() -> None:
    guard = GuardedMemory()
    tasks = [_attempt(1, 600 * MIB, 500 * MIB), _attempt(2, 600 * MIB, 480 * MIB)]
    tasks[1].launch.began = 1.0
    room = MemoryRoom(1010 * MIB, GIB)
    assert guard.is_short(2.0, room, tasks)
    assert guard.victim(tasks, 2.0) is tasks[1]


@pytest.mark.parametrize("why", ["timeout", "signal", "halt"])
def test_a_task_that_takes_long_to_end_does_not_disable_the_guard(why: str) -> None:
    tasks = [_attempt(seq, began=float(seq)) for seq in (1, 2, 3)]
    tasks[2].state.stop = why  # type: ignore[assignment]
    assert GuardedMemory().victim(tasks) is tasks[1]


def test_one_that_was_stopped_for_memory_holds_up_the_next_for_a_moment_only() -> None:
    tasks = [_attempt(seq, began=float(seq)) for seq in (1, 2, 3)]
    guard = GuardedMemory()
    assert guard.victim(tasks, 10.0) is tasks[2]
    tasks[2].state.stop = "memory"
    assert guard.victim(tasks, 11.0) is None
    assert guard.victim(tasks, 13.0) is tasks[1]


# where plans come from


def _plan(folder: Path, items: list[TaskNeed], tasks: list[str]) -> None:
    kinds = tuple(TaskKind(item, item, 1, "x") for item in items)
    element = PlannedElement(
        "tasks_0.txt",
        tuple(range(1, len(tasks) + 1)),
        gpu_memory=0,
        memory=sum(item.memory for item in items),
        cpus=2,
        kinds=tuple(range(len(items))),
    )
    plan = Plan(
        name="p",
        task_file="t",
        tasks=len(tasks),
        headroom=0.2,
        gpu=None,
        capacity=BinCapacity(),
        request=PlanRequest(1),
        kinds=kinds,
        elements=(element,),
    )
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    (folder / "tasks_0.txt").write_text("".join(f"{task}\n" for task in tasks))


def test_planned_needs_are_read_from_the_folder_of_the_task_file(
    tmp_path: Path,
) -> None:
    _plan(tmp_path, [TaskNeed(gpu_memory=5, memory=7), TaskNeed(memory=9)], ["a", "b"])
    planned = PlannedTasks(str(tmp_path / "tasks_0.txt"), 2)
    assert [planned.need_of(seq) for seq in (1, 2, 3)] == [
        TaskReservation(7, 5),
        TaskReservation(9),
        NO_RESERVATION,
    ]
    assert PlannedTasks(str(tmp_path / "tasks_0.txt"), 3).need_of(1) == NO_RESERVATION
    assert PlannedTasks(str(tmp_path / "other.txt"), 2).need_of(1) == NO_RESERVATION


def test_an_element_names_outputs_by_its_plan_though_it_states_no_kinds(
    batch: Batch,
) -> None:
    """So does a resumed element whose tasks need more than was planned."""
    _plan(batch.folder, [TaskNeed(memory=7)], ["echo a"])
    (batch.folder / "tasks_0.txt").rename(batch.tasks)
    path = batch.folder / "plan.json"
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    element = msgspec.structs.replace(
        plan.elements[0], file="tasks.txt", tasks=(22,), kinds=()
    )
    resumed = msgspec.structs.replace(plan, elements=(element,))
    path.write_bytes(msgspec.json.encode(resumed))
    assert batch.run().returncode == 0
    assert (batch.output / "22.out").read_text() == "a\n"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kinds": 3}', "\xff", '{"elements"'])
def test_a_plan_that_cannot_be_read_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    assert PlannedTasks(str(tmp_path / "tasks_0.txt"), 2).need_of(1) == NO_RESERVATION


def _exec_planned(batch: Batch, held: list[int], plans: list[int], memory: str) -> str:
    lines = [f"{sys.executable} {HOLD} {size} {n}" for n, size in enumerate(held)]
    _plan(batch.folder, [TaskNeed(memory=plan * MIB) for plan in plans], lines)
    (batch.folder / "tasks_0.txt").rename(batch.tasks)
    text = (batch.folder / "plan.json").read_text().replace("tasks_0.txt", "tasks.txt")
    (batch.folder / "plan.json").write_text(text)
    finished = batch.run("-j", str(len(held)), "--memory", memory)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


def test_an_element_whose_plans_fit_ends_with_no_task_stopped(batch: Batch) -> None:
    """Two that hold 180 of 200 MiB each, with 400 MiB in all."""
    assert "is stopped" not in _exec_planned(batch, [18, 18], [200, 200], "400MiB")
    assert [one["state"] for one in batch.records()] == ["COMPLETED"] * 2


def test_the_one_over_its_plan_is_stopped_and_runs_later_with_more(
    batch: Batch,
) -> None:
    said = _exec_planned(batch, [25, 12, 12], [100, 140, 140], "400MiB")
    assert "task 1 is stopped" in said
    assert "over plan" in said
    assert "task 2 is stopped" not in said
    assert "task 3 is stopped" not in said
    assert sorted(batch.ran()) == ["0", "1", "2"]
    kept = [one["memory"] for one in batch.events_of("started") if one["seq"] == 1]
    assert kept[-1] > 100 * MIB
