import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import Job, jobs, plain_pss, write_file
from looks import reading

from weigh.measure.memory.counts import count_by_shares
from weigh.measure.memory.gauge import TreeMemoryGauge
from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.memory.shared_pages import (
    ReadablePages,
    SharedPages,
    confirmed_by,
)
from weigh.probe.proc import ProcessReading, ProcessTimes, ProcTree
from weigh.units import MIB

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the live /proc")
BASE = 12 * MIB  # what a bare interpreter holds, at most

READERS = """
def read():
    private(8); mapped({path!r})
fork(read)
fork(read)
wait()
"""
SHARED_MEMORY = """
memory = keep(mmap.mmap(-1, 96 * MIB))
fork(lambda: touch(memory, 0, {first} * MIB))
fork(lambda: touch(memory, {last} * MIB, 96 * MIB))
wait()
"""
COPY_ON_WRITE = """
memory = private({size})
def hold():
    ready()
    while wait():
        touch(memory, 0, {size} // 2 * MIB); ready()
fork(hold)
fork(hold)
for _ in range(2): os.wait()
"""


class Clock:
    """A clock that stands still until it is put forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """Some jobs of which one is looked at."""

    def __init__(self, job: Job, excluded: Sequence[Job] = ()) -> None:
        self.clock = Clock()
        self.tree = ProcTree(os.getpid())
        self.tree.excluded = frozenset(other.pid for other in excluded)
        self.gauge = TreeMemoryGauge(self.tree, self.clock, is_alone=False)
        self.job = job

    def look(self, best: int = 0) -> MemoryHolding:
        """Look closely, with all the time in the world to do it."""
        self.clock.now += 1000
        held = self.gauge.hold(self.tree.read(), best)
        assert self.job.pid in self.tree.pids()
        return held

    def close(self) -> None:
        self.tree.close()


@pytest.fixture
def big_file(tmp_path: Path) -> str:
    path = str(tmp_path / "big")
    write_file(path, 64)
    return path


# Live processes


@linux
def test_a_job_reads_the_same_next_to_three_copies_of_itself(big_file: str) -> None:
    """Plain PSS does not: that this job shows."""
    code = READERS.format(path=big_file)
    with jobs(code, ready=2) as (job,):
        scene = Scene(job)
        by_itself = scene.look()
        pss_by_itself = plain_pss(scene.tree.pids())
        scene.close()
    with jobs(code, code, code, code, ready=2) as (job, *copies):
        scene = Scene(job, excluded=copies)
        crowded = scene.look()
        pss_crowded = plain_pss(scene.tree.pids())
        scene.close()

    assert pss_crowded < 0.7 * pss_by_itself
    assert crowded.total == pytest.approx(by_itself.total, rel=0.05)
    assert crowded.low == pytest.approx(crowded.high, rel=0.08)


@linux
@pytest.mark.parametrize(("first", "last"), [(96, 0), (48, 48), (64, 32)])
def test_shared_memory_counts_by_the_pages_that_somebody_touched(
    first: int, last: int
) -> None:
    with jobs(SHARED_MEMORY.format(first=first, last=last), ready=2) as (job,):
        scene = Scene(job)
        held = scene.look()
        scene.close()
    assert held.shared == pytest.approx(96 * MIB, rel=0.03)


@linux
@pytest.mark.parametrize("size", [48, 96])  # by the kernel's shares, and by points
def test_memory_shared_by_forks_counts_once_until_they_write_to_it(size: int) -> None:
    with jobs(COPY_ON_WRITE.format(size=size), ready=2) as (job,):
        scene = Scene(job)
        before = scene.look()
        assert before.anonymous == pytest.approx(size * MIB + BASE, abs=BASE)

        job.go_on(2)  # whoever gets both is asked to write what it has written
        job.wait_for(2)
        guessed = uncounted(scene)
        after = scene.look(before.total)
        truth = anonymous_pss(scene.tree.pids())
        scene.close()
    assert after.anonymous == pytest.approx(truth, rel=0.03)
    assert after.anonymous >= before.anonymous + 0.46 * size * MIB
    assert after.low <= guessed.high
    assert guessed.total == pytest.approx(after.total, rel=0.05)


def uncounted(scene: Scene) -> MemoryHolding:
    """Look without counting: the model alone."""
    pages = scene.gauge._pages
    assert pages is not None
    spent, pages.spent = pages.spent, 1e9
    held = scene.gauge.hold(scene.tree.read(), 0)
    pages.spent = spent
    return held


def anonymous_pss(pids: Sequence[int]) -> int:
    """Add up the anonymous memory when sharers split it: each page once."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            sizes = dict(line.split(":", 1) for line in list(rollup)[1:])
        total += int(sizes["Pss_Anon"].split()[0]) * 1024
    return total


