import ctypes
import mmap
import os
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from doctored import DoctoredProc
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.pages import (
    ALONE,
    SHARED,
    AnonymousShares,
    ProcessPages,
    merged_stretches,
    parse_maps,
    parse_mountinfo,
    parse_shares,
    spread,
    tmpfs_devices,
)
from weigh.units import MIB

PAGE = mmap.PAGESIZE
OF_FILE = 0xA1 << 56  # present, of a file or shared memory
OWN, TOGETHER = 0x81 << 56, 0x80 << 56  # present, anonymous
MOUNTS = (
    b"22 27 0:20 / /sys rw shared:6 - sysfs sysfs rw\n"
    b"25 27 0:23 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,inode64\n"
    b"30 27 8:1 / / rw - ext4 /dev/sda1 rw\n"
    b"31 27 4095:300 / /a\\040-\\040b rw - tmpfs none rw\n"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")


ROLLUP = (
    b"5000-7000 ---p 00000000 00:00 0    [rollup]\n"
    b"Rss:       900 kB\nPss:   500 kB\nPss_Anon:   120 kB\nPss_File:  9 kB\n"
    b"Private_Dirty:   40 kB\nAnonymous:  200 kB\nAnonHugePages: 0 kB\n"
)


def test_the_shares_of_a_process_are_those_of_its_anonymous_memory() -> None:
    assert parse_shares(ROLLUP) == AnonymousShares(200 << 10, 120 << 10, 40 << 10)
    older = ROLLUP.replace(b"Pss_Anon", b"Pss_Any")
    assert [parse_shares(text) for text in (older, ROLLUP[:60], b"")] == [None] * 3


# maps and mountinfo


@pytest.mark.parametrize(
    ("rights", "name", "may_hold_anonymous_pages", "is_shared_memory"),
    [
        ("rw-p", "00:00 0 ", True, None),
        ("rw-p", "00:00 0      [stack]", True, None),
        ("r--p", "00:00 0 ", True, None),  # written, then protected
        ("---p", "00:00 0 ", False, None),  # reserved address space
        ("rw-p", "08:01 7 /data", True, False),  # a private copy of a file's page
        ("r-xp", "08:01 77       /usr/lib/a b.so", False, False),
        ("rw-s", "08:01 7 /data", False, False),
        # by its name
        ("r--p", "00:17 9     /dev/shm/x", False, True),
        ("r--p", "00:01 9     /memfd:torch (deleted)", False, True),
        ("r--p", "00:01 9     /SYSV00000000 (deleted)", False, True),
        ("r--p", "00:01 9     /dev/zero (deleted)", False, True),
        ("r--p", "00:23 9     /scratch/on tmpfs", False, True),  # and by its mount
    ],
)
def test_a_mapping_is_private_memory_or_a_file_or_both(
    rights: str,
    name: str,
    *,
    may_hold_anonymous_pages: bool,
    is_shared_memory: bool | None,
) -> None:
    ends = f"{5 * PAGE:x}-{7 * PAGE:x}"
    line = f"{ends} {rights} {3 * PAGE:08x} {name}\n".encode()
    layout = parse_maps([line], frozenset({b"00:23"}))
    assert layout.private == (((5, 7),) if may_hold_anonymous_pages else ())
    file = " ".join(name.split()[:2]).encode()
    mappings = () if is_shared_memory is None else ((5, 2, 3, file, is_shared_memory),)
    assert tuple(map(msgspec.structs.astuple, layout.mappings)) == mappings


@pytest.mark.parametrize(
    "maps", [b"odd\n", b"zz-zz r--p 0 08:01 7 x\n", b"\xff" * 99, b"1-2-3 a 0 b 7\n"]
)
def test_odd_maps_are_refused(maps: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_maps(maps.splitlines())


def test_tmpfs_devices_are_written_as_maps_writes_them() -> None:
    mounts = list(parse_mountinfo(MOUNTS))
    assert tmpfs_devices(mounts) == {b"00:17", b"fff:12c"}
    assert [mount.point for mount in mounts] == ["/sys", "/dev/shm", "/", "/a - b"]


@given(st.binary() | st.text("0123 :-tmpfs\n").map(str.encode))
def test_no_mountinfo_stops_the_parser(text: bytes) -> None:
    assert all(b":" in device for device in tmpfs_devices(parse_mountinfo(text)))


# Stretches of pages

STRETCHES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 60)).map(lambda s: (s[0], sum(s))),
    max_size=8,
)


@given(STRETCHES)
def test_stretches_merge_as_sets_do(stretches: list[tuple[int, int]]) -> None:
    union = merged_stretches(stretches)
    assert {p for s in union for p in range(*s)} == {
        p for s in stretches for p in range(*s)
    }
    assert all(end < start for (_, end), (start, _) in pairwise(union))


@given(STRETCHES, st.integers(1, 40), st.integers(1, 4), st.integers(0, 39))
def test_points_are_spread_evenly_over_stretches_laid_end_to_end(
    stretches: list[tuple[int, int]], step: int, run: int, skip: int
) -> None:
    union = merged_stretches(stretches)
    row = [page for stretch in union for page in range(*stretch)]
    points = list(spread(union, step, skip, run))
    assert [page for page, _ in points] == row[skip::step]
    assert all(1 <= length <= run for _, length in points)
    assert all(page + length - 1 in row for page, length in points)


# Pages


def test_pages_are_distinguished(tmp_path: Path) -> None:
    proc = DoctoredProc(tmp_path)
    proc.write("5/maps", b"")
    flags = (OWN, TOGETHER, OF_FILE, 0)  # the last one is absent
    proc.write("5/pagemap", b"".join(flag.to_bytes(8, "little") for flag in flags))
    pages = ProcessPages(f"{tmp_path}/5")
    assert pages.anonymous(0, 4) == ALONE | SHARED << 8
    assert pages.mapped(0, 4) == SHARED << 16
    assert pages.anonymous(3, 1) == 0
    assert pages.anonymous(100, 4) is None  # as of a process that has ended
    pages.close()


@linux
def test_a_page_that_a_fork_shares_is_not_alone_until_one_writes_to_it() -> None:
    memory = mmap.mmap(-1, 2 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[::PAGE] = bytes(2 * MIB // PAGE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory)) // PAGE
    waiting, cue = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(cue)
        os.read(waiting, 1)
        os._exit(0)
    pages = ProcessPages("/proc/self")
    shared = pages.anonymous(first, 2)
    memory[0] = 1
    written = pages.anonymous(first, 2)
    pages.close()
    for end in (cue, waiting):
        os.close(end)
    os.waitpid(child, 0)
    assert shared == SHARED | SHARED << 8
    assert written == ALONE | SHARED << 8
