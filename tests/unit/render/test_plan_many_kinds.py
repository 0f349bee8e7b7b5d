"""A plan of many kinds of one task prints a few of them, and the range of all."""

import msgspec
import pytest

from weigh.model.plan import (
    BinCapacity,
    Plan,
    PlannedElement,
    PlanRequest,
    TaskKind,
    TaskNeed,
)
from weigh.render.plan_lines import plan_screen_lines
from weigh.units import GIB, MIB


def plan_of(kinds: int) -> Plan:
    items = [TaskNeed(memory=(1 + number) * GIB) for number in range(kinds)]
    return Plan(
        name="p",
        task_file="p.txt",
        tasks=kinds,
        headroom=0.2,
        gpu=None,
        capacity=BinCapacity(),
        request=PlanRequest(cpus=1, memory=1024 * MIB, time_limit=60),
        kinds=tuple(
            TaskKind(item=item, used=item, tasks=1, example=f"train --size {number}")
            for number, item in enumerate(items)
        ),
        elements=(
            PlannedElement(
                file="p_0.txt",
                tasks=tuple(range(1, kinds + 1)),
                gpu_memory=0,
                memory=1024 * MIB,
                cpus=1,
            ),
        ),
    )


@pytest.mark.parametrize("kinds", [13, 100, 1000])
def test_of_many_kinds_the_first_the_last_and_the_range_are_shown(kinds: int) -> None:
    lines = list(plan_screen_lines([plan_of(kinds)]))
    rows = [line.split()[3] for line in lines if line.startswith("      1  ...")]
    assert rows == ["0", "1", "2", "3", str(kinds - 2), str(kinds - 1)]
    (rest,) = [line for line in lines if "kinds between them" in line]
    assert f"and {kinds - 6} kinds between them; of all, RAM 1.00 GiB to" in rest
    assert max(map(len, lines)) <= 80


def test_of_few_kinds_all_are_shown() -> None:
    lines = list(plan_screen_lines([plan_of(12)]))
    assert sum("..." in line for line in lines) == 12
    assert not any("between them" in line for line in lines)
    assert lines[-1] == "  1 array element, 12 tasks: 1 CPU, 1.00 GiB, 00:01:00"


def test_examples_that_share_no_word_are_whole() -> None:
    plan = plan_of(2)
    kinds = tuple(
        msgspec.structs.replace(kind, example=example)
        for kind, example in zip(plan.kinds, ("train a", "test b"), strict=True)
    )
    lines = list(plan_screen_lines([msgspec.structs.replace(plan, kinds=kinds)]))
    assert [" ".join(line.split()[1:3]) for line in lines[2:4]] == ["train a", "test b"]


def test_what_an_element_requests_is_folded_at_80_columns() -> None:
    request = PlanRequest(gpus=1000, cpus=128, memory=GIB, nodes=2, ntasks=1600)
    plan = msgspec.structs.replace(plan_of(2), request=request)
    *_, line = plan_screen_lines([plan])
    assert line == "    1.00 GiB"


def test_kinds_that_look_the_same_are_one_row_with_the_range_of_their_runs() -> None:
    plan = plan_of(12)
    item = TaskNeed(memory=100 * MIB, cpus=1, time=300)
    kinds = tuple(
        msgspec.structs.replace(
            kind, item=msgspec.structs.replace(item, memory=item.memory + n), runs=n + 1
        )
        for n, kind in enumerate(plan.kinds)
    )
    first, *_ = plan_screen_lines([msgspec.structs.replace(plan, kinds=kinds)])
    each = "each 1 CPU, 100 MiB RAM, 00:05:00 (1 to 12 runs), with 20 % headroom"
    assert first == f"  12 tasks, {each}"
    other = msgspec.structs.replace(item, memory=200 * MIB)
    kinds = (*kinds[:-1], msgspec.structs.replace(kinds[-1], item=other))
    lines = list(plan_screen_lines([msgspec.structs.replace(plan, kinds=kinds)]))
    assert lines[0].startswith("  12 tasks of 2 kinds, ")
    assert [line.split()[0] for line in lines[2:4]] == ["11", "1"]
    assert lines[2].endswith("1 to 11 runs")
