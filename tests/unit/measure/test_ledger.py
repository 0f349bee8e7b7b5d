"""The kernel's account, from control groups made of files and from real ones."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import reading

from weigh.measure.memory.gauge import TreeMemoryGauge
from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.memory.ledger import (
    MemoryLedger,
    memory_held_by_group,
    open_ledger,
    remove_forgotten,
)
from weigh.probe.cgroup import GroupMemory, memory_folder, parse_memory_stat
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import MIB

SIZES = st.integers(0, 1 << 40)
V1 = {"total_rss": 50, "total_shmem": 20, "total_cache": 500, "rss": 1, "cache": 2}
V2 = {
    "anon": 50,
    "file": 500,
    "shmem": 20,
    "kernel": 30,
    "slab_reclaimable": 12,
    "sock": 4,
}
V2_BEFORE_5_18 = {
    **{name: size for name, size in V2.items() if name != "kernel"},
    "kernel_stack": 3,
    "pagetables": 4,
    "percpu": 5,
    "slab_unreclaimable": 6,
}


def stat_text(figures: dict[str, int]) -> bytes:
    return "".join(f"{name} {size}\n" for name, size in figures.items()).encode()


class Scripted:
    """A ledger that returns the holdings it was given, one after the other."""

    source = "own cgroup: counted by the kernel"
    is_own = True

    def __init__(self, *held: MemoryHolding) -> None:
        self.held = iter(held)

    def read(self) -> MemoryHolding:
        return next(self.held)

    def strangers(self, *_: object) -> bool:
        return False


class Nobody:
    """A tree of no process."""

    excluded: frozenset[int] = frozenset()

    def pids(self) -> frozenset[int]:
        return frozenset()


def test_a_peak_after_the_last_look_is_with_the_files_of_that_look() -> None:
    now = MemoryHolding(10, 0, 0, low=10, high=10, is_account=True)
    ended = MemoryHolding(0, 0, 0, low=0, high=30, is_account=True, spike=30)
    ledger: Any = Scripted(now, ended)
    tree: Any = Nobody()
    gauge = TreeMemoryGauge(tree, ledger=ledger)

    gauge.hold([ProcessReading(7, 20, 20, 14, 14, 10, 4, 0)], 0)
    last = gauge.finish()

    assert last is not None
    assert last.total + last.spike == 34
    assert (last.low, last.high) == (0, 34)


# The figures


def test_a_group_that_others_enter_in_mid_run_is_not_read_any_more(
    tmp_path: Path,
) -> None:
    class Entered(Scripted):
        def strangers(self, *_: object) -> bool:
            return True

    ledger: Any = Entered(MemoryHolding(900, 0, 0, low=900, high=900, is_account=True))
    gauge = TreeMemoryGauge(ProcTree(10, str(tmp_path)), ledger=ledger, is_alone=False)
    held = gauge.hold([reading(7, 100)], best=0)
    assert (held.total, held.is_account) == (100, False)
    assert gauge.source.startswith("pages")


def test_version_1_has_its_kernel_memory_in_a_file_of_its_own() -> None:
    found = parse_memory_stat(1, stat_text(V1), usage=600, peak=700, kernel=7)
    assert (found.anonymous, found.shared, found.kernel) == (50, 20, 7)
    assert (found.cache, found.usage, found.peak) == (480, 600, 700)


def test_version_2_leaves_out_what_the_kernel_drops_first() -> None:
    found = parse_memory_stat(2, stat_text(V2), usage=600)
    assert (found.anonymous, found.shared, found.kernel) == (50, 20, 30 - 12 + 4)
    assert (found.cache, found.reclaimable, found.peak) == (480, 12, None)


def test_before_linux_5_18_the_kernels_part_is_added_up() -> None:
    found = parse_memory_stat(2, stat_text(V2_BEFORE_5_18), usage=600)
    assert found.kernel == 3 + 4 + 5 + 6 + 4


@pytest.mark.parametrize(("version", "figures"), [(1, V1), (2, V2)])
@pytest.mark.parametrize("cut", [0, 1, 2, 9, 14])
def test_a_stat_cut_short_is_refused(
    version: int, figures: dict[str, int], cut: int
) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_memory_stat(version, stat_text(figures)[:cut], usage=1)


@given(st.sampled_from([1, 2]), st.binary() | st.text("anon 1\n-x").map(str.encode))
def test_no_stat_stops_the_parser_but_with_a_value_error(
    version: int, text: bytes
) -> None:
    with suppress(ValueError):
        parse_memory_stat(version, text, usage=0)


# Two readings of a group


def group(
    anonymous: int = 0, cache: int = 0, peak: int | None = None, *, kernel: int = 0
) -> GroupMemory:
    usage = anonymous + cache + kernel
    return GroupMemory(
        anonymous=anonymous,
        shared=0,
        kernel=kernel,
        cache=cache,
        reclaimable=0,
        usage=usage,
        peak=None if peak is None else max(peak, usage),
    )


NOTHING = group(peak=0)


def test_what_was_charged_before_is_not_the_jobs() -> None:
    held = memory_held_by_group(
        group(100), group(160, kernel=9), group(100, kernel=5), own=13
    )
    assert (held.anonymous, held.kernel) == (47, 4)
    assert held.low == held.total == 51
    assert held.most_spike == math.inf  # without a mark: Linux 5.x


def test_a_peak_between_readings_counts_without_page_cache() -> None:
    """300 of cache were there before, and are still: 700 - 300 was the job's."""
    held = memory_held_by_group(group(50, 300, 350), group(50, 300, 700), NOTHING)
    assert held.total + held.spike == 400
    assert held.high == 400


