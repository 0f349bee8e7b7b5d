import os
import sys
from pathlib import Path

import pytest
from doctored import DoctoredProc, stat_text, status_text
from live import jobs
from looks import reading

from weigh.measure.watcher import UnreapedIo
from weigh.probe.proc import IoReading, ProcTree, parse_ignored

IGNORES = status_text() + b"SigIgn:\t0000000000010000\n"
IO = "read_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"
WRITES = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def write():
    with open({path!r}, "wb", buffering=0) as file:
        for _ in range(20): file.write(bytes(1_000_000))
fork(write)
wait()
"""


@pytest.mark.parametrize(
    ("text", "mask"),
    [(IGNORES, 1 << 16), (status_text(), 0), (b"\nSigIgn:", 0), (b"\nSigIgn:\tx", 0)],
)
def test_ignored_signals_are_read(text: bytes, mask: int) -> None:
    assert parse_ignored(text) == mask


@pytest.mark.parametrize(("status", "counted"), [(IGNORES, 700), (status_text(), 0)])
def test_only_children_that_nobody_waits_for_are_counted(
    tmp_path: Path, status: bytes, counted: int
) -> None:
    proc = DoctoredProc(tmp_path)
    proc.process(11, [12], status=status)
    proc.process(12, stat=stat_text(parent=11))
    io = UnreapedIo(ProcTree(10, str(tmp_path)))
    both = [reading(11, 1), reading(12, 1)]
    for written in (100, 700):
        proc.write("12/io", IO.format(0, written).encode())
        io.look(both)
    io.look(both[:1])
    assert io.total() == IoReading(0, counted)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")
def test_a_live_child_that_is_reaped_by_the_kernel_is_counted(tmp_path: Path) -> None:
    with jobs(WRITES.format(path=str(tmp_path / "written")), ready=1):
        tree = ProcTree(os.getpid())
        io = UnreapedIo(tree)
        io.look(tree.read())
        tree.close()
    if io.total().write_bytes == 0:
        pytest.skip("the temporary folder is in memory: nothing reaches storage")
    assert io.total().write_bytes == pytest.approx(20_000_000, rel=0.01)
