import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HASTY_WEIGH, PATIENCE, Weigh, is_running, pending_signals, until

# A daemon as the book has it: forked twice, a session of its own, deaf to TERM. It
# keeps what its standard output was, so that a test can wait for its end.
DAEMON = r"""
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for name in sys.argv[2:]:
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
        with open(sys.argv[1] + ".tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".tmp", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
"""


def _daemon(folder: Path, *deaf_to: str) -> tuple[list[str], Path]:
    """Give the words that leave a daemon behind, and the file with its id."""
    noted = folder / "daemon"
    return [sys.executable, "-c", DAEMON, str(noted), *deaf_to], noted


def _started(noted: Path) -> int:
    until(noted.exists, "the daemon")
    return int(noted.read_text())


def _left_by(weigh: Weigh, *words: str) -> tuple["subprocess.Popen[bytes]", str]:
    """Run a command to its end; return weigh, which waits now, and what it says."""
    process = weigh.start("run", "--", *words, stderr=subprocess.PIPE)
    assert process.stderr is not None
    return process, process.stderr.readline().decode()


def test_weigh_waits_for_what_the_command_leaves_behind(
    weigh: Weigh, tmp_path: Path
) -> None:
    words, noted = _daemon(tmp_path)
    process, line = _left_by(weigh, *words)
    pid = _started(noted)
    assert f"left process {pid} behind" in line
    assert process.poll() is None
    os.kill(pid, signal.SIGKILL)
    assert process.wait(PATIENCE) == 0
    assert weigh.record()["state"] == "COMPLETED"


def test_no_wait_orphans_stops_them_also_one_that_is_stopped(
    weigh: Weigh, tmp_path: Path
) -> None:
    words, noted = _daemon(tmp_path)
    stops = "sh -c 'echo $$ > stopped; kill -STOP $$' &"
    script = f'{stops} "$@"; until [ -s stopped ]; do sleep 0.1; done'
    done = weigh.run("--no-wait-orphans", "--", "sh", "-c", script, "sh", *words)
    assert done.returncode == 0
    for pid in (_started(noted), int((tmp_path / "stopped").read_text())):
        assert not is_running(pid)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_during_the_wait_ends_the_orphans_and_keeps_the_exit_code(
    weigh: Weigh, tmp_path: Path, name: str
) -> None:
    words, noted = _daemon(tmp_path)
    process, _ = _left_by(weigh, "sh", "-c", '"$@"; exit 7', "sh", *words)
    process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.wait(PATIENCE) == 7
    assert not is_running(_started(noted))
    assert weigh.record()["state"] == "FAILED"


def test_a_second_signal_kills_what_ignores_the_first(
    weigh: Weigh, tmp_path: Path
) -> None:
    words, noted = _daemon(tmp_path, "TERM", "INT", "HUP")
    process, _ = _left_by(weigh, *words)
    process.terminate()
    until(lambda: pending_signals(process.pid) == 0)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not is_running(_started(noted))


ENDLESS = 'trap "" TERM; while :; do sleep 60; done'
# what a job is that a signal stops, "$@" leaving a daemon that ignores some; the signal
# that weigh gets, if any, and the exit code
STOPPED: dict[str, tuple[str, tuple[str, ...], str, int]] = {
    "a job with a daemon deaf to TERM": (
        '"$@"; echo ready; exec sleep 60', ("TERM", "INT", "HUP"), "TERM", 143,
    ),
    "a job with a daemon deaf to INT": (
        '"$@"; echo ready; exec sleep 60', ("TERM", "INT", "HUP"), "INT", 130,
    ),
    "a job that ends well": (
        'trap "exit 5" TERM; "$@"; echo ready; while :; do sleep 0.1; done',
        ("TERM",), "TERM", 5,
    ),
    "children that keep coming": (
        f"sh -c '{ENDLESS}' & sh -c '{ENDLESS}' & echo ready; kill -TERM $$",
        (), "", 143,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STOPPED)
def test_nothing_is_left_of(weigh: Weigh, tmp_path: Path, what: str) -> None:
    script, deaf_to, name, code = STOPPED[what]
    daemon, _ = _daemon(tmp_path, *deaf_to)
    weigh.program = HASTY_WEIGH
    words = ("-q", "--", "sh", "-c", script, "sh", *daemon)
    process, _ = weigh.start_ready(*words)  # it is ready
    if name:
        process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.wait(PATIENCE) == code
    assert not weigh.left()


def test_a_crash_of_the_command_does_not_stop_its_workers(
    weigh: Weigh, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    script = f"ulimit -c 0; (sleep 0.2; touch {done}) & kill -SEGV $$"
    assert weigh.run("--", "sh", "-c", script).returncode == 128 + signal.SIGSEGV
    assert done.exists()
