import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from planning import HUNDRED, Keep, Weigh, a_run, keep_run, read_plan

from weigh.model.record import PeakMemory, Usage
from weigh.request import LEAST_TIME
from weigh.units import GIB, MIB

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


@pytest.mark.parametrize(
    ("words", "each", "element"),
    [
        (("--memory", "100M"), "120 MiB RAM, with 20 %", "140 MiB (20 MiB for weigh)"),
        (("--time", "1h"), "01:12:00, with 20 %", "01:15:00"),
        (("--gpu-memory", "4G", "--gpu", "T4"), "4.80 GiB of GPU, 1 CPU, with", ""),
        (("--memory", "100M", "--cpus", "3"), "3 CPUs, 120 MiB", "3 CPUs, 140 MiB"),
    ],
)
def test_what_is_added_to_a_figure_that_was_typed_is_shown(
    words: tuple[str, ...], each: str, element: str, weigh: Weigh
) -> None:
    _, out, _ = weigh("plan", "tasks.txt", *words)

    per_task, *_, per_element, _next = out.splitlines()
    assert each in per_task
    assert "20 % headroom" in per_task
    assert element in per_element


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


def test_tasks_that_keep_a_gpu_busy_are_given_the_time_to_take_turns(
    weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    keep(PPO, 2 * GIB, busy=100.0)
    (tmp_path / "rl.txt").write_text("python rl.py --algo ppo --seed 2\n" * 4)

    weigh("plan", "rl.txt")

    plan = read_plan(tmp_path / "plan" / "rl")
    assert plan.kinds[0].item.time == 3600
    assert plan.request.time_limit == 4 * 3600


def test_short_tasks_take_turns_by_what_they_took_not_by_the_least_request(
    weigh: Weigh, tmp_path: Path
) -> None:
    # 8 s of a GPU that is busy for 28 % of them
    peak = PeakMemory(GIB, GIB, GIB, None, None, None, "test")
    record = a_run(PPO, 2 * GIB, busy=28.0)
    gpus = record.usage.gpus if record.usage else ()
    usage = Usage(wall_time=8.0, peak_memory=peak, gpus=gpus)
    keep_run(tmp_path, replace(record, usage=usage))
    (tmp_path / "rl.txt").write_text("python rl.py --algo ppo --seed 2\n" * 8)

    out = weigh("plan", "rl.txt")[1]

    assert "00:05:00 (1 run)" in out
    assert read_plan(tmp_path / "plan" / "rl").request.time_limit == LEAST_TIME


def test_every_line_fits_80_columns(weigh: Weigh, tmp_path: Path, keep: Keep) -> None:
    keep(PPO, 2 * GIB, busy=30.0)
    keep(DQN, 9 * GIB, busy=60.0)
    long = " ".join(f"--option-{n} value" for n in range(9))
    (tmp_path / "rl.txt").write_text(
        f"python rl.py --algo ppo {long}\npython rl.py --algo dqn {long}\n"
    )

    _, one, notes = weigh("plan", "rl.txt")
    _, several, _ = weigh("plan", "rl.txt", "--gpu", "T4,A100-40GB:1g.5gb,V100-32GB")

    for line in (one + notes + several).splitlines():
        assert len(line) <= 80, line


def test_measured_cpus_that_a_node_lacks_come_with_the_option_for_fewer(
    weigh: Weigh, tmp_path: Path
) -> None:
    """Eight threads on a busy machine were taken for four CPUs."""
    peak = PeakMemory(GIB, GIB, GIB, None, None, None, "test")
    usage = Usage(wall_time=60.0, peak_memory=peak, cpus_used=3.9)
    keep_run(tmp_path, a_run("python threads.py 1", usage=usage))
    (tmp_path / "threads.txt").write_text("python threads.py 2\n")

    code, _, err = weigh("plan", "threads.txt", "--node", "2")

    assert code == 2
    assert "4 CPUs as measured, and the node has 2; --cpus 2 if fewer are enough" in err
    assert weigh("plan", "threads.txt", "--node", "2", "--cpus", "2")[0] == 0


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


def test_a_run_that_failed_at_once_is_nothing_to_plan_with(
    weigh: Weigh, tmp_path: Path
) -> None:
    """A program with a typing mistake ended after 0.01 s, at 10 MiB."""
    peak = PeakMemory(10 * MIB, 10 * MIB, 10 * MIB, None, None, None, "test")
    usage = Usage(wall_time=0.01, peak_memory=peak)
    failed = a_run("srun ./solve", usage=usage, state="FAILED", exit_code=2)
    keep_run(tmp_path, replace(failed, id="aaaaaaaaaaaa", label="typo"))
    (tmp_path / "solve.txt").write_text("srun ./solve\n")
    code, out, err = weigh("plan", "solve.txt")
    assert (code, "memory is not known" in out + err) == (0, True)
    assert "measured run aaaaaa failed" in " ".join(err.split())
    code, _, err = weigh("plan", "solve.txt", "--from", "typo", "--name", "b")
    assert (code, "(state --memory and --time)" in err) == (2, True)
    figures = ("--memory", "100M", "--time", "1m")
    words = ("plan", "solve.txt", "--from", "typo", "--name", "b", *figures)
    code, out, _ = weigh(*words)
    assert (code, "1 CPU, 120 MiB RAM" in out) == (0, True)


@pytest.mark.parametrize(
    ("unknown", "texts"),
    [
        (1, ("the time of task 3 is not known", "1 task matches no record")),
        (2, ("the time of task 3 and 1 more is not", "2 tasks match no record")),
    ],
)
def test_tasks_without_a_known_time_are_named(
    unknown: int, texts: tuple[str, str], weigh: Weigh, tmp_path: Path, keep: Keep
) -> None:
    keep("python ppo.py --seed 1")
    lines = ["python ppo.py --seed 1", "python ppo.py --seed 2"]
    lines += ["python other.py"] * unknown
    (tmp_path / "tasks.txt").write_text("\n".join(lines))

    code, _, err = weigh("plan", "tasks.txt")

    notes = " ".join(err.split())
    assert code == 0
    assert f"no time limit, as {texts[0]}" in notes
    assert "weigh run -- python other.py" in notes
    assert f"{texts[1]}: only the options count" in notes
