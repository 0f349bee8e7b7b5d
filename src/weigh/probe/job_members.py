"""The processes of a scheduler's job on this node, whoever started them.

The scheduler keeps the processes of a job in a control group, with one group below it
per step. Where that cannot be read, the job's processes are those of this user whose
environment names the same job and node.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import msgspec

from weigh.probe.cgroup import parse_groups
from weigh.probe.proc import ProcTree
from weigh.regular_file import whole_file
from weigh.units import Seconds

# in the environment of what weigh starts for itself: no member of a job
OWN = "WEIGH_OWN_PROCESS"
_WALK_INTERVAL = 0.2  # seconds; a process may enter the group after it was started
# seconds; between its fork and its program, a process has no environment or another's
_SETTLED_AFTER = 1.0
_LONGEST_LIST = 1 << 20  # bytes of a cgroup list
_LONGEST_COMMAND = 1 << 12  # bytes of a command line


class JobGroup(msgspec.Struct, frozen=True):
    """The folders of a job's control group, and of this process's own step in it."""

    job: str
    own_step: str


def find_job_group(
    cgroup_text: str, prefix: str, root: str = "/sys/fs/cgroup"
) -> JobGroup | None:
    """Find the group of the job in the text of /proc/self/cgroup.

    The job's folder is called *prefix* and a number. Both versions of the interface are
    read; None if no group of that name is mounted.
    """
    # below the job's folder are its steps
    job_and_step = re.compile(rf"(.*?/{re.escape(prefix)}[0-9]+)/([^/]+)")
    # any controller of version 1 may show it; version 2, whose line names none, is last
    for name, path in sorted(parse_groups(cgroup_text).items(), reverse=True):
        found = job_and_step.match(path)
        if found is None:
            continue
        job = f"{root}/{name}{found[1]}" if name else f"{root}{found[1]}"
        if os.path.isfile(f"{job}/cgroup.procs"):
            return JobGroup(job, f"{job}/{found[2]}")
    return None


class MemberSigns(msgspec.Struct, frozen=True, kw_only=True):
    """What shows that a process belongs to a job."""

    same: tuple[str, ...]
    """Variables that have the same value in all of the job's processes on this node."""
    prefix: str | None
    """How the name of its control group begins; None: there is none."""
    mark: str
    """A variable of what does not belong to it: processes of weigh's own."""
    also: Callable[[], Collection[int]] = tuple
    """Returns processes that belong to it whatever their environment."""


class JobMembers(ProcTree):
    """All processes of this process's job on this node that it can see.

    ``excluded`` are left out, and so are their forks and processes of other users (the
    scheduler's own).
    """

    def __init__(
        self,
        env: Mapping[str, str],
        signs: MemberSigns,
        *,
        root: str = "/proc",
        groups: str = "/sys/fs/cgroup",
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """Find the job whose processes have *signs*, the variables as in *env*."""
        super().__init__(os.getpid(), root)
        text = self._read("self/cgroup", _LONGEST_LIST) or b""
        self.group = (
            None
            if signs.prefix is None
            else find_job_group(os.fsdecode(text), signs.prefix, groups)
        )
        self._same = {name: env.get(name) for name in signs.same}
        self._signs = signs
        self._has_descendants = signs.prefix is None
        self._user = os.getuid()
        self._clock = clock
        self._walked = float("-inf")
        # whether a process belongs to the job, and when that was judged first
        self._judged: dict[tuple[int, int], tuple[bool, Seconds]] = {}

    def members(self) -> list[int]:
        """Return the processes of the job that are alive."""
        found = self._in_group() if self.group else self._by_scan()
        judged = {}
        kept = []
        now, also = self._clock(), self._signs.also()
        for pid in found:
            key = self._identity(pid)
            if key is None or pid == self.top or pid in self.excluded:
                continue
            belongs, first = self._judged.get(key, (False, now))
            # a young process may still be a copy of its parent, so it is judged again
            if now - first <= _SETTLED_AFTER:
                if self._is_copy(pid):  # it executes its program later
                    continue
                belongs = self._belongs(pid)
            # its weigh may have been slow to write that it started it
            belongs = belongs or pid in also
            judged[key] = belongs, first
            if belongs:
                kept.append(pid)
        # processes that have ended are forgotten
        self._judged = judged
        return kept

    def _may_have_grown(self) -> bool:
        now = self._clock()
        if now - self._walked < _WALK_INTERVAL:
            return super()._may_have_grown()
        self._walked = now
        return True

    def children_of(self, pid: int) -> list[int]:
        """Return none in a group: children of weigh's own would come in again."""
        # a program may clear the environment of what it starts
        return super().children_of(pid) if self._has_descendants else []

    def _in_group(self) -> list[int]:
        if self.group is None:
            return []
        found: list[int] = []
        folders = [self.group.job]
        while folders:
            folder = folders.pop()
            # weigh's own step holds what measures, not the job
            if folder == self.group.own_step:
                continue
            found.extend(map(int, whole_file(f"{folder}/cgroup.procs").split()))
            with suppress(OSError), os.scandir(folder) as entries:  # it has just ended
                folders += [entry.path for entry in entries if entry.is_dir()]
        return found

    def _by_scan(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._root) if name.isdecimal()]
        except OSError:
            return []

    def _identity(self, pid: int) -> tuple[int, int] | None:
        """Return what no later process with this id has; None if it is not ours."""
        try:
            status = os.stat(f"{self._root}/{pid}")
        except OSError:
            return None
        return (pid, status.st_ctime_ns) if status.st_uid == self._user else None

    def _is_copy(self, pid: int) -> bool:
        """Return whether a child of an excluded process still runs its program."""
        times = self.times(pid) if self.excluded else None
        if times is None or times.parent not in self.excluded:
            return False
        command = self._command(pid)  # empty in the middle of an exec
        return not command or command == self._command(times.parent)

    def _command(self, pid: int) -> bytes | None:
        return self._read(f"{pid}/cmdline", _LONGEST_COMMAND)

    def _belongs(self, pid: int) -> bool:
        env = self.environment(pid)
        if self._signs.mark in env:
            return False
        if self.group is not None:
            return True
        return all(env.get(name) == value for name, value in self._same.items())
