"""Watch one run of `weigh run` to its end, and what outlives its command."""

import ctypes
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from functools import partial

from weigh import waits
from weigh.errors import SIGNAL_BASE
from weigh.measure.watcher import INFINITY, TreeWatcher, WatchSettings
from weigh.model.record import RunMeasurement
from weigh.units import Bytes, Seconds

_PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4
_ABOUT_TO_END = 0.5  # seconds; mpirun ends before the srun that it has started
_KILL_AGAIN = 0.05  # seconds; processes that fork quickly need several rounds
# Windows knows one way to end a process
_CONTINUE, _KILL = (
    getattr(signal, name, signal.SIGTERM) for name in ("SIGCONT", "SIGKILL")
)
# seconds, so that a run that is killed early has a record
_FIRST_CHECKPOINT = 0.2
_SECOND_CHECKPOINT = 1.0  # seconds after the first: a short run is written once


def adopt_orphans() -> bool:
    """Become the parent of all orphaned descendants; False if the kernel refuses."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class CommandOrphans:
    """The processes that outlive the command, once it has ended."""

    def __init__(
        self, watcher: TreeWatcher, notify: Callable[[str], None] | None
    ) -> None:
        self._watcher = watcher
        self._notify = notify
        self._step_at: Seconds = INFINITY  # when the next step is due
        # out of reach: all that is left belongs to other users
        self._is_stopping = self._was_terminated = self._out_of_reach = False

    def are_left(self) -> bool:
        """Return whether any are left to wait for."""
        return bool(self._left()) and not self._out_of_reach

    def announce(self) -> None:
        """Say what is waited for, unless it is about to end."""
        self._step_at = self._watcher.elapsed() + _ABOUT_TO_END
        self._watcher.call_at(self._take_step, self._step_at)

    def stop(self) -> None:
        """Stop them: TERM now, KILL after the grace time, or at a second call."""
        self._is_stopping, self._step_at = True, 0.0
        self._watcher.call_at(self._take_step, 0.0)

    def _left(self) -> list[int]:
        tree = self._watcher.tree
        left = tree.children()
        if left is None:  # a system that does not list children, or /proc is hidden
            tree.read()
            left = tree.pids()
        return left

    def _take_step(self) -> Seconds:
        """Take the next step if it is due; return the seconds until the next one."""
        now = self._watcher.elapsed()
        # with a look, the watcher calls what is due before the next look
        if now >= self._step_at:
            self._step_at = now + self._announced_or_stopped()
        return self._step_at - now

    def _announced_or_stopped(self) -> Seconds:
        if not self._is_stopping:
            left = self._left()
            if left and self._notify is not None:
                self._notify(_waiting_for(left))
            return INFINITY
        if not self._was_terminated:
            self._was_terminated = True
            self._send_all(signal.SIGTERM)
            self._send_all(_CONTINUE)  # a stopped process takes no TERM
            return waits.times.orphans_of_run_killed
        self._out_of_reach = not self._send_all(_KILL)
        return _KILL_AGAIN

    def _send_all(self, number: int) -> bool:
        """Signal all living processes; False if all belong to other users."""
        tree = self._watcher.tree
        tree.read()  # an earlier process id may belong to another process by now
        reached = [send_signal_to_orphan(pid, number) for pid in tree.pids()]
        return any(reached) or not reached


def send_signal_to_orphan(pid: int, number: int) -> bool:
    """Send a signal; False if the process belongs to another user now."""
    try:
        os.kill(pid, number)
    except OSError as error:  # else it has ended already
        return not isinstance(error, PermissionError)
    return True


def _waiting_for(pids: list[int]) -> str:
    left = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    return f"the command left {left} behind: waiting (Ctrl-C stops it)"


class RunCheckpoints:
    """Writes now and then what is known of a run, in case weigh is killed."""

    def __init__(self, watcher: TreeWatcher, write: Callable[[], None]) -> None:
        self._watcher = watcher
        self._write = write
        self._written_at: Seconds = 0.0
        # CPU time, processes met, peak; CPU time falls behind where no clock counts it
        self._written: tuple[Seconds, int, Bytes] | None = None
        self._hurry: Seconds | None = None  # until the next one, after a signal to end
        watcher.call_at(self._write_if_changed, _FIRST_CHECKPOINT)

    def hurry(self) -> None:
        """Write at once and soon again: after a signal to end KILL may follow."""
        self._hurry = _FIRST_CHECKPOINT
        self._watcher.call_at(self._write_if_changed, 0.0)

    def _write_if_changed(self) -> Seconds:
        """Write; return the seconds until the next time."""
        now, known = self._watcher.elapsed(), waits.times
        # a run that is killed early has lost the later half of it at most
        pause = max(now, _SECOND_CHECKPOINT)
        watcher = self._watcher
        state = watcher.cpu_time(), watcher.tree.seen, watcher.tracker.best
        is_due = state != self._written
        if self._hurry is not None:
            is_due, pause, self._hurry = True, self._hurry, 2 * self._hurry
        # a run that lasts and does nothing is seldom written
        if is_due or now >= self._written_at + known.idle_checkpoint:
            self._write()
            # not before: a disk that was full is tried again
            self._written_at, self._written = now, state
        return min(pause, known.checkpoint_of_run)


class WatchLoop(ABC):
    """Watches one run of `weigh run` to its end, by whatever wakes it.

    ``end_signal`` is the signal that weigh got and that asks for the end, or None.
    """

    watch: WatchSettings
    end_signal: int | None = None

    def begin(self, watcher: TreeWatcher, leader: int | None) -> None:
        """Begin to watch; checkpoints name the *leader*, a process id."""
        self.watcher, watch = watcher, self.watch
        self.orphans = CommandOrphans(watcher, watch.notify)
        self.checkpoints = RunCheckpoints(
            watcher, lambda: watch.checkpoint(self.measurement(), leader)
        )
        for observer in watch.observers:
            watcher.call_at(partial(observer, watcher), 0.0)

    def watch_to_the_end(self) -> RunMeasurement:
        """Look at the tree until nothing of it is left; return the measurement."""
        watcher = self.watcher
        watcher.look_if_due()
        while not self.is_over():
            self.sleep(max(0.0, watcher.pause()))
            watcher.look_if_due()
        watcher.finish()
        return self.measurement()

    def note_end(self, code: int, ending: Container[int]) -> None:
        """Wait for what the command left, or stop it: the command ended with *code*.

        It is stopped if a signal of *ending* ended the command.
        """
        # below 0 for a signal; a shell's own code is 128 and that of its command
        number = -code if code < 0 else code - SIGNAL_BASE
        was_stopped = self.end_signal is not None or number in ending
        if was_stopped or not self.watch.wait_orphans:
            self.orphans.stop()
        else:
            self.orphans.announce()

    @abstractmethod
    def is_over(self) -> bool:
        """Return whether there is nothing left to watch."""

    @abstractmethod
    def sleep(self, seconds: Seconds) -> None:
        """Sleep, and handle what wakes it before."""

    @abstractmethod
    def measurement(self) -> RunMeasurement:
        """Return the measurement so far."""
