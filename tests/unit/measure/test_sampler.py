import sys
import time
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import HUNDRED, reading

from weigh.measure.peak import PeakTracker
from weigh.measure.sampler import RunSampler, thin_series
from weigh.probe.proc import ProcessReading, ProcessTimes, ProcTree

INTERVAL = 0.05
SHARE, CREDIT = 0.005, 0.04  # of a core; CPU seconds
LOADS = 6  # looks, each of which may load modules
BLIND = 4.0  # seconds: the longest without a look


class OneProcess(ProcTree):
    """A tree of one process of a size to be set, whose reading costs CPU time."""

    def __init__(self) -> None:
        super().__init__(10, "/nowhere")
        self.size = HUNDRED
        self.cost = 0.0
        self.cpu_spent = 0.0
        self.job_cpu: float | None = 1.0

    def read(self) -> list[ProcessReading]:
        self.cpu_spent += self.cost
        return [reading(7, self.size)]

    def times(self, pid: int) -> ProcessTimes | None:
        if self.job_cpu is None:
            return None
        return ProcessTimes(
            parent=1,
            cpu_time=self.job_cpu,
            faulted=0,
            start_ticks=pid,
            code_start=0,
            stack_start=0,
        )


class Run:
    """A sampler in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tree = OneProcess()
        self.sampler = self.sampler_of(self.tree)

    def sampler_of(self, tree: OneProcess) -> RunSampler:
        """Return a sampler; what others write to the machine's tmpfs is not its own."""
        return RunSampler(
            tree,
            PeakTracker(0),
            None,
            INTERVAL,
            clock=lambda: self.now,
            is_alone=False,
        )

    def look(self) -> float:
        """Look once, and wait as long as that says."""
        wait = self.sampler.look()
        self.now += wait
        return wait


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run()
    monkeypatch.setattr(time, "thread_time", lambda: run.tree.cpu_spent)
    return run


def test_a_short_run_is_looked_at_often_and_a_long_one_at_the_interval(
    run: Run,
) -> None:
    waits = [run.look() for _ in range(20)]
    assert waits[0] < 0.01
    assert waits == sorted(waits)
    assert waits[-1] == INTERVAL


@given(st.lists(st.floats(0, SHARE * BLIND), min_size=1, max_size=50))
def test_looking_takes_its_share_of_a_core_whatever_a_look_costs(
    costs: list[float],
) -> None:
    run = Run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "thread_time", lambda: run.tree.cpu_spent)
        for cost in costs:
            run.tree.cost = cost
            run.look()
    assert run.tree.cpu_spent <= SHARE * run.now * 1.001 + CREDIT + max(costs)


def test_no_cost_makes_weigh_blind_for_long(run: Run) -> None:
    run.tree.cost = 10.0
    assert max(run.look() for _ in range(10)) == BLIND


def test_modules_that_are_loaded_once_do_not_make_weigh_blind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loads(OneProcess):
        def read(self) -> list[ProcessReading]:
            name = f"loaded{loads}" if (loads := next(looks)) < LOADS else "loaded0"
            self.cost = 0.0 if name in sys.modules else 0.5
            monkeypatch.setitem(sys.modules, name, pytest)
            return super().read()

    looks = count()
    run.tree = Loads()
    run.sampler = run.sampler_of(run.tree)
    assert max(run.look() for _ in range(20)) == INTERVAL


def test_when_looking_gets_cheap_again_it_gets_frequent_again(run: Run) -> None:
    run.tree.cost = 0.01
    assert [run.look() for _ in range(10)][-1] > 1
    run.tree.cost = 0.0
    assert [run.look() for _ in range(60)][-1] == INTERVAL


def test_the_interval_that_is_reported_is_the_one_that_was_reached(run: Run) -> None:
    for _ in range(20):
        run.look()
    assert run.sampler.reached_interval() == INTERVAL
    run.tree.cost = 0.01
    for _ in range(20):
        run.look()
    assert run.sampler.reached_interval() == run.now / run.sampler.looks
    assert run.sampler.reached_interval() > 10 * INTERVAL


def test_samples_stay_few_and_keep_the_highest(run: Run) -> None:
    for turn in range(20_000):
        run.tree.size = 9 * HUNDRED if turn == 777 else HUNDRED
        run.look()
    assert run.sampler.looks == 20_000
    assert len(run.sampler.samples) <= 4096
    assert max(sample.memory for sample in run.sampler.samples) == 9 * HUNDRED
    times = [sample.time for sample in run.sampler.samples]
    assert times == sorted(times)