def test_what_weigh_gave_back_since_a_peak_was_not_the_jobs() -> None:
    """Of 110 at the peak 30 were weigh's, which has 10 now; or it had 10 by then."""
    held = memory_held_by_group(
        group(100), group(10, peak=110), NOTHING, own=10, own_before=30
    )
    assert (held.total + held.spike, held.high) == (80, 100)


def test_cache_that_came_or_went_between_readings_makes_the_peak_uncertain() -> None:
    held = memory_held_by_group(group(50, 300, 350), group(50, 0, 700), NOTHING)
    assert held.total + held.spike == 400
    assert held.high == 700  # if the cache went first
    held = memory_held_by_group(group(50, 0, 350), group(50, 300, 700), NOTHING)
    assert held.total + held.spike == 400
    assert held.high == 700  # if the cache came last


@given(
    moments=st.lists(st.tuples(SIZES, SIZES), min_size=4, max_size=30),
)
def test_bounds_hold_whatever_came_between_the_readings(
    moments: list[tuple[int, int]],
) -> None:
    """Anonymous memory and cache at moments, of which every third is a reading."""
    readings = []
    peak = 0
    for at, (anonymous, cache) in enumerate(moments):
        peak = max(peak, anonymous + cache)
        if at % 3 == 0:
            readings.append((at, group(anonymous, cache, peak)))
    for (start, before), (end, now) in pairwise(readings):
        between = moments[start + 1 : end + 1]
        held = memory_held_by_group(before, now, NOTHING)
        assert held.low <= max(anonymous for anonymous, _ in between)
        if now.peak == before.peak:
            truth = max(anonymous for anonymous, _ in between)
            assert truth <= held.total + held.most_spike
            continue  # what came lies below a peak of before
        least = min(before.cache, now.cache)
        if all(cache >= least for _, cache in between):
            truth = max(anonymous for anonymous, _ in between)
            assert truth <= held.high + max(0, now.cache - before.cache)


# Groups made of files


class Group:
    """A control group of version 1 or 2 made of files, and a /proc that names it."""

    def __init__(self, root: Path, version: int) -> None:
        self.root = root / "cgroup"
        self.proc = root / "proc"
        self.version = version
        self.helpers: set[int] = set()
        part = "memory/job" if version == 1 else "job"
        self.folder = self.root / part
        self.folder.mkdir(parents=True)
        line = "4:memory:/job\n" if version == 1 else "0::/job\n"
        self.write(self.proc / "self/cgroup", line)
        self.write(self.proc / "self/statm", "1000 500 100 0 0 0 0\n")
        self.processes(os.getpid())
        self.parent(os.getpid(), 1)
        self.write(self.proc / f"{os.getpid()}/statm", "1000 500 100 0 0 0 0\n")
        self.charge(10)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def charge(self, anonymous: int, kernel: int = 0) -> None:
        if self.version == 1:
            figures = {**V1, "total_rss": anonymous, "total_shmem": 0, "total_cache": 0}
            self.write(self.folder / "memory.kmem.usage_in_bytes", f"{kernel}\n")
        else:
            figures = {"anon": anonymous, "file": 0, "shmem": 0, "kernel": kernel}
        names = {
            1: ("memory.usage_in_bytes", "memory.max_usage_in_bytes"),
            2: ("memory.current", "memory.peak"),
        }
        self.write(self.folder / "memory.stat", stat_text(figures).decode())
        for name in names[self.version]:
            self.write(self.folder / name, f"{anonymous + kernel}\n")

    def processes(self, *pids: int) -> None:
        self.write(self.folder / "cgroup.procs", "".join(f"{pid}\n" for pid in pids))

    def parent(self, pid: int, parent: int) -> None:
        fields = [0] * 50
        fields[1] = parent
        line = f"{pid} (job) S {' '.join(map(str, fields[1:]))}\n"
        self.write(self.proc / f"{pid}/stat", line)

    def open(self, leader: int = 77) -> MemoryLedger | None:
        # as in a batch job: no group is made
        environment = {"SLURM_JOB_ID": "1"}
        return open_ledger(
            leader,
            environment,
            lambda: self.helpers,
            proc_folder=str(self.proc),
            root=str(self.root),
        )


@pytest.fixture(params=[1, 2])
def doctored(tmp_path: Path, request: pytest.FixtureRequest) -> Group:
    return Group(tmp_path, request.param)


@pytest.fixture
def ledger(doctored: Group) -> Iterator[MemoryLedger]:
    ledger = doctored.open()
    assert ledger is not None
    yield ledger
    ledger.close()


def test_the_group_that_weigh_stands_in_is_read_if_it_is_alone_there(
    doctored: Group, ledger: MemoryLedger
) -> None:
    doctored.charge(90 * MIB, kernel=5 * MIB)
    held = ledger.read()
    assert not ledger.is_own
    assert held.is_account
    assert held.total == 95 * MIB - 10
    # version 1 counts droppable caches as kernel memory
    sure = 90 * MIB if doctored.version == 1 else 95 * MIB - 10
    assert held.low < sure < held.low + 20 * MIB
    assert held.total < held.high


def test_weighs_own_growth_is_not_the_jobs(
    doctored: Group, ledger: MemoryLedger
) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    doctored.write(doctored.proc / "self/statm", "1000 800 100 0 0 0 0\n")
    doctored.helpers = {78}  # a new one: weigh looks again
    doctored.charge(90 * MIB)
    assert ledger.read().total == 90 * MIB - 10 - 300 * page


def test_pages_that_weigh_shares_with_its_forks_are_no_growth_of_the_job(
    doctored: Group,
) -> None:
    """At first the launcher has half of weigh's 8 MiB; then a new fork copies 3."""

    def shares(**mebibytes: int) -> None:
        for process, size in mebibytes.items():
            text = f"Rss: 1 kB\nPss_Anon: {size << 10} kB\n"
            doctored.write(doctored.proc / process.strip("_") / "smaps_rollup", text)

    shares(self=4, _77=4)
    doctored.charge(8 * MIB)
    ledger = doctored.open()
    assert ledger is not None
    doctored.helpers = {78}
    shares(self=7, _78=4)
    doctored.charge((11 + 64) * MIB)
    assert ledger.read().total == 64 * MIB
    ledger.close()


