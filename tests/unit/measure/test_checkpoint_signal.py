"""Whom the checkpoint signal is sent to."""

import os
import signal
from pathlib import Path

import pytest

from weigh.measure.checkpoint_signal import send_checkpoint_signal

HANDLES_USR1 = f"SigCgt:\t{1 << (signal.SIGUSR1 - 1):016x}\n"
NOTHING = "SigCgt:\t0000000000000000\n"


def process(
    proc: Path, pid: int, status: str, *threads: "tuple[int, ...] | None"
) -> None:
    """Make up a process: of each thread the children, or none where it ended."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "status").write_text(status)
    for number, children in enumerate(threads or ((),)):
        thread = folder / "task" / str(pid + number)
        thread.mkdir(parents=True)
        if children is not None:
            (thread / "children").write_text(" ".join(map(str, children)))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return whom os.kill was asked to signal."""
    found: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: found.append(pid))
    return found


def test_the_program_behind_a_shell_gets_it_and_its_workers_do_not(
    tmp_path: Path, sent: list[int]
) -> None:
    process(tmp_path, 10, NOTHING, (20,))
    process(tmp_path, 20, HANDLES_USR1, (30,))
    process(tmp_path, 30, HANDLES_USR1)
    assert send_checkpoint_signal(10, signal.SIGUSR1, proc_folder=str(tmp_path)) == 1
    assert sent == [20]


def test_a_thread_that_ends_meanwhile_hides_no_child_of_the_others(
    tmp_path: Path, sent: list[int]
) -> None:
    process(tmp_path, 10, NOTHING, None, (40,), None, (50,))
    process(tmp_path, 40, HANDLES_USR1)
    process(tmp_path, 50, HANDLES_USR1)
    assert send_checkpoint_signal(10, signal.SIGUSR1, proc_folder=str(tmp_path)) == 2
    assert sorted(sent) == [40, 50]


def test_a_process_that_ended_gets_nothing(tmp_path: Path, sent: list[int]) -> None:
    assert send_checkpoint_signal(10, signal.SIGUSR1, proc_folder=str(tmp_path)) == 0
    assert sent == []
