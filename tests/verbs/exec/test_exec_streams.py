"""A stdout or stderr that is blocked or gone holds up no task and no exit code."""

import errno
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from batches import Batch
from processes import HASTY_WEIGH, PATIENCE, until
from run_captured import run_captured

PIPE_SIZE = 4096


@contextmanager
def _full_pipe() -> Iterator[int]:
    """Return the end of a pipe that is full, and that nobody reads."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    os.write(write, b"x" * PIPE_SIZE)
    yield write
    os.close(read)
    os.close(write)


@contextmanager
def _stopped_terminal() -> Iterator[int]:
    """Return a terminal whose output was stopped, as by Ctrl-S."""
    master, slave = pty.openpty()
    termios.tcflow(slave, termios.TCOOFF)
    yield slave
    os.close(slave)
    os.close(master)


BLOCKED = pytest.mark.parametrize("blocked", [_full_pipe, _stopped_terminal])


def test_with_a_blocked_stderr_all_tasks_run_and_timeouts_are_kept(
    batch: Batch,
) -> None:
    lines = [f"echo {n} >> ran; exit {n % 2}" for n in range(8)]
    batch.write(*lines[:2], "sleep 1000", *lines[2:])
    with _full_pipe() as stream:
        started = batch.start("-j", "1", "--timeout", "0.5", err=stream)
        assert started.wait(PATIENCE) == 1
    assert len(batch.ran()) == 8
    assert len(batch.ended()) == 9
    assert batch.ended()[3][0] == -1


@BLOCKED
def test_with_a_blocked_stderr_signals_are_received(
    batch: Batch, blocked: object
) -> None:
    trap = "trap 'echo saved >> ran; exit 0' TERM; echo in >> ran; sleep 1000 & wait"
    batch.write("exit 1", trap)
    with blocked() as stream:  # type: ignore[operator]
        started = batch.begin("-j", "1", err=stream)
        started.terminate()
        assert started.wait(PATIENCE) == 128 + signal.SIGTERM
    assert batch.ran() == ["in", "saved"]


@BLOCKED
def test_with_a_blocked_stdout_it_ends_with_the_tasks_exit_code(
    batch: Batch, blocked: object
) -> None:
    batch.write("true", "exit 3")
    options = ("--json",) if blocked is _full_pipe else ()
    with blocked() as stream:  # type: ignore[operator]
        assert batch.start(*options, out=stream).wait(PATIENCE) == 1


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        (">/dev/full 2>/dev/full", 0),
        (">&-", 0),  # 1 would be that of a Python that failed, too
        ("2>&-", 1),
        ("| true", 0),
        ("2>&1 >/dev/null | true", 0),
    ],
)
def test_with_a_dead_stream_the_exit_code_is_about_the_tasks(
    batch: Batch, redirection: str, code: int
) -> None:
    batch.write("exit 0", f"exit {3 * code}", "sleep 0.1")
    line = f'set -o pipefail; "$@" {redirection}'
    finished = batch.run("-j", "1", before=("bash", "-c", line, "bash"))
    assert finished.returncode == code
    assert len(batch.ended()) == 3


def test_a_terminal_that_is_gone_is_no_failure_of_the_tasks(batch: Batch) -> None:
    batch.write("echo in >> ran; while [ ! -e go ]; do sleep 0.1; done", "exit 0")
    master, slave = pty.openpty()
    started = batch.start("-j", "1", out=slave, err=slave)
    os.close(slave)
    until(batch.ran)
    os.close(master)  # it is not weigh's controlling terminal: no SIGHUP
    (batch.folder / "go").touch()
    assert started.wait(PATIENCE) == 0
    assert len(batch.ended()) == 2


def test_a_blocked_stderr_drops_progress_then_goes_on_and_stays_as_others_share_it(
    batch: Batch,
) -> None:
    doubtful = r"printf 'Traceback (most recent call last):\nValueError: 1\n'"
    batch.write(doubtful, "echo in >> ran; while [ ! -e go ]; do sleep 0.1; done")
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    os.write(write, b"x" * PIPE_SIZE)
    started = batch.begin("-j", "1", err=write)
    assert not fcntl.fcntl(write, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read(PIPE_SIZE) == b"x" * PIPE_SIZE
        (batch.folder / "go").touch()
        assert b"weigh: task 1 ended with 0, yet" in stream.read()
    assert started.wait(PATIENCE) == 0


# other verbs


def test_weigh_run_ends_although_stderr_is_blocked(batch: Batch) -> None:
    with _full_pipe() as stream:
        words = [*HASTY_WEIGH, "run", "--", "sh", "-c", "exit 3"]
        done = run_captured(words, cwd=batch.folder, env=batch.env(), stderr=stream)
    assert done.returncode == 3


@pytest.mark.parametrize("words", [("records",), ("--version",)])
def test_output_that_cannot_be_written_is_125_with_its_reason_and_never_120(
    batch: Batch, words: tuple[str, ...]
) -> None:
    line = '"$@" > /dev/full'
    finished = run_captured(
        ["bash", "-c", line, "bash", *HASTY_WEIGH, *words],
        cwd=batch.folder,
        env=batch.env(),
    )
    assert finished.returncode == 125
    why = os.strerror(errno.ENOSPC)
    assert finished.stderr == f"weigh: standard output: {why}\n"


def test_top_on_a_stopped_terminal_receives_signals(batch: Batch) -> None:
    with _stopped_terminal() as terminal:
        started = subprocess.Popen(
            [*HASTY_WEIGH, "top"],
            cwd=batch.folder,
            env=batch.env(TERM="xterm"),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(1)
        started.terminate()
        assert started.wait(PATIENCE) == -signal.SIGTERM


def test_at_the_end_python_flushes_a_stream_without_a_thread() -> None:
    # the thread may be stopped while it holds a lock that a flush would wait for
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(type(sys.stderr).__name__))\n"
        "from weigh.cli.main import run_cli\n"
        "run_cli(['no-such-verb'], [])\n"
    )

    done = run_captured([sys.executable, "-c", program], check=True)

    assert done.stdout == "TextIOWrapper\n"
    assert "no-such-verb" in done.stderr
