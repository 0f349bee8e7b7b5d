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
PROGRAMS = {
    "steps": """
import sys, time
steps = int(sys.argv[1])
for n in range(steps):
    print('step', n + 1, 'of', steps, flush=True)
    time.sleep(0.05)
""",
    "batches": """
import time
import weigh
for _ in weigh.batches(range(60)):
    time.sleep(0.05)
""",
    "handles": """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
signal.pause()
""",
}


class Tasks:
    """A task file, and what weigh exec makes of it."""

    def __init__(self, weigh: Weigh) -> None:
        self._weigh = weigh
        self.joblog = weigh.folder / "tasks.txt.joblog"
        self.progress = Path(f"{self.joblog}.progress")
        for name, text in PROGRAMS.items():
            (weigh.folder / f"{name}.py").write_text(text)

    def start(
        self, *lines: str, options: tuple[str, ...] = (), **variables: str
    ) -> "subprocess.Popen[bytes]":
        """Start weigh exec on these lines."""
        text = "".join(f"{line}\n" for line in lines).replace("python", PYTHON)
        (self._weigh.folder / "tasks.txt").write_text(text)
        return self._weigh.start(
            *("exec", *options, "tasks.txt"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._weigh.env(**variables),
        )

    def headways(self) -> dict[int, Any]:
        """Return what the file says of each running task, once it is there."""
        until(self.progress.exists, "the progress file")
        document = json.loads(self.progress.read_bytes())
        assert document["schema"] == "weigh.exec-progress/1"
        return {task["seq"]: task["headway"] for task in document["tasks"]}

    def running(self) -> list[Any]:
        """Return the progress that the record of each running task states."""
        paths = self._weigh.folder.rglob("running/*.json")
        return [json.loads(one.read_bytes())["record"]["progress"] for one in paths]


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
    running: list[Any]
    weigh: Weigh
    file_is_left: bool


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedRun]:
    weigh = Weigh(tmp_path_factory.mktemp("finished"), program=HASTY_WEIGH)
    tasks = Tasks(weigh)
    lines = ("python steps.py 120", "python steps.py 60", "python batches.py")
    process = tasks.start(*lines, options=("-j", "3"))
    headways: dict[int, Any] = {}
    running: list[Any] = []

    def all_are_known() -> bool:
        # of each the first: a later file may have the others nearer to their end
        for seq, headway in tasks.headways().items():
            if headway.get("remaining") is not None:
                headways.setdefault(seq, headway)
        running.extend(one for one in tasks.running() if one and not running)
        return len(headways) == len(lines) and bool(running)

    until(all_are_known, "progress of all tasks")
    end(process)
    yield FinishedRun(headways, running, weigh, tasks.progress.exists())
    weigh.close()


def test_running_tasks_are_written_down_with_their_end(finished: FinishedRun) -> None:
    found = finished.headways
    assert {n: one["total"] for n, one in found.items()} == {1: 120, 2: 60, 3: 60}
    for one in found.values():  # whenever each was looked at
        assert 0 < one["remaining"] <= 1.01 * one["step_time"] * one["total"]
    # batches that a task reports count
    assert found[3]["source"] == "weigh.batches"
    assert not finished.file_is_left


def test_records_state_how_far_a_task_is_and_came(finished: FinishedRun) -> None:
    running = finished.running[0]
    assert 0 < running["done"] < running["total"]
    (shard,) = finished.weigh.store.glob("records/*/*.jsonl")
    records = map(json.loads, shard.read_text().splitlines())
    found = [one["progress"] for one in records]
    assert {(one["done"], one["total"]) for one in found} >= {(120, 120), (60, 60)}


def test_the_output_of_a_task_is_not_touched(finished: FinishedRun) -> None:
    written = (finished.weigh.folder / "tasks.txt.out" / "2.out").read_text()
    assert written == "".join(f"step {n} of 60\n" for n in range(1, 61))


def test_a_task_gets_the_checkpoint_signal_before_its_timeout(tasks: Tasks) -> None:
    options = ("-j", "2", "--timeout", "4", "--checkpoint-signal", "USR1@2s")
    out, err = end(tasks.start("python handles.py", "sleep 3", options=options))
    assert "2 of 2 tasks done" in out
    assert "task 1: sent USR1, " in err
    assert "task 2: USR1 not sent: no process has a handler for it\n" in err


def test_a_task_that_will_be_too_late_is_reported_once(tasks: Tasks) -> None:
    process = tasks.start("python steps.py 4000", options=("--timeout", "12"))
    assert process.stderr is not None
    words = b"task 1: will not end before the time limit"
    until(lambda: words in process.stderr.readline(), "the warning")  # type: ignore[union-attr]
    process.terminate()
    assert words.decode() not in end(process)[1]


def test_a_killed_run_leaves_a_file_that_the_next_replaces(tasks: Tasks) -> None:
    process = tasks.start("python steps.py 40")
    tasks.headways()
    os.kill(process.pid, signal.SIGKILL)
    end(process)
    assert tasks.progress.exists()
    out, _ = end(tasks.start("python steps.py 0"))
    assert "1 of 1 task done" in out


def test_a_pattern_that_is_none_is_reported_before_any_task(tasks: Tasks) -> None:
    process = tasks.start("true", options=("--progress", "("))
    end(process)
    assert process.returncode == 2
    assert not tasks.joblog.exists()


@pytest.mark.parametrize(
    ("options", "count"),
    [((), 1), (("--ungroup",), 0)],  # lines that are not in a file may be anywhere
)
def test_a_task_that_hangs_before_its_first_output_is_reported(
    tasks: Tasks, options: tuple[str, ...], count: int
) -> None:
    process = tasks.start("sleep 2.5", options=options, WEIGH_STALLED_AFTER="1")
    _, err = end(process)
    assert err.count("task 1: no output and no CPU time for ") == count
    assert err.count("may hang") == count
    assert not tasks.progress.exists()  # nothing is known of it
