import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from looks import reading

from weigh.measure.memory.gauge import TreeMemoryGauge, UnmappedMemory
from weigh.measure.memory.holding import MemoryHolding
from weigh.probe.proc import ProcTree
from weigh.probe.tmpfs import MachineSharedMemory, TmpfsFiles
from weigh.units import KIB, MIB


class Machine:
    """Shared memory of a machine, and what a search for files finds; in MiB."""

    def __init__(self, root: Path) -> None:
        self.now = 0.0
        self.found = TmpfsFiles(0)
        self.searches = 0
        self._meminfo = root / "meminfo"
        self.hold(1000)
        self.unmapped = UnmappedMemory(
            lambda: self.now, MachineSharedMemory(str(root)), self._find
        )

    def hold(self, shmem: int) -> None:
        self._meminfo.write_text(f"\nShmem: {shmem * MIB // KIB} kB\n")

    def files(self, own: int, mapped: int = 0, closed: int = 0) -> None:
        self.found = TmpfsFiles(own * MIB, mapped * MIB, closed * MIB)

    def _find(self, _folders: object, _since: float, _known: object) -> TmpfsFiles:
        self.searches += 1
        return self.found

    def beyond(self, mapped: int = 0) -> int:
        """Look a while later; return what is held beyond the mapped memory."""
        self.now += 10
        rise = self.unmapped.rise()
        assert rise is not None
        if not self.unmapped.may_hold(mapped * MIB, rise):
            return 0
        return self.unmapped.beyond(mapped * MIB, rise, []) // MIB


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# looks, each at what the machine holds, what a search finds, what is mapped; and how
# much is held beyond that
SCENES: dict[str, list[tuple[int, tuple[int, ...], int, int]]] = {
    "a file that nobody maps counts": [(1096, (96,), 0, 96)],
    "what others hold is not the job's": [(1300, (96,), 0, 96), (1700, (96,), 0, 96)],
    "a file that the job wrote unseen counts": [(1096, (32, 0, 64), 0, 96)],
    "a file that is mapped counts once and stays when it is not": [
        (1096, (0,), 96, 0),
        (1096, (96,), 0, 96),
        (1096, (96,), 96, 0),
    ],
}


@pytest.mark.parametrize("what", SCENES)
def test_of_files_in_shared_memory(machine: Machine, what: str) -> None:
    for held, files, mapped, beyond in SCENES[what]:
        machine.hold(held)
        machine.files(*files)
        assert machine.beyond(mapped) == beyond


def test_what_others_gave_back_hides_nothing(machine: Machine) -> None:
    machine.hold(700)
    assert machine.beyond() == 0
    machine.hold(796)
    machine.files(96)
    assert machine.beyond() == 96
    machine.hold(650)  # others again, while the file stays
    assert [machine.beyond() for _ in range(3)][-1] == 96


def test_a_file_left_between_the_look_and_the_search_counts_once(
    machine: Machine,
) -> None:
    machine.hold(1200)
    machine.files(96)  # the search finds nobody who maps it, the look before it did
    assert machine.beyond(mapped=96) <= 104
    machine.hold(1096)
    assert machine.beyond(mapped=0) == 96


def test_no_change_makes_no_search(machine: Machine) -> None:
    machine.hold(1096)
    machine.files(96)
    for _ in range(5):
        machine.beyond()
    assert machine.searches == 1


def test_files_of_others_that_come_all_the_time_are_looked_for_within_a_budget(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = count()
    monkeypatch.setattr(time, "thread_time", lambda: next(used) * 0.02)
    for turn in range(100):  # 1000 s, with 20 ms of CPU time for each search
        machine.hold(1100 + 100 * turn)
        machine.beyond()
    assert machine.searches <= (0.06 + 1000 * 0.002) / 0.02 + 1
    assert machine.unmapped.spent == pytest.approx(machine.searches * 0.02)


def test_a_search_leaves_the_budget_of_counts_alone(
    machine: Machine, tmp_path: Path
) -> None:
    gauge = TreeMemoryGauge(ProcTree(10, str(tmp_path)), lambda: machine.now)
    gauge._unmapped = machine.unmapped
    machine.unmapped.spent = 5.0
    assert gauge.spent == 5.0
    assert gauge._shared_pages().may_spend()


def test_files_that_nobody_seems_to_map_are_within_what_processes_may_map(
    machine: Machine, tmp_path: Path
) -> None:
    """Two of 100 MiB each: the same 100, or 200."""
    gauge = TreeMemoryGauge(ProcTree(10, str(tmp_path)), lambda: machine.now)
    held = MemoryHolding(0, 100 * MIB, 0, low=0, high=200 * MIB, shared_doubt=100 * MIB)
    pages: Any = SimpleNamespace(hold=lambda *_: held, used=0.0, spent=0.0)
    gauge._pages, gauge._unmapped = pages, machine.unmapped
    machine.hold(1200)
    machine.files(200, mapped=100)
    found = gauge.hold([reading(1, 100 * MIB), reading(2, 100 * MIB)], 0)
    assert (found.total, found.high) == (200 * MIB, 205 * MIB)
