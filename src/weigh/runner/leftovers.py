"""What tasks leave behind: found among weigh's own children, told apart by task.

weigh adopts orphans, so a process that outlives its task, in whatever session, becomes
weigh's child. It belongs to the task whose process group it is in, or else to the one
named in the mark of its environment.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping

from weigh.probe.proc import parse_children, usable_proc
from weigh.runner.attempt import Attempt
from weigh.runner.spawn import MARK
from weigh.runner.stopping import send_to_all
from weigh.units import Seconds

_CHILDREN_BYTES = 1 << 20
_ENVIRONMENT_BYTES = 1 << 20
_POLL = 0.02
_MOST_TERM = 2.0  # seconds that a process of no task has to end


class Leftovers:
    """The orphans alive now, each with its attempt, among those that *running* has."""

    def __init__(self, running: Mapping[int, Attempt]) -> None:
        self._running = running
        self._owners: dict[int, Attempt | None] = {}
        path = f"{usable_proc()}/self/task/{os.getpid()}/children"
        try:
            self._children: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._children = None

    def claim(self, pid: int) -> Attempt | None:
        """Strike an orphan off that ended; give the attempt it was of."""
        attempt = self._owners.pop(pid, None)
        if attempt is not None:
            attempt.orphans.discard(pid)
        return attempt

    def find(self) -> Iterator[tuple[Attempt, int]]:
        """Look for new orphans; give each to its attempt, and yield both."""
        for pid in self._pids():
            if pid in self._running or pid in self._owners:
                continue
            attempt = self._owners[pid] = self._owner(pid)
            if attempt is not None:
                attempt.orphans.add(pid)
                yield attempt, pid

    def clear(self, grace: Seconds) -> None:
        """Have end what is left in the end and belongs to no task that is known."""
        pids = self._pids()
        if not pids:
            return
        send_to_all(pids, signal.SIGTERM)
        kill_at = time.monotonic() + min(grace, _MOST_TERM)
        while pids:
            if time.monotonic() >= kill_at:
                send_to_all(pids, signal.SIGKILL)
            time.sleep(_POLL)
            _reap_all()
            pids = self._pids()

    def _pids(self) -> list[int]:
        if self._children is None:
            return []
        return parse_children(os.pread(self._children, _CHILDREN_BYTES, 0))

    def _owner(self, pid: int) -> Attempt | None:
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return None
        attempt = self._running.get(group)
        if attempt is not None:
            return attempt
        mark = read_mark(pid)
        for attempt in self._running.values():
            if mark is not None and mark == (attempt.seq, attempt.number):
                return attempt
        return None


def read_mark(pid: int) -> tuple[int, int] | None:
    """Read (seq, attempt) from the mark in a process's environment."""
    words = mark_words(pid)
    return None if words is None else (int(words[1]), int(words[2]))


def mark_words(pid: int) -> tuple[str, str, str] | None:
    """Read (run, seq, attempt) from a process's environment; None where it has none."""
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
