import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import Job, jobs, plain_pss, write_file
from looks import HUNDRED, reading

from weigh.measure import shared_memory
from weigh.measure.shared_memory import Holding, SharingGauge
from weigh.probe import sharing
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.probe.sharing import read_anonymous
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
memory = private(96)
def hold():
    ready()
    while wait():
        touch(memory, 0, 48 * MIB); ready()
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
        self.gauge = SharingGauge(self.tree, self.clock)
        self.job = job

    def look(self, best: int = 0) -> Holding:
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
def test_a_job_reads_the_same_beside_three_copies_of_itself(big_file: str) -> None:
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
    assert crowded.total == pytest.approx(by_itself.total, rel=0.03)
    assert crowded.low == pytest.approx(crowded.high, rel=0.03)


@linux
def test_a_file_mapped_by_two_counts_once_and_as_a_file(big_file: str) -> None:
    with jobs(READERS.format(path=big_file), ready=2) as (job,):
        scene = Scene(job)
        held = scene.look()
        scene.close()
    assert 64 * MIB <= held.file <= 64 * MIB + BASE
    assert 16 * MIB <= held.anonymous <= 16 * MIB + BASE


@linux
@pytest.mark.parametrize(("first", "last"), [(96, 0), (48, 48), (64, 32)])
def test_shared_memory_counts_by_the_pages_that_somebody_touched(
    first: int, last: int
) -> None:
    with jobs(SHARED_MEMORY.format(first=first, last=last), ready=2) as (job,):
        scene = Scene(job)
        held = scene.look()
        scene.close()
    assert held.shared == pytest.approx(96 * MIB, rel=0.01)


@linux
def test_memory_shared_by_forks_counts_once_until_they_write_to_it() -> None:
    with jobs(COPY_ON_WRITE, ready=2) as (job,):
        scene = Scene(job)
        before = scene.look()
        assert before.anonymous == pytest.approx(96 * MIB + BASE, abs=BASE)

        job.go_on(2)  # whoever gets both is asked to write what it has written
        job.wait_for(2)
        after = scene.look(before.total)
        truth = sum(_share(pid) for pid in scene.tree.pids())
        scene.close()
    assert after.anonymous == pytest.approx(truth, rel=0.01)
    assert after.anonymous >= before.anonymous + 47 * MIB


def _share(pid: int) -> int:
    pages = read_anonymous(pid)
    assert pages is not None
    return pages.share


# Readings by hand


@pytest.fixture
def gauge(tmp_path: Path) -> Iterator[SharingGauge]:
    """A gauge that can look at nobody, for no such process is alive."""
    tree = ProcTree(10, str(tmp_path))
    yield SharingGauge(tree, Clock())
    tree.close()


def kinds(pid: int, anonymous: int, shared: int, file: int) -> ProcessReading:
    resident = anonymous + shared + file
    return msgspec.structs.replace(
        reading(pid, resident), anonymous=anonymous, shared=shared, file=file
    )


def test_one_process_is_never_looked_at_closely(gauge: SharingGauge) -> None:
    held = gauge.hold([kinds(1, 70, 20, 10)], best=0)
    assert held == Holding(anonymous=70, shared=20, file=10, low=100, high=100)
    assert gauge.spent == 0


def test_nobody_holds_nothing(gauge: SharingGauge) -> None:
    assert gauge.hold([], best=0).total == 0


SIZES = st.integers(0, 1000)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES)), SIZES)
def test_whatever_is_shared_lies_between_all_and_nothing(
    sizes: list[tuple[int, int, int]], best: int
) -> None:
    readings = [kinds(pid, *parts) for pid, parts in enumerate(sizes)]
    held = SharingGauge(ProcTree(10, "/nowhere"), Clock()).hold(readings, best)
    assert held.low <= held.total <= held.high
    assert held.high == sum(map(sum, sizes))
    assert (
        held.low == sum(max(kind) for kind in zip(*sizes, strict=True)) if sizes else 1
    )


