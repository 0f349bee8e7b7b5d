"""``srun weigh run -- prog``: one record of all ranks, each under its own weigh.

Every rank's line in the store has the same id, and the lines are joined when they are
read: so it does not matter which rank ends first, nor whether the nodes share a folder.

Each weigh stays the parent of its rank. The one that holds a lock on its node measures
the processes of all ranks there, as the agent of a node does: it finds them by a
variable that each weigh gives its rank, and by the first process that each notes. The
kernel frees the lock when its holder ends, in whatever way, and another rank's weigh
goes on.
"""

import fcntl
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weigh.flow.run.record_sink import current_folder
from weigh.joined_ranks import part_later
from weigh.measure.node_agent import node_part, watch_node
from weigh.measure.ranks import rank_in_environment
from weigh.model.gpu import GpuMemory
from weigh.model.record import (
    Record,
    RecordedJob,
    RecordedNode,
    RecordedRank,
    RunMeasurement,
    Usage,
)
from weigh.probe.job_members import OWN, JobMembers, MemberSigns
from weigh.project_folders import remove_abandoned
from weigh.schedulers import kind_of_job, steps_of
from weigh.store import location
from weigh.store.identity import content_id
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.watcher import TreeWatcher

_FOLDERS = ("/dev/shm", "/tmp")  # noqa: S108 - opened without following links, by owner
_PREFIX = "weigh-step-"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_LONGEST = 1 << 20  # bytes of the file that are read
_STEP_VARIABLE = "WEIGH_STEP"  # names the step to whoever measures its node
_FOLLOWER_INTERVAL = 0.25  # seconds between looks at its own rank, and for the lock
_OTHERS_PATIENCE = 2.0  # seconds that the first rank waits for the others' lines


