"""Tasks on several GPUs or several nodes, and those whose sizes nobody measured."""

import json
from pathlib import Path

from planning import Keep, Weigh, read_plan

from weigh.units import GIB, MIB

SAID = ("--memory", "1GiB", "--time", "5h", "--cpus", "2")


def write(folder: Path, *lines: str) -> None:
    (folder / "t.txt").write_text("".join(f"{line}\n" for line in lines))


def test_a_task_measured_on_two_gpus_gets_two_for_itself(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    keep("torchrun train.py --seed 1", 3 * GIB, 2 * GIB)
    write(tmp_path, "torchrun train.py --seed 2", "torchrun train.py --seed 3")

    code, out, _ = weigh("plan", "t.txt")

    assert code == 0
    assert "2 GPUs, 3.60 GiB of each GPU" in out
    assert "each task has 2 GPUs of its own" in out
    plan = read_plan(tmp_path / "plan" / "t")
    assert [element.tasks for element in plan.elements] == [(1,), (2,)]
    assert (plan.request.gpus, plan.request.gpu, plan.request.nodes) == (2, "v100", 1)


def test_whole_gpus_of_any_kind_need_no_name_and_no_memory(
    weigh: Weigh, tmp_path: Path
) -> None:
    code, out, _ = weigh("plan", "tasks.txt", "--gpus", "4", *SAID)

    assert code == 0
    assert "100 array elements, 1 task each: 4 GPUs, 2 CPUs" in out
    ask = read_plan(tmp_path / "plan" / "tasks").request
    assert (ask.gpus, ask.gpu) == (4, None)


def test_one_gpu_for_itself_is_not_shared(weigh: Weigh) -> None:
    one = ("--gpu", "V100-32GB", "--gpu-memory", "1GiB", "--gpus", "1")

    _, out, _ = weigh("plan", "tasks.txt", *one, *SAID)

    assert "100 array elements, 1 task each: 1 GPU, 2 CPUs" in out


def test_each_node_of_a_task_is_started_by_srun(weigh: Weigh, tmp_path: Path) -> None:
    write(tmp_path, "torchrun 'a b.py'", "srun ./mine")

    code, out, _ = weigh("plan", "t.txt", "--nodes", "2", "--gpus", "4", *SAID)

    assert code == 0
    assert "2 nodes with 4 GPUs, 2 CPUs" in out
    folder = tmp_path / "plan" / "t"
    assert read_plan(folder).request.nodes == 2
    first = (folder / "tasks_0.txt").read_text()
    assert first.startswith("srun --nodes=2 --ntasks-per-node=1 ")
    assert first.endswith("""'torchrun '"'"'a b.py'"'"''\n""")
    assert (folder / "tasks_1.txt").read_text() == "srun ./mine\n"


def test_a_size_that_nobody_measured_states_what_it_rests_on(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    for batch in (50, 100, 200):
        keep(f"python tag.py --batch {batch}", GIB + batch * 20 * MIB)
    write(tmp_path, *(f"python tag.py --batch {n}" for n in (100, 400, 400)))

    code, out, err = weigh("plan", "t.txt", "--gpu", "V100-32GB")

    assert code == 0
    assert "or a fit's bound" in out
    assert "fit of 3" in out
    assert "GPU memory of 2 tasks: predicted from 3 runs (--batch: 50, 100" in err
    assert "2.0 times the largest" in err
    for line in (out + err).splitlines():
        assert len(line) <= 80, line
    document = json.loads((tmp_path / "plan" / "t" / "plan.json").read_text())
    (told,) = document["kinds"][1]["foretold"]
    assert told["bound"] >= told["expected"] >= GIB + 400 * 20 * MIB * 0.99


def test_two_sizes_are_reported_to_be_few(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    for batch in (50, 100):
        keep(f"python tag.py --batch {batch}", GIB + batch * 20 * MIB)
    write(tmp_path, "python tag.py --batch 900")

    _, _, err = weigh("plan", "t.txt", "--gpu", "V100-32GB")

    assert "two sizes of --batch show no curvature" in " ".join(err.split())
    assert "too far to trust" in " ".join(err.split())


def test_tasks_of_one_gpu_and_of_two_are_planned_apart(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    keep("python one.py", GIB)
    keep("python two.py", GIB, GIB)
    write(tmp_path, "python one.py", "python two.py")

    code, _, err = weigh("plan", "t.txt")

    assert code == 2
    assert "task 1 shares one and task 2 uses 2 GPUs" in err
    assert "--gpus" in err


def test_a_comparison_of_gpus_for_whole_tasks(weigh: Weigh) -> None:
    code, out, _ = weigh(
        "plan", "tasks.txt", "--gpus", "2", "--gpu", "T4,V100-32GB", *SAID
    )

    assert code == 0
    assert out.splitlines()[-2].split()[3:5] == ["1", "100"]


def test_one_command_measured_on_two_gpus_is_submitted_with_two(
    weigh: Weigh, keep: Keep
) -> None:
    keep("torchrun train.py", 3 * GIB, 2 * GIB)
    words = ("--on", "slurm", "--dry-run", "--no-checks", "--", "torchrun", "train.py")

    code, out, err = weigh("submit", *words)

    assert code == 0, err
    assert "#SBATCH --gres=gpu:2\n" in out