class _OfOneFamily(ProcTree):
    """Says that all processes are alive and forks of one another."""

    def __init__(self) -> None:
        super().__init__(10, "/nowhere")

    def reading(self, pid: int) -> ProcessReading | None:
        return reading(pid, 1)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> tuple[SharingGauge, Clock]:
    """Four forks of 100 MiB that are found to share 60 of them."""
    monkeypatch.setattr(shared_memory, "_private_share", lambda _families: 0.4)
    clock = Clock()
    return SharingGauge(_OfOneFamily(), clock), clock


def test_what_forks_get_after_a_look_is_their_own(
    scene: tuple[SharingGauge, Clock],
) -> None:
    gauge, _ = scene
    before = gauge.hold([reading(pid, 100 * MIB) for pid in range(4)], best=0)
    assert before.total == 220 * MIB

    gauge.spent = 1e9  # no more looks
    after = gauge.hold([reading(pid, 250 * MIB) for pid in range(4)], best=0)

    assert after.total == before.total + 4 * 150 * MIB
    assert after.low == 250 * MIB
    assert after.high == 4 * 250 * MIB


def test_who_refuses_to_tell_widens_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_memory, "_private_share", lambda _families: None)
    gauge = SharingGauge(_OfOneFamily(), Clock())
    held = gauge.hold([reading(pid, 100 * MIB) for pid in range(4)], best=0)
    assert (held.low, held.high) == (100 * MIB, 400 * MIB)


def test_files_that_cannot_be_counted_widen_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing.FilePages, "add", lambda _self, _pid: None)
    gauge = SharingGauge(_OfOneFamily(), Clock())
    held = gauge.hold([kinds(pid, 1, 0, 100 * MIB) for pid in range(4)], best=0)
    assert (held.low, held.high) == (100 * MIB + 1, 400 * MIB + 4)


def test_shared_memory_that_comes_after_a_look_is_taken_to_be_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing.FilePages, "add", lambda _self, _pid: (HUNDRED, 0))
    monkeypatch.setattr(sharing.FilePages, "sizes", lambda _self: (HUNDRED, 0))
    gauge = SharingGauge(_OfOneFamily(), Clock())
    gauge.hold([kinds(pid, 0, 0, HUNDRED) for pid in range(4)], best=0)
    gauge.spent = 1e9  # no more looks
    held = gauge.hold([kinds(pid, 0, HUNDRED, HUNDRED) for pid in range(4)], best=0)
    assert held.total == 2 * HUNDRED
    assert held.high >= 5 * HUNDRED


STEPS = st.lists(
    st.tuples(st.floats(0.001, 10), st.floats(0, 0.5), st.integers(2, 2000)),
    max_size=60,
)


@given(STEPS)
def test_looking_closely_never_takes_more_than_its_share(
    steps: list[tuple[float, float, int]],
) -> None:
    """0.3 % of the time, a tenth of a second at first, and the look under way."""
    clock = Clock()
    gauge = SharingGauge(ProcTree(10, "/nowhere"), clock)
    costs = [0.0]

    def look(readings: Sequence[ProcessReading], most: int) -> Holding:
        clock.now += costs[-1]
        return gauge._assume(readings, most)

    gauge._look = look  # type: ignore[method-assign]
    for passed, cost, size in steps:
        clock.now += passed
        costs.append(cost)
        gauge.hold([reading(pid, size * MIB) for pid in (1, 2)], best=0)
        assert gauge.spent <= 0.003 * clock.now + 0.1 + max(costs)


def test_a_large_change_is_looked_at_on_credit(
    scene: tuple[SharingGauge, Clock],
) -> None:
    gauge, _ = scene
    for size in (100 * MIB, 200 * MIB):
        held = gauge.hold([reading(pid, size) for pid in range(4)], best=300 * MIB)
        gauge.spent = 0.05  # more than was earned, less than the credit
        assert held.low == held.high
    small_change = gauge.hold([reading(pid, 201 * MIB) for pid in range(4)], 300 * MIB)
    assert small_change.low < small_change.high
