"""``weigh check`` of a plan: its tasks, and the script of its job."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Weigh = Callable[..., tuple[int, str, str]]
SAID = ("--memory", "64MiB", "--time", "1h", "--cpus", "1", "--node-cpus", "2")


@pytest.fixture
def plan(weigh: Weigh, tmp_path: Path) -> Path:
    """Make a plan of four tasks in two elements."""
    lines = [f"echo --lr 0.{number} >> ran" for number in range(1, 5)]
    (tmp_path / "tasks.txt").write_text("".join(f"{line}\n" for line in lines))
    code, _, err = weigh("plan", "tasks.txt", *SAID)
    assert code == 0, err
    return tmp_path / "plan" / "tasks"


def test_the_tasks_of_a_plan_are_tried_under_their_numbers(
    weigh: Weigh, plan: Path, tmp_path: Path
) -> None:
    code, out, _ = weigh("check", "plan/tasks", "--json")
    document = json.loads(out)
    assert (code, document["tasks"], document["is_plan"]) == (0, 4, True)
    tried = {one["task"]: one["command"] for one in document["trials"]}
    assert tried == {n: f"echo --lr 0.{n} >> ran" for n in range(1, 5)}
    assert sorted((tmp_path / "ran").read_text().split()[1::2]) == [
        f"0.{n}" for n in range(1, 5)
    ]
    assert document["scripts"] == []
    assert plan.is_dir()


def test_what_is_next_for_a_plan_is_to_submit_it(weigh: Weigh, plan: Path) -> None:
    assert plan.is_dir()
    assert "next: weigh submit plan/tasks" in weigh("check", "plan/tasks")[1]


def test_what_is_off_in_a_plans_script_is_a_fault(weigh: Weigh, plan: Path) -> None:
    (plan / "job.sh").write_text("#!/bin/bash\n# SBATCH --mem=8G\ntrue\n")
    code, out, _ = weigh("check", "plan/tasks", "--for", "slurm")
    assert code == 1
    assert "job.sh:2" in out


def test_a_plan_whose_tasks_were_edited_is_refused(weigh: Weigh, plan: Path) -> None:
    with (plan / "tasks_0.txt").open("a") as file:
        file.write("echo more\n")
    code, _, err = weigh("check", "plan/tasks")
    assert code == 2
    assert "tasks_0.txt has 3 tasks but its plan has 2" in err


def test_a_folder_without_a_plan_is_refused(weigh: Weigh, plan: Path) -> None:
    assert plan.is_dir()
    code, _, err = weigh("check", "plan")
    assert code == 2
    assert "plan is a folder without a plan (weigh check plan/tasks.txt)" in err
