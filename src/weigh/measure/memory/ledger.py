"""The kernel's own account of a job: a control group that holds nothing else.

A group is made for the job where weigh may make one and no scheduler is in charge.
Otherwise the group that weigh stands in is read, as long as only weigh and its
ancestors are in it besides the job, as in a Slurm step or a container.
"""

import math
import os
import resource
import time
from collections.abc import Callable, Collection, Mapping

import msgspec

from weigh.measure.memory.holding import MemoryHolding
from weigh.probe.cgroup import (
    GroupGauge,
    GroupMemory,
    memory_folder,
    read_oom_kills_of_group,
)
from weigh.probe.proc import STAT_BYTES, parse_stat
from weigh.regular_file import file_head
from weigh.units import KIB, MIB, MINUTE, Bytes, Seconds

OWN = "own cgroup: counted by the kernel"
STANDING = "cgroup: counted by the kernel, nothing else is in it"

_SYSTEM = "/sys/fs/cgroup"
_NAME = "weigh."  # our groups; the process id of weigh follows
_NEW: Seconds = MINUTE  # younger groups stay, see `remove_forgotten`
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_NOBODY: frozenset[int] = frozenset()
# A change below this, for each CPU, may not be in memory.stat yet
# (MEMCG_CHARGE_BATCH of 64 pages in the kernel's mm/memcontrol.c)
_LATE = 256 * KIB
_MOST_LATE = 16 * MIB  # however many CPUs there are
_FEW_FAULTS = 32  # of pages, in which weigh's own share changes by less than that
_UNSEEN = 8 * MIB  # of memory that nobody seems to hold: others may be in the group
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # include/linux/proc_ns.h of the kernel
# In a job of theirs, moving processes to another group is the scheduler's business
_BATCH_JOBS = (
    "SLURM_JOB_ID",
    "SGE_TASK_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "_CONDOR_SCRATCH_DIR",
    "FLUX_JOB_ID",
    "OAR_JOB_ID",
)


class WeighInGroup:
    """The anonymous memory of weigh and its helpers, in the group that they stand in.

    A fork shares its parent's pages until one of the two writes to a page, which is
    there twice from then on: the sum of their proportional shares has each page once.
    """

    def __init__(
        self, leader: int, helpers: Callable[[], Collection[int]], proc_folder: str
    ) -> None:
        """Count with *leader*, a fork of weigh until it becomes the job."""
        self._helpers = helpers
        self._proc = proc_folder
        self._counted: Collection[int] = _NOBODY
        self._faults = 0
        self._first = self._share = self._shares({leader, *helpers()})

    def growth(self) -> Bytes:
        """Return by how much they have grown; below 0 where they have shrunk."""
        helpers = set(self._helpers())
        # a page that comes costs weigh a fault, and a count costs it 0.4 ms
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        if helpers != self._counted or faults >= self._faults + _FEW_FAULTS:
            self._counted, self._faults = helpers, faults
            self._share = self._shares(helpers)
        return self._share - self._first

    def _shares(self, helpers: Collection[int]) -> Bytes:
        own = anonymous_share("self", self._proc)
        if own is None:  # Linux before 5.4
            return anonymous_of("self", self._proc)
        return own + sum(anonymous_share(pid, self._proc) or 0 for pid in helpers)