def test_samples_that_are_left_out_leave_the_least_memory(run: Run) -> None:
    for turn in range(20_000):
        run.tree.size = HUNDRED if turn == 777 else 2 * HUNDRED
        run.look()
    low = thin_series(run.sampler.samples).low
    assert min(low) == low[60 * 777 // 20_000] <= HUNDRED
    assert sorted(low)[1] > HUNDRED


def test_without_perf_cpu_time_is_read_now_and_then(run: Run) -> None:
    for _ in range(100):
        run.look()
    known = [s.time for s in run.sampler.samples if s.cpu_time is not None]
    assert 2 <= len(known) <= run.now / 0.5 + 1


def test_the_most_cpu_time_seen_outlives_the_process(run: Run) -> None:
    run.look()
    run.tree.job_cpu = None
    for _ in range(40):
        run.look()
    assert run.sampler.most_cpu_time == 1.0


def test_a_perf_clock_is_read_at_every_look() -> None:
    ticks = count()

    class Clock:
        def read(self) -> int:
            return next(ticks)

    clock: Any = Clock()
    sampler = RunSampler(OneProcess(), PeakTracker(0), clock, INTERVAL, is_alone=False)
    for _ in range(3):
        sampler.look()
    assert [sample.cpu_time for sample in sampler.samples] == [0, 1, 2]


class StillClock:
    """A perf clock of a tree that waits for something."""

    used = 1.0

    def read(self) -> float:
        return self.used


@pytest.fixture
def idle() -> tuple[Run, StillClock]:
    """A run whose tree does nothing, though it would read as nine times as large."""
    run, clock = Run(), StillClock()
    run.sampler = RunSampler(
        run.tree,
        PeakTracker(0),
        clock,  # type: ignore[arg-type]
        INTERVAL,
        clock=lambda: run.now,
        is_alone=False,
    )
    run.look()
    run.tree.size = 9 * HUNDRED
    return run, clock


def test_an_idle_tree_is_not_read_again_until_it_works(
    idle: tuple[Run, StillClock],
) -> None:
    run, clock = idle
    for _ in range(5):
        run.look()
    assert {sample.memory for sample in run.sampler.samples} == {HUNDRED}
    clock.used += 0.2
    run.look()
    assert run.sampler.samples[-1].memory == 9 * HUNDRED


@pytest.mark.parametrize(("cost", "blind"), [(0.0, 0.5), (0.0005, 2.0), (0.02, BLIND)])
def test_an_idle_tree_is_read_all_the_same_the_later_the_more_it_costs(
    idle: tuple[Run, StillClock], cost: float, blind: float
) -> None:
    run, _ = idle
    run.sampler._schedule._usual_cost = cost
    while run.now <= blind:
        assert {sample.memory for sample in run.sampler.samples} == {HUNDRED}
        run.look()
    run.look()
    assert run.sampler.samples[-1].memory == 9 * HUNDRED


def test_an_idle_tree_is_looked_at_less_and_a_busy_one_at_once_as_often_again(
    idle: tuple[Run, StillClock],
) -> None:
    run, clock = idle
    run.tree.size = HUNDRED
    waits = [run.look() for _ in range(25)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(10 * INTERVAL)
    clock.used += 0.2
    assert run.look() == INTERVAL


def test_a_clock_that_stands_while_memory_changes_is_not_believed_again(
    idle: tuple[Run, StillClock],
) -> None:
    """The kernel ends the perf events of a program that may not be read."""
    run, _ = idle
    while run.sampler.samples[-1].memory == HUNDRED:
        run.look()
    for size in (2 * HUNDRED, 3 * HUNDRED):
        run.tree.size = size
        assert run.look() == INTERVAL
        assert run.sampler.samples[-1].memory == size


def test_a_clock_that_stands_while_a_process_runs_is_not_believed(
    idle: tuple[Run, StillClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = idle
    used = count(1)
    monkeypatch.setattr(run.tree, "clocks", lambda: {7: 0.01 * next(used)})
    run.look()
    run.look()
    assert run.sampler.samples[-1].memory == 9 * HUNDRED


def test_a_run_that_begins_idle_is_looked_at_often_too(
    idle: tuple[Run, StillClock],
) -> None:
    run, _ = idle
    assert run.look() < 0.01
    waits = [run.look() for _ in range(6)]
    assert waits == sorted(waits)
    assert waits[-1] > INTERVAL
