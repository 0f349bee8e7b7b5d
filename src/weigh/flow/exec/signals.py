"""The signals that ``weigh exec`` sees to itself, blocked until its loop takes them."""

import signal
from contextlib import ExitStack

_WAITED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGXCPU,
    }
)


def heeded() -> frozenset[signal.Signals]:
    """Give the signals to see to: those that weigh was not started to ignore."""
    return frozenset(
        number for number in _WAITED if signal.getsignal(number) != signal.SIG_IGN
    )


def block_signals(opened: ExitStack) -> frozenset[int]:
    """Keep signals for the loop to take; give the mask that was, for the tasks."""
    # an inherited SIG_IGN would have the kernel throw exit statuses away
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heeded() | {signal.SIGCHLD})
    opened.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    return frozenset(before)


def is_told_to_end() -> bool:
    """Tell whether a signal that asks to end has come meanwhile."""
    return signal.sigtimedwait(heeded(), 0) is not None