class MemoryLedger:
    """Reads a job's memory from the group's account; ``source`` describes it.

    Everything in the group at the first reading is not the job's.
    """

    def __init__(
        self,
        gauge: GroupGauge,
        *,
        residents: Collection[int] = _NOBODY,
        weigh: WeighInGroup | None = None,
        proc_folder: str = "/proc",
    ) -> None:
        """Start from the group's current figures.

        *residents* are processes that are in it and not part of the job. Without
        *weigh*, whose memory is charged to the group too, it was made for this job.

        Raises:
            OSError: the group is gone.
            ValueError: its figures have another form.
        """
        self.is_own = weigh is None
        self.source = OWN if weigh is None else STANDING
        self.folder = gauge.folder
        self._gauge = gauge
        self._residents = frozenset(residents)
        self._proc = proc_folder
        self._may_be_shared = _hides_processes(gauge.version, proc_folder)
        self._weigh = weigh
        self._base = self._last = gauge.read()
        self._own: Bytes = 0  # of weigh, at the last reading
        self._late = min(_MOST_LATE, _LATE * (os.cpu_count() or 1))

    def read(self) -> MemoryHolding:
        """Return what the job holds, without the files that it maps.

        Raises:
            OSError: the group is gone.
            ValueError: its figures have another form.
        """
        before, now = self._last, self._gauge.read()
        own_before, own = self._own, 0 if self._weigh is None else self._weigh.growth()
        self._last, self._own = now, own
        held = memory_held_by_group(
            before, now, self._base, own=own, own_before=own_before
        )
        # version 1 has caches of names, which the kernel can drop, in the same figure
        caches = held.kernel if self._gauge.version == 1 else 0
        return msgspec.structs.replace(
            held,
            low=max(0, held.low - self._late - caches),
            high=held.high + self._late,
        )

    def strangers(self, known: Collection[int], anonymous: Bytes) -> bool:
        """Return whether a process is in the group that belongs to nobody *known*.

        *anonymous* is what those known hold, shared pages counted once or more.
        """
        if self.is_own:
            return False
        # cgroup.procs leaves out some processes: memory that nobody holds shows them
        if self._may_be_shared:
            grown = self._last.anonymous - self._base.anonymous
            if grown > anonymous + self._late + _UNSEEN:
                return True
        inside = self._gauge.members()
        if inside is None or _has_subgroups(self.folder):
            return True
        # weigh's ancestors may be in the group, but not what else they have started
        ours = {os.getpid(), *known}
        unknown = inside - self._residents - ours
        return any(not self._descends(pid, ours) for pid in unknown)

    def _descends(self, pid: int, ours: Collection[int]) -> bool:
        """Return whether one of *ours* is an ancestor, or one has just ended.

        0 stands for a process in a pid namespace that we do not see.
        """
        above: int | None = pid
        while above is not None and above > 1:
            if above in ours:
                return True
            above = _parent(above, self._proc)
        return above is None

    def own_oom_kills(self) -> int:
        """Return the out-of-memory kills that weigh's own group does not count.

        Those in a group below it, where they are not counted upwards.
        """
        if not self.is_own or self._gauge.version != 1:
            return 0
        return read_oom_kills_of_group(self.folder) or 0

    def close(self) -> None:
        """Close the descriptors; remove the group if it was made for the job."""
        self._gauge.close()
        if self.is_own:
            _remove_group(self.folder)


def memory_held_by_group(
    before: GroupMemory,
    now: GroupMemory,
    base: GroupMemory,
    *,
    own: Bytes = 0,
    own_before: Bytes = 0,
) -> MemoryHolding:
    """Return what a job holds, without files, from two readings of its group.

    *base* was charged before the job, *own* to weigh since then, *own_before* of it by
    the reading before. A peak between the readings is known with page cache: it may
    have held as much cache as the reading with more, or with less. Only a peak that has
    risen is of this interval; below one that has not, of a job before or of much cache,
    anything may have been.
    """
    # what weigh has allocated since the job began is not the job's
    anonymous = max(0, now.anonymous - base.anonymous - own)
    shared = max(0, now.shared - base.shared)
    kernel = max(0, now.kernel - base.kernel)
    total = anonymous + shared + kernel
    peak = now.peak or 0
    beyond = max(0, peak - now.usage)
    loose_before = before.cache + before.reclaimable
    loose_now = now.cache + now.reclaimable
    spike = at_most = 0
    most_spike: float = math.inf if now.peak is None else beyond + loose_now
    if peak > (before.peak or 0):
        # cache that was dropped since may have been in the peak, cache that came was
        # not; nor what weigh gave back, as when a helper ended
        gone = max(0, loose_before - loose_now) + max(0, own_before - own)
        spike = max(0, beyond - gone)
        came = max(0, loose_now - loose_before) + max(0, own - own_before)
        most_spike = beyond + came
        at_most = most_spike if beyond else 0
    return MemoryHolding(
        anonymous,
        shared,
        0,
        low=total,
        high=total + max(spike, round(at_most)),
        kernel=kernel,
        is_account=True,
        spike=spike,
        most_spike=max(spike, most_spike),
    )


def open_ledger(
    leader: int,
    environment: Mapping[str, str],
    helpers: Callable[[], Collection[int]],
    *,
    proc_folder: str = "/proc",
    root: str = _SYSTEM,
) -> MemoryLedger | None:
    """Account for the process *leader*, which waits to become the job.

    *helpers* returns weigh's other children. None where no group is, or can be, the
    job's own.
    """
    try:
        with open(f"{proc_folder}/self/cgroup", encoding="utf-8") as cgroup:
            folder, version = memory_folder(cgroup.read(), root)
    except (OSError, ValueError):
        return None
    if not any(name in environment for name in _BATCH_JOBS):
        ledger = _make_group(folder, version, leader)
        if ledger is not None:
            return ledger
    return _read_group(folder, version, leader, helpers, proc_folder)


