"""How long all tasks of a plan take with so many GPUs: ``weigh plan --gpu auto``."""

from pathlib import Path

import pytest
from planning import Keep, Weigh, read_plan

from weigh.flow.plan.gpu_kinds import makespan_of_plan
from weigh.units import GIB


@pytest.mark.parametrize(
    ("words", "busy", "seconds"),
    [
        # 100 tasks of 3,000 s, as measured, three on a GPU: 34 elements take turns
        ("--hours 0", None, {1: 34 * 3e3, 4: 9 * 3e3, 10: 4 * 3e3, 34: 3e3}),
        # tasks that keep a GPU busy take longer together
        ("--hours 0", 100.0, {1: 100 * 3e3}),
        # elements of a queue share the work: turns of 3, 6 and 30 tasks
        ("--hours 10", None, {1: 34 * 3e3, 2: 17 * 3e3, 10: 4 * 3e3}),
        # tasks without a duration are done at once
        ("--hours 0 --time 0s", None, {4: 0}),
        ("--hours 10 --time 0s", None, {4: 0}),
    ],
)
def test_all_tasks_take_the_time_of_their_turns(  # noqa: PLR0913, PLR0917 - a table
    words: str,
    busy: float | None,
    seconds: dict[int, float],
    weigh: Weigh,
    keep: Keep,
    tmp_path: Path,
) -> None:
    keep("python ppo.py --seed 1", 8 * GIB, busy=busy)
    assert weigh("plan", "tasks.txt", *words.split())[0] == 0
    plan = read_plan(tmp_path / "plan" / "tasks")

    found = {at_once: makespan_of_plan(plan, at_once) for at_once in seconds}
    assert found == pytest.approx(seconds, rel=0.02)


def test_without_the_time_of_a_task_nothing_is_known(
    weigh: Weigh, tmp_path: Path
) -> None:
    words = ("--gpu", "v100", "--gpu-memory", "8GiB", "--memory", "1GiB")
    assert weigh("plan", "tasks.txt", *words)[0] == 0

    assert makespan_of_plan(read_plan(tmp_path / "plan" / "tasks"), 4) is None