def test_the_forks_that_help_weigh_are_no_strangers_in_its_group(
    doctored: Group,
) -> None:
    doctored.processes(os.getpid(), 77, 78)
    doctored.helpers = {78}
    ledger = doctored.open()
    assert ledger is not None
    ledger.close()


@pytest.mark.parametrize("stranger", [4711, 0])  # 0: of another pid namespace
def test_a_stranger_at_the_start_makes_the_group_nobodys(
    doctored: Group, stranger: int
) -> None:
    doctored.processes(os.getpid(), 77, stranger)
    assert doctored.open() is None


def test_memory_that_no_visible_process_holds_makes_the_group_nobodys(
    tmp_path: Path,
) -> None:
    """Version 1 does not list the processes of other pid namespaces."""
    others = Group(tmp_path, version=1)
    others.charge(200 * MIB)
    assert others.open() is None


def test_memory_of_a_stranger_who_is_not_listed_is_found_in_mid_run(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, version=1)
    ledger = group.open()
    assert ledger is not None
    group.charge(190 * MIB)
    ledger.read()
    assert not ledger.strangers(set(), 190 * MIB)
    assert ledger.strangers(set(), 150 * MIB)
    ledger.close()


def test_a_group_below_makes_the_account_nobodys(doctored: Group) -> None:
    (doctored.folder / "step_0").mkdir()
    assert doctored.open() is None


def test_the_jobs_processes_are_no_strangers(
    doctored: Group, ledger: MemoryLedger
) -> None:
    doctored.parent(90, 77)
    doctored.parent(91, 90)  # new: not seen yet
    doctored.processes(os.getpid(), 77, 90, 91, 92)  # 92 has ended since
    assert not ledger.strangers({90}, 0)


def test_a_stranger_in_mid_run_is_found(doctored: Group, ledger: MemoryLedger) -> None:
    doctored.parent(4711, 1)
    doctored.processes(os.getpid(), 77, 4711)
    assert ledger.strangers(set(), 0)


def test_a_group_that_has_no_figures_is_not_read(doctored: Group) -> None:
    doctored.write(doctored.folder / "memory.stat", "odd\n")
    assert doctored.open() is None
    os.unlink(doctored.folder / "memory.stat")
    assert doctored.open() is None


# Real groups


def own_group() -> str | None:
    """Return the folder of this process's group, if it may have groups below it."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            folder, version = memory_folder(file.read())
    except (OSError, ValueError):
        return None
    return folder if version == 1 and os.access(folder, os.W_OK) else None


HOLDS = """
import mmap, sys
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
sys.stdin.readline()
memory[::4096] = bytes(len(memory) // 4096)
print("held", flush=True)
sys.stdin.readline()
memory.close()
print("freed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.as_root
@pytest.mark.skipif(
    sys.platform != "linux" or own_group() is None, reason="no group may be made here"
)
def test_a_group_made_for_a_job_counts_it_and_is_removed() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        ledger = open_ledger(job.pid, {}, frozenset)
        assert ledger is not None
        assert ledger.is_own
        before = ledger.read()
        for word in ("held", "freed"):
            job.stdin.write("go\n")
            job.stdin.flush()
            assert job.stdout.readline() == f"{word}\n"
        after = ledger.read()
        job.stdin.close()
    ledger.close()
    assert after.total + after.spike == pytest.approx(before.total + 64 * MIB, rel=0.05)
    assert after.total < before.total + 32 * MIB
    assert not os.path.exists(ledger.folder)


def test_groups_of_killed_runs_are_removed_and_new_ones_stay(tmp_path: Path) -> None:
    old, new, living = (
        tmp_path / f"weigh.{pid}.2"
        for pid in ((1 << 22) + 1, (1 << 22) + 2, os.getpid())
    )
    users = tmp_path / "weigh.slice"
    for folder in (old, new, living, users):
        folder.mkdir()
    for folder in (old, living, users):
        os.utime(folder, (0, 0))
    remove_forgotten(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted((new, living, users))
