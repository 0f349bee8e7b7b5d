import sys
import time
from collections.abc import Iterable
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import HUNDRED, reading

from weigh.measure import cpu_wait, programs, ranks
from weigh.measure.watch_loop import CommandOrphans, RunCheckpoints
from weigh.measure.watcher import (
    LookSchedule,
    TreeWatcher,
    WatchedRun,
    kernel_measurement,
)
from weigh.model.record import Usage
from weigh.probe.proc import ProcessReading, ProcessTimes, ProcTree

# loaded before a look is timed, whose first use of them counts for nothing
LOADED = (cpu_wait, programs, ranks)
INTERVAL = 0.05
LOADS = 6  # looks, each of which may load modules


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
        del pid
        return None if self.job_cpu is None else ProcessTimes(1, self.job_cpu)


class PerfClock:
    """A perf clock of a tree, which stands while the tree waits for something."""

    used = 1.0

    def read(self) -> float:
        return self.used


class Run:
    """A watcher in a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = PerfClock()
        self.watch(OneProcess())

    def watch(self, tree: OneProcess, clock: Any = None) -> None:
        """Begin; what others write to the machine's tmpfs is not its own."""
        self.tree = tree
        watched = WatchedRun(cpu_clock=clock, is_alone=False)
        self.watcher = TreeWatcher(tree, INTERVAL, watched, clock=lambda: self.now)

    def look(self) -> float:
        """Look once, and wait as long as that says."""
        wait = self.watcher.look()
        self.now += wait
        return wait

    def sizes(self) -> list[int]:
        return [sample.memory // HUNDRED for sample in self.watcher.samples]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run()
    monkeypatch.setattr(time, "thread_time", lambda: run.tree.cpu_spent)
    return run


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
    run.watch(Loads())
    assert max(run.look() for _ in range(20)) == INTERVAL


def test_the_interval_that_is_reported_is_the_one_that_was_reached(run: Run) -> None:
    for _ in range(20):
        run.look()
    assert run.watcher.reached_interval() == INTERVAL
    run.tree.cost = 0.01
    for _ in range(20):
        run.look()
    assert run.watcher.reached_interval() == run.now / run.watcher.looks
    assert run.watcher.reached_interval() > 10 * INTERVAL


def test_samples_stay_few_and_keep_the_peak_and_are_as_fine_at_the_start_as_at_the_end(
    run: Run,
) -> None:
    for turn in range(5000):
        run.tree.size = (9 if turn == 777 else 2) * HUNDRED
        run.look()
    assert run.watcher.looks == 5000
    assert len(run.sizes()) <= 1024
    assert max(run.sizes()) == 9
    times = [sample.time for sample in run.watcher.samples]
    gaps = [then - now for now, then in pairwise(times)]
    assert 0 < min(gaps) <= max(gaps) < run.now / 100


def test_without_perf_cpu_time_is_read_now_and_then(run: Run) -> None:
    for _ in range(100):
        run.look()
    known = [s.time for s in run.watcher.samples if s.cpu_time is not None]
    assert 2 <= len(known) <= run.now / 0.5 + 1


def test_the_most_cpu_time_seen_outlives_the_process(run: Run) -> None:
    run.look()
    run.tree.job_cpu = None
    for _ in range(40):
        run.look()
    assert run.watcher.most_cpu_time == 1.0


def test_a_perf_clock_is_read_at_every_look(run: Run) -> None:
    run.watch(OneProcess(), run.clock)
    for used in (1.0, 2.0, 3.0):
        run.clock.used = used
        run.look()
    assert [sample.cpu_time for sample in run.watcher.samples] == [1.0, 2.0, 3.0]


@pytest.fixture
def idle() -> Run:
    """A run whose tree does nothing, though it would read as nine times as large."""
    run = Run()
    run.watch(OneProcess(), run.clock)
    run.look()
    run.tree.size = 9 * HUNDRED
    return run


def test_an_idle_tree_is_not_read_again_until_it_works(idle: Run) -> None:
    for _ in range(5):
        idle.look()
    assert {*idle.sizes()} == {1}
    idle.clock.used += 0.2
    idle.look()
    assert idle.sizes()[-1] == 9


def test_a_new_process_of_an_idle_tree_is_read_twice(
    idle: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rank is read at the second look."""
    read = idle.tree.read

    def meets() -> list[ProcessReading]:
        idle.tree.seen = 1
        return read()

    monkeypatch.setattr(idle.tree, "read", meets)
    idle.clock.used += 0.2
    for size in (2, 3, 4):
        idle.tree.size = size * HUNDRED
        idle.look()
    assert idle.sizes()[-1] == 3


def test_a_clock_that_stands_while_a_process_runs_is_not_believed(
    idle: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the perf events of a program that may not be read."""
    used = count(1)
    monkeypatch.setattr(idle.tree, "clocks", lambda: {7: 0.01 * next(used)})
    idle.look()
    for size in (9, 2, 3):
        idle.tree.size = size * HUNDRED
        assert idle.look() <= INTERVAL
        assert idle.sizes()[-1] == size


def test_the_cpu_time_so_far_is_the_most_that_is_known(idle: Run) -> None:
    assert idle.watcher.cpu_time() == idle.clock.used
    idle.watcher.most_cpu_time = 3.0
    assert idle.watcher.cpu_time() == 3.0


class Observer:
    """Notes when it is called, and asks for the next call after *wait* seconds."""

    def __init__(self, run: Run, wait: float) -> None:
        self.run, self.wait = run, wait
        self.called: list[float] = []

    def __call__(self) -> float:
        self.called.append(self.run.now)
        return self.wait


def test_each_observer_is_called_when_it_has_asked_for_it(run: Run) -> None:
    early, late = Observer(run, 1.0), Observer(run, 3.0)
    run.watcher.call_at(early, 0.0)
    run.watcher.call_at(late, 4.0)
    while run.now < 12:
        run.watcher.look_if_due()
        run.now += max(0.0, run.watcher.pause())
    waits = [then - now for now, then in pairwise(early.called)]
    assert waits == pytest.approx([1.0] * len(waits), abs=1.1 * INTERVAL)
    assert late.called == pytest.approx([4, 7, 10], abs=3.1 * INTERVAL)


def test_a_look_that_fails_is_tried_again_and_reported_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run.tree, "read", lambda: 1 / 0)
        for _ in range(3):
            run.watcher.look_if_due()
            run.now += run.watcher.pause()
    run.watcher.look_if_due()
    assert run.watcher.looks == 1
    ended = run.watcher.joined(kernel_measurement(Usage(1.0), 0.0))
    assert ended.monitor.warnings == (
        "measuring failed: ZeroDivisionError: division by zero",
    )


def test_an_observer_that_fails_does_not_stop_the_others(run: Run) -> None:
    other = Observer(run, 1.0)
    run.watcher.call_at(lambda: 1 / 0, 0.0)
    run.watcher.call_at(other, 0.0)
    run.watcher.look_if_due()
    assert len(other.called) == 1
    assert run.watcher.looks == 1


# When to look

SHARE, CREDIT = 0.005, 0.04  # of a core; CPU seconds
BLIND = 4.0  # seconds: the longest without a look


def waits(
    costs: Iterable[float], used: float = 1.0, schedule: LookSchedule | None = None
) -> list[float]:
    """Return the waits after looks of such *costs* at a tree that works."""
    schedule = schedule or LookSchedule(INTERVAL)
    now, found = 0.0, []
    for cost in costs:
        schedule.begin_look(is_idle=False)
        found.append(schedule.wait_after(now, now, cost, used))
        now += found[-1]
    return found


@given(st.lists(st.floats(0, SHARE * BLIND), min_size=1, max_size=50))
def test_looking_takes_its_share_of_a_core_whatever_a_look_costs(
    costs: list[float],
) -> None:
    allowed = SHARE * sum(waits(costs)) * 1.001 + CREDIT + max(costs)
    assert sum(costs) <= allowed


def test_no_cost_makes_weigh_blind_for_long() -> None:
    assert max(waits([10.0] * 10)) == BLIND


def test_when_looking_gets_cheap_again_it_gets_frequent_again() -> None:
    found = waits([0.01] * 10 + [0.0] * 60)
    assert found[9] > 1
    assert found[-1] == INTERVAL


def test_the_first_looks_come_fast_and_the_others_at_the_interval() -> None:
    found = waits([0.0] * 10)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.004, INTERVAL)


