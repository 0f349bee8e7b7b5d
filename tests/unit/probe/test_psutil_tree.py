import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from weigh.probe.psutil_tree import PsutilTree
from weigh.units import MIB


class FakeError(Exception):
    pass


class GoneError(FakeError):
    pass


class ZombieError(GoneError):
    pass


class DeniedError(FakeError):
    pass


class FakeProcess:
    """A process of a made-up machine, with what the system there would tell."""

    def __init__(self, machine: "Machine", pid: int, parent: int | None) -> None:
        self.machine, self.pid, self.parent = machine, pid, parent
        self.running, self.zombie, self.denied = True, False, False
        self.rss, self.peak, self.unique = 0, 0, 0
        self.user = self.system = 0.0
        self.signals: list[int] = []

    def children(self, *, recursive: bool) -> list["FakeProcess"]:
        assert recursive
        if not self.running:
            raise GoneError
        below = [p for p in self.machine.alive() if p.parent == self.pid]
        return below + [p for child in below for p in child.children(recursive=True)]

    def is_running(self) -> bool:
        return self.running

    def threads(self) -> list[Any]:
        return []

    def status(self) -> str:
        return "zombie" if self.zombie else "running"

    @contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def cpu_times(self) -> Any:
        self._check()
        return SimpleNamespace(
            user=self.user, system=self.system, children_user=0.0, children_system=0.0
        )

    def send_signal(self, number: int) -> None:
        self._check()
        self.signals.append(number)

    def kill(self) -> None:
        self.send_signal(9)

    def _check(self) -> None:
        if not self.running:
            raise GoneError
        if self.denied:
            raise DeniedError


class MacProcess(FakeProcess):
    def memory_info(self) -> Any:
        self._check()
        if self.zombie:
            raise ZombieError
        return SimpleNamespace(rss=self.rss, vms=400 << 30, pfaults=0, pageins=0)

    def memory_full_info(self) -> Any:
        self.machine.log.append("uss asked")
        raise DeniedError


class WindowsProcess(FakeProcess):
    def memory_info(self) -> Any:
        self._check()
        self.peak = max(self.peak, self.rss)
        return SimpleNamespace(rss=self.rss, vms=self.rss, peak_wset=self.peak)

    def memory_full_info(self) -> Any:
        return SimpleNamespace(uss=self.unique)

    def io_counters(self) -> Any:
        self._check()
        return SimpleNamespace(read_bytes=7 * self.pid, write_bytes=5 * self.pid)


class Machine:
    """Stands in for the psutil module."""

    STATUS_ZOMBIE = "zombie"
    Error: type[Exception] = FakeError
    NoSuchProcess: type[Exception] = GoneError
    ZombieProcess: type[Exception] = ZombieError

    def __init__(self, kind: type[FakeProcess]) -> None:
        self.kind = kind
        self.log: list[str] = []
        self.processes: dict[int, FakeProcess] = {}

    def start(self, pid: int, parent: int | None = None, **facts: Any) -> FakeProcess:
        process = self.kind(self, pid, parent)
        self.log.append(f"{pid} started")
        vars(process).update(facts)
        self.processes[pid] = process
        return process

    def alive(self) -> list[FakeProcess]:
        return [p for p in self.processes.values() if p.running]

    def Process(self, pid: int) -> Any:  # noqa: N802 - psutil's name
        process = self.processes.get(pid)
        if process is None or not process.running:
            raise GoneError
        return process


@pytest.fixture
def mac() -> Machine:
    return Machine(MacProcess)


@pytest.fixture
def windows() -> Machine:
    return Machine(WindowsProcess)


@pytest.fixture(params=[MacProcess, WindowsProcess], ids=["macOS", "Windows"])
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(request.param)


def test_the_tree_is_the_root_and_all_below_it(machine: Machine) -> None:
    machine.start(1, rss=10 * MIB)
    machine.start(2, parent=1, rss=20 * MIB)
    machine.start(3, parent=2, rss=40 * MIB)
    machine.start(4, rss=80 * MIB)  # a stranger
    reading = PsutilTree(1, machine).sample()
    assert (reading.memory, reading.processes) == (70 * MIB, 3)


