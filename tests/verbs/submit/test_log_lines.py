"""`weigh logs --only RE --without RE`: lines by pattern, also while they come."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LINES = ["INFO:__main__:epoch 1", "DEBUG:__main__:x", "INFO:torch:y", "WARN:__main__:z"]


def weigh(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "weigh", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a job whose task prints line after line."""
    folder = tmp_path_factory.mktemp("job")
    (folder / ".hg").mkdir()
    typed = "; ".join(f"echo {line}; sleep 0.1" for line in LINES)
    (folder / "one.txt").write_text(f"{typed}; printf end:__main__\n")
    plan = ("plan", "one.txt", "--memory=100M", "--cpus=1", "--time=1m")
    assert weigh(folder, *plan).returncode == 0
    assert weigh(folder, "submit", "plan/one", "--on=local").returncode == 0
    return folder


@pytest.mark.few(3)
@pytest.mark.parametrize("follow", [["-f"], []])
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--only", "__main__"], [LINES[0], LINES[1], LINES[3], "end:__main__"]),
        (["--without", "^DEBUG|torch"], [LINES[0], LINES[3], "end:__main__"]),
        (["--only", ":__main__:", "--without", "DEBUG"], [LINES[0], LINES[3]]),
        (["--only", "nothing"], []),
    ],
)
def test_lines_are_shown_by_pattern(
    job: Path, follow: list[str], options: list[str], shown: list[str]
) -> None:
    weigh(job, "status", "--wait", "last") if not follow else None
    done = weigh(job, "logs", "last_1", *follow, *options)
    assert (done.returncode, done.stdout.splitlines()) == (0, shown), done.stderr


def test_a_pattern_that_is_none_is_named(job: Path) -> None:
    done = weigh(job, "logs", "last", "--only", "(")
    assert done.returncode == 2
    assert "--only: '(': missing )" in done.stderr


@pytest.mark.parametrize("words", [["last"], ["last_1"], ["--failed", "last"]])
def test_a_job_that_ended_without_a_log_states_why(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / ".hg").mkdir()
    submitted = ("submit", "--on=local", "--setup=true", "--", "no-such-program")
    assert weigh(tmp_path, *submitted).returncode == 0
    weigh(tmp_path, "status", "--wait", "last")
    done = weigh(tmp_path, "logs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has ended and left no log: not found on " in done.stderr


def test_tasks_of_a_queue_whose_elements_cannot_start_have_failed_with_the_reason(
    tmp_path: Path,
) -> None:
    """They were interrupted, so that each resume sent them again without a reason."""
    (tmp_path / ".hg").mkdir()
    (tmp_path / "t.txt").write_text("no-such-program 1\n" * 40)
    plan = ("plan", "t.txt", "--memory=50M", "--time=10s", "--node-cpus=2")
    assert weigh(tmp_path, *plan).returncode == 0
    options = ("--on=local", "--gpus=2", "--setup=true")
    sent = weigh(tmp_path, "submit", "plan/t", *options)
    assert sent.returncode == 0
    assert os.path.exists("/dev/nvidiactl") or "no NVIDIA GPU" in sent.stderr
    weigh(tmp_path, "status", "--wait", "last")
    said = weigh(tmp_path, "status", "last").stdout
    assert "40 failed" in said
    assert "not found on " in said


def test_failed_logs_of_a_job_without_a_failed_task_are_refused(job: Path) -> None:
    weigh(job, "status", "--wait", "last")
    done = weigh(job, "logs", "--failed", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no task of last has failed" in done.stderr


def test_a_task_that_starts_later_is_followed_to_its_last_byte(tmp_path: Path) -> None:
    (tmp_path / ".hg").mkdir()
    (tmp_path / "two.txt").write_text("sleep 1\nsleep 0.5; seq 40000\n")
    plan = ("plan", "two.txt", "--memory=100M", "--cpus=1", "--time=1m")
    assert weigh(tmp_path, *plan, "--node-cpus=1").returncode == 0
    assert weigh(tmp_path, "submit", "plan/two", "--on=local").returncode == 0
    done = weigh(tmp_path, "logs", "-f", "last_2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(n) for n in range(1, 40001)]
