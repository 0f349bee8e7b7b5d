import os
import sys
from pathlib import Path

import pytest
from live import jobs

from weigh.measure.memory.gauge import ForkFilter
from weigh.probe.pages import share_memory_map
from weigh.probe.proc import ProcTree
from weigh.units import MIB

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="vfork and /proc as Linux has them"
)
# the child opens its input before it execs, and a FIFO opens when somebody writes
VFORK = """
private(64)
ready()
cat, first = "/bin/cat", (os.POSIX_SPAWN_OPEN, 0, {fifo!r}, os.O_RDONLY, 0)
os.waitpid(os.posix_spawn(cat, [cat], {{}}, file_actions=[first]), 0)
"""
FORK_THAT_LETS_GO = """
memory = private(64)
fork(memory.close)
wait()
"""
EXEC = """
private(64)
import subprocess
with subprocess.Popen(["/bin/cat"]) as child: ready(); wait()
"""


def test_a_vfork_child_is_its_parent_until_it_execs(tmp_path: Path) -> None:
    if not share_memory_map(os.getpid(), os.getpid()):
        pytest.skip("the kernel compares no maps")
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    with jobs(VFORK.format(fifo=fifo), ready=1) as (job,):
        tree = ProcTree(os.getpid())
        arrivals = ForkFilter(tree)
        readings = tree.read()
        while len(readings) < 2:
            readings = tree.read()

        kept, inherited = arrivals.sift(readings)
        assert [reading.pid for reading in kept] == [job.pid]
        assert inherited == {}

        with open(fifo, "wb"):
            while len(kept) < 2:
                kept, inherited = arrivals.sift(tree.read())
            assert inherited == {}
            child = next(reading for reading in kept if reading.pid != job.pid)
            assert child.peak < 64 * MIB
        tree.close()


def test_a_fork_is_reported_with_what_it_began_with() -> None:
    with jobs(FORK_THAT_LETS_GO, ready=1) as (job,):
        tree = ProcTree(os.getpid())
        arrivals = ForkFilter(tree)
        kept, inherited = arrivals.sift(tree.read())
        again, told_again = arrivals.sift(tree.read())
        tree.close()
    parent, child = sorted(kept, key=lambda reading: reading.pid != job.pid)
    assert child.resident < 64 * MIB < child.peak
    assert inherited == {child.pid: parent.resident}
    assert len(again) == 2
    assert told_again == {}


def test_a_program_began_with_nothing() -> None:
    with jobs(EXEC, ready=1):
        tree = ProcTree(os.getpid())
        kept, inherited = ForkFilter(tree).sift(tree.read())
        tree.close()
    assert len(kept) == 2
    assert inherited == {}
