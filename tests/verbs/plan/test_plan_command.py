import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from planning import HUNDRED, Keep, Weigh, read_plan

from weigh.units import GIB

SAID = ("--gpu-memory", "2.3GiB", "--memory", "1GiB", "--time", "5h", "--cpus", "1")


PPO, DQN = (f"python rl.py --algo {name} --seed 1" for name in ("ppo", "dqn"))


def lines_of(folder: Path) -> Iterator[str]:
    for path in folder.glob("tasks_*.txt"):
        yield from path.read_text().splitlines()


def test_the_plan_in_the_folder_states_what_is_in_each_file(
    weigh: Weigh, tmp_path: Path
) -> None:
    assert weigh("plan", "tasks.txt", "--gpu", "p100=11.9GiB", *SAID)[0] == 0

    folder = tmp_path / "plan" / "tasks"
    assert sorted(lines_of(folder)) == sorted(HUNDRED.splitlines())
    assert len(list(folder.glob("tasks_*.txt"))) == 25
    plan = read_plan(folder)
    assert plan.schema == "weigh.plan/1"
    assert (plan.tasks, len(plan.elements)) == (100, 25)
    assert plan.elements[0].file == "tasks_0.txt"
    assert plan.elements[0].tasks == (1, 2, 3, 4)
    assert plan.elements[0].gpu_memory == 4 * math.ceil(round(2.3 * GIB) * 1.2)
    assert (plan.request.cpus, plan.request.gpus, plan.request.gpu) == (4, 1, "p100")
    assert plan.request.time_limit == 6 * 3600


def test_json_is_the_document_that_is_written(weigh: Weigh, tmp_path: Path) -> None:
    _, out, _ = weigh("plan", "tasks.txt", "--gpu", "T4", *SAID, "--json")

    written = json.loads((tmp_path / "plan" / "tasks" / "plan.json").read_text())
    assert json.loads(out) == written


