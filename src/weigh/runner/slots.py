"""Slots: how many tasks run side by side, and what of the machine each of them has."""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from weigh.units import Bytes


class Share(msgspec.Struct, frozen=True, gc=False):
    """Memory for one task while it runs, in bytes; 0: as any other, or not known."""

    memory: Bytes = 0
    gpu_memory: Bytes = 0


NO_SHARE = Share()


_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OMP = "OMP_NUM_THREADS"


class Slot(msgspec.Struct, frozen=True):
    """One place for a task. ``number`` counts from 1; no ``cores`` is any of them.

    ``gpu`` is its card as CUDA_VISIBLE_DEVICES has it, or several with commas between.
    """

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
        named = (slot.gpu.split(",") for slot in self.slots if slot.gpu)
        return tuple(dict.fromkeys(name for names in named for name in names))


def lay_out(
    jobs: int, *, cpus: int, cores: Sequence[int] = (), gpus: Sequence[str] = ()
) -> Layout:
    """Share *cpus* and *gpus* out among *jobs* slots.

    *cores* are given where they are known to be ours alone; they are dealt out in
    order, neighbours together. Slots take the GPUs in turn, or several each where
    there are more GPUs than slots.
    """
    share = len(cores) // jobs
    cards = len(gpus) // jobs
    held = [",".join(gpus[at * cards : (at + 1) * cards]) for at in range(jobs)]
    if not cards:
        held = [gpus[at % len(gpus)] if gpus else "" for at in range(jobs)]
    slots = tuple(
        Slot(
            number=place + 1,
            cores=frozenset(cores[place * share : (place + 1) * share]),
            gpu=held[place] or None,
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

    def take_where(self, fits: Callable[[Slot], bool]) -> Slot | None:
        """Take the smallest into which something *fits*; None where there is none."""
        passed = []
        found = None
        while self._free and found is None:
            slot = self.take()
            if fits(slot):
                found = slot
            else:
                passed.append(slot)
        for slot in passed:
            heappush(self._free, slot.number)
        return found

    def give_back(self, slot: Slot) -> None:
        """Put one back."""
        heappush(self._free, slot.number)
