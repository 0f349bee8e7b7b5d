import os
import subprocess
import sys

import psutil
import pytest

from weigh.probe.processes import parse_process, read_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

STAT = (
    b"4711 (tmux: (a) b) S 1 4711 4711 0 -1 4194304 900 800 0 0 "
    b"150 50 30 20 20 0 1 0 8765 10000000 2048 18446744073709551615 "
    b"1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def test_a_name_may_hold_spaces_and_parentheses() -> None:
    process = parse_process(4711, STAT)
    assert process is not None
    assert process.name == "tmux: (a) b"
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert process.cpu_time == pytest.approx(200 * tick)
    assert process.reaped_time == pytest.approx(50 * tick)
    assert process.start_ticks == 8765
    assert process.resident == 2048 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("text", [b"", b"4711 (x) S 1", STAT.replace(b"2048", b"?")])
def test_what_is_no_stat_is_none(text: bytes) -> None:
    assert parse_process(4711, text) is None


def test_a_process_reads_as_psutil_reads_it() -> None:
    argv = [sys.executable, "-c", "print(bytearray(50 << 20)[0]); input()", "a b"]
    with subprocess.Popen(argv, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        mine, theirs = read_process(process.pid), psutil.Process(process.pid)
        assert mine is not None
        assert mine.name == theirs.name()
        assert mine.resident == pytest.approx(theirs.memory_info().rss, rel=0.05)
        process.kill()