def test_a_process_stays_counted_when_its_parent_ends(machine: Machine) -> None:
    machine.start(1, rss=MIB)
    middle = machine.start(2, parent=1, rss=MIB)
    machine.start(3, parent=2, rss=30 * MIB)
    tree = PsutilTree(1, machine)
    tree.sample()
    middle.running = False
    machine.processes[3].parent = None
    assert tree.sample().memory == 31 * MIB


def test_children_of_a_reparented_process_are_found(machine: Machine) -> None:
    root = machine.start(1)
    orphan = machine.start(2, parent=1)
    tree = PsutilTree(1, machine)
    tree.sample()
    root.running, orphan.parent = False, None
    machine.start(3, parent=2, rss=5 * MIB)
    assert tree.sample().memory == 5 * MIB


def test_a_stranger_with_the_same_pid_is_not_counted(machine: Machine) -> None:
    machine.start(1)
    machine.start(2, parent=1, rss=MIB)
    tree = PsutilTree(1, machine)
    tree.sample()
    machine.processes[2].running = False
    machine.start(2, parent=99, rss=500 * MIB)
    assert tree.sample().memory == 0


def test_a_process_that_vanishes_while_it_is_read_is_skipped(machine: Machine) -> None:
    machine.start(1, rss=MIB)
    gone = machine.start(2, parent=1, rss=MIB)
    tree = PsutilTree(1, machine)
    tree.walk()
    gone.is_running = lambda: True  # type: ignore[method-assign]
    gone.running = False
    assert tree.read().memory == MIB


def test_a_process_that_denies_access_is_skipped_and_reported(machine: Machine) -> None:
    machine.start(1, rss=MIB)
    machine.start(2, parent=1, rss=9 * MIB, denied=True)
    reading = PsutilTree(1, machine).sample()
    assert (reading.memory, reading.processes, reading.unread) == (MIB, 2, 1)


def test_a_root_that_is_gone_already_makes_an_empty_reading(machine: Machine) -> None:
    reading = PsutilTree(1, machine).sample()
    assert (reading.memory, reading.processes, reading.cpu_time) == (0, 0, None)


@pytest.mark.parametrize("rss", [0, 3 * MIB])
def test_a_zombie_is_not_alive(machine: Machine, rss: int) -> None:
    if machine.kind is WindowsProcess:
        rss = 0  # like Linux: readable, but empty
    machine.start(1, rss=rss, zombie=True)
    tree = PsutilTree(1, machine)
    tree.sample()
    assert not tree.is_alive()


def test_zombies_are_read_once_and_their_time_is_kept(windows: Machine) -> None:
    windows.start(1, rss=5 * MIB)
    child = windows.start(2, parent=1, zombie=True, user=2.0)
    tree = PsutilTree(1, windows)
    tree.sample()
    child.denied = True  # a second reading would be refused, and reported
    seen = tree.sample()
    assert (seen.processes, seen.unread, tree.processes) == (1, 0, 2)
    assert tree.totals().user_time == 2.0


