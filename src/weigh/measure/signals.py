"""Which signals weigh passes on to the job, and which the job has already.

weigh stays in the job's process group. What the terminal sends (Ctrl-C, Ctrl-Z, a
hang-up), what timeout(1) or ``kill 0`` sends to the group and what a scheduler sends
to every process reaches the job by itself; only what somebody sent to weigh alone is
passed on. A siginfo does not tell these apart, so weigh asks a witness: a child in
the same group that only notes its signals. Until it has one it goes by si_code, which
is SI_KERNEL for the terminal's signals (also for the hang-up that only the leader of
a session gets).
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SI_KERNEL = 0x80
_SHELL_SIGNAL_BASE = 128
# the sender that signals one process after the other is not done yet
_SETTLING = 0.01
_WITNESS_PATIENCE = 100  # milliseconds; somebody may have stopped it
_NOT_PASSED_ON = {
    signal.SIGKILL,  # can be neither caught ...
    signal.SIGSTOP,  # ... nor blocked
    signal.SIGCHLD,  # weigh's own
    signal.SIGTTIN,  # the terminal's, for the process that reads ...
    signal.SIGTTOU,  # ... or writes
    signal.SIGPIPE,  # what a process did itself, and its default end
    signal.SIGXFSZ,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTRAP,
}
_PASSED_ON = frozenset(signal.valid_signals() - _NOT_PASSED_ON)
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class Wakeup:
    """The signals that interrupt the watch, blocked and waited for in one place.

    They stay blocked until :meth:`restore`, so none can arrive unseen: a blocked signal
    is kept even where its disposition is to be ignored (nohup), for the job may have a
    handler of its own.
    """

    def __init__(self) -> None:
        self._ignored = frozenset(
            number for number in _ENDING if signal.getsignal(number) is signal.SIG_IGN
        )
        # an inherited SIG_IGN would have the kernel throw exit statuses away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._waited = _PASSED_ON | {signal.SIGCHLD}
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        self._noted: set[int] = set()
        self._witness: Witness | None = None

    def restore(self) -> None:
        """Put the signal mask back."""
        self.dismiss_witness()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def call_witness(self) -> int | None:
        """Fork the witness, where there can be one; give its process id.

        It costs some milliseconds, which a short run had better save.
        """
        try:
            self._witness = Witness()
        except OSError:
            return None  # si_code alone decides then
        return self._witness.pid

    def dismiss_witness(self) -> None:
        """End the witness: there is no job left to pass anything on to."""
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def asks_to_end(self, number: int) -> bool:
        """Tell whether a signal would have ended weigh, had it not been waiting."""
        return number in _ENDING and number not in self._ignored

    def wait(self, seconds: float) -> signal.struct_siginfo | None:
        """Sleep until a signal comes or *seconds* have gone; None for the latter.

        Stopped and continued in its sleep, CPython gives a signal of number 0.
        """
        info = signal.sigtimedwait(self._waited, max(0.0, seconds))
        return info if info is not None and info.si_signo in self._waited else None

    def missed(self) -> list[int]:
        """Give what came while the job was no program yet and could get none of it."""
        return [info.si_signo for info in _pending(_PASSED_ON)]

    def is_for_the_job(self, info: signal.struct_siginfo, tree: list[int]) -> bool:
        """Tell whether the job has not got this signal yet.

        A sender in the job's own *tree* knows the job; weigh passes nothing back.
        """
        number = info.si_signo
        answer = self._ask_witness()
        if number in self._noted:
            self._noted.discard(number)
            for _again in _pending({number}):  # timeout(1) tells weigh, then the group
                pass
            return False
        by_terminal = answer is None and info.si_code == _SI_KERNEL
        return not by_terminal and info.si_pid not in tree

    def _ask_witness(self) -> set[int] | None:
        """Let what the witness saw be noted; None when there is no answer."""
        if self._witness is None:
            return None
        time.sleep(_SETTLING)
        answer = self._witness.noted()
        self._noted |= answer or set()
        return answer


class Witness:
    """A child in weigh's process group that notes the signals it gets."""

    def __init__(self) -> None:
        """Fork it, its signals blocked. Raises OSError when no process can be made."""
        asked, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._ask)
                _bear_witness(asked, answer)
        except OSError:
            self._close_pipes()
            raise
        finally:
            os.close(asked)
            os.close(answer)

    def noted(self) -> set[int] | None:
        """Give the signals it got since it was asked last; None if it cannot say."""
        import select  # noqa: PLC0415 - most runs get no signal

        answers = select.poll()
        answers.register(self._answer, select.POLLIN)
        try:
            os.write(self._ask, b"?")
            answered = answers.poll(_WITNESS_PATIENCE)
            return set(os.read(self._answer, 64)) or None if answered else None
        except OSError:  # somebody killed it
            return None

    def close(self) -> None:
        """End it."""
        self._close_pipes()
        try:
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        except ChildProcessError:  # killed, and reaped by then
            return

    def _close_pipes(self) -> None:
        os.close(self._ask)
        os.close(self._answer)


def _bear_witness(asked: int, answer: int) -> None:
    """Answer each question with the signals that are pending; never returns."""
    try:
        while os.read(asked, 1):  # ends with weigh, however that ends
            numbers = [info.si_signo for info in _pending(_PASSED_ON)]
            os.write(answer, bytes([0, *numbers]))
    finally:
        os._exit(0)


def _pending(numbers: frozenset[int] | set[int]) -> Iterator[signal.struct_siginfo]:
    """Take the blocked signals that have arrived, one by one."""
    while (info := signal.sigtimedwait(numbers, 0)) is not None:
        yield info


@contextmanager
def held() -> Iterator[None]:
    """Keep signals from ending weigh while it writes down what it measured.

    A signal to the whole group often arrives just as it has ended the job. QUIT still
    ends a weigh that hangs.
    """
    numbers = _PASSED_ON - {signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        for _late in _pending(numbers - before):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended_by(status: int) -> int | None:
    """Give the signal that ended a process, also as a shell words it: 128 + n."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    code = os.waitstatus_to_exitcode(status)
    return code - _SHELL_SIGNAL_BASE if code > _SHELL_SIGNAL_BASE else None


def stop_self() -> None:
    """Stop like the rest of the job, until a shell's ``fg`` or a CONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def in_foreground() -> bool:
    """Tell whether this process group owns its terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)
