"""Find the processes that tasks leave behind, and the task of each.

weigh adopts orphans, so a process that outlives its task becomes weigh's child,
whatever its session. A stamp identifies its task: a limit on real-time CPU time that no
program ever reaches. Every process inherits it, and neither a new session nor an empty
environment removes it. Where the stamp is not allowed, the process group and the mark
in the environment identify the task.
"""

import os
import resource
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from weigh.probe.proc import parse_children, usable_proc
from weigh.runner.attempt import TaskAttempt
from weigh.runner.spawn import MARK
from weigh.runner.stopping import send_to_all
from weigh.units import Seconds

PATIENCE_AFTER_KILL: Seconds = 15.0  # then a process cannot be killed
_CHILDREN_BYTES = 1 << 20  # a hundred thousand children
_ENVIRONMENT_BYTES = 1 << 20
_POLL = 0.02  # seconds
_MOST_TERM = 2.0  # seconds from TERM to KILL for a process of no task
_STAMP = resource.RLIMIT_RTTIME
_STAMPED = b"Max realtime timeout"
_BASE = 1 << 62  # microseconds: 146,000 years
_SEQ_BITS = 32  # the low ones, for the number of the task
_RUN_MASK = (1 << 30) - 1  # the bits above them, for a hash of the run's id


class ClearedOrphans(NamedTuple):
    """Processes of no known task: those terminated, and those that cannot be."""

    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class TaskOrphans:
    """The orphans alive now, each with the attempt that it belongs to.

    *running* are the attempts by record, *groups* the same by process group.
    """

    def __init__(
        self,
        run_id: str,
        running: Mapping[str, TaskAttempt],
        groups: Mapping[int, TaskAttempt],
        leaders: Collection[int],
    ) -> None:
        self._run = run_id
        self._running = running
        self._groups = groups
        self._leaders = leaders
        # orphans that were found; None: of no task that runs
        self._owners: dict[int, TaskAttempt | None] = {}
        # children that no task waits for
        self._abandoned: set[int] = set()
        path = f"{usable_proc()}/self/task/{os.getpid()}/children"
        try:
            self._children: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._children = None

    def claim(self, pid: int) -> TaskAttempt | None:
        """Remove an orphan that ended; return the attempt it belonged to."""
        # it was reaped: the kernel may use its id again
        self._abandoned.discard(pid)
        attempt = self._owners.pop(pid, None)
        if attempt is not None:
            attempt.state.orphans.discard(pid)
        return attempt

    def find(self) -> Iterator[tuple[TaskAttempt, int]]:
        """Look for new orphans; add each to its attempt, and yield both."""
        for pid in self._pids():
            if pid in self._leaders or pid in self._owners:
                continue
            attempt = self._owners[pid] = self._owner(pid)
            if pid in self._abandoned:  # set aside by another thread meanwhile
                self._owners.pop(pid, None)
            elif attempt is not None:
                attempt.state.orphans.add(pid)
                yield attempt, pid

    def set_aside(self, pid: int) -> None:
        """Exclude a process of weigh's own. The watcher's thread calls this."""
        self._abandoned.add(pid)
        owner = self._owners.pop(pid, None)
        if owner is not None:
            owner.state.orphans.discard(pid)

    def abandon(self, attempt: TaskAttempt) -> tuple[str, ...]:
        """Give up on the processes of an attempt that cannot be killed; name them."""
        pids = {
            *attempt.state.orphans,
            *({attempt.launch.pid} if attempt.state.status is None else ()),
        }
        for pid in attempt.state.orphans:
            self._owners.pop(pid, None)
        attempt.state.orphans.clear()
        self._abandoned |= pids
        return tuple(process_name_and_state(pid) for pid in sorted(pids))

    def clear(self, grace: Seconds) -> ClearedOrphans:
        """Terminate remaining processes that belong to no known task."""
        pids = self._pids()
        if not pids:
            return ClearedOrphans()
        # now, as nothing shows them once they have ended
        names = {pid: process_name_and_state(pid) for pid in pids}
        send_to_all(pids, signal.SIGTERM)
        kill_at = time.monotonic() + min(grace, _MOST_TERM)
        give_up_at = kill_at + PATIENCE_AFTER_KILL
        while pids and time.monotonic() < give_up_at:
            if time.monotonic() >= kill_at:
                send_to_all(pids, signal.SIGKILL)
            time.sleep(_POLL)
            # they are weigh's own children: without it they would stay as zombies
            _reap_all()
            pids = self._pids()
            names.update(
                (pid, process_name_and_state(pid)) for pid in pids if pid not in names
            )
        left = tuple(names.pop(pid) for pid in pids)
        return ClearedOrphans(tuple(names.values()), left)

    def _pids(self) -> list[int]:
        if self._children is None:
            return []
        text = os.pread(self._children, _CHILDREN_BYTES, 0)
        return [pid for pid in parse_children(text) if pid not in self._abandoned]

    def _owner(self, pid: int) -> TaskAttempt | None:
        seq = read_stamp(pid, self._run)
        if seq is not None:
            # a task has one attempt at a time, so its number is enough
            for attempt in self._running.values():
                if attempt.seq == seq:
                    return attempt
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return None
        attempt_of_group = self._groups.get(group)
        if attempt_of_group is not None:
            return attempt_of_group
        mark = mark_words(pid)
        for attempt in self._running.values():
            if mark == (self._run, str(attempt.seq), str(attempt.number)):
                return attempt
        return None


def stamp_processes(run_id: str, task_number: int) -> None:
    """Stamp all processes started from now on with a task of a run.

    Do nothing if a limit on real-time CPU time is set already.
    """
    # only the soft limit: it can be set again for the next task
    hard = resource.getrlimit(_STAMP)[1]
    if hard == resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):
            resource.setrlimit(_STAMP, (_stamp_of_run(run_id) | task_number, hard))


def read_stamp(pid: int, run_id: str) -> int | None:
    """Return the task of *run_id* that a process belongs to; None if none."""
    try:
        with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None
    words = text.partition(_STAMPED)[2].split(None, 1)
    if not words or not words[0].isdigit():
        return None
    number = int(words[0])
    # a limit that somebody else set, or the stamp of another run
    if number >> _SEQ_BITS != _stamp_of_run(run_id) >> _SEQ_BITS:
        return None
    return number & ((1 << _SEQ_BITS) - 1)


def _stamp_of_run(run_id: str) -> int:
    return _BASE | (crc32(run_id.encode()) & _RUN_MASK) << _SEQ_BITS


def process_name_and_state(pid: int) -> str:
    """Return a process's id and name, and whether it waits for a disk."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            name, _, rest = file.read(1024).partition(b"(")[2].rpartition(b")")
    except OSError:
        return str(pid)
    waits = ", waits for a disk" if rest.split()[:1] == [b"D"] else ""
    return f"{pid} ({name.decode('ascii', 'replace')}{waits})"


def mark_words(pid: int) -> tuple[str, str, str] | None:
    """Return (run, seq, attempt) from a process's environment; None without a mark."""
    try:
        with open(f"{usable_proc()}/{pid}/environ", "rb", buffering=0) as file:
            text = b"\0" + file.read(_ENVIRONMENT_BYTES)
    except OSError:
        return None
    _, found, rest = text.partition(b"\0" + MARK + b"=")
    words = rest.partition(b"\0")[0].decode("ascii", "replace").split(".")
    is_mark = len(words) == 3 and words[1].isdecimal() and words[2].isdecimal()  # noqa: PLR2004
    return (words[0], words[1], words[2]) if found and is_mark else None


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