def _make_group(folder: str, version: int, leader: int) -> MemoryLedger | None:
    """Move *leader* to a new group; None where that is refused."""
    if not os.access(folder, os.W_OK) or not _counts_upwards(folder, version):
        return None
    # of runs that a KILL ended: nobody else removes their groups
    remove_forgotten(folder)
    own = f"{folder}/{_NAME}{os.getpid()}.{leader}"
    try:
        os.mkdir(own)
    except OSError:
        return None
    try:
        gauge = GroupGauge(own, version)
        with open(f"{own}/cgroup.procs", "w", encoding="ascii") as procs:
            # before exec: all that the job starts is born in this group
            procs.write(str(leader))
        return MemoryLedger(gauge)
    except (OSError, ValueError):
        _remove_group(own)
        return None


def _counts_upwards(folder: str, version: int) -> bool:
    """Return whether the limits of *folder* hold in groups below it too."""
    if version != 1:
        return True
    return file_head(f"{folder}/memory.use_hierarchy").strip() == b"1"


def _read_group(
    folder: str,
    version: int,
    leader: int,
    helpers: Callable[[], Collection[int]],
    proc_folder: str,
) -> MemoryLedger | None:
    """Read the group that weigh stands in; None if others are in it."""
    residents = ancestors(proc_folder) | {leader, *helpers()}
    try:
        gauge = GroupGauge(folder, version)
    except OSError:
        return None
    inside = gauge.members()
    if not inside or not inside <= residents or _has_subgroups(folder):
        gauge.close()
        return None
    try:
        # memory beyond what the visible processes hold is that of hidden ones
        seen = sum(anonymous_of(pid, proc_folder) for pid in inside) + _UNSEEN
        if not _hides_processes(version, proc_folder) or (
            gauge.read().anonymous <= seen
        ):
            weigh = WeighInGroup(leader, helpers, proc_folder)
            return MemoryLedger(
                gauge, residents=residents, weigh=weigh, proc_folder=proc_folder
            )
    except (OSError, ValueError):
        pass
    gauge.close()
    return None


def _has_subgroups(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:
        return True


def remove_forgotten(folder: str) -> None:
    """Remove the empty groups of runs that were killed.

    New ones stay: a container that shares the groups may be about to use them, and has
    process ids of its own.
    """
    try:
        names = [name for name in os.listdir(folder) if name.startswith(_NAME)]
        for name in names:
            age = time.time() - os.stat(f"{folder}/{name}").st_mtime
            # of ``weigh.PID.LEADER``; a user's weigh.slice is not ours
            weigh = name.split(".")[1]
            is_over = weigh.isdecimal() and not os.path.exists(f"/proc/{weigh}")
            if age > _NEW and is_over:
                _remove_group(f"{folder}/{name}")
    except OSError:
        return


def _remove_group(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # somebody is still in it
        return


def ancestors(proc_folder: str = "/proc") -> set[int]:
    """Return this process and all above it, as far as they are visible."""
    found: set[int] = set()
    pid: int | None = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = _parent(pid, proc_folder)
    return found


def anonymous_of(pid: int | str, proc_folder: str = "/proc") -> Bytes:
    """Read a process's anonymous memory; 0 where it is not readable."""
    try:
        _, resident, shared, *_ = file_head(
            f"{proc_folder}/{pid}/statm", STAT_BYTES
        ).split()
        return (int(resident) - int(shared)) * _PAGE
    except ValueError:
        return 0


def anonymous_share(pid: int | str, proc_folder: str = "/proc") -> Bytes | None:
    """Read a process's share of its anonymous memory; None where that is unknown."""
    rollup = file_head(f"{proc_folder}/{pid}/smaps_rollup", STAT_BYTES)
    _, found, figure = rollup.partition(b"\nPss_Anon:")
    return int(figure.split(None, 1)[0]) * KIB if found else None


def _hides_processes(version: int, proc_folder: str) -> bool:
    """Return whether cgroup.procs leaves out processes of other pid namespaces.

    Version 2 lists them as 0 (cgroup_procs_show in the kernel's kernel/cgroup).
    """
    try:
        namespace = os.stat(f"{proc_folder}/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return version == 1 and namespace != _FIRST_PID_NAMESPACE


def _parent(pid: int, proc_folder: str) -> int | None:
    times = parse_stat(file_head(f"{proc_folder}/{pid}/stat", STAT_BYTES))
    return None if times is None else times.parent
