"""The ranks of a distributed run on this machine: which process belongs to which.

A launcher (torchrun, mpirun, srun) sets the rank in each process's environment, and
child processes inherit it. A rank's memory is the sum of its resident sets; a page that
several ranks share counts in each.

Launchers stack: mpirun has srun start one daemon per node, which starts the ranks. Of
the variables in a process's environment the innermost launcher's count, and where the
processes of a step name an inner launcher, those that name only srun are its daemons.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from weigh.measure.series import TIMES_INTERVAL
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import RecordedRank, step_order
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import Bytes, Seconds

_LONGEST_NUMBER = 9  # digits; a longer one is no rank
_LONGEST_WORLD = 80  # characters of a step's name
_STEP = "SLURM_STEP_ID"


class _RankLauncher(NamedTuple):
    """A launcher's name, and its variables: a rank, how many there are, the local rank.

    ``world`` are variables that name the one start that the ranks belong to.
    """

    name: str
    rank: str
    size: str
    local: str
    world: tuple[str, ...] = (_STEP,)


_LAUNCHERS = (  # the innermost first
    _RankLauncher(
        "torch", "RANK", "WORLD_SIZE", "LOCAL_RANK", ("TORCHELASTIC_RUN_ID", _STEP)
    ),
    _RankLauncher(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        # some of its ranks are in a step of srun, those on the node of mpirun in none
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", _STEP),
    ),
    _RankLauncher("pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    _RankLauncher("step", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
_OUTERMOST = len(_LAUNCHERS) - 1


class RankPlace(msgspec.Struct, frozen=True):
    """A rank, globally and on its node, among ``size``, in a ``step`` of the job.

    ``depth`` is 0 for the innermost kind of launcher; ``step`` is None outside of
    a scheduler's steps. ``within`` is the scheduler's step, where ``step`` is another
    launcher's.
    """

    rank: int
    local_rank: int | None = None
    size: int = 0
    step: str | None = None
    depth: int = 0
    within: str | None = None

    @property
    def launcher(self) -> str:
        """Return the name of the kind of launcher."""
        return _LAUNCHERS[self.depth].name


def place_of(env: Mapping[str, str]) -> RankPlace | None:
    """Read a process's rank from its environment; None unless there are several."""
    for depth, names in enumerate(_LAUNCHERS):
        rank = _whole_rank_number(env.get(names.rank))
        size = _whole_rank_number(env.get(names.size))
        if rank is not None and size is not None and size > 1:
            step = next((env[name] for name in names.world if env.get(name)), None)
            return RankPlace(
                rank,
                _whole_rank_number(env.get(names.local)),
                size,
                None if step is None else step[:_LONGEST_WORLD],
                depth,
                env.get(_STEP),
            )
    return None


class _TrackedRank:
    """What is known of one rank; times are those of the run."""

    __slots__ = ("cpu_time", "first", "last", "peak", "pid", "place")

    def __init__(self, rank_place: RankPlace, pid: int, current_time: Seconds) -> None:
        self.place = rank_place
        self.pid = pid
        self.first = self.last = current_time
        self.peak: Bytes | None = None
        self.cpu_time: Seconds | None = None

    def is_launcher_daemon(self, others: Iterable["_TrackedRank"]) -> bool:
        """Return whether srun started the process for another launcher."""
        return self.place.depth == _OUTERMOST and any(
            other.place.depth != _OUTERMOST and other.place.within == self.place.within
            for other in others
        )


_Key = tuple[int, str | None, int]  # depth, step, rank


