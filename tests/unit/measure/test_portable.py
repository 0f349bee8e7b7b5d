"""Trees that psutil reads, made up as macOS and Windows show them, and real runs.

How runs end is among the tests of ``weigh run``.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from weigh import waits
from weigh.errors import UsageError
from weigh.measure.portable import PsutilTree, run_portable_command
from weigh.measure.watcher import (
    TreeWatcher,
    WatchedRun,
    WatchSettings,
    kernel_measurement,
)
from weigh.model.record import PeakMemory, RunMeasurement, Usage
from weigh.probe.own_memory import max_rss_bytes
from weigh.units import KIB, MIB


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
        self.watcher = TreeWatcher(self.tree, 0.05, WatchedRun(gauge=self.tree))
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
    assert tree.spent <= 0.2 + 0.005 * now + 1


# Real runs

HUNDRED = "x = bytearray(100 << 20); import sys, time; time.sleep(0.3)"
SAYS_PEAK = """
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open({path!r}, "w").write(str(peak * (1 if sys.platform == "darwin" else 1024)))
"""
SAYS_CPU_TIME = """
import resource, subprocess, sys
for _ in range(10):
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"])
used = [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
open({path!r}, "w").write(str(sum(each.ru_utime + each.ru_stime for each in used)))
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run_here(*command: str, **settings: Any) -> RunMeasurement:
    return run_portable_command(command, None, WatchSettings(**settings))


def peak_of(measured: RunMeasurement) -> PeakMemory:
    assert measured.usage.peak_memory is not None
    return measured.usage.peak_memory


SMALL_PROCESS = """
import json, sys, msgspec
from weigh.measure.portable import run_portable_command
from weigh.measure.watcher import WatchSettings
watch = WatchSettings(interval=float(sys.argv[1]))
for command in json.loads(sys.argv[2]):
    measured = run_portable_command(command, None, watch)
sys.stdout.buffer.write(msgspec.json.encode(measured))
"""


def run_from_a_small_process(
    *commands: list[str], interval: float = 0.05
) -> RunMeasurement:
    """Run them as weigh does: a large process, as these tests are, puts a floor below.

    The measurement is that of the last.
    """
    words = (str(interval), json.dumps(commands))
    argv = [sys.executable, "-c", SMALL_PROCESS, *words]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=RunMeasurement)


def test_a_process_of_100_mib_is_seen_as_that_after_a_larger_run(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    code = f"{HUNDRED}\n{SAYS_PEAK.format(path=str(said))}"
    larger = python("bytearray(250 << 20)")
    peak = peak_of(run_from_a_small_process(larger, python(code)))
    assert peak.value == pytest.approx(float(said.read_text()), rel=0.02)
    assert peak.value == pytest.approx(100 * MIB, rel=0.15)  # and a bare Python
    assert peak.high < 150 * MIB


def test_a_child_counts_with_its_parent_and_a_checkpoint_states_what_is_known() -> None:
    seen: list[RunMeasurement] = []
    code = "import subprocess, sys; x = bytearray(50 << 20); subprocess.run({})"
    measured = run_here(
        *python(code.format(repr(python(HUNDRED)))),
        checkpoint=lambda so_far, _leader: seen.append(so_far),
    )
    assert peak_of(measured).value > 150 * MIB
    assert measured.usage.processes == 2
    assert (seen[0].ended, seen[0].exit_code) == (None, None)
    assert seen[0].usage.peak_memory is not None


def test_a_spike_between_samples_is_caught() -> None:
    # larger than this process, whose size passes on to what it starts
    resource = pytest.importorskip("resource")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = max_rss_bytes(own, sys.platform) + 200 * MIB
    spike = f"import time; time.sleep(0.3); bytearray({size}); time.sleep(0.3)"
    measured = run_from_a_small_process(python(spike), interval=5.0)
    assert peak_of(measured).value > size


def test_cpu_time_counts_children_however_short(tmp_path: Path) -> None:
    said = tmp_path / "said"
    measured = run_here(*python(SAYS_CPU_TIME.format(path=str(said))))
    assert measured.usage.cpu_time == pytest.approx(float(said.read_text()), rel=0.1)


def test_a_nul_byte_is_refused_in_words_and_signal_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(UsageError, match="NUL"):
        run_here("true\0false")
    assert signal.getsignal(signal.SIGTERM) == before


OUTLIVED = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {code!r}], start_new_session=True)
time.sleep(0.6)
"""


AT_TERM = "import signal, time; signal.signal(15, lambda *_: {}); time.sleep(600)"
# what outlives the command and leaves a mark, and whether weigh waits for it
OUTLIVING = {
    "is waited for": ("import time; time.sleep(1.2); {}", True),
    "is terminated": (AT_TERM.format("exit({})"), False),
    "and does not end is killed": (AT_TERM, False),
}


@pytest.mark.parametrize("what", OUTLIVING)
def test_what_outlives_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(waits, "times", waits.WaitTimes(orphans_of_run_killed=1))
    mark, (code, is_waited_for) = tmp_path / "mark", OUTLIVING[what]
    code = code.format(f"open({str(mark)!r}, 'w').close()")
    run_here(*python(OUTLIVED.format(code=code)), wait_orphans=is_waited_for)
    assert mark.exists()


def test_ru_maxrss_is_bytes_on_macos_and_kib_on_linux() -> None:
    assert max_rss_bytes(300 * MIB, "darwin") == 300 * MIB
    assert max_rss_bytes(300 * MIB, "linux") == 300 * MIB * KIB
