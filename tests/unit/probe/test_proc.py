import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from disks import is_on_a_disk
from doctored import KIB, ZOMBIE, DoctoredProc, stat_text, status_text
from hypothesis import example, given
from hypothesis import strategies as st
from run_captured import run_captured

from weigh.probe.proc import (
    IoReading,
    ProcTree,
    parse_children,
    parse_io,
    parse_stat,
    parse_status,
    read_reaped_io,
)

TOP = 10
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")
NAMES = st.text(alphabet="ab() \\:VmPeak", max_size=15)


@pytest.fixture
def proc(tmp_path: Path) -> DoctoredProc:
    return DoctoredProc(tmp_path)


@pytest.fixture
def tree(proc: DoctoredProc) -> Iterator[ProcTree]:
    tree = ProcTree(TOP, str(proc.root))
    yield tree
    tree.close()


def seen(tree: ProcTree) -> set[int]:
    return {reading.pid for reading in tree.read()}


# Text of one file


def test_status_is_read_in_bytes() -> None:
    text = status_text(resident=30, peak=60, page_tables=64, threads=3)
    reading = parse_status(7, text)
    assert reading is not None
    assert (reading.resident, reading.peak) == (30 * KIB, 60 * KIB)
    assert (reading.virtual, reading.virtual_peak) == (8000 * KIB, 9000 * KIB)
    assert reading.anonymous == reading.file == reading.shared == 10 * KIB
    # page tables and stacks are the job's too
    assert (reading.threads, reading.kernel) == (3, (64 + 3 * 28) * KIB)


@given(NAMES)
@example("VmPeak:")
def test_no_name_hides_a_process(name: str) -> None:
    reading = parse_status(7, status_text(name=name))
    assert reading is not None
    assert reading.resident == 30 * KIB


@given(NAMES)
def test_stat_reads_past_any_name(name: str) -> None:
    times = parse_stat(stat_text(name, parent=42))
    assert times is not None
    assert times.parent == 42
    assert times.cpu_time == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert times.faulted == 321 * resource.getpagesize()


def test_only_processes_with_one_stack_that_is_shown_are_forks() -> None:
    stacks = (1 << 40, 1 << 41, 0)  # 0: the kernel hides it
    one, other, hidden = (parse_stat(stat_text(stack=stack)) for stack in stacks)
    assert one is not None
    assert other is not None
    assert hidden is not None
    assert one.is_fork_of(one)
    assert not one.is_fork_of(other)
    assert not hidden.is_fork_of(hidden)


@given(st.integers(0, len(status_text())))
def test_a_status_cut_short_is_half_a_reading_never_a_wrong_one(length: int) -> None:
    reading = parse_status(7, status_text(resident=30)[:length])
    assert reading is None or reading.virtual_peak == 9000 * KIB


@given(st.lists(st.integers(1, 1 << 22)))
def test_children_are_read_back(pids: list[int]) -> None:
    assert parse_children("".join(f"{pid} " for pid in pids).encode()) == pids


# A doctored tree


def test_the_tree_is_all_below_the_top_but_who_is_excluded(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    proc.family({TOP: [11, 12], 11: [13], 12: [], 13: [], 14: [], 99: []})
    proc.thread(11, 501, [14])  # any thread may start processes
    assert seen(tree) == {11, 12, 13, 14}
    assert (tree.children(), tree.seen) == ([11, 12], 4)
    assert tree.adopt(99)
    assert not tree.adopt(98)
    assert seen(tree) == {11, 12, 13, 14, 99}
    other = ProcTree(TOP, str(proc.root))
    other.excluded = frozenset([12])
    assert seen(other) == {11, 13, 14}
    assert other.children() == [11]
    other.close()


def test_a_list_of_children_longer_than_pages_is_read_whole(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    # more than 64 KiB of process ids, the most that is asked for at a time
    children = list(range(100_000, 112_000))
    proc.process(TOP, children)
    assert tree.children() == children


def test_an_orphan_stays_in_the_tree_whoever_adopts_it(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    proc.family({TOP: [11], 11: [12], 12: []})
    assert seen(tree) == {11, 12}
    proc.process(TOP, [])
    proc.last_pid(2)
    assert 12 in seen(tree)


def test_a_child_shown_late_is_found_though_nothing_was_started_since(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    """Its id is given out before its parent lists it."""
    proc.last_pid(11)
    proc.process(TOP)
    assert seen(tree) == set()
    proc.family({TOP: [11], 11: []})
    assert seen(tree) == {11}


def test_nobody_is_looked_for_while_nothing_is_started_but_not_for_ever(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    proc.family({TOP: [11], 11: []})
    seen(tree)
    for _ in range(3):
        proc.last_pid(11)
        seen(tree)
    proc.family({TOP: [11, 12], 12: []})
    looks = 0
    while seen(tree) == {11}:
        looks += 1
    assert 1 <= looks <= 20
    proc.family({TOP: [11, 12, 13], 13: []})
    assert seen(tree) == {11, 12}
    proc.last_pid(13)
    assert seen(tree) == {11, 12, 13}


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_loadavg_that_never_moves_or_is_missing_ends_no_walk(
    proc: DoctoredProc, tree: ProcTree, *, is_missing: bool
) -> None:
    if is_missing:
        proc.remove("loadavg")
    children: list[int] = []
    for pid in range(11, 40):
        children.append(pid)
        proc.family({TOP: children, pid: []})
        assert seen(tree) == set(children)


def test_a_process_whose_first_thread_has_ended_is_read_through_another(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    of_two = ZOMBIE.replace(b"Threads:\t1", b"Threads:\t2")
    proc.process(TOP, [11])
    proc.process(11, status=of_two, stat=stat_text(stack=0))
    proc.thread(11, 511, [12])
    proc.write("11/task/511/status", status_text(resident=30, threads=2))
    proc.write("11/task/511/stat", stat_text(stack=1 << 40))
    proc.process(12)
    readings = {reading.pid: reading for reading in tree.read()}
    assert readings[11].resident == 30 * KIB
    assert set(readings) == {11, 12}  # its threads go on starting processes
    assert tree.folder(11) == f"{proc.root}/11/task/511"
    times = tree.times(11)
    assert times is not None
    assert (times.stack_start, times.has_ended) == (1 << 40, False)
    assert times.code_start == 94000000000000


def test_a_zombie_is_in_no_reading_and_costs_no_search_for_its_threads(
    proc: DoctoredProc, tree: ProcTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(TOP, [11, 12])
    proc.process(11, status=ZOMBIE)
    # its groups come before its memory
    groups = " ".join(str(10_000_000 + number) for number in range(1000))
    proc.process(12, status=status_text(groups=groups))
    assert seen(tree) == {12}
    searched: list[int] = []
    monkeypatch.setattr(tree, "_follow_thread", searched.append)
    assert seen(tree) == {12}
    assert (searched, tree.zombies) == ([], 1)


@given(
    odd=st.binary(max_size=200)
    | st.text(alphabet="7 ()\n-_.VmPeak:", max_size=200).map(str.encode)
)
def test_one_odd_process_never_hides_the_others(
    odd: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    proc = DoctoredProc(tmp_path_factory.mktemp("proc"))
    tree = ProcTree(TOP, str(proc.root))
    proc.process(TOP, [11, 12])
    proc.process(12)
    proc.process(11, status=odd + b".", stat=odd + b".")
    proc.write("11/task/11/children", odd)
    try:
        assert 12 in seen(tree)
        tree.times(11)
        tree.is_stopped(11)
    finally:
        tree.close()


def test_more_processes_than_descriptors_are_all_seen(proc: DoctoredProc) -> None:
    children = list(range(1000, 1500))
    proc.family({TOP: children, **{pid: [] for pid in children}})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    tree = ProcTree(TOP, str(proc.root))
    try:
        assert seen(tree) == set(children)
    finally:
        tree.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_stopped_process_is_distinguished_from_a_sleeping_one(
    proc: DoctoredProc, tree: ProcTree
) -> None:
    proc.process(11, stat=stat_text("a) T (b", state="S"))
    proc.process(12, stat=stat_text(state="T"))
    assert [tree.is_stopped(pid) for pid in (11, 12, 13)] == [False, True, False]


# The live kernel


@linux
def test_a_live_process_reads_as_psutil_reads_it() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        time.sleep(0.1)  # Popen returns at exec, before the program is loaded
        tree = ProcTree(os.getpid())
        reading = tree.reading(sleeper.pid)
        said = psutil.Process(sleeper.pid)
        assert reading is not None
        assert reading.resident == pytest.approx(said.memory_info().rss, abs=256 * KIB)
        assert reading.virtual == said.memory_info().vms
        times = tree.times(sleeper.pid)
        assert times is not None
        assert (times.parent, times.has_ended) == (os.getpid(), False)
        assert tree.adopt(sleeper.pid)
        clock = tree.clocks()[sleeper.pid]
        assert clock == pytest.approx(times.cpu_time, abs=0.05)
        sleeper.kill()


@linux
def test_descriptors_are_given_back_as_processes_end() -> None:
    tree = ProcTree(os.getpid())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
            tree.read()
            sleeper.kill()
    tree.read()
    assert len(os.listdir("/proc/self/fd")) == before
    tree.close()


def test_cpu_time_is_read_where_standard_input_is_closed() -> None:
    program = (
        "import os, sys; sys.path[:0] = sys.argv[1:]\n"
        "from weigh.probe.proc import ProcTree\n"
        "child = os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '60')\n"
        "tree = ProcTree(os.getpid())\n"
        "tree.read()\n"
        "os.close(0)\n"  # the next file that is opened gets number 0
        "print(tree.times(child) is not None, tree.times(child) is not None)\n"
        "os.kill(child, 9)\n"
    )
    argv = [sys.executable, "-c", program, *sys.path]
    assert run_captured(argv, stdin=subprocess.PIPE).stdout == "True True\n"


# Storage traffic


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


@linux
def test_a_reaped_childs_writes_are_counted(tmp_path: Path) -> None:
    before = read_reaped_io()
    if before is None or not is_on_a_disk(tmp_path):
        pytest.skip("no account of I/O, or a temporary folder in memory")
    path = tmp_path / "written"
    subprocess.run([sys.executable, "-S", "-c", WRITER, path], check=True)
    after = read_reaped_io()
    assert after is not None
    assert after.since(before).write_bytes == pytest.approx(20_000_000, rel=0.01)
