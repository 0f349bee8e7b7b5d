"""The checkpoint signal: how it is written, and whom it is sent to."""

import os
import signal
from pathlib import Path

import pytest

from weigh.errors import FormatError
from weigh.measure.checkpoint_signal import (
    CheckpointSignal,
    parse_checkpoint_signal,
    send_checkpoint_signal,
)
from weigh.runner.attempt import LaunchedAttempt, TaskAttempt
from weigh.runner.slots import RunSlot
from weigh.runner.stopping import send_warning_to_attempt

USR1 = signal.SIGUSR1
HANDLES_USR1 = f"SigCgt:\t{1 << (USR1 - 1):016x}\n"
WAITS_FOR_USR1 = HANDLES_USR1.replace("SigCgt", "SigBlk")  # as sigwait needs it
NOTHING = "SigCgt:\t0000000000000000\n"
# of each process its status, and of each of its threads the children or None where it
# has ended; who gets the signal
Threads = list[tuple[int, ...] | None]
FAMILIES: dict[str, tuple[dict[int, tuple[str, Threads]], list[int]]] = {
    "the program behind a shell and not its workers": (
        {10: (NOTHING, [(20,)]), 20: (HANDLES_USR1, [(30,)]), 30: (HANDLES_USR1, [()])},
        [20],
    ),
    "children of the threads that did not end": (
        {
            10: (NOTHING, [None, (40,), None, (50,)]),
            40: (HANDLES_USR1, [()]),
            50: (HANDLES_USR1, [()]),
        },
        [40, 50],
    ),
    "a program that blocks it to wait for it": (
        {
            10: (NOTHING, [(20,)]),
            20: (WAITS_FOR_USR1, [(30,)]),
            30: (WAITS_FOR_USR1, [()]),
        },
        [20],
    ),
    "a child at the end of a list of many pages": (
        {10: (NOTHING, [tuple(range(80_000, 99_999))]), 99_998: (HANDLES_USR1, [()])},
        [99_998],
    ),
    "nobody where the process has ended": ({}, []),
}


@pytest.mark.parametrize("who", FAMILIES)
def test_the_signal_is_sent_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    family, expected = FAMILIES[who]
    for pid, (status, threads) in family.items():
        for number, children in enumerate(threads):
            thread = tmp_path / f"{pid}/task/{pid + number}"
            thread.mkdir(parents=True)
            if children is not None:
                (thread / "children").write_text(" ".join(map(str, children)))
        (tmp_path / f"{pid}/status").write_text(status)
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: sent.append(pid))
    count = send_checkpoint_signal(10, USR1, proc_folder=str(tmp_path))
    assert (count, sorted(sent)) == (len(expected), expected)


def test_a_process_with_the_number_of_a_leader_that_was_reaped_gets_nothing() -> None:
    got: list[int] = []
    before = signal.signal(USR1, lambda number, _: got.append(number))
    attempt = TaskAttempt(1, 1, b"", RunSlot(1), launch=LaunchedAttempt(os.getpid()))
    counts = [send_warning_to_attempt(attempt, USR1)]
    attempt.state.status = 0
    counts.append(send_warning_to_attempt(attempt, USR1))
    signal.signal(USR1, before)
    assert (counts, got) == ([1, 0], [USR1])


@pytest.mark.parametrize("text", ["USR1@10m", "sigusr1@600", f"{USR1:d}@10m"])
def test_a_signal_is_written_with_its_time_before_the_limit(text: str) -> None:
    assert parse_checkpoint_signal(text) == CheckpointSignal(USR1, 600.0)


@pytest.mark.parametrize("text", ["USR1", "USR1@", "FOO@10m", "KILL@1m", "USR1@0s"])
def test_a_checkpoint_signal_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_checkpoint_signal(text)
