"""``weigh report`` of a task file that was edited between two runs of weigh exec."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from called_weigh import called_apart
from processes import WEIGH


def weigh(folder: Path, *words: str) -> str:
    """Run weigh in *folder*; return what it printed."""
    return called_apart(folder, *words).stdout


@pytest.mark.parametrize(
    ("before", "after", "attempts"),
    [
        (
            ["echo a", "echo b", "false"],
            ["echo a", "true", "echo c", "echo b"],
            [1, 1, 1, 1],
        ),
        (["echo a", "echo b", "echo c"], ["echo b", "echo c"], [1, 1]),
    ],
    ids=["inserted", "deleted"],
)
def test_a_moved_task_keeps_its_own_attempts(
    tmp_path: Path, before: list[str], after: list[str], attempts: list[int]
) -> None:
    tasks = tmp_path / "tasks.txt"
    for lines in (before, after):
        tasks.write_text("".join(f"{line}\n" for line in lines))
        weigh(tmp_path, "exec", "tasks.txt")
    report = json.loads(weigh(tmp_path, "report", "--json", "tasks.txt"))
    assert report["states"] == {"COMPLETED": len(after)}
    assert [row["attempts"] for row in report["rows"]] == attempts
    # a task that printed nothing has no output file
    printed = [
        Path(tmp_path, row["output"]).read_text() if row["output"] else ""
        for row in report["rows"]
    ]
    assert printed == [
        line.removeprefix("echo ") + "\n" if "echo" in line else "" for line in after
    ]


def test_a_task_that_outlived_weigh_names_no_last_words_as_its_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks.txt").write_text("echo fine; echo up > up; sleep 3; true\n")
    os.mkfifo(tmp_path / "up")
    with subprocess.Popen([*WEIGH, "exec", "tasks.txt"], cwd=tmp_path) as runner:
        (tmp_path / "up").read_text()
        events = tmp_path / "tasks.txt.joblog.events.jsonl"
        while '"started"' not in events.read_text():
            time.sleep(0.01)
        runner.send_signal(signal.SIGKILL)
    report = weigh(tmp_path, "report", "tasks.txt")
    assert "task 1: weigh was killed before the task ended" in report


def test_after_an_interrupted_exec_no_task_waits_and_the_way_out_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "my tasks.txt").write_text("kill -INT $PPID; exec sleep 60\ntrue\n")
    weigh(tmp_path, "exec", "-j", "1", "my tasks.txt")
    report = weigh(tmp_path, "report", "my tasks.txt")
    assert "2 tasks, 1 interrupted, 1 not run\n" in report
    assert "not run   1 task: weigh exec 'my tasks.txt' runs what is left" in report
    assert "preliminary" not in report