def test_a_short_job_pays_for_less_before_looks_are_earned() -> None:
    assert max(waits([0.004] * 8, used=0.0)) > INTERVAL
    assert max(waits([0.004] * 8, used=10.0)) == INTERVAL


def test_an_idle_tree_is_looked_at_less_and_less_often() -> None:
    schedule = LookSchedule(INTERVAL)
    waits([0.0] * 10, schedule=schedule)
    schedule.begin_look(is_idle=True)
    first = schedule.pause
    for _ in range(20):
        schedule.begin_look(is_idle=True)
    assert first > INTERVAL
    assert schedule.pause == 10 * INTERVAL
    schedule.begin_look(is_idle=False)
    assert schedule.pause == INTERVAL


def test_an_idle_tree_is_read_all_the_same_after_a_while_or_if_none_was_there() -> None:
    schedule = LookSchedule(INTERVAL)
    schedule.wait_after(1.0, 1.0, 0.0, 1.0)
    assert schedule.may_skip(10.9)
    assert not schedule.may_skip(11.1)
    schedule.wait_after(float("-inf"), 2.0, 0.0, 1.0)  # it saw no process
    assert not schedule.may_skip(2.0)


# What is done with processes that a command leaves behind, and when


def test_what_is_left_is_announced_after_half_a_second_whatever_a_look_costs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    monkeypatch.setattr(run.tree, "children", lambda: [7])
    run.tree.cost = 1.0  # the next look is seconds away
    CommandOrphans(run.watcher, announced.append).announce()
    run.watcher.look_if_due()
    assert (announced, run.watcher.pause()) == ([], 0.5)
    run.now = 0.5
    run.watcher.look_if_due()
    assert announced == ["the command left process 7 behind: waiting (Ctrl-C stops it)"]