LETTING_GO = """
memory = mmap.mmap(-1, 96 * MIB)
touch(memory)
if os.fork() == 0:
    touch(memory); ready(); wait(); memory.close(); ready(); wait(); os._exit(0)
os.wait()
"""


@linux
def test_memory_that_one_lets_go_before_a_count_counts_once() -> None:
    with jobs(LETTING_GO, ready=1) as (job,):
        scene = Scene(job)
        readings = scene.tree.read()
        job.go_on(1)
        job.wait_for(1)
        scene.clock.now += 1000
        held = scene.gauge.hold(readings, 0)
        scene.close()
    assert 90 * MIB < held.total < 96 * MIB + 3 * BASE


# Readings by hand


@pytest.fixture
def gauge(tmp_path: Path) -> Iterator[TreeMemoryGauge]:
    """A gauge that can look at nobody, for no such process is alive."""
    tree = ProcTree(10, str(tmp_path))
    yield TreeMemoryGauge(tree, Clock(), is_alone=False)
    tree.close()


def kinds(pid: int, anonymous: int, shared: int, file: int) -> ProcessReading:
    resident = anonymous + shared + file
    return msgspec.structs.replace(
        reading(pid, resident), anonymous=anonymous, shared=shared, file=file
    )


def test_one_process_is_never_looked_at_closely(gauge: TreeMemoryGauge) -> None:
    one = msgspec.structs.replace(kinds(1, 70, 20, 10), kernel=5)
    held = gauge.hold([one], best=0)
    assert held == MemoryHolding(
        anonymous=70, shared=20, file=10, low=105, high=105, kernel=5
    )
    assert held.total == 105
    assert gauge.spent == 0


def test_nobody_holds_nothing(gauge: TreeMemoryGauge) -> None:
    assert gauge.hold([], best=0).total == 0


SIZES = st.integers(0, 1000)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=2), SIZES)
def test_whatever_is_shared_lies_between_all_and_nothing(
    sizes: list[tuple[int, int, int]], best: int
) -> None:
    readings = [kinds(pid, *parts) for pid, parts in enumerate(sizes)]
    gauge = TreeMemoryGauge(ProcTree(10, "/nowhere"), Clock(), is_alone=False)
    held = gauge.hold(readings, best)
    assert held.low <= held.total <= held.high
    assert held.high <= sum(map(sum, sizes))


def test_counting_stops_when_its_time_is_spent() -> None:
    clock = Clock()
    pages = SharedPages(ProcTree(10, "/nowhere"), clock)
    assert pages.may_spend()
    pages.spent = 0.03 + 0.001
    assert not pages.may_spend()
    clock.now = 1.0
    assert pages.may_spend()


def test_a_short_job_is_counted_for_little_before_it_has_used_some_time() -> None:
    pages = SharedPages(ProcTree(10, "/nowhere"), Clock())
    pages.spent = 0.025
    pages.used = 0.1
    assert not pages.may_spend()
    pages.spent = 0.025
    pages.used = 1.0
    assert pages.may_spend()


class MadeUpTree:
    """Processes of which only what they have faulted is known, by parent and child."""

    def __init__(self) -> None:
        self.faulted: dict[int, tuple[int, int]] = {}
        self.now: dict[int, int] = {}  # sizes
        self.programs: dict[int, int] = {}  # that were executed

    def find_new(self) -> list[int]:
        return []

    def folder(self, pid: int) -> str:
        return f"/nowhere/{pid}"

    def reading(self, pid: int) -> ProcessReading | None:
        return reading(pid, self.now[pid]) if pid in self.now else None

    def times(self, pid: int) -> ProcessTimes:
        parent, faulted = self.faulted[pid]
        program = self.programs.get(pid, 1)
        return ProcessTimes(
            parent, cpu_time=0.0, faulted=faulted, code_start=1, stack_start=program
        )


def test_what_a_fork_grows_by_after_its_size_was_read_is_no_copy() -> None:
    tree: Any = MadeUpTree()
    pages = SharedPages(tree, Clock())
    pages.spent = 1000.0  # nothing is counted
    tree.faulted = {7: (1, 0)}
    pages.hold([reading(7, 10 * MIB)], best=0)
    for size, total in ((12, 16), (20, 20)):
        # its faults are read when it has grown by 4 MiB more
        tree.faulted = {7: (1, 0), 8: (7, (size - 10 + 4) * MIB)}
        tree.now = {7: 10 * MIB, 8: (size + 4) * MIB}
        readings = [reading(7, 10 * MIB), reading(8, size * MIB)]
        assert pages.hold(readings, best=0).total == total * MIB


