"""Slots: how many tasks run side by side, and what of the machine each of them has."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OMP = "OMP_NUM_THREADS"


class Slot(msgspec.Struct, frozen=True):
    """One place for a task. ``number`` counts from 1; no ``cores`` is any of them."""

    number: int
    cores: frozenset[int] = frozenset()
    gpu: str | None = None


class Layout(msgspec.Struct, frozen=True):
    """All slots, and the threads that each one's share of the CPUs is good for."""

    slots: tuple[Slot, ...]
    threads: int

    @property
    def gpus(self) -> tuple[str, ...]:
        """Give the GPUs of the slots, each once, in order."""
        return tuple(dict.fromkeys(slot.gpu for slot in self.slots if slot.gpu))

    @property
    def is_pinned(self) -> bool:
        """Tell whether each slot has cores of its own."""
        return bool(self.slots[0].cores)


def lay_out(
    jobs: int, *, cpus: int, cores: Sequence[int] = (), gpus: Sequence[str] = ()
) -> Layout:
    """Share *cpus* and *gpus* out among *jobs* slots.

    *cores* are given where they are known to be ours alone; they are dealt out in
    order, neighbours together. Slots take the GPUs in turn.
    """
    share = len(cores) // jobs
    slots = tuple(
        Slot(
            number=place + 1,
            cores=frozenset(cores[place * share : (place + 1) * share]),
            gpu=gpus[place % len(gpus)] if gpus else None,
        )
        for place in range(jobs)
    )
    return Layout(slots, max(1, cpus // jobs))


def thread_settings(env: Mapping[str, str], threads: int) -> dict[str, str]:
    """Give the variables that keep numeric libraries to *threads*.

    Nothing where the user set OMP_NUM_THREADS, which the others follow.
    """
    if _OMP in env:
        return {}
    return {name: str(threads) for name in (_OMP, *_THREADS) if name not in env}


class FreeSlots:
    """The slots that nobody uses; the smallest number goes first."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = {slot.number: slot for slot in slots}
        self._free = list(self._slots)
        heapify(self._free)

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> Slot:
        """Take the smallest."""
        return self._slots[heappop(self._free)]

    def give_back(self, slot: Slot) -> None:
        """Put one back."""
        heappush(self._free, slot.number)
