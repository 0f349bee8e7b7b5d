"""What a user of ``weigh exec`` does that nobody meant to be done, for real."""

import errno
import os
import pty
import re
import signal
import time

import pytest
from batches import Batch
from processes import is_stopped, until


def test_stopped_and_continued_it_goes_on(batch: Batch) -> None:
    batch.write("echo in >> ran; while [ ! -e go ]; do sleep 0.05; done; echo out")
    started = batch.begin()
    for _ in range(3):
        started.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(started.pid))
        time.sleep(0.6)  # longer than it sleeps at most
        started.send_signal(signal.SIGCONT)
        until(lambda: not is_stopped(started.pid))
    (batch.folder / "go").touch()
    assert started.wait(30) == 0
    assert batch.ended() == {1: (0, 0)}


@pytest.mark.few(2)
@pytest.mark.parametrize("option", ["--grace=30", "--ungroup"])
@pytest.mark.parametrize("most", [24, 100])
def test_with_few_open_files_it_runs_fewer_at_once_and_states_how_many_it_needs(
    batch: Batch, most: int, option: str
) -> None:
    batch.write(*(f"sleep 0.1; echo {n} >> ran" for n in range(20)))
    few = ("bash", "-c", f'ulimit -n {most}; "$@"', "bash")
    finished = batch.run("-j", "20", option, before=few)
    assert finished.returncode == 0
    said = re.search(r"(\d+) open files are enough for (\d+) of 20 .*", finished.stderr)
    needed = re.search(r"ulimit -n (\d+)", finished.stderr)
    assert said
    assert needed
    # six for a task, and as many as weigh itself has
    fit = max(1, (most - (int(needed[1]) - 6 * 20)) // 6)
    assert (int(said[1]), int(said[2])) == (most, fit), finished.stderr
    assert "Too many open files" not in finished.stderr
    assert "not kept" not in finished.stderr
    assert len(batch.ran()) == 20
    assert len(batch.records()) == 20


def test_a_line_that_only_the_kernel_finds_too_long_stops_the_run(
    batch: Batch,
) -> None:
    long = " ".join(["x" * 1000] * 3000)
    batch.write("echo a >> ran", f"/bin/echo {long}", "echo b >> ran")
    finished = batch.run("-j", "1")
    assert finished.returncode == 125
    assert "cannot start task 2: Argument list too long" in finished.stderr
    assert batch.ran() == ["a"]
    assert batch.ended() == {1: (0, 0)}


@pytest.mark.parametrize("line", ["echo {}; true", "echo {}", "ls {}"])
def test_a_line_too_long_for_the_kernel_is_named_before_anything_starts(
    batch: Batch, line: str
) -> None:
    batch.write("echo a >> ran", "", line.format("x" * 150_000))
    finished = batch.run("-j", "1")
    assert finished.returncode == 2
    assert "tasks.txt:3: " in finished.stderr
    assert "script" in finished.stderr
    assert batch.ran() == []


def test_a_line_as_long_as_the_kernel_takes_runs(batch: Batch) -> None:
    most = 32 * os.sysconf("SC_PAGE_SIZE") - 1
    shell = "echo a >> ran; : "
    words = "true" + " x" * most
    batch.write(shell + "x" * (most - len(shell)), words)
    assert batch.run("-j", "1").returncode == 0
    assert batch.ran() == ["a"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--resume-failed --no-resume", "--resume-failed"),
        ("--timeout 0", "--timeout"),
        ("--time 0", "--time"),
        ("--halt soon,fail=101%", "--halt"),
        ("--stop idle", "--stop"),
        ("--end-stuck 0", "--end-stuck"),
        ("--end-stuck soon", "--end-stuck"),
        ("--end-stuck 1.5 -u", "with -u cannot: omit one"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(
    batch: Batch, options: str, words: str
) -> None:
    batch.write("echo a >> ran")
    finished = batch.run(*options.split())
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert words in finished.stderr
    assert batch.ran() == []


def test_lines_of_tasks_on_a_terminal_are_not_mixed_with_the_progress(
    batch: Batch,
) -> None:
    batch.write("sleep 0.7; echo said", "sleep 0.1; sleep 0.1")
    shown = _on_a_terminal(batch, "-j", "2", "--ungroup")
    lines = [line for line in shown.splitlines() if "said" in line]
    assert lines == ["said"]


def test_on_a_terminal_the_progress_is_drawn(batch: Batch) -> None:
    batch.write("sleep 0.7; echo said")
    assert "0 of 1 done, 1 running" in _on_a_terminal(batch)


def _on_a_terminal(batch: Batch, *options: str) -> str:
    master, slave = pty.openpty()
    batch.start(*options, out=slave, err=slave, TERM="xterm")
    os.close(slave)
    shown = b""
    while piece := _read(master):
        shown += piece
    os.close(master)
    return shown.decode()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError as error:  # how Linux says that nobody has the other end
        if error.errno != errno.EIO:
            raise
        return b""
