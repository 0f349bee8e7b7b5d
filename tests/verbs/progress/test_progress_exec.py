"""``weigh exec`` reads along with its tasks, and says when all are done."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from processes import HASTY_WEIGH, PATIENCE, Weigh, until

PYTHON = sys.executable
STEPS = """
import sys, time
steps = int(sys.argv[1])
for n in range(steps):
    print('step', n + 1, 'of', steps, flush=True)
    time.sleep(0.05)
"""
BATCHES = """
import time
import weigh
for _ in weigh.batches(range(60)):
    time.sleep(0.05)
"""
HANDLES = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
signal.pause()
"""


class Tasks:
    """A task file, and what weigh exec makes of it."""

    def __init__(self, weigh: Weigh) -> None:
        self._weigh = weigh
        self.file = weigh.folder / "tasks.txt"
        self.progress = weigh.folder / "tasks.txt.joblog.progress"
        for name, text in (
            ("steps", STEPS),
            ("batches", BATCHES),
            ("handles", HANDLES),
        ):
            (weigh.folder / f"{name}.py").write_text(text)

    def start(self, *lines: str, options: tuple[str, ...] = ()) -> Any:
        """Start weigh exec on these lines."""
        self.file.write_text("".join(f"{PYTHON} {line}\n" for line in lines))
        return self._weigh.start(
            *("exec", *options, "tasks.txt"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def headways(self) -> dict[int, Any]:
        """Return what the file says of each running task, once it is there."""
        until(self.progress.exists, "the progress file")
        document = json.loads(self.progress.read_bytes())
        assert document["schema"] == "weigh.exec-progress/1"
        return {task["seq"]: task["headway"] for task in document["tasks"]}


@pytest.fixture
def tasks(weigh: Weigh) -> Tasks:
    return Tasks(weigh)


def end(process: "subprocess.Popen[bytes]") -> tuple[str, str]:
    """Wait for the end; return stdout and stderr."""
    out, err = process.communicate(timeout=PATIENCE)
    return out.decode(), err.decode()


class FinishedRun(NamedTuple):
    """A run of three tasks, looked at while it ran and after its end."""

    headways: dict[int, Any]
    weigh: Weigh
    file_is_left: bool


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedRun]:
    weigh = Weigh(tmp_path_factory.mktemp("finished"), program=HASTY_WEIGH)
    tasks = Tasks(weigh)
    lines = ("steps.py 120", "steps.py 50", "batches.py")
    process = tasks.start(*lines, options=("-j", "3"))
    headways: dict[int, Any] = {}

    def all_are_known() -> bool:
        # of each the first: a later file may have the others nearer to their end
        for seq, headway in tasks.headways().items():
            if headway.get("remaining") is not None:
                headways.setdefault(seq, headway)
        return len(headways) == len(lines)

    until(all_are_known, "progress of all tasks")
    end(process)
    yield FinishedRun(headways, weigh, tasks.progress.exists())
    weigh.close()


def test_running_tasks_are_written_down_with_their_end(finished: FinishedRun) -> None:
    found = finished.headways
    assert {n: one["total"] for n, one in found.items()} == {1: 120, 2: 50, 3: 60}
    # whenever each was looked at
    ends = {n: one["time"] + one["remaining"] for n, one in found.items()}
    assert ends[1] > ends[2]


def test_the_file_goes_with_the_last_task(finished: FinishedRun) -> None:
    assert not finished.file_is_left


def test_batches_that_a_task_reports_count(finished: FinishedRun) -> None:
    assert finished.headways[3]["source"] == "weigh.batches"


def test_records_of_tasks_state_how_far_they_came(finished: FinishedRun) -> None:
    (shard,) = finished.weigh.store.glob("records/*/*.jsonl")
    records = map(json.loads, shard.read_text().splitlines())
    found = [one["progress"] for one in records]
    assert {(one["done"], one["total"]) for one in found} >= {(120, 120), (50, 50)}


def test_the_output_of_a_task_is_not_touched(finished: FinishedRun) -> None:
    written = (finished.weigh.folder / "tasks.txt.out" / "2.out").read_text()
    assert written == "".join(f"step {n} of 50\n" for n in range(1, 51))


def test_no_file_is_left_for_tasks_without_progress(tasks: Tasks) -> None:
    process = tasks.start("-c 'import time; time.sleep(1)'")
    end(process)
    assert not tasks.progress.exists()


def test_a_task_gets_the_checkpoint_signal_before_its_timeout(tasks: Tasks) -> None:
    options = ("--timeout", "4", "--checkpoint-signal", "USR1@2s")
    out, err = end(tasks.start("handles.py", options=options))
    assert "1 of 1 task done" in out
    assert "task 1: sent USR1" in err


def test_a_task_that_will_be_too_late_is_reported_once(tasks: Tasks) -> None:
    process = tasks.start("steps.py 4000", options=("--timeout", "12"))
    words, seen = b"task 1: will not end before the time limit", b""
    while words not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.terminate()
    assert words.decode() not in end(process)[1]


def test_a_killed_run_leaves_a_file_that_the_next_replaces(
    tasks: Tasks, weigh: Weigh
) -> None:
    process = tasks.start("steps.py 120")
    tasks.headways()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    assert tasks.progress.exists()
    (weigh.folder / "steps.py").write_text("")
    again = weigh.start(
        "exec", "tasks.txt", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, _ = end(again)
    assert "1 of 1 task done" in out


def test_a_pattern_that_is_none_is_reported_before_any_task(tasks: Tasks) -> None:
    process = tasks.start("steps.py 1", options=("--progress", "("))
    end(process)
    assert process.returncode == 2
    assert not Path(f"{tasks.file}.joblog").exists()


def test_a_task_that_hangs_before_its_first_output_is_reported(
    tasks: Tasks, weigh: Weigh
) -> None:
    tasks.file.write_text("sleep 3\n")
    process = weigh.start(
        *("exec", "tasks.txt"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=weigh.env(WEIGH_STALLED_AFTER="1.5"),
    )
    _, err = end(process)
    assert err.count("task 1: no output and no CPU time for 1.50 s") == 1


def test_lines_of_tasks_that_are_not_files_are_not_called_silent(
    tasks: Tasks, weigh: Weigh
) -> None:
    tasks.file.write_text("sleep 3\n")
    process = weigh.start(
        *("exec", "--ungroup", "tasks.txt"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=weigh.env(WEIGH_STALLED_AFTER="1.5"),
    )
    _, err = end(process)
    assert "may hang" not in err


def test_the_record_of_a_running_task_states_how_far_it_is(
    tasks: Tasks, weigh: Weigh
) -> None:
    process = tasks.start("steps.py 400")

    def written() -> list[Any]:
        folder = weigh.folder
        found = [json.loads(one.read_bytes()) for one in folder.rglob("running/*.json")]
        return [one["record"]["progress"] for one in found]

    (progress,) = until(written, "the running record")
    process.terminate()
    end(process)
    assert progress["source"] == "step lines"
    assert 0 < progress["done"] < progress["total"] == 400
