import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from called_weigh import CalledWeigh
from processes import is_running, until
from run_captured import run_captured

PATIENCE = 90.0


def write(folder: Path, *lines: str) -> str:
    (folder / "tasks.txt").write_text("".join(f"{line}\n" for line in lines))
    return "tasks.txt"


def checked(weigh: CalledWeigh, *argv: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = weigh("check", *argv, "--json")
    return code, json.loads(out)


def test_a_failure_that_the_exit_code_hides_is_noted_once(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    fails = f"{sys.executable} -c 'raise ValueError(\"no column x\")' 2>&1 | tee log"
    code, document = checked(weigh, write(tmp_path, fails, f"{fails} #"))
    assert code == 0
    name = Path(sys.executable).name
    assert document["notes"][0].startswith(
        f"task 1 hides failures: the exit code is that of tee, not of {name}"
    )
    assert document["notes"][1:] == [
        f"task {n} ends with 0, yet its output ends in: ValueError: no column x"
        for n in (1, 2)
    ]


PRINTS_NAN = "import time; print('loss', float('nan')); time.sleep(60)"
IGNORES_TERM = (
    "trap '' TERM; setsid sleep 60 & echo $! > child2; echo $$ > pid2; "
    "while :; do sleep 1; done"
)
# a task, how it is found, and in which words
TASKS = [
    ("echo fine", "COMPLETED", "fine"),
    ("echo $$ > pid; sleep 60 & echo $! > child; wait", "RUNNING", "still running, f"),
    ("echo oh dear >&2; exit 3", "FAILED", "exit 3 at once"),
    ("sleep 1.2; exit 3", "FAILED", "exit 3 after "),
    ("kill -SEGV $$", "FAILED", "SIGSEGV at once"),
    ("echo 'CUDA out of memory'; exit 1", "OUT_OF_MEMORY", "out of memory at once"),
    ("echo loss: 0.5; echo loss: nan; sleep 60", "RUNNING", "NaN in line 2"),
    (f'{sys.executable} -c "{PRINTS_NAN}"', "RUNNING", "NaN in line 1"),
    (IGNORES_TERM, "RUNNING", "still running, fine"),
]


class AllChecked(NamedTuple):
    """What one check of all the tasks left."""

    folder: Path
    code: int
    document: dict[str, Any]

    def trial(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.document["trials"][number - 1]
        return found


@pytest.fixture(scope="module")
def all_checked(tmp_path_factory: pytest.TempPathFactory) -> AllChecked:
    folder = tmp_path_factory.mktemp("checked")
    path = write(folder, *(line for line, _, _ in TASKS))
    words = (path, "-n", "9", "-j", "9", "--timeout", "8", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "weigh", "check", *words],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": str(folder / "store")},
        capture_output=True,
        check=False,
    )
    return AllChecked(folder, done.returncode, json.loads(done.stdout))


def test_each_task_is_judged_by_its_first_seconds(all_checked: AllChecked) -> None:
    trials = zip(TASKS, all_checked.document["trials"], strict=True)
    for number, ((line, state, verdict), trial) in enumerate(trials, start=1):
        assert (trial["task"], trial["state"]) == (number, state), line
        assert trial["verdict"].startswith(verdict), line


def test_the_document_counts_what_is_wrong(all_checked: AllChecked) -> None:
    document = all_checked.document
    assert (all_checked.code, document["schema"]) == (1, "weigh.check/1")
    assert (document["tasks"], document["wrong"]) == (9, 6)
    first = all_checked.trial(1)
    assert (first["exit_code"], first["peak_memory"] > 0) == (0, True)
    assert (all_checked.folder / first["output"]).read_text() == "fine\n"
    assert all_checked.trial(2)["exit_code"] is None
    assert all_checked.trial(3)["evidence"] == "oh dear"
    assert all_checked.trial(7)["evidence"] == "loss: nan"


def test_what_still_runs_is_stopped_with_all_it_started(
    all_checked: AllChecked,
) -> None:
    for name in ("pid", "child", "pid2", "child2"):
        assert not is_running(int((all_checked.folder / name).read_text())), name


def test_whole_runs_are_kept_and_cut_ones_are_not(all_checked: AllChecked) -> None:
    (shard,) = (all_checked.folder / "store").glob("records/*/*.jsonl")
    kept = [json.loads(line) for line in shard.read_text().splitlines()]
    assert {one["label"] for one in kept} == {all_checked.document["label"]}
    assert "echo fine" in {one["command"][-1] for one in kept}
    assert not {TASKS[1][0], TASKS[8][0]} & {one["command"][-1] for one in kept}


def test_verdicts_are_shown_even_if_no_record_can_be_kept(tmp_path: Path) -> None:
    write(tmp_path, "echo a", "echo b")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "records").touch()
    done = run_captured(
        [sys.executable, "-m", "weigh", "check", "tasks.txt"],
        cwd=tmp_path,
        env={**os.environ, "WEIGH_DIR": str(tmp_path / "store")},
    )
    assert done.returncode == 0
    assert done.stdout.count("fine") == 2
    assert "2 records were not kept: cannot make" in done.stderr


@pytest.mark.parametrize(
    "head",
    ["#!/bin/bash", "#SBATCH --mem=4G", "#$ -l h_vmem=4G", "# SBATCH --time=1"],
)
def test_a_script_is_read_and_never_run(
    weigh: CalledWeigh, tmp_path: Path, head: str
) -> None:
    path = write(tmp_path, head, "touch was-run")
    code, out, _ = weigh("check", path, "--json")
    assert code in {0, 1}
    assert json.loads(out)["schema"] == "weigh.lint/2"
    assert not (tmp_path / "was-run").exists()


def test_a_table_of_a_sweep_gives_the_names_of_its_own_tasks(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    weigh("sweep", "lr=1,2", "fixed=7", "--", "echo", "--rate", "{lr}", "{fixed}")
    trials = checked(weigh, "tasks.txt")[1]["trials"]
    assert [one["parameters"] for one in trials] == [{"lr": 1}, {"lr": 2}]
    # a task that is of no sweep, and no UTF-8
    with (tmp_path / "tasks.txt").open("ab") as file:
        file.write(b"echo --rate 3 \xff $PARALLEL_SEQ; echo loss: nan\n")
    (tmp_path / "weigh.toml").write_text("[check]\nallow_nan = true\n")
    code, document = checked(weigh, "tasks.txt")
    other = document["trials"][2]
    assert (code, other["parameters"]["rate"]) == (0, 3)
    assert other["command"] == "echo --rate 3 \ufffd $PARALLEL_SEQ; echo loss: nan"
    assert Path(other["output"]).read_bytes() == b"--rate 3 \xff 3\nloss: nan\n"


def test_the_most_different_tasks_are_tried(weigh: CalledWeigh, tmp_path: Path) -> None:
    weigh("sweep", "lr=1e-4,1e-3,1e-2", "n=1..9", "--", "touch", "ran-{lr}-{n}")
    weigh("check", "tasks.txt", "-n", "4")
    corners = {f"ran-{lr}-{n}" for lr in ("1e-4", "1e-2") for n in (1, 9)}
    assert {path.name for path in tmp_path.glob("ran-*")} == corners


@contextmanager
def checking(folder: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Check the tasks of *folder* in another process."""
    argv = [sys.executable, "-m", "weigh", "check", "tasks.txt", "-j", "3", *words]
    env = {**os.environ, "WEIGH_DIR": str(folder / "store")}
    with subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE) as run:
        yield run


def states_of_last(folder: Path) -> dict[str, int]:
    report = [sys.executable, "-m", "weigh", "report", "last", "--json"]
    env = {**os.environ, "WEIGH_DIR": str(folder / "store")}
    shown = json.loads(subprocess.check_output(report, cwd=folder, env=env))
    found: dict[str, int] = shown["states"]
    return found


def test_a_stop_signal_stops_all_and_states_what_it_saw(tmp_path: Path) -> None:
    write(tmp_path, "exit 4", "sleep 1; echo $$ > pid; sleep 60")
    pid = tmp_path / "pid"
    with checking(tmp_path, "--json") as run:
        until(lambda: pid.exists() and bool(pid.read_text()))
        run.send_signal(signal.SIGTERM)
        out, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 128 + signal.SIGTERM
    states = {one["task"]: one["state"] for one in json.loads(out)["trials"]}
    assert states == {1: "FAILED", 2: "INTERRUPTED"}
    assert not is_running(int(pid.read_text()))
    assert states_of_last(tmp_path) == {"FAILED": 1, "INTERRUPTED": 1}


def test_records_of_what_ended_outlive_a_check_that_was_killed(tmp_path: Path) -> None:
    write(tmp_path, "exit 4", "echo $$ > pid; sleep 60", "echo fine")

    def ended() -> list[str]:
        joblogs = (tmp_path / "store/output").glob("check-*.joblog")
        return [line for path in joblogs for line in path.read_text().splitlines()]

    with checking(tmp_path) as run:
        until(lambda: len(ended()) >= 3)
        time.sleep(0.2)  # records follow the joblog within one look
        run.kill()
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert states_of_last(tmp_path) == {"FAILED": 1, "COMPLETED": 1}


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs sbatch")
def test_the_job_script_of_a_staged_array_has_no_problem(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    (tmp_path / "template").mkdir()
    write(tmp_path, "cp -r template a", "cp -r template b")
    weigh("plan", "tasks.txt", "--memory", "100M", "--time", "5m", "--name", "p")
    staged = ("--stage-in", "template", "--stage-out", "results")
    _, script, _ = weigh("submit", "plan/p", *staged, "--dry-run", "--on", "slurm")
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "plan/p/log").mkdir()

    code, out, _ = weigh("check", "--for", "slurm", "job.sh")

    assert (code, out.count("\n")) == (0, 1), out


def test_a_task_that_does_not_reach_what_is_expected_is_wrong(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    path = write(
        tmp_path,
        "echo loss: 0.5; echo loss: 0.04",
        "echo loss=0.5",
        "echo hello",
        "exit 3",
        "echo loss: 0.01; sleep 60",
    )
    code, out = checked(weigh, path, "--expect", "loss<0.05", "--timeout", "2")
    assert code == 1
    found = {trial["task"]: trial["verdict"] for trial in out["trials"]}
    assert found[2] == "loss 0.5, not < 0.05"
    assert found[3] == "printed no loss"
    assert [one["task"] for one in out["trials"] if one["is_wrong"]] == [2, 3, 4]


def test_what_is_expected_may_stand_in_a_table_of_a_folder_that_the_task_names(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    writes = "sh -c 'mkdir -p {n}; printf \"n,acc\\n1,0.{n}\\n\" >{n}/m.csv' sh {n}"
    path = write(tmp_path, *(writes.format(n=n) for n in (3, 8)))
    _, out = checked(weigh, path, "--expect", "acc>0.5")
    assert [one["is_wrong"] for one in out["trials"]] == [True, False]
