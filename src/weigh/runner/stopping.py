"""Stop attempts: send a signal, TERM half-way through the grace time, then KILL."""

import os
import signal
from collections.abc import Iterable
from time import monotonic

from weigh.measure.checkpoint_signal import send_checkpoint_signal
from weigh.runner.attempt import Stop, TaskAttempt
from weigh.units import Seconds

_KILL_AGAIN = 0.05  # seconds between KILLs, as orphans may be found after the first
_NEVER = float("inf")
# Warnings of a scheduler. Grid Engine sends them to the job's whole process group. They
# kill a program without a handler for them, even if it handles TERM.
_WARNINGS = frozenset({signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU})


class AttemptStopper:
    """The attempts that are being stopped, and when the grace time of each ends.

    ``wake_at`` is when the next signal is due.
    """

    def __init__(self, grace: Seconds) -> None:
        self.wake_at: Seconds = _NEVER
        self._grace = grace
        self._stopping: dict[str, TaskAttempt] = {}  # by record, as all of these
        # those that were sent TERM, and need no other one half-way
        self._reminded: set[str] = set()
        self._killed: dict[str, Seconds] = {}  # when KILL was first sent

    def stop(
        self,
        attempt: TaskAttempt,
        why: Stop,
        signal_number: int,
        *,
        grace: Seconds | None = None,
    ) -> None:
        """Send *signal_number* to an attempt's processes; KILL follows after *grace*.

        A scheduler's warning goes only to processes with a handler for it. If there is
        none, all are sent TERM instead.
        """
        if signal_number in _WARNINGS and not send_warning_to_attempt(
            attempt, signal_number
        ):
            # it is on its way: a warning that nobody handles adds nothing
            if attempt.record in self._stopping:
                return
            signal_number = signal.SIGTERM
        # the first reason counts, and later signals do not extend the grace time
        if attempt.state.stop is None:
            attempt.state.stop = why
        if attempt.state.kill_at is None:
            patience = self._grace if grace is None else min(grace, self._grace)
            attempt.state.kill_at = monotonic() + patience
        self._stopping[attempt.record] = attempt
        if signal_number == signal.SIGTERM:
            self._reminded.add(attempt.record)
        if signal_number not in _WARNINGS:
            _send_signal_to_attempt(attempt, signal_number)
        self._set_alarm()

    def stop_orphans(self, attempt: TaskAttempt) -> None:
        """Stop the processes that a task left behind."""
        if attempt.state.kill_at is None:
            attempt.state.kill_at = monotonic() + self._grace
        self._stopping[attempt.record] = attempt
        self._reminded.add(attempt.record)
        _send_signal_to_attempt(attempt, signal.SIGTERM)
        self._set_alarm()

    def end_grace(self, why: Stop | None = None) -> None:
        """End the grace time now, of all or of those stopped because of *why*."""
        for attempt in self._stopping.values():
            if why is None or attempt.state.stop == why:
                attempt.state.kill_at = monotonic()
        self._set_alarm()

    def forget(self, attempt: TaskAttempt) -> None:
        """Drop an attempt that has ended."""
        if self._stopping.pop(attempt.record, None) is not None:
            self._reminded.discard(attempt.record)
            self._killed.pop(attempt.record, None)
            self._set_alarm()

    def act_on_deadlines(self, current_time: Seconds) -> None:
        """Send TERM half-way through the grace time and KILL at its end."""
        if current_time < self.wake_at:
            return
        for record, attempt in self._stopping.items():
            kill_at = attempt.state.kill_at or current_time
            # at each look from then on, until it is reaped
            if current_time >= kill_at:
                _send_signal_to_attempt(attempt, signal.SIGKILL)
                self._killed.setdefault(record, current_time)
                attempt.state.kill_at = current_time + _KILL_AGAIN
            elif (
                record not in self._reminded
                and current_time >= kill_at - self._grace / 2
            ):
                self._reminded.add(record)
                _send_signal_to_attempt(attempt, signal.SIGTERM)
        self._set_alarm()

    def outlived(self, before: Seconds) -> list[TaskAttempt]:
        """Return the attempts that were sent KILL before that time and still run."""
        return [
            self._stopping[record] for record, at in self._killed.items() if at < before
        ]

    def _set_alarm(self) -> None:
        self.wake_at = min(map(self._due, self._stopping.values()), default=_NEVER)

    def _due(self, attempt: TaskAttempt) -> Seconds:
        kill_at = attempt.state.kill_at or 0.0
        reminded = attempt.record in self._reminded
        return kill_at if reminded else kill_at - self._grace / 2


def send_warning_to_attempt(attempt: TaskAttempt, signal_number: int) -> int:
    """Send a warning to the processes with a handler for it; return their number."""
    if attempt.state.status is None:
        return send_checkpoint_signal(attempt.launch.pid, signal_number)
    # the leader was reaped, so its number may be another's. The watcher's thread sends
    # too while the loop adds orphans: a copy
    return sum(
        send_checkpoint_signal(pid, signal_number)
        for pid in tuple(attempt.state.orphans)
    )


def _send_signal_to_attempt(attempt: TaskAttempt, signal_number: int) -> None:
    # after the leader was reaped, the group's number may be another's
    if attempt.state.status is None:
        send_to_group(attempt.launch.pid, signal_number)
    send_to_all(attempt.state.orphans, signal_number)


def send_to_group(leader: int, signal_number: int) -> None:
    """Signal a task's process group, and continue it if it is suspended."""
    try:
        os.killpg(leader, signal_number)
        if signal_number != signal.SIGKILL:
            os.killpg(leader, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return


def send_to_all(pids: Iterable[int], signal_number: int) -> None:
    """Signal processes one by one; ignore those that have ended."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
            if signal_number != signal.SIGKILL:
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue
