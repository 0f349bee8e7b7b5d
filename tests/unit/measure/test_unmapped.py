import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from weigh.measure.memory.gauge import UnmappedMemory
from weigh.probe.tmpfs import TmpfsFiles
from weigh.units import MIB


class Machine:
    """Shared memory of a machine, and what a search for files finds; in MiB."""

    def __init__(self) -> None:
        self.now = 0.0
        self.level = 1000
        self.found = (0, 0, 0)  # own, mapped, closed
        self.given_back = 0
        self.searches = 0
        files: Any = SimpleNamespace(search=self._search)
        self.unmapped = UnmappedMemory(
            lambda: self.now, lambda: self.level * MIB, files
        )

    def _search(self, _folders: object) -> TmpfsFiles:
        self.searches += 1
        return TmpfsFiles(*(size * MIB for size in self.found))

    def beyond(self, mapped: int = 0) -> int:
        """Look a while later; return what is held beyond the mapped memory."""
        self.now += 10
        beyond = self.unmapped.beyond(mapped * MIB, [], lambda: self.given_back * MIB)
        assert beyond.low <= beyond.value <= beyond.high
        return beyond.value // MIB


@pytest.fixture
def machine() -> Machine:
    return Machine()


# looks, each at what the machine holds, what a search finds, what is mapped; and how
# much is held beyond that
SCENES: dict[str, list[tuple[int, tuple[int, int, int], int, int]]] = {
    "a file that nobody maps counts": [(1096, (96, 0, 0), 0, 96)],
    "what others hold is not the job's": [
        (1300, (96, 0, 0), 0, 96),
        (1700, (96, 0, 0), 0, 96),
    ],
    "a file that the job wrote unseen counts": [(1096, (32, 0, 64), 0, 96)],
    "a file that is mapped counts once and stays when it is not": [
        (1096, (0, 0, 0), 96, 0),
        (1096, (96, 0, 0), 0, 96),
        (1096, (96, 96, 0), 96, 0),
    ],
    "what others gave back hides nothing": [
        (700, (0, 0, 0), 0, 0),
        (796, (96, 0, 0), 0, 96),
        (650, (96, 0, 0), 0, 96),
    ],
    "a file that one maps without touching it counts": [(1096, (96, 96, 0), 0, 96)],
    "mapped memory without a file is nothing beyond": [(1100, (0, 0, 0), 100, 0)],
}


@pytest.mark.parametrize("what", SCENES)
def test_of_files_in_shared_memory(machine: Machine, what: str) -> None:
    for level, found, mapped, beyond in SCENES[what]:
        machine.level, machine.found = level, found
        assert machine.beyond(mapped) == beyond


def test_a_file_left_between_the_look_and_the_search_counts_once(
    machine: Machine,
) -> None:
    machine.level, machine.found = 1200, (96, 0, 0)
    machine.given_back = 96  # the search finds nobody who maps it, the look did
    assert machine.beyond(mapped=96) == 0
    machine.given_back = 0
    assert machine.beyond(mapped=0) == 96


def test_what_is_mapped_between_the_look_and_the_search_is_no_file_that_nobody_maps(
    machine: Machine,
) -> None:
    machine.level, machine.found = 1064, (64, 64, 0)
    machine.given_back = -24
    assert machine.beyond(mapped=40) == 0


def test_no_change_makes_no_search(machine: Machine) -> None:
    machine.level, machine.found = 1096, (96, 0, 0)
    for _ in range(5):
        machine.beyond()
    assert machine.searches == 1


def test_until_the_next_search_what_went_may_have_been_the_jobs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.level, machine.found = 1096, (96, 0, 0)
    assert machine.beyond() == 96
    monkeypatch.setattr(machine.unmapped, "spent", 1000.0)
    machine.level = 1046
    assert machine.beyond() == 46


def test_files_of_others_that_come_all_the_time_are_looked_for_within_a_budget(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = count()
    monkeypatch.setattr(time, "thread_time", lambda: next(used) * 0.02)
    for turn in range(100):  # 1000 s, with 20 ms of CPU time for each search
        machine.level = 1100 + 100 * turn
        machine.beyond()
    assert machine.searches <= (0.06 + 1000 * 0.002) / 0.02 + 1
    assert machine.unmapped.spent == pytest.approx(machine.searches * 0.02)
