"""How long all tasks of a plan take with so many GPUs: ``weigh plan --gpu auto``."""

from pathlib import Path

import pytest
from planning import Keep, Weigh, read_plan

from weigh.flow.plan.gpu_kinds import makespan_of_plan
from weigh.units import GIB


def test_elements_take_turns_on_the_gpus(
    weigh: Weigh, keep: Keep, tmp_path: Path
) -> None:
    keep("python ppo.py --seed 1", 8 * GIB)
    assert weigh("plan", "tasks.txt", "--hours", "0")[0] == 0
    plan = read_plan(tmp_path / "plan" / "tasks")

    # 100 tasks, three on a GPU: 34 elements of 3,000 s, as measured
    waves = {at_once: makespan_of_plan(plan, at_once) for at_once in (1, 4, 10, 34)}
    assert waves == pytest.approx({1: 34 * 3e3, 4: 9 * 3e3, 10: 4 * 3e3, 34: 3e3})


def test_tasks_that_keep_a_gpu_busy_take_longer_together(
    weigh: Weigh, keep: Keep, tmp_path: Path
) -> None:
    keep("python ppo.py --seed 1", 8 * GIB, busy=100.0)
    assert weigh("plan", "tasks.txt", "--hours", "0")[0] == 0
    plan = read_plan(tmp_path / "plan" / "tasks")

    assert makespan_of_plan(plan, 1) == pytest.approx(100 * 3000, rel=0.02)


def test_elements_of_a_queue_share_the_work(
    weigh: Weigh, keep: Keep, tmp_path: Path
) -> None:
    keep("python ppo.py --seed 1", 8 * GIB)
    assert weigh("plan", "tasks.txt", "--hours", "10")[0] == 0
    plan = read_plan(tmp_path / "plan" / "tasks")

    assert plan.queue is not None
    assert plan.queue.slots == 3
    # 100 tasks in turns of 3, 6 and 30
    turns = {at_once: makespan_of_plan(plan, at_once) for at_once in (1, 2, 10)}
    assert turns == pytest.approx({1: 34 * 3e3, 2: 17 * 3e3, 10: 4 * 3e3}, rel=0.03)


def test_without_the_time_of_a_task_nothing_is_known(
    weigh: Weigh, tmp_path: Path
) -> None:
    words = ("--gpu", "v100", "--gpu-memory", "8GiB", "--memory", "1GiB")
    assert weigh("plan", "tasks.txt", *words)[0] == 0

    assert makespan_of_plan(read_plan(tmp_path / "plan" / "tasks"), 4) is None


@pytest.mark.parametrize("hours", ["0", "10"])
def test_tasks_without_a_duration_are_done_at_once(
    weigh: Weigh, keep: Keep, tmp_path: Path, hours: str
) -> None:
    keep("python ppo.py --seed 1", 8 * GIB)
    words = ("--time", "0s", "--hours", hours)
    assert weigh("plan", "tasks.txt", *words)[0] == 0

    assert makespan_of_plan(read_plan(tmp_path / "plan" / "tasks"), 4) == 0
