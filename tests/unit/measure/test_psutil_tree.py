"""The tree as psutil shows it on macOS and Windows: a made-up machine of each."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from weigh.measure.portable import PsutilTree, ResidentSum
from weigh.measure.watcher import TreeWatcher, WatchedRun, kernel_measurement
from weigh.model.record import PeakMemory, Usage
from weigh.units import MIB


class FakeError(Exception):
    pass


class GoneError(FakeError):
    pass


class FakeProcess:
    """A process of a made-up machine, with what the system there would tell."""

    def __init__(self, machine: "Machine", pid: int, parent: int | None) -> None:
        self.machine, self.pid, self.parent = machine, pid, parent
        self.running, self.zombie, self.denied = True, False, False
        self.rss, self.peak, self.user = MIB, 0, 0.0

    def children(self, *, recursive: bool) -> list["FakeProcess"]:
        assert recursive
        self._check(is_denied=False)
        below = [p for p in self.machine.alive() if p.parent == self.pid]
        return below + [p for child in below for p in child.children(recursive=True)]

    def is_running(self) -> bool:
        return self.running

    @contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def memory_info(self) -> Any:
        self._check(is_denied=self.denied)
        if not self.machine.is_windows:
            if self.zombie:
                raise GoneError
            return SimpleNamespace(rss=self.rss, vms=400 << 30)
        self.peak = max(self.peak, self.rss)
        return SimpleNamespace(rss=self.rss, vms=self.rss, peak_wset=self.peak)

    def cpu_times(self) -> Any:
        self._check(is_denied=self.denied)
        return SimpleNamespace(user=self.user, system=0.0)

    def _check(self, *, is_denied: bool) -> None:
        if not self.running:
            raise GoneError
        if is_denied:
            raise FakeError


class Machine:
    """Stands in for the psutil module."""

    Error: type[Exception] = FakeError
    NoSuchProcess: type[Exception] = GoneError

    def __init__(self, *, is_windows: bool) -> None:
        self.is_windows = is_windows
        self.processes: dict[int, FakeProcess] = {}

    def start(self, pid: int, parent: int | None = None, **facts: Any) -> FakeProcess:
        process = self.processes[pid] = FakeProcess(self, pid, parent)
        vars(process).update(facts)
        return process

    def alive(self) -> list[FakeProcess]:
        return [p for p in self.processes.values() if p.running]

    def Process(self, pid: int) -> Any:  # noqa: N802 - psutil's name
        process = self.processes.get(pid)
        if process is None or not process.running:
            raise GoneError
        return process


@pytest.fixture(params=[False, True], ids=["macOS", "Windows"])
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(is_windows=request.param)


@pytest.fixture
def windows() -> Machine:
    return Machine(is_windows=True)


def resident(tree: PsutilTree) -> int:
    """Look for processes, and return what all of them hold."""
    tree.walk()
    return sum(reading.resident for reading in tree.read())


class Watched:
    """A tree under the common loop, whose looks a test takes."""

    def __init__(self, machine: Machine) -> None:
        self.tree = PsutilTree(1, machine)
        gauge = ResidentSum(self.tree)
        self.watcher = TreeWatcher(self.tree, 0.05, WatchedRun(gauge=gauge))
        self.look()

    def look(self) -> None:
        self.tree.walk()
        self.watcher.look()

    def peak(self) -> PeakMemory:
        ended = self.watcher.joined(kernel_measurement(Usage(1.0), 0.0))
        found = ended.usage.peak_memory
        assert found is not None
        return found


# processes by id: parent and MiB; who ends after a look; who starts then; what is held
Started = Mapping[int, tuple[int | None, int]]
FAMILIES: dict[str, tuple[Started, list[int], Started, int]] = {
    "the root, all below it, and no stranger": (
        {1: (None, 10), 2: (1, 20), 3: (2, 40), 4: (None, 80)},
        *([], {}, 70),
    ),
    "a process whose parent ended": (
        {1: (None, 1), 2: (1, 1), 3: (2, 30)},
        *([2], {}, 31),
    ),
    "children of an orphan": ({1: (None, 1), 2: (1, 1)}, [1], {3: (2, 5)}, 6),
    "no stranger with the same id": (
        {1: (None, 1), 2: (1, 1)},
        *([2], {2: (99, 500)}, 1),
    ),
}


@pytest.mark.parametrize("who", FAMILIES)
def test_the_tree_has(machine: Machine, who: str) -> None:
    first, ended, later, held = FAMILIES[who]
    for pid, (parent, size) in first.items():
        machine.start(pid, parent, rss=size * MIB)
    tree = PsutilTree(1, machine)
    resident(tree)
    for pid in ended:
        machine.processes[pid].running = False
        for child in machine.alive():
            child.parent = None if child.parent == pid else child.parent
    for pid, (parent, size) in later.items():
        machine.start(pid, parent, rss=size * MIB)
    assert resident(tree) == held * MIB


def test_who_denies_access_is_reported_and_who_vanishes_is_skipped(
    machine: Machine,
) -> None:
    for pid in (1, 2, 3, 4):
        machine.start(pid, None if pid == 1 else 1, denied=pid == 2)
    tree = PsutilTree(1, machine)
    assert resident(tree) == 3 * MIB
    assert (tree.seen, tree.unread, {*tree.pids()}) == (4, 1, {1, 2, 3, 4})
    gone = machine.processes[3]
    gone.is_running = lambda: True  # type: ignore[method-assign]
    gone.running = False  # while it is read
    assert sum(reading.resident for reading in tree.read()) == 2 * MIB


@pytest.mark.parametrize("is_there", [True, False])
def test_a_zombie_or_a_root_that_is_gone_is_not_alive(
    machine: Machine, *, is_there: bool
) -> None:
    if is_there:
        machine.start(1, rss=0, zombie=True)
    tree = PsutilTree(1, machine)
    assert resident(tree) == 0
    assert not tree.pids()


def test_zombies_are_read_once_and_their_time_is_kept(windows: Machine) -> None:
    windows.start(1)
    child = windows.start(2, parent=1, rss=0, user=2.0)
    tree = PsutilTree(1, windows)
    resident(tree)
    child.denied = True  # a second reading would be refused, and reported
    resident(tree)
    assert (tree.pids(), tree.unread, tree.seen) == ([1], 0, 2)
    assert tree.totals() == (2.0, 0.0)


def test_windows_peak_between_samples_is_caught_and_counted_once(
    windows: Machine,
) -> None:
    root = windows.start(1, rss=10 * MIB)
    watched = Watched(windows)
    root.peak = 512 * MIB
    watched.look()
    assert watched.peak().value == 512 * MIB
    windows.start(2, parent=1, rss=20 * MIB)
    watched.look()
    assert watched.watcher.samples[-1].memory == 30 * MIB
    assert watched.peak().value == 512 * MIB


def test_a_sum_states_that_shared_pages_count_often(machine: Machine) -> None:
    machine.start(1, rss=20 * MIB)
    machine.start(2, parent=1, rss=30 * MIB)
    peak = Watched(machine).peak()
    assert (peak.low, peak.value, peak.certainty) == (30 * MIB, 50 * MIB, "guessed")
    assert "shared pages counted more than once" in peak.source


def test_finding_processes_takes_its_share_of_a_core(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start(1)
    tree = PsutilTree(1, machine)
    spent, now = count(), 0.0  # each walk takes one second of CPU time
    monkeypatch.setattr(time, "thread_time", lambda: float(next(spent)))
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    for _ in range(1000):
        tree.read()
        now += 1.0
    assert tree.walked <= 0.2 + 0.005 * now + 1
