import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from doctored import KIB, DoctoredProc
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe import sharing
from weigh.probe.sharing import (
    AnonymousPages,
    FilePages,
    Mapping,
    parse_maps,
    parse_rollup,
    parse_tmpfs_devices,
    read_anonymous,
)
from weigh.units import MIB

PAGE = mmap.PAGESIZE
MAPPED = 0xA1 << 56  # present, of a file or shared
COPIED = 0x81 << 56  # present, a private copy
ABSENT = 0
MOUNTS = (
    b"22 27 0:20 / /sys rw shared:6 - sysfs sysfs rw\n"
    b"25 27 0:23 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,inode64\n"
    b"30 27 8:1 / / rw - ext4 /dev/sda1 rw\n"
    b"31 27 4095:300 / /a\\040-\\040b rw - tmpfs none rw\n"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")


@pytest.fixture
def proc(tmp_path: Path) -> DoctoredProc:
    proc = DoctoredProc(tmp_path)
    proc.write("self/mountinfo", MOUNTS)
    return proc


def maps_line(first_page: int, pages: int, offset: int, name: str) -> bytes:
    start = first_page * PAGE
    ends = f"{start:x}-{start + pages * PAGE:x}"
    return f"{ends} r--p {offset * PAGE:08x} {name}\n".encode()


def entries(*flags: int) -> bytes:
    return b"".join(flag.to_bytes(8, "little") for flag in flags)


# smaps_rollup


def test_shared_anonymous_memory_counts_by_share() -> None:
    text = b"Rss: 900 kB\nPss: 500 kB\nPss_Anon: 100 kB\nAnonymous: 400 kB\n"
    assert parse_rollup(text) == AnonymousPages(400 * KIB, 100 * KIB)


def test_before_linux_5_4_the_whole_pss_bounds_the_share() -> None:
    assert parse_rollup(b"Pss: 300 kB\nAnonymous: 400 kB\n") == AnonymousPages(
        400 * KIB, 300 * KIB
    )
    assert parse_rollup(b"Pss: 500 kB\nAnonymous: 400 kB\n") == AnonymousPages(
        400 * KIB, 400 * KIB
    )


@given(st.binary() | st.text("Pss_Anonymous: \n0123456789kB").map(str.encode))
def test_no_rollup_stops_the_parser(text: bytes) -> None:
    pages = parse_rollup(text)
    assert pages is None or 0 <= pages.share <= pages.size


@linux
def test_memory_shared_by_a_fork_is_split_between_the_two() -> None:
    memory = mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[::PAGE] = bytes(32 * MIB // PAGE)
    before = read_anonymous(os.getpid())
    waiting, cue = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(cue)
        os.read(waiting, 1)
        os._exit(0)
    shared = read_anonymous(os.getpid())
    for end in (cue, waiting):
        os.close(end)
    os.waitpid(child, 0)
    assert before is not None
    assert shared is not None
    assert before.share - shared.share > 15 * MIB
    assert shared.size == pytest.approx(before.size, abs=MIB)


def test_a_process_that_is_gone_tells_nothing(proc: DoctoredProc) -> None:
    assert read_anonymous(5, str(proc.root)) is None
    assert FilePages(str(proc.root)).add(5) is None


# maps and mountinfo


def test_mappings_of_files_are_found_and_anonymous_ones_left_out() -> None:
    text = (
        maps_line(16, 2, 3, "08:01 77       /usr/lib/a b.so")
        + maps_line(32, 1, 0, "00:00 0 ")
        + maps_line(33, 1, 0, "00:00 0      [stack]")
    )
    assert list(parse_maps(text.splitlines())) == [
        Mapping(16, 2, 3, b"08:01 77", is_shared_memory=False)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "00:17 9     /dev/shm/x",
        "00:01 9     /memfd:torch (deleted)",
        "00:01 9     /SYSV00000000 (deleted)",
        "00:01 9     /dev/zero (deleted)",
        "00:23 9     /scratch/on tmpfs",
    ],
)
def test_shared_memory_is_told_by_its_name_or_its_mount(name: str) -> None:
    (mapping,) = parse_maps([maps_line(1, 1, 0, name)], frozenset({b"00:23"}))
    assert mapping.is_shared_memory


def test_tmpfs_devices_are_written_as_maps_writes_them() -> None:
    assert parse_tmpfs_devices(MOUNTS) == {b"00:17", b"fff:12c"}


@given(st.binary() | st.text("0123 :-tmpfs\n").map(str.encode))
def test_no_mountinfo_stops_the_parser(text: bytes) -> None:
    assert all(b":" in device for device in parse_tmpfs_devices(text))


# Pages


def test_a_page_mapped_twice_counts_once(proc: DoctoredProc) -> None:
    name = "08:01 77 /lib/x.so"
    proc.write("5/maps", maps_line(2, 3, 0, name))
    proc.write("5/pagemap", entries(0, 0, MAPPED, MAPPED, ABSENT))
    proc.write("6/maps", maps_line(0, 2, 1, name))  # the same file, a page further on
    proc.write("6/pagemap", entries(MAPPED, MAPPED))
    pages = FilePages(str(proc.root))

    assert pages.add(5) == pages.add(6) == (2 * PAGE, 0)
    assert pages.sizes() == (3 * PAGE, 0)


def test_copied_and_absent_pages_are_not_the_files(proc: DoctoredProc) -> None:
    proc.write("5/maps", maps_line(0, 3, 0, "08:01 77 /lib/x.so"))
    proc.write("5/pagemap", entries(COPIED, ABSENT, MAPPED))
    pages = FilePages(str(proc.root))
    assert pages.add(5) == (PAGE, 0)


def test_pages_of_tmpfs_are_shared_memory(proc: DoctoredProc) -> None:
    proc.write("5/maps", maps_line(0, 1, 0, "00:17 9 /dev/shm/x"))
    proc.write("5/pagemap", entries(MAPPED))
    pages = FilePages(str(proc.root))
    assert pages.add(5) == pages.sizes() == (0, PAGE)


@given(
    st.lists(
        st.tuples(st.integers(0, 20000), st.integers(1, 9000), st.integers(0, 3)),
        max_size=4,
    )
)
def test_pages_add_up_as_sets_do(stretches: list[tuple[int, int, int]]) -> None:
    """Offsets reach over the blocks that pages are kept in."""
    expected: set[tuple[int, int]] = set()
    pages = FilePages("/nowhere")
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    with open(os.devnull, "rb") as pagemap:
        for offset, length, file in stretches:
            mapping = Mapping(0, length, offset, b"%d" % file, is_shared_memory=False)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "pread", _every_third_mapped)
                pages._add_mapping(mapping, pagemap.fileno())
            expected |= {
                (file, offset + page) for page in range(length) if page % 3 == 0
            }
    assert pages.sizes() == (len(expected) * PAGE, 0)


