"""Whom the checkpoint signal is sent to."""

import os
import signal
from pathlib import Path

import pytest

from weigh.measure.checkpoint_signal import send_checkpoint_signal

HANDLES_USR1 = f"SigCgt:\t{1 << (signal.SIGUSR1 - 1):016x}\n"
WAITS_FOR_USR1 = HANDLES_USR1.replace("SigCgt", "SigBlk")  # as sigwait needs it
NOTHING = "SigCgt:\t0000000000000000\n"
Threads = list[tuple[int, ...] | None]


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


# of each process its status, and of each of its threads the children or None where it
# has ended; who gets the signal
FAMILIES: dict[str, tuple[dict[int, tuple[str, Threads]], list[int]]] = {
    "the program behind a shell and not its workers": (
        {10: (NOTHING, [(20,)]), 20: (HANDLES_USR1, [(30,)]), 30: (HANDLES_USR1, [])},
        [20],
    ),
    "children of the threads that did not end": (
        {
            10: (NOTHING, [None, (40,), None, (50,)]),
            40: (HANDLES_USR1, []),
            50: (HANDLES_USR1, []),
        },
        [40, 50],
    ),
    "a program that blocks it to wait for it": (
        {
            10: (NOTHING, [(20,)]),
            20: (WAITS_FOR_USR1, [(30,)]),
            30: (WAITS_FOR_USR1, []),
        },
        [20],
    ),
    "nobody where the process has ended": ({}, []),
}


@pytest.mark.parametrize("who", FAMILIES)
def test_the_signal_is_sent_to(tmp_path: Path, sent: list[int], who: str) -> None:
    family, expected = FAMILIES[who]
    for pid, (status, threads) in family.items():
        process(tmp_path, pid, status, *threads)
    count = send_checkpoint_signal(10, signal.SIGUSR1, proc_folder=str(tmp_path))
    assert (count, sorted(sent)) == (len(expected), expected)
