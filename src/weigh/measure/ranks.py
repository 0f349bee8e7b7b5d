"""The ranks of a distributed run on this machine: which process belongs to which.

A launcher (torchrun, mpirun, srun) sets the rank in each process's environment, and
child processes inherit it. A rank's memory is the sum of its resident sets; a page that
several ranks share counts in each.

Launchers stack: mpirun has srun start one daemon per node, which starts the ranks. Of
the variables in a process's environment the innermost launcher's count, and where the
processes of a step name an inner launcher, those that name only srun are its daemons.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from weigh.measure.series import TIMES_INTERVAL
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import RecordedRank, step_order
from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import Seconds

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
        self._keys: dict[int, _Key] = {}  # of the ranks' processes, also ended ones
        self._ranks: dict[_Key, RecordedRank] = {}
        self._has_living = False
        # the scheduler's steps whose processes have an inner launcher
        self._inner_steps: set[str | None] = set()
        self._times_read: Seconds = -TIMES_INTERVAL

    def look(self, current_time: Seconds, readings: Sequence[ProcessReading]) -> None:
        """Add one sample; a process's rank is read at its second sample.

        A process that is no rank then may have been forked only, and execute its
        program later: it is read again after twice as many samples each time.
        """
        before, self._samples = self._samples, {}
        found: defaultdict[_Key, list[ProcessReading]] = defaultdict(list)
        for reading in readings:
            pid = reading.pid
            count = self._samples[pid] = before.get(pid, 0) + 1
            if count == 1:  # it may have the id of one that ended
                self._keys.pop(pid, None)
            # at samples 2, 3, 5, 9...: a power of two has one bit
            elif pid not in self._keys and (count - 1) & (count - 2) == 0:
                self._ask(pid, current_time)
            if pid in self._keys:
                found[self._keys[pid]].append(reading)
        self._has_living = bool(found)
        if found:
            self._add_up(current_time, found)

    def _ask(self, pid: int, current_time: Seconds) -> None:
        env = self._tree.environment(pid)
        rank = rank_in_environment(env)
        if rank is None:
            return
        key = self._keys[pid] = rank.launcher, rank.step, rank.rank
        if rank.launcher != _OUTERMOST:
            self._inner_steps.add(env.get(_STEP))
        if key not in self._ranks:
            host = os.uname().nodename
            self._ranks[key] = replace(rank, host=host, pid=pid, start=current_time)

    def _add_up(
        self, current_time: Seconds, found: Mapping[_Key, Sequence[ProcessReading]]
    ) -> None:
        reads_times = current_time - self._times_read >= TIMES_INTERVAL
        self._times_read = current_time if reads_times else self._times_read
        for key, members in found.items():
            rank = self._ranks[key]
            # one process may have grown and shrunk between two samples
            largest = max(one.peak for one in members)
            held, cpu_time = sum(one.resident for one in members), rank.cpu_time
            if reads_times:
                times = filter(None, (self._tree.times(one.pid) for one in members))
                # the sum falls as processes end
                cpu_time = max(cpu_time or 0.0, sum(one.cpu_time for one in times))
            self._ranks[key] = replace(
                rank,
                peak_memory=max(rank.peak_memory or 0, held, largest),
                cpu_time=cpu_time,
                wall_time=current_time - (rank.start or 0.0),
            )

    def count(self) -> int:
        """Return how many ranks were met."""
        return len(self._ranks)

    def is_any_left(self) -> bool:
        """Return whether a process of a rank was there at the last sample."""
        return self._has_living

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
                and self._keys.get(process.pid) == key
            ]
            if peaks:
                found.append(GpuMemory(gpu.uuid, peak=sum(peaks)))
        return tuple(found)