def test_shared_memory_that_a_fork_touches_is_no_copy() -> None:
    tree: Any = MadeUpTree()
    pages = SharedPages(tree, Clock())
    pages.spent = 1000.0  # nothing is counted
    tree.now = {7: 10 * MIB, 8: 10 * MIB}
    for shared in (0, 50 * MIB):
        tree.faulted = {7: (1, 0), 8: (7, shared)}
        readings = [kinds(7, 10 * MIB, 0, 0), kinds(8, 10 * MIB, shared, 0)]
        assert pages.hold(readings, best=0).anonymous == 10 * MIB


@pytest.mark.parametrize(
    ("left", "total", "confirmed"), [(0, 80, 0.6), (0, 100, 1.0), (50, 100, None)]
)
def test_a_count_shows_which_part_of_guesses_was_right(
    left: int, total: int, confirmed: float | None
) -> None:
    before = MemoryHolding(100, 0, 0, low=0, high=140, guess=50)
    counted = MemoryHolding(total, 0, 0, low=0, high=140, guess=left)
    assert confirmed_by(counted, before).confirmed == confirmed


@pytest.mark.parametrize(
    ("private", "own"),
    [
        ((40, 30), {7: 0.4, 8: 0.3}),
        # with shared memory that each alone has written
        ((400, 400), {7: 0.7, 8: 0.6}),
        # with pages of its own that it has not written since they were swapped in
        ((0, 0), {7: 0.4, 8: 0.2}),
    ],
)
def test_the_shares_of_forks_add_up_to_what_they_hold(
    private: tuple[int, int], own: dict[int, float], tmp_path: Path
) -> None:
    for pid, share, written in zip((7, 8), (70, 60), private, strict=True):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "smaps_rollup").write_text(
            f"Pss_Anon: {share} kB\nPrivate_Dirty: {written} kB\nAnonymous: 100 kB\n"
        )
    folders = {pid: f"{tmp_path}/{pid}" for pid in (7, 8)}
    count = count_by_shares(folders)
    assert count is not None
    assert (count.distinct, count.own) == (0.65, own)
    assert count_by_shares({**folders, 9: "/nowhere"}) is None


def test_a_program_executed_after_its_sizes_were_read_is_no_copy_of_its_parent() -> (
    None
):
    tree: Any = MadeUpTree()
    pages = SharedPages(tree, Clock())
    tree.faulted = {7: (1, 0), 8: (7, 0)}
    tree.programs = {8: 2}
    tree.now = {7: 50 * MIB, 8: MIB}
    readings = [reading(7, 50 * MIB), reading(8, 50 * MIB)]
    assert pages.hold(readings, best=0).total == 51 * MIB


@linux
def test_nothing_is_counted_where_one_process_has_ended_meanwhile() -> None:
    tree = ProcTree(os.getpid())
    with subprocess.Popen(["cat"], stdin=PIPE) as child:
        sizes = {os.getpid(): MIB, child.pid: MIB}
        assert set(ReadablePages(tree).of_some(sizes)) == set(sizes)
    assert ReadablePages(tree).of_some(sizes) == {}


class CountingPages(SharedPages):
    """Two processes of 100 MiB of shared memory, which are counted in name only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tree: Any = MadeUpTree()
        tree.faulted = {7: (1, 0), 8: (7, 0)}
        self.tree, self.clock, self.counts = tree, Clock(), 0
        super().__init__(tree, self.clock)
        monkeypatch.setattr(self, "_count", self._note_count)

    def _note_count(self, _: object) -> bool:
        self.counts += 1
        return True

    def look(self) -> MemoryHolding:
        self.clock.now += 0.5
        readings = [kinds(pid, 0, 100 * MIB, 0) for pid in (7, 8)]
        return self.hold(readings, best=200 * MIB)


def test_processes_that_do_nothing_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = CountingPages(monkeypatch)
    for _ in range(100):
        pages.look()
    assert pages.counts == 1
    pages.tree.faulted[8] = (7, MIB)  # it has worked
    pages.look()
    assert pages.counts == 2


def test_what_the_budget_left_open_is_counted_once_the_processes_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = CountingPages(monkeypatch)
    pages.spent = 0.035  # more than was earned by then
    assert pages.look().is_open
    assert pages.counts == 0
    assert not pages.look().is_open
    assert pages.counts == 1
    pages.spent += 0.01  # one debt at a time
    pages.tree.faulted[8] = (7, MIB)
    pages.look()
    pages.look()
    assert pages.counts == 1


def test_half_of_the_budget_is_kept_for_bounds_that_have_widened() -> None:
    pages = SharedPages(ProcTree(10, "/nowhere"), Clock())
    pages.spent = 0.02
    assert pages.may_spend()
    assert not pages.may_spend(is_wider=False, at_rest=True)
