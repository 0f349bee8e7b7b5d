import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.tmpfs import (
    JobFiles,
    machine_shared_memory,
    parse_segments,
    parse_written,
)
from weigh.units import KIB, MIB

SEGMENTS = (
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid"
    "  cuid  cgid      atime      dtime      ctime                   rss       swap\n"
    "         0         36   600   167772160   814   814      {0}   500   500"
    "   500   500       1000       1000       1000             90000          0\n"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")


@pytest.mark.parametrize(
    ("meminfo", "size"),
    [
        (b"MemTotal: 9 kB\nShmem:     1500 kB\nKReclaimable", 1500 * KIB),
        (b"ShmemHugePages: 7 kB\n", None),
        (b"\nShmem: many\n", None),
        (None, None),
    ],
)
def test_shared_memory_of_the_machine_is_read(
    tmp_path: Path, meminfo: bytes | None, size: int | None
) -> None:
    if meminfo is not None:
        (tmp_path / "meminfo").write_bytes(meminfo)
    assert machine_shared_memory(str(tmp_path)) == size


@pytest.mark.parametrize(
    ("attached", "user", "since", "pid", "found"),
    [
        (0, 500, 999, 814, 90000),
        (1, 500, 999, 814, 0),
        (0, 501, 999, 814, 0),
        (0, 500, 1001, 814, 0),
        (0, 500, 999, 815, 0),
    ],
)
def test_a_segment_left_by_the_job_counts(
    attached: int, user: int, since: float, pid: int, found: int
) -> None:
    text = SEGMENTS.format(attached).encode()
    assert parse_segments(text, user, since, {pid}) == found


@given(st.binary() | st.text("uid natch rsctime 0123\n").map(str.encode))
def test_no_list_of_segments_stops_the_parser(text: bytes) -> None:
    assert parse_segments(text, 0, 0, {0}) >= 0


@pytest.fixture
def shm() -> Iterator[str]:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    folder = tempfile.mkdtemp(dir="/dev/shm")
    yield folder
    shutil.rmtree(folder)


@linux
def test_files_on_tmpfs_and_memfds_are_found_mapped_or_not(shm: str) -> None:
    files = JobFiles(0, [shm])
    before = files.search(["/proc/self"])
    memory = os.memfd_create("weigh-test")
    try:
        os.write(memory, bytes(3 * MIB))
        with open(f"{shm}/file", "wb") as file:
            file.write(bytes(5 * MIB))
            during = files.search(["/proc/self"])
        after = files.search(["/proc/self"])
        later = JobFiles(1e12, [shm]).search(["/proc/self"])
    finally:
        os.close(memory)
    assert during.own - before.own == after.own - before.own == 8 * MIB
    assert later.own == 0


_WRITER = """
import os, sys
with open(sys.argv[1], "wb") as file:
    file.write(bytes(5 << 20))
print(flush=True)
sys.stdin.read()
"""


@linux
@pytest.mark.parametrize(("is_in_the_job", "closed"), [(True, 5 * MIB), (False, 0)])
def test_a_closed_file_is_the_jobs_only_if_the_job_wrote_as_much(
    shm: str, *, is_in_the_job: bool, closed: int
) -> None:
    argv = [sys.executable, "-c", _WRITER]
    with (
        subprocess.Popen(
            [*argv, f"{shm}/file"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writer,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        assert writer.stdout is not None
        writer.stdout.readline()
        pid = writer.pid if is_in_the_job else other.pid
        found = JobFiles(0, [shm]).search([f"/proc/{pid}"])
        other.kill()
        writer.communicate()
    assert (found.own, found.closed) == (0, closed)


@pytest.mark.parametrize("text", [b"", b"wchar: 5", b"wchar: x\nwrite_bytes: 3"])
def test_an_account_of_writes_of_another_form_is_nothing(text: bytes) -> None:
    assert parse_written(text) == 0
