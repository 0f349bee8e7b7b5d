"""One output file that fails costs its own task at most, and no other task."""

import errno
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from batches import Batch
from processes import WEIGH, until
from run_captured import run_captured

SOURCE = Path(__file__).with_name("faulty_output.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs gcc: the faults are compiled")
    built = tmp_path_factory.mktemp("faults") / "faulty_output.so"
    words = [compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True)
    return str(built)


def _fault(library: str, call: str, number: int, at: int = 1) -> dict[str, Any]:
    return {
        "LD_PRELOAD": library,
        "FAIL_CALL": call,
        "FAIL_WITH": str(number),
        "FAIL_AT": str(at),
    }


OTHER = "echo in >> ran; until [ -s tasks.txt.joblog ] && grep -q done tasks.txt.joblog"
OTHER += "; do sleep 0.1; done; sleep 0.3; echo out >> ran; echo said"


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("call", "at"), [("open", 1), ("open", 2), ("fstat", 1), ("close", 2), ("pread", 1)]
)
def test_a_failed_call_on_an_output_file_stops_no_other_task(
    batch: Batch, library: str, call: str, at: int
) -> None:
    number = errno.ESTALE
    batch.write("echo said; echo a >> ran; : done", OTHER, "echo said; echo b >> ran")
    finished = batch.run("-j", "2", **_fault(library, call, number, at))
    assert "internal error" not in finished.stderr
    assert "standard output" not in finished.stderr
    assert batch.ran().count("out") == batch.ran().count("in")
    assert all(one["state"] != "INTERRUPTED" for one in batch.records())
    for task, (code, _) in batch.ended().items():
        if code:
            # as much of the reason as a line of the summary has room for
            words = f"output not kept: tasks.txt.out/{task}.out: Stale file"
            assert f"task {task}: {words}" in finished.stdout
    expected = {code for code, _ in batch.ended().values()} or {0}
    if len(batch.ended()) == 3:
        assert finished.returncode == int(expected != {0})
    else:  # no file could be created for a later task
        assert (finished.returncode, call) == (125, "open")
        assert f"cannot write tasks.txt.out: {os.strerror(number)}" in (finished.stderr)


def test_what_succeeded_with_its_output_safe_is_not_run_again(
    batch: Batch, library: str
) -> None:
    batch.write(*(f"echo {name}; echo {name} >> ran" for name in "abcd"))
    batch.run("-j", "1", **_fault(library, "close", errno.EIO, at=2))
    failed = [task for task, (code, _) in batch.ended().items() if code]
    assert len(failed) == 1
    assert batch.run("-j", "1", "--resume-failed").returncode == 0
    again = "abcd"[failed[0] - 1]
    assert sorted(batch.ran()) == sorted([*"abcd", again])


def test_an_output_that_is_lost_is_the_reason_of_its_tasks_failure(
    batch: Batch, library: str
) -> None:
    batch.write("echo a", "echo b; exit 3")
    fault = _fault(library, "close", errno.EIO)
    finished = batch.run("-j", "1", FAIL_ON="1", **fault)
    assert finished.returncode == 1
    assert batch.ended() == {1: (74, 0), 2: (3, 0)}
    assert batch.record(1)["state"] == "FAILED"
    assert "tasks.txt.out/1.out" in batch.record(1)["outcome"]["reason"]
    assert "tasks.txt.out/2.out" in str(batch.record(2)["outcome"]["evidence"])


def test_a_full_disk_that_is_reported_as_a_file_is_closed_stops_the_launching(
    batch: Batch, library: str
) -> None:
    batch.write("echo a; echo a >> ran", "echo b; echo b >> ran")
    finished = batch.run("-j", "1", **_fault(library, "close", errno.EDQUOT))
    assert finished.returncode == 125
    assert "full" in finished.stderr
    assert batch.ran() == ["a"]
    assert batch.ended() == {}


WAIT = "while [ ! -e go ]; do sleep 0.1; done"


def test_a_removed_output_folder_costs_no_task_and_is_made_for_the_next(
    batch: Batch,
) -> None:
    batch.write(f"echo begin; echo in >> ran; {WAIT}; echo end", "echo later")
    started = batch.start("-j", "1")
    until(lambda: (batch.output / "1.out").exists() and batch.ran())
    shutil.rmtree(batch.output)
    (batch.folder / "go").touch()
    assert started.wait(30) == 0
    assert [path.name for path in batch.output.iterdir()] == ["2.out"]
    assert batch.ended() == dict.fromkeys((1, 2), (0, 0))


def test_a_file_in_the_place_of_the_output_folder_stops_only_the_launching(
    batch: Batch,
) -> None:
    first = f"echo in >> ran; {WAIT}; sleep 0.2; echo out >> ran"
    batch.write(f"echo said; {first}", first, "echo later >> ran")
    started = batch.start("-j", "2", "--grace", "60")
    until(lambda: (batch.output / "1.out").exists() and len(batch.ran()) == 2)
    shutil.rmtree(batch.output)
    batch.output.write_text("in the way")
    (batch.folder / "go").touch()
    assert started.wait(30) == 125
    assert started.stderr is not None
    assert "cannot write tasks.txt.out: " in started.stderr.read()
    assert batch.ran() == ["in", "in", "out", "out"]
    assert batch.ended() == {1: (0, 0), 2: (0, 0)}


def test_after_an_unforeseen_error_the_tasks_have_their_grace(batch: Batch) -> None:
    """A fault planted in the loop stands for one that nobody thought of."""
    saves = "trap 'sleep 2.5; echo saved >> ran; exit 0' TERM"
    batch.write(f"{saves}; echo in >> ran; while :; do sleep 0.05; done", WAIT)
    plant = (
        "import sys; from weigh.runner.orphans import ChildReaper\n"
        "from weigh import __main__; from pathlib import Path\n"
        "whole = ChildReaper.reap\n"
        "def reap(self):\n"
        "    if not hasattr(self, 'hit') and Path('ran').exists():\n"
        "        self.hit = True; raise RuntimeError('planted')\n"
        "    return whole(self)\n"
        "ChildReaper.reap = reap\n"
        "sys.exit(__main__.main())\n"
    )
    (batch.folder / "planted.py").write_text(plant)
    words = (WEIGH[0], "planted.py", "exec", "--grace", "20", "tasks.txt")
    finished = run_captured(words, cwd=batch.folder, env=batch.env())
    assert finished.returncode == 125
    assert "planted" in finished.stderr
    assert batch.ran() == ["in", "saved"]
    assert signal.SIGTERM not in {entry.signal for entry in batch.entries()}
