"""Decide which signals weigh passes on, and which the job has received already.

weigh stays in the job's process group. Signals from the terminal (Ctrl-C, Ctrl-Z, a
hang-up), from timeout(1) or ``kill 0`` to the group, and from a scheduler to every
process reach the job directly; only signals sent to weigh alone are passed on. A
siginfo does not distinguish these, so weigh keeps a witness: a child in the same group
that records its signals. Before the witness exists, si_code decides: it is SI_KERNEL
for the terminal's signals (also for the hang-up that only a session leader gets).
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weigh.measure.launcher import end_child, fork_with_pipes

_SI_KERNEL = 0x80
# seconds until a sender has signalled the whole group
_SETTLING = 0.01
_WITNESS_PATIENCE = 500  # milliseconds: a full machine is slow, and it may be stopped
_NOT_PASSED_ON = {
    *(signal.SIGKILL, signal.SIGSTOP),  # cannot be caught
    signal.SIGCHLD,  # weigh's own
    # the terminal's, for a process that reads or writes
    *(signal.SIGTTIN, signal.SIGTTOU),
    # caused by the process itself
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP),
    *(signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV),
}
_PASSED_ON = frozenset(signal.valid_signals() - _NOT_PASSED_ON)
_OPPOSITE: dict[int, int] = {
    signal.SIGTSTP: signal.SIGCONT,
    signal.SIGCONT: signal.SIGTSTP,
}
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class SignalWakeup:
    """The signals that wake the measuring loop, blocked and waited for in one place.

    They stay blocked until :meth:`close`, so none is lost: a blocked signal is kept
    even if it is ignored (nohup), because the job may have its own handler.
    """

    def __init__(self) -> None:
        # those that would end weigh if they were not blocked
        self.ending = frozenset(
            number
            for number in _ENDING
            if signal.getsignal(number) is not signal.SIG_IGN
        )
        # with an inherited SIG_IGN the kernel would discard exit statuses
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._waited = _PASSED_ON | {signal.SIGCHLD}
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        self._noted: set[int] = set()
        self._witness: SignalWitness | None = None

    def close(self) -> None:
        """Restore the signal mask."""
        self.dismiss_witness()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def call_witness(self) -> int | None:
        """Fork the witness; return its process id, or None if that failed.

        It costs some milliseconds, so short runs do without.
        """
        with suppress(OSError):  # without it only si_code decides
            self._witness = SignalWitness()
        return None if self._witness is None else self._witness.pid

    def dismiss_witness(self) -> None:
        """End the witness, after the end of the job."""
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def wait(self, seconds: float) -> signal.struct_siginfo | None:
        """Sleep until a signal arrives, or return None after *seconds*.

        After a stop and continue, CPython returns a signal of number 0.
        """
        info = signal.sigtimedwait(self._waited, max(0.0, seconds))
        return info if info is not None and info.si_signo in self._waited else None

    def missed(self) -> list[int]:
        """Return the signals that arrived before the job was executed."""
        return [info.si_signo for info in _pending(_PASSED_ON)]

    def is_for_the_job(self, info: signal.struct_siginfo, tree: list[int]) -> bool:
        """Return whether the job has not received this signal yet.

        A signal from the job's own *tree* is not passed back to it.
        """
        number = info.si_signo
        answer = self._ask_witness()
        opposite = _OPPOSITE.get(number)
        if number in self._noted:
            self._noted -= {number, opposite or number}
            for _again in _pending({number}):  # timeout(1) signals weigh twice
                pass
            return False
        # of a stop and a CONT that wait the kernel keeps the later one: the witness had
        # this one, too (Ctrl-Z right after fg)
        if opposite in self._noted:
            return False
        # a terminal signals the whole group, perhaps just before there was a witness;
        # its hang-up reaches the leader of its session alone
        by_terminal = info.si_code == _SI_KERNEL and (
            answer is None or number != signal.SIGHUP
        )
        return not by_terminal and info.si_pid not in tree

    def _ask_witness(self) -> set[int] | None:
        """Note and return the witness's signals; None if it does not answer."""
        if self._witness is None:
            return None
        time.sleep(_SETTLING)
        answer = self._witness.noted()
        self._noted |= answer or set()
        return answer


class SignalWitness:
    """A child in weigh's process group that records the signals it receives."""

    def __init__(self) -> None:
        """Fork it with all signals blocked. Raises OSError."""
        self.pid, *ends = fork_with_pipes()
        if self.pid == 0:
            _bear_witness(*ends)
        self._answer, self._ask = ends

    def noted(self) -> set[int] | None:
        """Return its signals since the last call; None if it does not answer."""
        import select  # noqa: PLC0415 - most runs get no signal

        answers = select.poll()
        answers.register(self._answer, select.POLLIN)
        try:
            os.write(self._ask, b"?")
            answered = answers.poll(_WITNESS_PATIENCE)
            # a first byte 0 means that it answered, and that it got no signal
            return set(os.read(self._answer, 64)) or None if answered else None
        except OSError:  # it was killed
            return None

    def close(self) -> None:
        """Kill it."""
        os.close(self._ask)
        os.close(self._answer)
        end_child(self.pid)


def _bear_witness(asked: int, answer: int) -> None:
    """Answer each request with the pending signals; never returns."""
    try:
        while os.read(asked, 1):  # ends when weigh ends
            numbers = [info.si_signo for info in _pending(_PASSED_ON)]
            # it has no handlers: blocked signals stay pending until they are read here
            os.write(answer, bytes([0, *numbers]))
    finally:
        os._exit(0)


def _pending(numbers: frozenset[int] | set[int]) -> Iterator[signal.struct_siginfo]:
    """Yield the blocked signals that are pending, and clear them."""
    while (info := signal.sigtimedwait(numbers, 0)) is not None:
        yield info


@contextmanager
def held() -> Iterator[None]:
    """Keep signals from ending weigh while it writes the record.

    A signal to the whole group often arrives just after it has ended the job. QUIT
    still ends weigh.
    """
    numbers = _PASSED_ON - {signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        for _late in _pending(numbers - before):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_self() -> None:
    """Stop this process, until a shell's ``fg`` or a CONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def in_foreground() -> bool:
    """Return whether this process group owns its terminal."""
    # the controlling terminal, even where all streams are redirected
    with suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False
