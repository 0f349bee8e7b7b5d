"""What the command leaves behind when it ends: wait for it, or stop it."""

import ctypes
import errno
import os
import signal
from collections.abc import Callable

from weigh.probe.proc import ProcTree
from weigh.units import Seconds

_PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4


def adopt_orphans() -> bool:
    """Become the parent of every orphan below; False where the kernel refuses."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


_KILL_AGAIN = 0.05  # seconds; what forks faster than it is seen takes several rounds


class Orphans:
    """The processes that outlive the command.

    ``wake_at`` is when to ask again whether any :meth:`are_left`, should nothing else
    happen before.
    """

    def __init__(
        self,
        tree: ProcTree,
        clock: Callable[[], Seconds],
        grace: Seconds,
        say: Callable[[str], None] | None,
    ) -> None:
        self.wake_at: Seconds = float("inf")
        self._tree = tree
        self._clock = clock
        self._grace = grace
        self._say = say
        self._stopping = self._told_to_go = self._out_of_reach = False

    def stop(self) -> None:
        """Have them stopped: TERM now, KILL after the grace; asked twice, at once."""
        if self._told_to_go:
            self.wake_at = self._clock()
        self._stopping = True

    def are_left(self) -> bool:
        """Tell whether to wait for any, having done to them what is due."""
        left = self._tree.children()
        if left is None:  # a kernel that does not list children, or /proc is hidden
            self._tree.read()
            left = self._tree.pids()
            if not left:
                return self._are_left_unseen()
        if left and self._stopping:
            self._stop()
        elif left and self._say is not None:
            self._say(_waiting_for(left))
            self._say = None
        return bool(left) and not self._out_of_reach

    def _are_left_unseen(self) -> bool:
        """Ask wait(2) itself for children; what cannot be named cannot be stopped."""
        if self._stopping or self._tree.besides:
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _stop(self) -> None:
        if not self._told_to_go:
            self._told_to_go = True
            self.wake_at = self._clock() + self._grace
            self._send_all(signal.SIGTERM)
            self._send_all(signal.SIGCONT)  # a stopped process takes no TERM
        elif self._clock() >= self.wake_at:
            self.wake_at = self._clock() + _KILL_AGAIN
            self._out_of_reach = not self._send_all(signal.SIGKILL)

    def _send_all(self, number: int) -> bool:
        """Signal all that live now; False where all belong to other users."""
        self._tree.read()  # a process id seen earlier may be somebody else's by now
        reached = [send(pid, number) for pid in self._tree.pids()]
        return any(reached) or not reached


def send(pid: int, number: int) -> bool:
    """Signal a process; False where it became another user's."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
        return error.errno != errno.EPERM
    return True


def _waiting_for(pids: list[int]) -> str:
    left = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    return f"the command left {left} behind: waiting for the end (Ctrl-C stops it)"
