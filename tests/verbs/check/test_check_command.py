import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weigh.flow.check.check import trial_notes
from weigh.model.check import TaskTrial
from weigh.units import MIB

Weigh = Callable[..., tuple[int, str, str]]
PATIENCE = 90.0
# each task of these tests writes what counts long before
TIMEOUT = ("--timeout", "4")


def write(folder: Path, *lines: str) -> str:
    (folder / "tasks.txt").write_text("".join(f"{line}\n" for line in lines))
    return "tasks.txt"


def checked(weigh: Weigh, *argv: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = weigh("check", *argv, "--json")
    return code, json.loads(out)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in status


def test_tasks_that_go_well_are_fine(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo one", "echo two")
    code, out, _ = weigh("check", path)
    assert code == 0
    assert out.count("COMPLETED") == 2
    assert "2 of 2 tasks" in out
    assert "next: weigh plan tasks.txt" in out


def test_a_failure_that_the_exit_code_hides_is_noted_once(
    weigh: Weigh, tmp_path: Path
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


def test_the_document_names_each_task(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo --lr 0.1", "echo --lr 0.2")
    code, document = checked(weigh, path)
    assert code == 0
    assert document["schema"] == "weigh.check/1"
    assert (document["tasks"], document["wrong"]) == (2, 0)
    first = document["trials"][0]
    assert (first["task"], first["parameters"]) == (1, {"lr": 0.1})
    assert (first["state"], first["exit_code"]) == ("COMPLETED", 0)
    assert first["peak_memory"] > 0
    assert Path(first["output"]).read_text() == "--lr 0.1\n"


def test_one_that_still_runs_is_stopped_and_fine(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo $$ > pid; sleep 60 & echo $! > child; wait")
    code, document = checked(weigh, path, *TIMEOUT)
    trial = document["trials"][0]
    assert code == 0
    assert (trial["state"], trial["verdict"]) == ("RUNNING", "still running, fine")
    assert trial["exit_code"] is None
    for name in ("pid", "child"):
        assert not is_running(int((tmp_path / name).read_text()))


def test_a_crash_is_named_with_its_last_words(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo fine", "echo oh dear >&2; exit 3")
    code, out, _ = weigh("check", path)
    assert code == 1
    assert "exit 3 at once: oh dear" in out
    assert "/2.out" in out
    assert "1 of 2 failed" in out


def test_a_crash_later_on_is_none_of_the_start(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "sleep 1.2; exit 3")
    _, document = checked(weigh, path)
    assert document["trials"][0]["verdict"].startswith("exit 3 after ")


def test_a_signal_that_ends_a_task_is_named(weigh: Weigh, tmp_path: Path) -> None:
    code, document = checked(weigh, write(tmp_path, "kill -SEGV $$"))
    assert code == 1
    assert document["trials"][0]["verdict"] == "SIGSEGV at once"


def test_words_of_memory_trouble_are_distinguished_from_a_bug(
    weigh: Weigh, tmp_path: Path
) -> None:
    path = write(tmp_path, "echo 'RuntimeError: CUDA out of memory'; exit 1")
    _, document = checked(weigh, path)
    trial = document["trials"][0]
    assert trial["state"] == "OUT_OF_MEMORY"
    assert trial["verdict"] == "out of memory at once"


def test_a_lost_number_is_found_where_the_task_goes_on(
    weigh: Weigh, tmp_path: Path
) -> None:
    path = write(tmp_path, "echo loss: 0.5; echo loss: nan; sleep 60")
    code, document = checked(weigh, path, *TIMEOUT)
    trial = document["trials"][0]
    assert code == 1
    assert (trial["state"], trial["verdict"]) == ("RUNNING", "NaN in line 2")
    assert trial["evidence"] == "loss: nan"


def test_what_python_prints_is_read_although_it_is_stopped(
    weigh: Weigh, tmp_path: Path
) -> None:
    program = "import time; print('loss', float('nan')); time.sleep(60)"
    path = write(tmp_path, f'{sys.executable} -c "{program}"')
    code, document = checked(weigh, path, *TIMEOUT)
    assert code == 1
    assert document["trials"][0]["verdict"] == "NaN in line 1"


def test_nan_can_be_allowed(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo loss: nan")
    assert checked(weigh, path, "--allow-nan")[0] == 0


def test_silence_is_reported_and_no_fault(weigh: Weigh, tmp_path: Path) -> None:
    code, out, _ = weigh("check", write(tmp_path, "echo a", "true"))
    assert code == 0
    assert "task 2 printed nothing" in out


def test_one_that_ignores_term_is_killed_with_all_it_started(
    weigh: Weigh, tmp_path: Path
) -> None:
    path = write(
        tmp_path,
        "trap '' TERM; setsid sleep 60 & echo $! > child; echo $$ > pid; "
        "while :; do sleep 1; done",
    )
    code, out, _ = weigh("check", path, *TIMEOUT)
    assert code == 0
    assert "task 1 ignored TERM" in " ".join(out.split())
    for name in ("pid", "child"):
        assert not is_running(int((tmp_path / name).read_text()))


@pytest.mark.parametrize(
    "head",
    ["#!/bin/bash", "#SBATCH --mem=4G", "#$ -l h_vmem=4G", "# SBATCH --time=1"],
)
def test_a_script_is_read_and_never_run(
    weigh: Weigh, tmp_path: Path, head: str
) -> None:
    path = write(tmp_path, head, "touch was-run")
    code, out, _ = weigh("check", path, "--json")
    assert code in {0, 1}
    assert json.loads(out)["schema"] == "weigh.lint/2"
    assert not (tmp_path / "was-run").exists()


def test_what_is_off_in_a_script_is_a_fault(weigh: Weigh, tmp_path: Path) -> None:
    write(tmp_path, "#!/bin/bash", "# SBATCH --mem=8G", "true")
    code, out, _ = weigh("check", "tasks.txt", "--for", "slurm")
    assert code == 1
    assert "tasks.txt:2" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [("nowhere.txt", "cannot read"), (".", "is a folder"), ("-", "needs a file")],
)
def test_what_is_no_task_file_is_refused(weigh: Weigh, name: str, said: str) -> None:
    code, _, err = weigh("check", name)
    assert code == 2
    assert said in err


def test_a_file_without_tasks_is_refused(weigh: Weigh, tmp_path: Path) -> None:
    code, _, err = weigh("check", write(tmp_path, "", "# nothing"))
    assert code == 2
    assert "no task in tasks.txt" in err


def test_the_most_different_tasks_are_tried(weigh: Weigh, tmp_path: Path) -> None:
    weigh("sweep", "lr=1e-4,1e-3,1e-2", "n=1..9", "--", "touch", "ran-{lr}-{n}")
    weigh("check", "tasks.txt", "--tasks", "4")
    corners = {f"ran-{lr}-{n}" for lr in ("1e-4", "1e-2") for n in (1, 9)}
    assert {path.name for path in tmp_path.glob("ran-*")} == corners


def test_a_sweeps_table_gives_the_names(weigh: Weigh) -> None:
    weigh("sweep", "lr=1,2", "fixed=7", "--", "echo", "{lr}", "{fixed}")
    _, document = checked(weigh, "tasks.txt")
    assert [trial["parameters"] for trial in document["trials"]] == [
        {"lr": 1},
        {"lr": 2},
    ]


def test_a_table_of_other_tasks_is_left_aside(weigh: Weigh, tmp_path: Path) -> None:
    weigh("sweep", "lr=1,2", "--", "echo", "--rate", "{lr}")
    with (tmp_path / "tasks.txt").open("a") as file:
        file.write("echo --rate 3\n")
    _, document = checked(weigh, "tasks.txt")
    assert document["trials"][2]["parameters"] == {"rate": 3}


def test_whole_runs_are_kept_and_cut_ones_are_not(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "echo whole", "sleep 60")
    _, document = checked(weigh, path, *TIMEOUT)
    _, out, _ = weigh("records", "--json")
    kept = json.loads(out)["records"]
    assert [one["label"] for one in kept] == [document["label"]]
    assert kept[0]["command"][-1] == "echo whole"


def test_a_line_that_is_no_utf8_is_shown_with_a_mark(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "tasks.txt").write_bytes(b"echo \xff\n")
    code, document = checked(weigh, "tasks.txt")
    assert code == 0
    assert document["trials"][0]["command"] == "echo \ufffd"
    assert Path(document["trials"][0]["output"]).read_bytes() == b"\xff\n"


def test_a_stop_signal_stops_all_and_states_what_it_saw(tmp_path: Path) -> None:
    path = write(tmp_path, "exit 4", "sleep 1; echo $$ > pid; sleep 60")
    argv = [sys.executable, "-m", "weigh", "check", path, "--json", "-j", "2"]
    env = {**os.environ, "WEIGH_DIR": str(tmp_path / "store")}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as run:
        deadline = time.monotonic() + PATIENCE
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        run.send_signal(signal.SIGTERM)
        out, _ = run.communicate(timeout=PATIENCE)
    document = json.loads(out)
    assert run.returncode == 128 + signal.SIGTERM
    states = {trial["task"]: trial["state"] for trial in document["trials"]}
    assert states == {1: "FAILED", 2: "INTERRUPTED"}
    assert not is_running(int(pid.read_text()))


def test_one_that_writes_without_end_is_stopped(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, "head -c 300M /dev/zero; sleep 60", "echo fine")
    code, document = checked(weigh, path)
    first, second = document["trials"]
    assert code == 1
    assert (first["state"], first["verdict"]) == (
        "CANCELLED",
        "wrote more than 256 MiB",
    )
    assert first["output_size"] > 256 * MIB
    assert second["state"] == "COMPLETED"


def test_a_task_has_its_number_of_the_file(weigh: Weigh, tmp_path: Path) -> None:
    path = write(tmp_path, *(f"echo $PARALLEL_SEQ {n}" for n in range(1, 10)))
    _, document = checked(weigh, path, "--tasks", "2")
    said = [(one["task"], one["evidence"]) for one in document["trials"]]
    assert said == [(1, "1 1"), (9, "9 9")]


def test_a_task_that_ran_twice_is_named() -> None:
    record = SimpleNamespace(signal=None)
    trial = TaskTrial(
        task=3, command="x", state="COMPLETED", verdict="fine", output_size=1
    )
    notes = trial_notes([trial], {3: [record, record]})  # type: ignore[list-item]
    assert notes == ["task 3 ran twice: too little memory for several"]


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs sbatch")
def test_the_job_script_of_a_staged_array_has_no_problem(
    weigh: Weigh, tmp_path: Path
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
