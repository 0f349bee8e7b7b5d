"""Slots, how many tasks run in parallel and the CPUs and GPU of each; and the queue.

They divide the CPUs and GPUs of this job's allocation, never all of the node's.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.model.record import Allocation
from weigh.probe.cgroup import group_folders
from weigh.regular_file import file_head
from weigh.schedulers import kind_of_job
from weigh.units import Bytes

# words for no GPU; the last one is Slurm's
_HIDDEN = ("", "-1", "NoDevFiles")
_ORDINAL = "GPU_DEVICE_ORDINAL"  # AMD's, which Slurm sets, too
CUDA = "CUDA_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"  # AMD's programs read CUDA's only where this is not set
_ROCR = "ROCR_VISIBLE_DEVICES"  # and both number what this leaves
SHOWN = (_HIP, CUDA, _ROCR)  # the variables that hide GPUs from a program


class TaskReservation(msgspec.Struct, frozen=True, gc=False):
    """What is reserved for one task while it runs: bytes and CPUs; 0: none, or unknown.

    CPUs are known only of a task's plan.
    """

    memory: Bytes = 0
    gpu_memory: Bytes = 0
    cpus: int = 0  # of a plan alone


NO_RESERVATION = TaskReservation()


class TaskPlan:
    """What a plan states of the tasks of a file. This one states nothing."""

    def need_of(self, _task_number: int) -> TaskReservation:
        """Return a task's planned need."""
        return NO_RESERVATION

    def number_of(self, task_number: int) -> int:
        """Return the number that users know a task by: its place in the whole file."""
        return task_number


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
        self._free = sorted(slots, key=_slot_number)

    def __len__(self) -> int:
        return len(self._free)

    def find(self, fits_slot: Callable[[RunSlot], bool]) -> RunSlot | None:
        """Return the first slot that *fits_slot* accepts; None if there is none."""
        return next(filter(fits_slot, self._free), None)

    def take(self, run_slot: RunSlot) -> None:
        """Take a slot that is unused."""
        self._free.remove(run_slot)

    def give_back(self, run_slot: RunSlot) -> None:
        """Return a slot to the unused ones."""
        insort(self._free, run_slot, key=_slot_number)


def _slot_number(run_slot: RunSlot) -> int:
    return run_slot.number


# starts that may pass a task which waits for memory: then it has to be next, or tasks
# that need less would take what becomes free forever
MOST_PASSING = 16


class TaskTurn(msgspec.Struct, frozen=True, gc=False):
    """A task to run: ``alone`` with no other task, or once ``reservation`` is free."""

    seq: int  # number of the task in its file, from 1
    alone: bool = False
    reservation: TaskReservation = NO_RESERVATION


