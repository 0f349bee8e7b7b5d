"""``weigh run --attach``: a process that was running already."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import Weigh, is_running, is_stopped, until

from weigh.measure import command

MIB = 1 << 20
HOLDS_AND_ENDS = (
    "import sys; held = bytearray(64 << 20); print('ready', flush=True); "
    "sys.stdin.readline()"
)


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Give a process that holds 64 MiB until it reads a line."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_AND_ENDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def watch(weigh: Weigh, holder: subprocess.Popen[str]) -> subprocess.Popen[bytes]:
    """Start watching it; return once a checkpoint shows that."""
    watching = weigh.start("run", "-q", "--attach", str(holder.pid))
    until(lambda: list(weigh.store.glob("running/*.json")))
    return watching


def test_a_running_process_is_measured_to_its_end(
    weigh: Weigh, holder: subprocess.Popen[str]
) -> None:
    watching = watch(weigh, holder)
    assert holder.stdin is not None
    holder.stdin.close()  # it ends, and stays a zombie: its parent does not look
    assert watching.wait(20) == 0
    record = weigh.record()
    assert 64 * MIB < record["usage"]["peak_memory"]["value"] < 100 * MIB
    assert record["command"][:2] == [sys.executable, "-c"]
    assert (record["state"], record["exit_code"]) == ("UNKNOWN", None)
    assert record["outcome"]["reason"].endswith("the process ended")


def test_an_end_of_the_watch_leaves_the_process_alone(
    weigh: Weigh, holder: subprocess.Popen[str]
) -> None:
    watching = watch(weigh, holder)
    os.kill(watching.pid, signal.SIGINT)
    assert watching.wait(20) == 0
    assert holder.poll() is None
    assert "goes on" in weigh.record()["outcome"]["reason"]


def test_ctrl_z_stops_the_watch_until_it_is_continued(
    weigh: Weigh, holder: subprocess.Popen[str]
) -> None:
    watching = watch(weigh, holder)
    os.kill(watching.pid, signal.SIGTSTP)
    until(lambda: is_stopped(watching.pid))
    os.kill(watching.pid, signal.SIGCONT)
    holder.communicate("end\n")
    assert watching.wait(20) == 0


def test_a_process_that_has_ended_unnoticed_is_refused(weigh: Weigh) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.read()
        until(lambda: not is_running(ended.pid))
        done = weigh.run("--attach", str(ended.pid))
    assert done.returncode == 125
    assert "no running process" in done.stderr.decode()


def test_the_gpus_are_those_that_the_process_sees_whoever_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")  # AMD's, for weigh itself
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    found = command._environment_for_gpus({"HIP_VISIBLE_DEVICES": "1"})
    assert found == {"HIP_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/driver"}
    assert command._environment_for_gpus({"": ""}) is os.environ  # not readable