# When a run writes down what it has measured so far


class Watched:
    """A watcher whose time and CPU time are set by hand."""

    def __init__(self) -> None:
        self.now, self.used = 0.0, 3.0
        self.tree = SimpleNamespace(seen=1)
        self.tracker = SimpleNamespace(best=5)
        self.calls: list[float] = []  # what was asked to be called, when
        self.written: list[float] = []  # when the run was written

    def elapsed(self) -> float:
        return self.now

    def cpu_time(self) -> float:
        return self.used

    def call_at(self, observer: Any, at: float) -> None:
        self.observer = observer
        self.calls.append(at)

    def write(self) -> None:
        self.written.append(self.now)


@pytest.fixture
def watched() -> Any:
    """Return a watcher of a run that was written at 20 s."""
    watched: Any = Watched()
    watched.checkpoints = RunCheckpoints(watched, watched.write)
    watched.now = 20.0
    watched.observer()
    return watched


@pytest.mark.parametrize(
    ("state", "is_written"),
    [
        ((30.0, 3.0, 1, 5), False),
        ((30.0, 3.1, 1, 5), True),  # it has worked
        ((30.0, 3.0, 2, 5), True),  # it has started a process
        # it has grown: without a clock, work after that of an ended process is not seen
        ((30.0, 3.0, 1, 6), True),
        ((81.0, 3.0, 1, 5), True),  # a minute after the last
    ],
)
def test_a_run_that_does_nothing_is_seldom_written_down(
    watched: Any, state: tuple[float, float, int, int], *, is_written: bool
) -> None:
    watched.now, watched.used, watched.tree.seen, watched.tracker.best = state
    assert watched.observer() == 10.0
    assert len(watched.written) == 1 + is_written


def test_a_run_that_ends_early_has_lost_half_of_itself_at_most() -> None:
    watched: Any = Watched()
    RunCheckpoints(watched, watched.write)
    times = watched.calls
    while times[-1] < 30:
        watched.now = times[-1]
        times.append(watched.now + watched.observer())
    assert times == pytest.approx([0.2, 1.2, 2.4, 4.8, 9.6, 19.2, 29.2, 39.2])


def test_after_a_signal_to_end_it_is_written_at_once_and_soon_again(
    watched: Any,
) -> None:
    watched.now = 30.0
    watched.checkpoints.hurry()
    assert watched.calls == [0.2, 0.0]
    assert [watched.observer() for _ in range(3)] == pytest.approx([0.2, 0.4, 0.8])
    assert watched.written == [20.0, 30.0, 30.0, 30.0]


def test_what_a_full_disk_refused_is_written_at_the_next_time() -> None:
    watched: Any = Watched()
    refusals = [OSError(28, "full")]

    def write() -> None:
        if refusals:
            raise refusals.pop()
        watched.write()

    RunCheckpoints(watched, write)
    watched.now = 20.0
    with pytest.raises(OSError, match="full"):
        watched.observer()
    watched.now = 24.0
    watched.observer()
    assert watched.written == [24.0]
