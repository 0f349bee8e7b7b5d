import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.proc import IoReading, parse_io, read_reaped_io

IO = (
    "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\n"
    "read_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: {}\n"
)
WRITER = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    for _ in range(20):
        file.write(bytes(1_000_000))
"""


def test_what_live_threads_did_is_not_the_jobs(tmp_path: Path) -> None:
    for folder, figures in (
        ("self", (1000, 2700, 700)),  # deleted before it was written: no traffic
        ("self/task/1", (100, 200, 0)),
        ("self/task/2", (10, 20, 0)),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "io").write_text(IO.format(*figures))
    assert read_reaped_io(str(tmp_path)) == IoReading(890, 1780)


@pytest.mark.parametrize(
    "text", [None, "", "read_bytes: 5\n", "odd", "a:b:c", "read_bytes:"]
)
def test_a_kernel_without_the_account_reports_nothing(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "self/task").mkdir(parents=True)
    if text is not None:
        (tmp_path / "self/io").write_text(text)
    assert read_reaped_io(str(tmp_path)) is None


@given(st.binary())
def test_odd_text_is_refused_the_same_way(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_io(text)


def is_on_a_disk(folder: Path) -> bool:
    """Tell whether the kernel counts writes to *folder* as storage traffic."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        return not any(
            line.split()[2] == number and " - tmpfs " in line for line in mounts
        )


@pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")
def test_a_reaped_childs_writes_are_counted(tmp_path: Path) -> None:
    before = read_reaped_io()
    if before is None or not is_on_a_disk(tmp_path):
        pytest.skip("no account of I/O, or a temporary folder in memory")
    path = tmp_path / "written"
    subprocess.run([sys.executable, "-S", "-c", WRITER, path], check=True)
    after = read_reaped_io()
    assert after is not None
    assert after.since(before).write_bytes == pytest.approx(20_000_000, rel=0.01)
