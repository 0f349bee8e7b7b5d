"""The ranks of a distributed run on this machine: which process belongs to which.

A launcher (torchrun, mpirun, srun) sets the rank in each process's environment, and
child processes inherit it. A rank's memory is the sum of its resident sets; a page that
several ranks share counts in each.

Launchers stack: mpirun has srun start one daemon per node, which starts the ranks. Of
the variables in a process's environment the innermost launcher's count, and where the
processes of a step name an inner launcher, those that name only srun are its daemons.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from weigh.measure.series import TIMES_INTERVAL
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import RecordedRank, step_order
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import Bytes, Seconds

_LONGEST_NUMBER = 9  # digits; a longer one is no rank
_STEP = "SLURM_STEP_ID"


class _RankLauncher(NamedTuple):
    """A launcher's name, and its variables: a rank, and how many there are.

    ``world`` are variables that name the one start that the ranks belong to.
    """

    name: str
    rank: str
    size: str
    world: tuple[str, ...] = (_STEP,)


_OUTERMOST = "step"
_LAUNCHERS = (  # the innermost first
    _RankLauncher("torch", "RANK", "WORLD_SIZE", ("TORCHELASTIC_RUN_ID", _STEP)),
    _RankLauncher(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        # some of its ranks are in a step of srun, those on the node of mpirun in none
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", _STEP),
    ),
    _RankLauncher("pmi", "PMI_RANK", "PMI_SIZE"),
    _RankLauncher(_OUTERMOST, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def rank_in_environment(env: Mapping[str, str]) -> RecordedRank | None:
    """Read which rank a process is; None unless there are several.

    ``step`` is None outside of a scheduler's steps and a launcher's own name for one.
    """
    for names in _LAUNCHERS:
        rank = _whole_rank_number(env.get(names.rank))
        size = _whole_rank_number(env.get(names.size))
        if rank is not None and size is not None and size > 1:
            step = next((env[name] for name in names.world if env.get(name)), None)
            return RecordedRank(rank, size=size, step=step, launcher=names.name)
    return None


def _whole_rank_number(word: str | None) -> int | None:
    is_whole = word is not None and word.isdecimal() and len(word) <= _LONGEST_NUMBER
    return int(word or "") if is_whole else None


_Key = tuple[str | None, str | None, int]  # launcher, step, rank


class RankTracker:
    """Tracks the peak memory and the CPU time of each rank."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._samples: dict[int, int] = {}  # that each living process was in
        self._keys: dict[int, _Key] = {}  # of living processes with a rank
        self._all_keys: dict[int, _Key] = {}  # of processes that ended, too
        self._ranks: dict[_Key, RecordedRank] = {}
        # the scheduler's steps whose processes have an inner launcher
        self._inner_steps: set[str | None] = set()
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
        env = self._tree.environment(pid)
        rank = rank_in_environment(env)
        if rank is None:
            return
        key = rank.launcher, rank.step, rank.rank
        self._keys[pid] = self._all_keys[pid] = key
        if rank.launcher != _OUTERMOST:
            self._inner_steps.add(env.get(_STEP))
        if key not in self._ranks:
            host = os.uname().nodename
            self._ranks[key] = replace(rank, host=host, pid=pid, start=current_time)

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
        used: dict[_Key, Seconds] = {}
        if current_time - self._times_read >= TIMES_INTERVAL:
            self._times_read = current_time
            used = dict.fromkeys(held, 0.0)
            for pid, key in self._keys.items():
                times = self._tree.times(pid)
                used[key] += 0.0 if times is None else times.cpu_time
        for key, size in held.items():
            rank = self._ranks[key]
            cpu_time = rank.cpu_time
            if key in used:
                # the sum falls as processes end
                cpu_time = max(cpu_time or 0.0, used[key])
            self._ranks[key] = replace(
                rank,
                # one process may have grown and shrunk between two samples
                peak_memory=max(rank.peak_memory or 0, size, largest[key]),
                cpu_time=cpu_time,
                wall_time=current_time - (rank.start or 0.0),
            )

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
        found = [
            replace(rank, gpus=self._memory_on(gpu_usages, key))
            for key, rank in self._ranks.items()
            # without what srun has started for another launcher
            if rank.launcher != _OUTERMOST or rank.step not in self._inner_steps
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