def _every_third_mapped(_fd: int, size: int, start: int) -> bytes:
    first = start // 8
    flags = (MAPPED if page % 3 == 0 else 0 for page in range(first, first + size // 8))
    return entries(*flags)


@pytest.mark.parametrize(
    "maps", [b"odd\n", b"zz-zz r--p 0 08:01 7 x\n", b"\xff" * 99, b"1-2-3 a 0 b 7\n"]
)
def test_odd_maps_refuse_one_process_and_stop_nobody(
    proc: DoctoredProc, maps: bytes
) -> None:
    proc.write("5/maps", maps)
    proc.write("5/pagemap", b"")
    assert FilePages(str(proc.root)).add(5) is None


def test_mapping_a_tebibyte_is_refused_before_it_is_read(
    proc: DoctoredProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.write("5/maps", maps_line(0, (1 << 40) // PAGE, 0, "08:01 7 /data.mdb"))
    proc.write("5/pagemap", b"")
    reads: list[int] = []
    monkeypatch.setattr(os, "pread", _counting(os.pread, reads))

    assert FilePages(str(proc.root)).add(5) is None
    assert reads == []


def _counting(
    pread: Callable[[int, int, int], bytes], reads: list[int]
) -> Callable[[int, int, int], bytes]:
    def count(fd: int, size: int, start: int) -> bytes:
        reads.append(size)
        return pread(fd, size, start)

    return count


def test_no_mountinfo_leaves_names_to_tell_shared_memory(tmp_path: Path) -> None:
    proc = DoctoredProc(tmp_path)
    proc.write("5/maps", maps_line(0, 1, 0, "00:17 9 /dev/shm/x"))
    proc.write("5/pagemap", entries(MAPPED))
    assert FilePages(str(tmp_path)).add(5) == (0, PAGE)


@linux
def test_file_pages_agree_with_the_kernels_own_count() -> None:
    """RssFile and RssShmem of a live process, read another way."""
    shared = mmap.mmap(-1, 8 * MIB)
    shared[::PAGE] = bytes(8 * MIB // PAGE)
    pages = sharing.FilePages()
    assert pages.add(os.getpid()) is not None
    file, shm = pages.sizes()
    with open("/proc/self/status", encoding="ascii") as status:
        said = dict(line.split(":", 1) for line in status)
    assert shm == pytest.approx(int(said["RssShmem"].split()[0]) * KIB, abs=MIB)
    assert file == pytest.approx(int(said["RssFile"].split()[0]) * KIB, rel=0.1)
