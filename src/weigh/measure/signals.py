"""Which signals weigh passes on to the job, and which the job has already.

weigh stays in the job's process group, so what the terminal sends (Ctrl-C, Ctrl-Z, a
hang-up) reaches both by itself; the kernel marks those with si_code SI_KERNEL. What
someone sends to weigh alone is passed on. A sender inside the job's own tree signalled
the group (``kill 0``), which the job is part of.
"""

import os
import signal

_SI_KERNEL = 0x80
_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGTSTP,
)
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class Wakeup:
    """The signals that interrupt the watch, blocked and waited for in one place.

    They stay blocked until :meth:`restore`, so none can arrive unseen: a blocked signal
    is kept even where its disposition is to be ignored (nohup), for the job may have a
    handler of its own.
    """

    def __init__(self) -> None:
        self._ignored = frozenset(
            number
            for number in _PASSED_ON
            if signal.getsignal(number) is signal.SIG_IGN
        )
        # an inherited SIG_IGN would have the kernel throw exit statuses away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._waited = frozenset({*_PASSED_ON, signal.SIGCHLD})
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)

    def restore(self) -> None:
        """Put the signal mask back."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def asks_to_end(self, number: int) -> bool:
        """Tell whether a signal would have ended weigh, had it not been waiting."""
        return number in _ENDING and number not in self._ignored

    def wait(self, seconds: float) -> signal.struct_siginfo | None:
        """Sleep until a signal comes or *seconds* have gone; None for the latter."""
        return signal.sigtimedwait(self._waited, max(0.0, seconds))


def is_for_the_job(info: signal.struct_siginfo, tree: list[int]) -> bool:
    """Tell whether the job has not got this signal yet."""
    return info.si_code != _SI_KERNEL and info.si_pid not in tree


def stop_self() -> None:
    """Stop like the rest of the foreground job, until the shell says ``fg``."""
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
