"""The ranks of one step on one node, of which one measures the node for all.

``srun weigh run -- prog`` starts one weigh per rank. Each stays the parent of its rank.
In a file of the node's own memory each writes the process id of its rank, and the
holder of the file's lock samples the processes of all of them. The kernel frees the
lock when its holder ends, in whatever way, and another rank's weigh goes on.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from weigh.measure.node_part import is_own_machine
from weigh.measure.peak import PeakTracker
from weigh.measure.sampler import RunSampler, peak_in_samples, thin_series
from weigh.model.record import RecordedNode
from weigh.probe.proc import ProcTree
from weigh.units import DAY, Seconds

_FOLDERS = ("/dev/shm", "/tmp")  # noqa: S108 - opened without following links, by owner
_PREFIX = "weigh-step-"
_MOST = 1 << 20  # bytes of the file, some 40,000 ranks
_STALE_AFTER = 2 * DAY  # the file of a step that has long ended
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


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
                _remove_stale(folder)
                return
            os.close(self._fd)
            failure = PermissionError(path)
        raise failure

    def turn(self, rank: int) -> int:
        """Return how many runs this *rank* has begun in this step before this one."""
        # a script may call weigh run several times in one step
        before = sum(words[:2] == ["turn", str(rank)] for words in self._lines())
        os.write(self._fd, f"turn {rank}\n".encode())
        return before

    def add(self, pid: int, start_ticks: int) -> None:
        """Write the process of a rank; *start_ticks* is its start, as in /proc."""
        os.write(self._fd, f"rank {pid} {start_ticks}\n".encode())

    def processes(self) -> list[tuple[int, int]]:
        """Return the process id and the start of each rank that was ever added."""
        return [
            (int(words[1]), int(words[2]))
            for words in self._lines()
            if len(words) == 3  # noqa: PLR2004 - see add
            and words[0] == "rank"
            and (words[1] + words[2]).isdecimal()
        ]

    def take(self) -> bool:
        """Return whether this process holds the lock, now or from now on."""
        if not self._holds:
            with suppress(OSError):
                # not waiting: whoever has the lock measures
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._holds = True
        return self._holds

    def close(self) -> None:
        """Free the lock."""
        os.close(self._fd)

    def _lines(self) -> list[list[str]]:
        text = os.pread(self._fd, _MOST, 0).decode("ascii", "replace")
        return [line.split() for line in text.splitlines()]


def _remove_stale(folder: str) -> None:
    """Remove files of steps that ended long ago: nothing else on a node does."""
    own = f"{_PREFIX}{os.getuid()}-"
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(own):
                continue
            with suppress(OSError):
                if time.time() - entry.stat().st_mtime > _STALE_AFTER:
                    os.unlink(entry.path)


class _RankTrees(ProcTree):
    """The process trees of all ranks in a lock's file."""

    def __init__(self, own: int, lock: NodeLock) -> None:
        super().__init__(own)
        self._lock = lock
        self._starts: dict[int, int | None] = {}

    def members(self) -> list[int]:
        """Return the ranks that are alive."""
        return [pid for pid, start in self._lock.processes() if self._is(pid, start)]

    def _is(self, pid: int, start: int) -> bool:
        if pid not in self._starts:
            times = self.times(pid)
            self._starts[pid] = None if times is None else times.start_ticks
        return self._starts[pid] == start


class LockedNode:
    """Measures this node while it holds the lock."""

    def __init__(
        self,
        name: str,
        lock: NodeLock,
        interval: Seconds,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._name = name
        self._tree = _RankTrees(os.getpid(), lock)
        # the ranks are not launched from here, so no memory can be a launcher's
        self._tracker = PeakTracker(0)
        self._clock = clock
        self._sampler = RunSampler(
            self._tree,
            self._tracker,
            None,
            interval,
            clock=clock,
            is_alone=is_own_machine(name),
            is_brief=True,
        )

    def look(self) -> Seconds:
        """Take a sample; return the seconds until the next one."""
        return self._sampler.look()

    def node(self, began: Seconds, *, final: bool) -> RecordedNode:
        """Return what was seen; *began* is when that began, since the run did."""
        if final:
            self._sampler.finish()
        # the samples begin when this rank got the lock
        samples = [
            msgspec.structs.replace(one, time=one.time + began)
            for one in self._sampler.samples
        ]
        peak = self._tracker.peak(self._sampler.method)
        if peak is not None and peak.time is not None:
            peak = msgspec.structs.replace(peak, time=peak.time + began)
        return RecordedNode(
            name=self._name,
            peak_memory=peak,
            series=thin_series(peak_in_samples(samples, peak)),
            final=final,
            heard=began + self._sampler.elapsed(),
        )

    def close(self) -> None:
        """Close the descriptors."""
        self._tree.close()