def test_algorithms_are_packed_each_by_its_own_record(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    keep(PPO, 2 * GIB, busy=30.0)
    keep(DQN, 9 * GIB, busy=60.0)
    lines = [
        f"python rl.py --algo {a} --seed {n}" for n in range(9) for a in ("ppo", "dqn")
    ]
    (tmp_path / "rl.txt").write_text("\n".join(lines))

    code, out, _ = weigh("plan", "rl.txt")

    assert code == 0
    assert "18 tasks of 2 kinds" in out
    assert "V100-32GB" in out  # the card they were measured on
    plan = read_plan(tmp_path / "plan" / "rl")
    assert plan.gpu is not None
    for element in plan.elements:
        algorithms = [lines[task - 1].split()[3] for task in element.tasks]
        need = 2.4 * algorithms.count("ppo") + 10.8 * algorithms.count("dqn")
        assert need * GIB <= plan.gpu.memory
    assert sorted(t for e in plan.elements for t in e.tasks) == list(range(1, 19))


def test_a_plan_is_not_overwritten_unless_requested(
    weigh: Weigh, tmp_path: Path
) -> None:
    weigh("plan", "tasks.txt", "--gpu", "p100=11.9GiB", *SAID)
    folder = tmp_path / "plan" / "tasks"
    (folder / "log").mkdir()

    code, _, err = weigh("plan", "tasks.txt", "--gpu", "B200", *SAID)

    assert code == 2
    assert "--replace" in err

    assert weigh("plan", "tasks.txt", "--gpu", "B200", *SAID, "--replace")[0] == 0
    assert sorted(lines_of(folder)) == sorted(HUNDRED.splitlines())
    assert len(list(folder.glob("tasks_*.txt"))) == 2
    assert (folder / "log").is_dir()


def test_the_advice_on_a_plan_that_lacks_figures_is_all_that_has_to_be_typed(
    weigh: Weigh, tmp_path: Path
) -> None:
    assert "memory is not known: --memory" in weigh("plan", "tasks.txt")[2]
    figures = ("--memory", "1GiB", "--time", "1h")
    assert weigh("plan", "tasks.txt", *figures)[0] == 0
    assert read_plan(tmp_path / "plan" / "tasks").request.memory is not None
    # now it is complete
    code, _, err = weigh("plan", "tasks.txt", *figures)
    assert (code, "this command again with --replace" in err) == (2, True)


@pytest.mark.parametrize("files", [(), ("tasks_0.txt", "thesis.tex")])
def test_a_folder_that_is_no_plan_is_left_alone(
    weigh: Weigh, tmp_path: Path, files: tuple[str, ...]
) -> None:
    folder = tmp_path / "plan" / "tasks"
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text("true\n")

    code, _, err = weigh("plan", "tasks.txt", "--gpu", "T4", *SAID, "--replace")

    assert (code, "exists and is not a plan" in err) == (2, True), err


def test_lines_from_windows_with_comments_are_written_bare(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "odd.txt").write_bytes(
        b"\xef\xbb\xbfpython a.py\r\n\r\n# no task\r\n  python b.py 'x y'\r\nlast \xff"
    )

    code, _, _ = weigh("plan", "odd.txt", "--gpu", "T4", *SAID)

    assert code == 0
    written = (tmp_path / "plan" / "odd" / "tasks_0.txt").read_bytes()
    assert written == b"python a.py\n  python b.py 'x y'\nlast \xff\n"
    assert json.loads((tmp_path / "plan" / "odd" / "plan.json").read_bytes())


def test_a_folder_that_cannot_be_written_is_one_line(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "plan").write_text("a file")

    code, _, err = weigh("plan", "tasks.txt", "--gpu", "T4", *SAID)

    assert code == 125
    assert "cannot write" in err


def plan_files(folder: Path) -> dict[Path, bytes]:
    """Return what all files of plans hold, also those that are hidden."""
    paths = (folder / "plan").rglob("*")
    return {path: path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.parametrize("earlier", [True, False])
def test_a_full_disk_leaves_no_half_of_a_plan(tmp_path: Path, *, earlier: bool) -> None:
    said = ["--memory", "1G", "--cpus", "1", "--time", "5m", "--replace"]
    argv = [sys.executable, "-m", "weigh", "plan", "tasks.txt", *said]
    (tmp_path / "tasks.txt").write_text("true 1\n")
    if earlier:
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    before = plan_files(tmp_path)
    (tmp_path / "tasks.txt").write_text(f"true {'1' * 3000}\n")

    # no file may be larger than 1 KiB
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *argv]
    done = subprocess.run(
        limited, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, "cannot write" in done.stderr) == (125, True)
    assert plan_files(tmp_path) == before
    assert (tmp_path / "plan").exists() == earlier


def test_a_plan_whose_writing_broke_off_is_planned_anew(
    weigh: Weigh, tmp_path: Path
) -> None:
    """A full disk leaves task files and no plan.json behind."""
    half = tmp_path / "plan" / "tasks"
    half.mkdir(parents=True)
    (half / "tasks_0.txt").write_text("true\n")
    (half / "tasks_700.txt").write_text("")
    code, _, err = weigh("plan", "tasks.txt", "--memory", "1GiB", "--time", "1h")
    assert code == 0, err
    assert not (half / "tasks_700.txt").exists()


def test_a_plan_without_one_of_its_files_is_planned_again(
    weigh: Weigh, tmp_path: Path
) -> None:
    assert weigh("plan", "tasks.txt", "--memory", "1G", "--time", "1h")[0] == 0
    (tmp_path / "plan" / "tasks" / "tasks_1.txt").unlink()
    code, out, err = weigh("submit", "--on", "local", "--no-checks", "plan/tasks")
    assert (code, out) == (2, "")
    assert "tasks_1.txt is gone (weigh plan TASKS --replace)" in err


WHOLE = ("--memory", "1GiB", "--time", "5h", "--cpus", "2")


def test_each_node_of_a_task_is_started_by_srun(weigh: Weigh, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("torchrun 'a b.py'\nsrun ./mine\n")

    assert weigh("plan", "t.txt", "--nodes", "2", "--gpus", "4", *WHOLE)[0] == 0

    folder = tmp_path / "plan" / "t"
    assert read_plan(folder).request.nodes == 2
    first = (folder / "tasks_0.txt").read_text()
    assert first.startswith("srun --nodes=2 --ntasks-per-node=1 ")
    assert first.endswith("""'torchrun '"'"'a b.py'"'"''\n""")
    assert (folder / "tasks_1.txt").read_text() == "srun ./mine\n"


def test_one_command_measured_on_two_gpus_is_submitted_with_two(
    weigh: Weigh, keep: Keep
) -> None:
    keep("torchrun train.py", 3 * GIB, 2 * GIB)
    words = ("--on", "slurm", "--dry-run", "--no-checks", "--", "torchrun", "train.py")

    code, out, err = weigh("submit", *words)

    assert code == 0, err
    assert "#SBATCH --gres=gpu:2\n" in out
