"""Slots: how many tasks run in parallel, and the CPUs and GPU of each."""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from weigh.units import Bytes


class TaskReservation(msgspec.Struct, frozen=True, gc=False):
    """What is reserved for one task while it runs: bytes and CPUs; 0: none, or unknown.

    CPUs are known only of a task's plan.
    """

    memory: Bytes = 0
    gpu_memory: Bytes = 0
    cpus: int = 0  # of a plan alone


NO_RESERVATION = TaskReservation()


# libraries that start a thread for each CPU of the machine, not of the slot
_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OMP = "OMP_NUM_THREADS"


class RunSlot(msgspec.Struct, frozen=True):
    """A place for one running task. ``number`` counts from 1; no ``cores``: any core.

    ``gpu`` is its GPU as written in CUDA_VISIBLE_DEVICES, or several with commas.
    """

    number: int
    cores: frozenset[int] = frozenset()
    gpu: str | None = None


class SlotLayout(msgspec.Struct, frozen=True):
    """All slots, and the number of threads for each."""

    slots: tuple[RunSlot, ...]
    threads: int

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the GPUs of the slots, each once, in order."""
        named = (slot.gpu.split(",") for slot in self.slots if slot.gpu)
        return tuple(dict.fromkeys(name for names in named for name in names))


def lay_out(
    slot_count: int,
    *,
    cpu_count: int,
    cores: Sequence[int] = (),
    gpu_names: Sequence[str] = (),
) -> SlotLayout:
    """Divide *cpu_count* and *gpu_names* among *slot_count* slots.

    *cores* are given if they are known to be ours alone; each slot gets adjacent ones.
    Slots take the GPUs in turn, or several each if there are more GPUs than slots.
    """
    # cores and GPUs of a slot; 0: fewer of them than slots
    width = len(cores) // slot_count
    each = len(gpu_names) // slot_count
    # several GPUs for each slot
    names = [
        ",".join(gpu_names[at * each : (at + 1) * each]) for at in range(slot_count)
    ]
    # several slots for each GPU
    if not each:
        names = [
            gpu_names[at % len(gpu_names)] if gpu_names else ""
            for at in range(slot_count)
        ]
    slots = tuple(
        RunSlot(
            number=place + 1,
            cores=frozenset(cores[place * width : (place + 1) * width]),
            gpu=names[place] or None,
        )
        for place in range(slot_count)
    )
    return SlotLayout(slots, max(1, cpu_count // slot_count))


def thread_settings(env: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return the variables that limit numeric libraries to *threads*.

    Return none if the user set OMP_NUM_THREADS, which the others follow.
    """
    if _OMP in env:
        return {}
    return {name: str(threads) for name in (_OMP, *_THREADS) if name not in env}


class FreeSlots:
    """The unused slots; the smallest number goes first."""

    def __init__(self, slots: Sequence[RunSlot]) -> None:
        self._slots = {slot.number: slot for slot in slots}
        self._free = list(self._slots)
        heapify(self._free)

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> RunSlot:
        """Take the slot with the smallest number."""
        return self._slots[heappop(self._free)]

    def take_where(self, fits_slot: Callable[[RunSlot], bool]) -> RunSlot | None:
        """Take the first slot that *fits_slot* accepts; None if there is none."""
        passed = []
        found = None
        while self._free and found is None:
            slot = self.take()
            if fits_slot(slot):
                found = slot
            else:
                passed.append(slot)
        for slot in passed:
            heappush(self._free, slot.number)
        return found

    def give_back(self, run_slot: RunSlot) -> None:
        """Return a slot to the unused ones."""
        heappush(self._free, run_slot.number)