class TurnQueue:
    """The turns to come. Those that run alone come after all others have ended."""

    def __init__(self, order: Iterator[int]) -> None:
        # not a list: there may be hundreds of thousands
        self._order = order
        self._again: deque[TaskTurn] = deque()  # as soon as a slot is free
        self._large: deque[TaskTurn] = deque()  # when their memory is free
        self._alone: deque[TaskTurn] = deque()  # after all others
        self._next: int | None = next(order, None)

    def put(self, turn: TaskTurn, *, is_first: bool = False) -> None:
        """Queue another attempt at a task, or first a turn that came to nothing."""
        turns = self._again
        if turn.alone:
            turns = self._alone
        elif turn.reservation != NO_RESERVATION:
            turns = self._large
        turns.insert(0 if is_first else len(turns), turn)

    def is_empty(self) -> bool:
        """Return whether no task is left to run."""
        return self._next is None and not (self._again or self._large or self._alone)

    @property
    def large(self) -> TaskTurn | None:
        """Return the next turn that needs much memory, which has priority."""
        return self._large[0] if self._large else None

    def take_large(self) -> TaskTurn:
        """Take the turn that :attr:`large` returns."""
        return self._large.popleft()

    def peek(self, running: int) -> int | None:
        """Return the number of the task that is next while *running* tasks run.

        Return None to wait for those.
        """
        if self._again:
            return self._again[0].seq
        if self._next is not None:
            return self._next
        # a turn that needs much memory comes first, and neither runs next to it
        if self._alone and not self._large and not running:
            return self._alone[0].seq
        return None

    def take_where(
        self, running: int, place_task: Callable[[int], RunSlot | None]
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Take the next turn if *place_task* finds a slot for its task."""
        seq = self.peek(running)
        slot = None if seq is None else place_task(seq)
        if slot is None:
            return None
        if self._again:
            return self._again.popleft(), slot
        if self._next is None:
            return self._alone.popleft(), slot
        turn, self._next = TaskTurn(self._next), next(self._order, None)
        return turn, slot


class MachineResources(msgspec.Struct, frozen=True):
    """``cpus`` to divide among slots; ``cores`` are their numbers if surely ours alone.

    ``gpus`` are names for CUDA_VISIBLE_DEVICES, None if the environment names none.
    """

    cpus: int
    cores: tuple[int, ...]
    gpus: tuple[str, ...] | None


def read_resources(
    env: Mapping[str, str],
    allocation: Allocation | None,
    *,
    affinity: frozenset[int],
    quota: float | None,
) -> MachineResources:
    """Return the least that affinity, control group and scheduler allow.

    Tasks can be pinned to cores only if the affinity alone limits the CPUs: a quota on
    a larger set assigns no cores in particular.
    """
    cpus = len(affinity)
    if quota is not None and quota < cpus:
        # rounded down: beyond the quota all tasks would be slowed down
        cpus = max(1, int(quota))
    granted = None if allocation is None else allocation.cpus
    if allocation is not None and granted is not None and granted < cpus:
        cpus = granted
    is_ours = cpus == len(affinity)
    return MachineResources(
        cpus, tuple(sorted(affinity)) if is_ours else (), gpus_named(env)
    )


def gpus_named(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that the environment names; None if it names none."""
    for name in (_HIP, CUDA):
        if name in env:
            return _listed_gpu_names(env[name])
    if _ROCR in env:
        # programs number from 0 what this variable leaves them
        return tuple(map(str, range(len(_listed_gpu_names(env[_ROCR])))))
    kind = kind_of_job(env)
    for name in (*(() if kind is None else kind.variables.gpus), _ORDINAL):
        if env.get(name):
            return tuple(
                map(_gpu_number, _listed_gpu_names(env[name].replace(" ", ",")))
            )
    return None


def gpu_settings(gpu_name: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that show a program *gpu_name* alone; *env* is its own."""
    if gpu_name is None:
        return {}
    return {CUDA: gpu_name} | ({_HIP: gpu_name} if _HIP in env else {})


def _listed_gpu_names(variable_text: str) -> tuple[str, ...]:
    names = (name.strip() for name in variable_text.split(","))
    return tuple(name for name in names if name not in _HIDDEN)


def _gpu_number(gpu_word: str) -> str:
    """Return the number in ``gpu0``, ``cuda1`` or ``2``; a UUID unchanged."""
    digits = gpu_word.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:-/")
    return digits if digits.isdecimal() else gpu_word


def read_cpu_quota(
    proc_folder: str = "/proc", root: str = "/sys/fs/cgroup"
) -> float | None:
    """Return the CPUs that the control groups allow; None without a quota."""
    # a group above may have the smaller quota
    folders, _ = group_folders("cpu", proc_folder, root)
    quotas = filter(None, map(_cgroup_cpu_quota, folders))
    return min(quotas, default=None)


def _cgroup_cpu_quota(folder: str) -> float | None:
    words = file_head(f"{folder}/cpu.max").split()
    if not words:  # version 1, where -1 is no quota
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [file_head(f"{folder}/{name}").strip() for name in files]
    if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()):  # noqa: PLR2004
        return None  # "max", -1, or not there
    return int(words[0]) / int(words[1]) if int(words[1]) else None
