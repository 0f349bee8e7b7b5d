"""Processes that outlive the command: wait for them, or stop them."""

import ctypes
import os
import signal
from collections.abc import Callable

from weigh import waits
from weigh.probe.proc import ProcTree
from weigh.units import Seconds

_PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4


def adopt_orphans() -> bool:
    """Become the parent of all orphaned descendants; False if the kernel refuses."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


_ABOUT_TO_END = 0.5  # seconds; mpirun ends before the srun that it has started
_KILL_AGAIN = 0.05  # seconds; processes that fork quickly need several rounds
# Windows knows one way to end a process
_CONTINUE, _KILL = (
    getattr(signal, name, signal.SIGTERM) for name in ("SIGCONT", "SIGKILL")
)


class CommandOrphans:
    """The processes that outlive the command.

    ``wake_at`` is the latest time of the next call of :meth:`are_left`.
    """

    def __init__(
        self,
        tree: ProcTree,
        clock: Callable[[], Seconds],
        notify: Callable[[str], None] | None,
    ) -> None:
        self.wake_at: Seconds = float("inf")
        self._tree = tree
        self._clock = clock
        self._notify = notify
        self._announce_at: Seconds | None = None
        # out of reach: all that is left belongs to other users
        self._stopping = self._was_terminated = self._out_of_reach = False

    def stop(self) -> None:
        """Stop them: TERM now, KILL after the grace time, or at a second call."""
        if self._was_terminated:
            self.wake_at = self._clock()
        self._stopping = True

    def are_left(self) -> bool:
        """Send the signals that are due; return whether any are left to wait for."""
        left = self._tree.children()
        if left is None:  # a system that does not list children, or /proc is hidden
            self._tree.read()
            left = self._tree.pids()
        if left and self._stopping:
            self._stop()
        elif left and self._notify is not None:
            self._announce(left, self._notify)
        return bool(left) and not self._out_of_reach

    def _announce(self, left: list[int], notify: Callable[[str], None]) -> None:
        """Say once what is waited for, unless it is about to end."""
        now = self._clock()
        if self._announce_at is None:
            self._announce_at = self.wake_at = now + _ABOUT_TO_END
        elif now >= self._announce_at:
            notify(_waiting_for(left))
            self._notify, self.wake_at = None, float("inf")

    def _stop(self) -> None:
        if not self._was_terminated:
            self._was_terminated = True
            self.wake_at = self._clock() + waits.times.orphans_of_run_killed
            self._send_all(signal.SIGTERM)
            self._send_all(_CONTINUE)  # a stopped process takes no TERM
        elif self._clock() >= self.wake_at:
            self.wake_at = self._clock() + _KILL_AGAIN
            self._out_of_reach = not self._send_all(_KILL)

    def _send_all(self, number: int) -> bool:
        """Signal all living processes; False if all belong to other users."""
        self._tree.read()  # an earlier process id may belong to another process by now
        reached = [send_signal_to_orphan(pid, number) for pid in self._tree.pids()]
        return any(reached) or not reached


def send_signal_to_orphan(pid: int, number: int) -> bool:
    """Send a signal; False if the process belongs to another user now."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except OSError:  # it has ended already
        return True
    return True


def _waiting_for(pids: list[int]) -> str:
    left = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    return f"the command left {left} behind: waiting (Ctrl-C stops it)"
