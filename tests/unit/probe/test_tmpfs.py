import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from doctored import DoctoredProc
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.tmpfs import (
    Shmem,
    find_files,
    parse_segments,
    parse_shmem,
    parse_tmpfs_mounts,
)
from weigh.units import KIB, MIB

SEGMENTS = (
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid"
    "  cuid  cgid      atime      dtime      ctime                   rss       swap\n"
    "         0         36   600   167772160   814   814      {0}   500   500"
    "   500   500       1000       1000       1000             90000          0\n"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")


def test_shared_memory_of_the_machine_is_read() -> None:
    assert (
        parse_shmem(b"MemTotal: 9 kB\nShmem:     1500 kB\nKReclaimable") == 1500 * KIB
    )
    assert parse_shmem(b"ShmemHugePages: 7 kB\n") is None
    assert parse_shmem(b"\nShmem: many\n") is None


def test_the_rise_is_since_the_start_and_never_negative(tmp_path: Path) -> None:
    proc = DoctoredProc(tmp_path)
    proc.write("meminfo", b"\nShmem: 100 kB\n")
    shmem = Shmem(str(tmp_path))
    for now, rise in ((150, 50), (20, 0)):
        proc.write("meminfo", f"\nShmem: {now} kB\n".encode())
        assert shmem.rise() == rise * KIB
    proc.remove("meminfo")
    assert shmem.rise() is None


def test_tmpfs_mounts_are_found_with_their_odd_names() -> None:
    text = (
        b"25 27 0:23 / /dev/shm rw - tmpfs tmpfs rw\n"
        b"30 27 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"31 27 0:30 / /a\\040b rw - tmpfs none rw\n"
    )
    assert parse_tmpfs_mounts(text) == ["/dev/shm", "/a b"]


@pytest.mark.parametrize(
    ("attached", "user", "since", "found"),
    [(0, 500, 999, 90000), (1, 500, 999, 0), (0, 501, 999, 0), (0, 500, 1001, 0)],
)
def test_a_segment_left_by_the_job_counts(
    attached: int, user: int, since: float, found: int
) -> None:
    text = SEGMENTS.format(attached).encode()
    assert parse_segments(text, user, since) == found


@given(st.binary() | st.text("uid natch rsctime 0123\n").map(str.encode))
def test_no_list_of_segments_stops_the_parser(text: bytes) -> None:
    assert parse_segments(text, 0, 0) >= 0


@linux
def test_files_on_tmpfs_and_memfds_are_found_mapped_or_not() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    folder = tempfile.mkdtemp(dir="/dev/shm")
    before = find_files(["/proc/self"], 0, [folder])
    memory = os.memfd_create("weigh-test")
    try:
        os.write(memory, bytes(3 * MIB))
        with open(f"{folder}/file", "wb") as file:
            file.write(bytes(5 * MIB))
        after = find_files(["/proc/self"], 0, [folder])
        later = find_files(["/proc/self"], 1e12, [folder])
    finally:
        os.close(memory)
        shutil.rmtree(folder)
    assert after.own - before.own == 8 * MIB
    assert later.own == 0