class RankTracker:
    """Tracks the peak memory and the CPU time of each rank."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._samples: dict[int, int] = {}  # that each living process was in
        self._keys: dict[int, _Key] = {}  # of living processes with a rank
        self._all_keys: dict[int, _Key] = {}  # of processes that ended, too
        self._ranks: dict[_Key, _TrackedRank] = {}
        self._times_read: Seconds = -TIMES_INTERVAL

    def look(self, current_time: Seconds, readings: Sequence[ProcessReading]) -> None:
        """Add one sample; a process's rank is read at its second sample.

        A process that is no rank then may have been forked only, and execute its
        program later: it is read again after twice as many samples each time.
        """
        samples = self._samples
        self._samples = {one.pid: samples.get(one.pid, 0) + 1 for one in readings}
        for pid in self._keys.keys() - self._samples.keys():
            del self._keys[pid]
        for pid, count in self._samples.items():
            # at samples 2, 3, 5, 9...: a power of two has one bit
            if pid not in self._keys and count > 1 and (count - 1) & (count - 2) == 0:
                self._ask(pid, current_time)
        if self._keys:
            self._add_up(current_time, readings)

    def _ask(self, pid: int, current_time: Seconds) -> None:
        place = place_of(self._tree.environment(pid))
        if place is None:
            return
        key = place.depth, place.step, place.rank
        self._keys[pid] = self._all_keys[pid] = key
        if key not in self._ranks:
            self._ranks[key] = _TrackedRank(place, pid, current_time)

    def _add_up(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> None:
        held: Counter[_Key] = Counter()
        largest: dict[_Key, Bytes] = {}
        for reading in readings:
            key = self._keys.get(reading.pid)
            if key is not None:
                held[key] += reading.resident
                largest[key] = max(largest.get(key, 0), reading.peak)
        for key, size in held.items():
            rank = self._ranks[key]
            # one process may have grown and shrunk between two samples
            rank.peak = max(rank.peak or 0, size, largest[key])
            rank.last = current_time
        if current_time - self._times_read < TIMES_INTERVAL:
            return
        self._times_read = current_time
        used: defaultdict[_Key, Seconds] = defaultdict(float)
        for pid, key in self._keys.items():
            times = self._tree.times(pid)
            used[key] += 0.0 if times is None else times.cpu_time
        for key, seconds in used.items():
            rank = self._ranks[key]
            # the sum falls as processes end
            rank.cpu_time = max(rank.cpu_time or 0.0, seconds)

    def count(self) -> int:
        """Return how many ranks were met."""
        return len(self._ranks)

    def is_any_left(self) -> bool:
        """Return whether a process of a rank was there at the last sample."""
        return bool(self._keys)

    def ranks(self, gpu_usages: Sequence[GpuUsage] = ()) -> tuple[RecordedRank, ...]:
        """Return all ranks, in the order of their steps and numbers.

        Each has its memory on those *gpu_usages* that it used.
        """
        host = os.uname().nodename
        found = [
            RecordedRank(
                one.place.rank,
                one.place.local_rank,
                host,
                one.pid,
                one.peak,
                one.cpu_time,
                gpus=self._memory_on(gpu_usages, key),
                step=one.place.step,
                size=one.place.size,
                launcher=one.place.launcher,
                start=one.first,
                wall_time=one.last - one.first,
            )
            for key, one in self._ranks.items()
            if not one.is_launcher_daemon(self._ranks.values())
        ]
        return tuple(sorted(found, key=lambda one: (step_order(one.step), one.rank)))

    def _memory_on(
        self, gpu_usages: Sequence[GpuUsage], key: _Key
    ) -> tuple[GpuMemory, ...]:
        """Return the memory of a rank's processes on each GPU that they used."""
        found = []
        for gpu in gpu_usages:
            peaks = [
                process.peak_memory
                for process in gpu.processes
                if process.peak_memory is not None
                and self._all_keys.get(process.pid) == key
            ]
            if peaks:
                found.append(GpuMemory(gpu.uuid, peak=sum(peaks)))
        return tuple(found)


def _whole_rank_number(word: str | None) -> int | None:
    is_whole = word is not None and word.isdecimal() and len(word) <= _LONGEST_NUMBER
    return int(word or "") if is_whole else None
