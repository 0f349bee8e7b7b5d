"""``weigh plan --gpu auto``: a plan for each kind of GPU; the best one is written.

What it prints of a made-up cluster: tests/verbs/screens/cluster.transcript.
"""

import json
import sys
from typing import Any

import pytest
from following import Weigh, until
from run_captured import run_captured
from some_runs import a_run, keep_runs

from weigh.model.gpu import GpuUsage
from weigh.units import GIB, MIB

# other tests take nodes away, whose GPUs are then none that take jobs
pytestmark = pytest.mark.alone

V100 = ("Tesla V100-SXM2-16GB", 16160 * MIB)
A100 = ("NVIDIA A100-SXM4-40GB", 40536 * MIB)
HOUR = 3600.0


def keep_run(weigh: Weigh, gpu: tuple[str, int], wall_time: float) -> None:
    """Keep the record of a task that held 9 GiB of a GPU."""
    used = GpuUsage("GPU-0", *gpu, peak_memory=9 * GIB, utilization_mean=90.0)
    known = {"id": f"{gpu[0]}-{wall_time}", "wall_time": wall_time, "gpus": (used,)}
    keep_runs(weigh.folder, a_run("python3 task.py --seed 1", MIB, **known))


def tasks_in(weigh: Weigh, count: int = 8) -> str:
    lines = (f"python3 task.py --seed {seed}\n" for seed in range(1, count + 1))
    (weigh.folder / "tasks.txt").write_text("".join(lines))
    return "tasks.txt"


def compared(weigh: Weigh, *words: str) -> dict[str, dict[str, Any]]:
    """Return the forecasts by the kind of GPU, the best first."""
    argv = ("plan", tasks_in(weigh), "--gpu", "auto", "--replace", "--json", *words)
    code, out, err = weigh(*argv)
    assert code == 0, err
    return {one["gpu"]: one for one in json.loads(out)["forecasts"]}


def gpu_of_plan(weigh: Weigh) -> str | None:
    try:
        text = (weigh.folder / "plan" / "tasks" / "plan.json").read_text()
    except FileNotFoundError:
        return None
    return str(json.loads(text)["ask"]["gpu"])


@pytest.mark.slurm
def test_the_kind_on_which_tasks_end_first_is_planned_for_with_its_wait(
    real: Weigh,
) -> None:
    keep_run(real, V100, HOUR / 6)
    keep_run(real, A100, HOUR / 12)
    free = compared(real)
    assert list(free) == ["a100", "v100"]
    assert gpu_of_plan(real) == "a100"
    # 8 tasks: one by one on four V100s, two at a time on four A100s, by turns
    assert free["v100"]["makespan"] == pytest.approx(2 * HOUR / 6)
    assert free["a100"]["makespan"] == pytest.approx(1.8 * HOUR / 12, rel=0.06)
    words = ("--gres=gpu:a100:4", "--time=25", "--wrap=sleep 600")
    sent = run_captured(["sbatch", "--parsable", *words], cwd=real.folder)
    job = sent.stdout.strip()
    try:
        until(
            lambda: (
                run_captured(["squeue", "-h", "-o%T", "-j", job]).stdout.strip()
                == "RUNNING"
            )
        )

        kinds = compared(real)
    finally:
        run_captured(["scancel", job])

    assert list(kinds) == ["v100", "a100"]
    assert gpu_of_plan(real) == "v100"
    assert 1200 < kinds["a100"]["wait"] <= 1500
    assert (kinds["a100"]["free"], kinds["a100"]["total"]) == (0, 4)


@pytest.mark.slurm
def test_a_kind_without_a_record_shows_what_to_type(real: Weigh) -> None:
    keep_run(real, V100, HOUR / 6)
    task_file = real.folder / tasks_in(real)
    task_file.write_text("# the seeds\n\n" + task_file.read_text())

    code, out, err = real("plan", "tasks.txt", "--gpu", "auto")

    assert code == 0, err
    assert gpu_of_plan(real) == "v100"
    assert out.index("v100 (") < out.index("a100 (")
    lines = out.split("time not measured on a100: run two tasks there\n")[1]
    assert "  next: weigh submit plan/tasks\n" in lines
    two, submit = (line.strip() for line in lines.splitlines()[:2])
    typed = two.replace("weigh", f"{sys.executable} -m weigh")
    assert run_captured(["bash", "-c", typed], cwd=real.folder).returncode == 0
    code, _, err = real(*submit.split()[1:], "--dry-run")
    assert code == 0, err
    plan = (real.folder / "plan" / "tasks-a100" / "plan.json").read_text()
    assert json.loads(plan)["tasks"] == 2


@pytest.mark.gridengine
def test_grid_engine_gets_the_type_by_an_option(cell: Weigh) -> None:
    keep_run(cell, V100, HOUR / 6)

    code, out, err = cell("plan", tasks_in(cell), "--gpu", "auto")

    assert code == 0, err
    assert "  next: weigh submit plan/tasks --gpus v100:1\n" in out