LEADER_ENDS = """
import ctypes, sys, threading
def work():
    memory = bytearray(64 << 20)
    memory[::4096] = bytes(len(memory) // 4096)
    print(flush=True)
    sys.stdin.read()
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it stays no zombie")
def test_a_process_is_read_through_the_threads_that_outlive_its_first() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", LEADER_ENDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as job:
        assert job.stdout is not None
        assert job.stdin is not None
        module: Any = psutil
        tree = PsutilTree(job.pid, module)
        job.stdout.readline()
        while psutil.Process(job.pid).status() != psutil.STATUS_ZOMBIE:
            pass
        seen = tree.sample()
        job.stdin.close()
    assert seen.memory > 64 * MIB
    assert tree.is_alive()


def test_cpu_time_of_the_ended_stays_in_the_totals(machine: Machine) -> None:
    machine.start(1, user=1.0, system=0.5)
    child = machine.start(2, parent=1, user=2.0)
    tree = PsutilTree(1, machine)
    tree.sample()
    child.running = False
    assert tree.sample().cpu_time == 1.5
    assert tree.totals().user_time == 3.0


def test_only_what_outlived_its_parent_is_detached(machine: Machine) -> None:
    machine.start(1, user=1.0)
    middle = machine.start(2, parent=1, user=2.0)
    orphan = machine.start(3, parent=2, user=4.0)
    tree = PsutilTree(1, machine)
    tree.sample()
    middle.running, orphan.parent = False, None
    tree.sample()
    orphan.running = False
    tree.sample()
    assert tree.totals(detached_only=True).user_time == 4.0


def test_processes_counts_those_that_ended(machine: Machine) -> None:
    machine.start(1)
    child = machine.start(2, parent=1)
    tree = PsutilTree(1, machine)
    tree.sample()
    child.running = False
    machine.start(3, parent=1)
    tree.sample()
    assert tree.processes == 3


def test_signals_reach_every_live_process(machine: Machine) -> None:
    machine.start(1)
    machine.start(2, parent=1, denied=True)
    machine.start(3, parent=1)
    tree = PsutilTree(1, machine)
    tree.sample()
    tree.send_signal(15)
    assert [p.signals for p in machine.alive()] == [[15], [], [15]]


def test_macos_does_not_report_traffic_so_none_is_reported(mac: Machine) -> None:
    mac.start(1, rss=MIB)
    tree = PsutilTree(1, mac)
    tree.sample()
    assert tree.totals().read_bytes is None


def test_macos_is_queried_once_for_what_it_keeps_to_root(mac: Machine) -> None:
    mac.start(1, rss=MIB)
    child = mac.start(2, parent=1, rss=MIB)
    tree = PsutilTree(1, mac)
    for size in (10, 20, 40):
        child.rss = size * MIB
        assert tree.sample().unshared is None
    assert mac.log.count("uss asked") == 2  # once for each of two processes


def test_windows_peak_between_samples_is_caught(windows: Machine) -> None:
    root = windows.start(1, rss=10 * MIB)
    tree = PsutilTree(1, windows)
    tree.sample()
    root.peak = 512 * MIB
    assert tree.sample().memory == 512 * MIB


def test_windows_peak_is_not_counted_again_after_it_was_seen(windows: Machine) -> None:
    windows.start(1, rss=10 * MIB, peak=512 * MIB)
    tree = PsutilTree(1, windows)
    tree.sample()
    again = tree.sample()
    assert (again.memory, again.largest_process) == (10 * MIB, 512 * MIB)


def test_the_upper_bound_holds_peaks_of_what_ended_since(windows: Machine) -> None:
    windows.start(1, rss=10 * MIB, peak=20 * MIB)
    child = windows.start(2, parent=1, rss=30 * MIB)
    tree = PsutilTree(1, windows)
    tree.sample()
    child.running = False
    assert tree.sample().memory_high == 50 * MIB


def test_windows_reports_what_is_not_shared_near_a_new_peak(windows: Machine) -> None:
    windows.start(1, rss=50 * MIB, unique=20 * MIB)
    windows.start(2, parent=1, rss=50 * MIB, unique=30 * MIB)
    tree = PsutilTree(1, windows)
    assert [tree.sample().unshared, tree.sample().unshared] == [50 * MIB, None]


def test_windows_traffic_is_summed_over_all_ever_seen(windows: Machine) -> None:
    windows.start(1)
    child = windows.start(2, parent=1)
    tree = PsutilTree(1, windows)
    tree.sample()
    child.running = False
    tree.sample()
    assert tree.totals().write_bytes == 15


ORPHAN = "import sys; x = bytearray(40 << 20); print('up', flush=True); input()"
PARENT = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {ORPHAN!r}], stdin=sys.stdin)
sys.stdin.buffer.raw.read(1)
"""


def test_a_real_orphan_stays_counted_to_its_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        tree = PsutilTree(parent.pid, psutil)
        tree.walk()
        parent.terminate()
        parent.wait()
        reading = tree.sample()
        parent.stdin.close()  # the orphan reads its end and ends too
        parent.stdout.read()
    assert reading.processes == 1
    assert reading.memory > 40 * MIB
