"""The memory guard where a plan says what each task needs."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from batches import HOLD, Batch

from weigh.flow.exec.exec import PlannedTasks
from weigh.model.plan import (
    BinCapacity,
    Plan,
    PlannedElement,
    PlanRequest,
    TaskKind,
    TaskNeed,
)
from weigh.runner.slots import NO_RESERVATION, TaskReservation
from weigh.units import MIB

# where plans come from


def _plan(path: Path, items: list[TaskNeed], lines: list[str], **changes: Any) -> None:
    """Write the task file of an element, and its plan beside it."""
    kinds = tuple(TaskKind(item, item, 1, "x") for item in items)
    element = PlannedElement(
        path.name,
        tuple(range(1, len(lines) + 1)),
        gpu_memory=0,
        memory=sum(item.memory for item in items),
        cpus=2,
        kinds=tuple(range(len(items))),
    )
    plan = Plan(
        name="p",
        task_file="t",
        tasks=len(lines),
        headroom=0.2,
        gpu=None,
        capacity=BinCapacity(),
        request=PlanRequest(1),
        kinds=kinds,
        elements=(msgspec.structs.replace(element, **changes),),
    )
    (path.parent / "plan.json").write_bytes(msgspec.json.encode(plan))
    path.write_text("".join(f"{line}\n" for line in lines))


def test_planned_needs_are_read_from_the_folder_of_the_task_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks_0.txt"
    _plan(path, [TaskNeed(gpu_memory=5, memory=7), TaskNeed(memory=9)], ["a", "b"])
    planned = PlannedTasks(str(path), 2)
    assert [planned.need_of(seq) for seq in (1, 2, 3)] == [
        TaskReservation(7, 5),
        TaskReservation(9),
        NO_RESERVATION,
    ]
    assert PlannedTasks(str(path), 3).need_of(1) == NO_RESERVATION
    assert PlannedTasks(str(tmp_path / "other.txt"), 2).need_of(1) == NO_RESERVATION


def test_an_element_names_outputs_by_its_plan_though_it_states_no_kinds(
    batch: Batch,
) -> None:
    """So does a resumed element whose tasks need more than was planned."""
    _plan(batch.tasks, [TaskNeed(memory=7)], ["echo a"], tasks=(22,), kinds=())
    assert batch.run().returncode == 0
    assert (batch.output / "22.out").read_text() == "a\n"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kinds": 3}', "\xff", '{"elements"'])
def test_a_plan_that_cannot_be_read_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    assert PlannedTasks(str(tmp_path / "tasks_0.txt"), 2).need_of(1) == NO_RESERVATION


def test_the_one_over_its_plan_is_stopped_and_runs_later_with_more(
    batch: Batch,
) -> None:
    sizes = (25, 12, 12)
    lines = [f"{sys.executable} {HOLD} {size} {n}" for n, size in enumerate(sizes)]
    plans = (100, 140, 140)
    _plan(batch.tasks, [TaskNeed(memory=plan * MIB) for plan in plans], lines)
    finished = batch.run("-j", "3", "--memory", "400MiB")
    said = finished.stderr
    assert finished.returncode == 0, said
    assert "task 1 is stopped" in said
    assert "over plan" in said
    assert "task 2 is stopped" not in said
    assert "task 3 is stopped" not in said
    assert sorted(batch.ran()) == ["0", "1", "2"]
    kept = [one["memory"] for one in batch.events_of("started") if one["seq"] == 1]
    assert kept[-1] > 100 * MIB
