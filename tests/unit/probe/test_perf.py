import os
import subprocess
import sys

import pytest

from weigh.probe import pages, perf
from weigh.probe.pages import share_memory_map
from weigh.probe.perf import CpuClock, open_cpu_clock

BURN = "import time\nwhile time.process_time() < 0.3: pass"
UNWAITED = f"""
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork():
    try: os.wait()
    except ChildProcessError: os._exit(0)
{BURN}
"""


@pytest.mark.parametrize("code", [BURN, UNWAITED], ids=["own", "never waited for"])
def test_cpu_time_is_counted_of_all_that_is_started(code: str) -> None:
    waiting, cue = os.pipe()
    pid = os.fork()
    if pid == 0:  # runs nothing until the clock is there
        os.close(cue)
        os.read(waiting, 1)
        os.execv(sys.executable, [sys.executable, "-S", "-c", code])
    clock = open_cpu_clock(pid)
    for end in (cue, waiting):
        os.close(end)
    os.waitpid(pid, 0)
    if clock is None:
        pytest.skip("the kernel lets this user open no perf event")
    seconds = clock.read()
    clock.close()
    assert seconds is not None
    # a little went by before the clock was there, and Python had to start
    assert 0.25 <= seconds < 0.6


def test_a_refusal_is_no_clock_and_no_error() -> None:
    no_such_process = 2**22 + 1  # beyond the most that pid_max can be
    assert open_cpu_clock(no_such_process) is None


def test_an_unknown_machine_has_no_clock_and_compares_no_maps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (perf, pages):
        monkeypatch.setattr(module, "_SYSCALL_NUMBERS", {})
    assert open_cpu_clock(os.getpid()) is None
    assert not share_memory_map(os.getpid(), os.getpid())


def test_a_clock_that_cannot_be_read_reports_nothing() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"odd")
    os.close(writing)
    clock = CpuClock(reading)
    assert clock.read() is None
    clock.close()


def test_a_process_shares_its_map_with_itself_and_with_no_child() -> None:
    if not share_memory_map(os.getpid(), os.getpid()):
        pytest.skip("the kernel compares no maps")
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        assert not share_memory_map(os.getpid(), child.pid)
        child.kill()