class NodeLock:
    """The file that the ranks of a step on this node share."""

    def __init__(self, name: str) -> None:
        """Open or make it. Raises OSError."""
        self._holds = False
        failure: OSError = FileNotFoundError(name)
        for folder in _FOLDERS:
            path = os.path.join(folder, f"{_PREFIX}{os.getuid()}-{name}")
            try:
                self._fd = os.open(path, _FLAGS, 0o600)
            except OSError as error:
                failure = error
                continue
            # in a folder for everybody, a file of that name may be somebody else's
            status = os.fstat(self._fd)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                os.utime(self._fd)  # it may be of a run of yesterday in this step
                remove_abandoned(folder)
                return
            os.close(self._fd)
            failure = PermissionError(path)
        raise failure

    def count_run(self, rank: int) -> int:
        """Return how many runs this *rank* has begun in this step before this one."""
        # a script may call weigh run several times in one step, one after another
        before = self._lines().count(b"run %d" % rank)
        os.write(self._fd, b"run %d\n" % rank)
        return before

    def note_leader(self, pid: int, *, has_ended: bool = False) -> None:
        """Let the other ranks know the first process of this one."""
        os.write(self._fd, b"%s %d\n" % (b"end" if has_ended else b"pid", pid))

    def leaders(self) -> set[int]:
        """Return the first processes of all ranks whose runs go on."""
        found: dict[bytes, set[int]] = {b"pid": set(), b"end": set()}
        for line in self._lines():
            what, _, number = line.partition(b" ")
            if what in found and number.isdigit():
                found[what].add(int(number))
        return found[b"pid"] - found[b"end"]

    def _lines(self) -> list[bytes]:
        return os.pread(self._fd, _LONGEST, 0).split(b"\n")

    def take(self) -> bool:
        """Return whether this process holds the lock, now or from now on."""
        if not self._holds:
            with suppress(OSError):
                # not waiting: whoever has the lock measures
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._holds = True
        return self._holds

    def free(self) -> None:
        """Free the lock, if this process holds it."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._holds = False


class RankGroup:
    """The ranks that a launcher has started with a weigh each; this is one of them."""

    def __init__(
        self,
        own_rank: RecordedRank,
        node: str,
        lock: NodeLock,
        step: str,
        interval: Seconds,
    ) -> None:
        """Join the ranks of *step*, a name that all of them have."""
        # one rank samples the whole node, the others only themselves and rarely
        self.interval = max(interval, _FOLLOWER_INTERVAL)
        self._sampling = interval
        turn = lock.count_run(own_rank.rank)
        self.record_id = content_id(f"{step} {turn}".encode())
        self.part = own_rank.rank
        self.environment = {_STEP_VARIABLE: f"{step}-{node}"}
        self._rank = own_rank
        self._node = node
        self._lock = lock
        self._watched: TreeWatcher | None = None  # the node, by this rank
        self._leader: int | None = None
        self._began: Seconds = 0.0

    @property
    def is_first(self) -> bool:
        """Return whether this is the rank that reports to the user."""
        return self.part == 0

    def joined(self, measurement: RunMeasurement) -> RunMeasurement:
        """Return the measurement so far as part of the group."""
        return self._as_part(measurement, final=False)

    def finish(self, measurement: RunMeasurement | None) -> RunMeasurement | None:
        """Return the measurement as part of the group; free the lock."""
        try:
            return (
                None if measurement is None else self._as_part(measurement, final=True)
            )
        finally:
            # another rank of the node takes over once the lock is free
            self._watched = None
            if self._leader is not None:
                self._lock.note_leader(self._leader, has_ended=True)
                self._leader = None
            self._lock.free()

    def look(self, run: "TreeWatcher") -> Seconds:
        """Measure the node, if no other rank does; return the time until the next."""
        if self._leader is None:
            self._leader = run.leader()
            if self._leader is not None:
                self._lock.note_leader(self._leader)
        if self._watched is None:
            # another rank watches the node: look later whether it has ended
            if not self._lock.take():
                return _FOLLOWER_INTERVAL
            self._began = run.elapsed()
            signs = MemberSigns(
                same=tuple(self.environment),
                prefix=None,
                mark=OWN,
                # a program may clear its environment
                also=self._lock.leaders,
            )
            members = JobMembers(self.environment, signs)
            self._watched = watch_node(self._node, members, self._sampling)
        return self._watched.look()

    def _as_part(self, measurement: RunMeasurement, *, final: bool) -> RunMeasurement:
        """Return the measurement of this rank, and of its node if it was watched here.

        The usage is then the node's: of the parts of a run, a list shows the largest.
        """
        usage = measurement.usage
        own = msgspec.structs.replace(
            self._rank,
            host=self._node,
            peak_memory=_peak_resident_memory(usage),
            cpu_time=usage.cpu_time,
            gpus=tuple(
                GpuMemory(gpu.uuid, peak=gpu.job_peak)
                for gpu in usage.gpus
                if gpu.job_peak
            ),
            # relative to its own part: joining shifts it
            start=0.0,
            wall_time=usage.wall_time,
        )
        inner = measurement.ranks or (
            measurement.regions.ranks if measurement.regions else ()
        )
        ranks = tuple(msgspec.structs.replace(r, host=self._node) for r in inner)
        node = RecordedNode(name=self._node, final=final)
        if self._watched is not None:
            part = node_part(self._node, self._watched, final=final)
            heard = self._began + part.usage.wall_time
            node = part_later(part, self._began, heard=heard).nodes[0]
        peak = usage.peak_memory
        if node.peak_memory is not None and (
            peak is None or peak.value < node.peak_memory.value
        ):
            peak = node.peak_memory
        else:  # it was over before the first look
            node = msgspec.structs.replace(node, peak_memory=peak)
        return msgspec.structs.replace(
            measurement,
            ranks=ranks or (own,),
            nodes=(node,),
            monitor=msgspec.structs.replace(
                measurement.monitor, rank_memory=measurement.monitor.memory
            ),
            usage=msgspec.structs.replace(usage, peak_memory=peak),
        )

    def joined_record(self, record: Record, env: Mapping[str, str]) -> Record:
        """Return the record with the other ranks' parts, as far as they have come.

        A rank may end long after this one: its part is joined whenever it is read.
        """
        from weigh.store.index import read_parts  # noqa: PLC0415 - by one rank only

        root = location.locate_store(current_folder() or "/", env)
        is_well = record.state == "COMPLETED"  # else a launcher may wait for its end
        until = time.monotonic() + (_OTHERS_PATIENCE if is_well else 0.0)
        while True:
            joined = read_parts(root, record)
            # nothing is missing once all parts have come
            if not joined.missing:
                return joined
            if time.monotonic() >= until:
                break
            time.sleep(0.02)
        came = f"{len(joined.ranks)} of {self._rank.size} ranks have ended so far"
        later = f"weigh records show {record.id[:6]} shows all later"
        return msgspec.structs.replace(
            joined, state="RUNNING", missing=(f"{came} ({later})",)
        )


def _peak_resident_memory(usage: Usage) -> Bytes | None:
    """Return the peak of a rank's resident sets.

    The kernel's account of its control group has more: page tables, page cache.
    """
    peak = usage.peak_memory
    if usage.processes == 1 and usage.max_process_memory is not None:
        return usage.max_process_memory
    return None if peak is None else peak.value


def rank_group(
    env: Mapping[str, str], recorded_job: RecordedJob | None, interval: Seconds
) -> RankGroup | None:
    """Return the group of ranks that weigh itself was started as one of, if any."""
    own = rank_in_environment(env)
    # without a step nothing names the group
    if own is None or own.step is None or own.launcher == "torch":
        return None
    kind, steps = kind_of_job(env), steps_of(env)
    host = os.uname().nodename
    node = (steps.node_of(env, host) if steps else None) or host
    run = (
        ()
        if recorded_job is None
        else (recorded_job.id, recorded_job.element, recorded_job.attempt)
    )
    cluster = env.get(kind.variables.cluster or "") if kind else None
    start = steps.step_of(env) if steps else ()
    # what all ranks of one step have in common, and no other step
    words = (cluster, *run, *start, own.launcher, own.step, own.size)
    name = content_id(repr(words).encode())
    try:
        lock = NodeLock(f"{name}-{node}")
    except OSError:
        return None
    return RankGroup(own, node, lock, name, interval)
