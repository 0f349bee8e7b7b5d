"""The ranks of a distributed run on this machine: which process belongs to which.

A launcher (torchrun, mpirun, srun) sets the rank in each process's environment, and
child processes inherit it. A rank's memory is the sum of its resident sets; a page that
several ranks share counts in each.
"""

import os
from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.record import Rank
from weigh.probe.proc import ProcessReading, ProcTree

_LONGEST_NUMBER = 9
_VARIABLES = (  # rank, how many there are, rank on this node
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


class Place(msgspec.Struct, frozen=True):
    """A rank, globally and on its node."""

    rank: int
    local_rank: int | None = None


def place_of(env: Mapping[str, str]) -> Place | None:
    """Read a process's rank from its environment; None unless there are several."""
    for rank, size, local in _VARIABLES:
        number, ranks = _whole(env.get(rank)), _whole(env.get(size))
        if number is not None and ranks is not None and ranks > 1:
            return Place(number, _whole(env.get(local)))
    return None


class RankTracker:
    """Tracks the peak memory of each rank."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._met: set[int] = set()
        self._places: dict[int, Place | None] = {}
        self._ranks: dict[int, Rank] = {}

    def look(self, readings: Sequence[ProcessReading]) -> None:
        """Add one sample; a process's rank is read at its second sample."""
        seen = {reading.pid for reading in readings}
        self._places = {pid: at for pid, at in self._places.items() if pid in seen}
        for pid in seen & self._met:
            if pid not in self._places:
                self._ask(pid)
        self._met = seen
        if self._ranks:
            self._add_up(readings)

    def ranks(self) -> tuple[Rank, ...]:
        """Return all ranks, in order."""
        return tuple(self._ranks[rank] for rank in sorted(self._ranks))

    def _ask(self, pid: int) -> None:
        place = place_of(self._tree.environment(pid))
        self._places[pid] = place
        if place is not None and place.rank not in self._ranks:
            host = os.uname().nodename
            self._ranks[place.rank] = Rank(place.rank, place.local_rank, host, pid)

    def _add_up(self, readings: Sequence[ProcessReading]) -> None:
        held: dict[int, int] = {}
        for reading in readings:
            place = self._places.get(reading.pid)
            if place is not None:
                held[place.rank] = held.get(place.rank, 0) + reading.resident
        for number, size in held.items():
            rank = self._ranks[number]
            if size > (rank.peak_memory or 0):
                self._ranks[number] = msgspec.structs.replace(rank, peak_memory=size)


def _whole(word: str | None) -> int | None:
    is_whole = word is not None and word.isdecimal() and len(word) <= _LONGEST_NUMBER
    return int(word or "") if is_whole else None
