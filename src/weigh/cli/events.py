"""Keys, signals and time, one event after another, for a screen that is watched."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from weigh.units import Seconds

QUIT, TICK, REDRAW, STOP, RETURN = "quit", "tick", "redraw", "stop", "return"
_KEYS = dict.fromkeys(b"qQ\x03\x04", QUIT)  # Ctrl-C, Ctrl-D, where they come as keys
_NAMES = {"INT": QUIT, "WINCH": REDRAW, "TSTP": STOP, "CONT": RETURN}
_ENDINGS = ("TERM", "HUP", "QUIT")


class Ended(Exception):  # noqa: N818 - no error: somebody ended it
    """A signal asked to end; ``number`` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Events:
    """Takes over the signals on entry; gives them back on exit."""

    def __init__(self) -> None:
        self._events: dict[int, str | None] = _numbered()
        self._found: dict[int, Any] = {}
        self._keys: int | None = None
        self._read = self._write = self._wakeup = -1

    def __enter__(self) -> Self:
        if sys.platform == "win32":  # it wakes for sockets only: Ctrl-C is all there is
            return self
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._events:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves HUP
                self._found[number] = signal.signal(number, _only_wake)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)
        self._found.clear()
        if self._read >= 0:
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1

    @contextmanager
    def keyboard(self) -> Iterator[None]:
        """Take keys one by one, unseen; leave the terminal as it was."""
        if sys.platform == "win32" or not _is_terminal(sys.stdin):
            yield
            return
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415

        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
        try:
            tty.setcbreak(keys, termios.TCSANOW)  # one that is stopped never drains
            self._keys = keys
            yield
        finally:
            self._keys = None
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(keys, termios.TCSANOW, before)

    def wait(self, seconds: Seconds) -> str:
        """Wait for the next event, TICK after so long.

        Raises:
            Ended: a signal asked to end.
        """
        if self._read < 0:
            return _sleep(seconds)
        sources = [self._read] if self._keys is None else [self._read, self._keys]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._read in ready:
            return self._signalled(os.read(self._read, 1)[0])
        if ready:
            return _key(sources[1])
        return TICK

    def stop(self) -> None:
        """Stop this process as Ctrl-Z would; come back when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _only_wake)

    def _signalled(self, number: int) -> str:
        event = self._events.get(number, TICK)
        if event is None:
            raise Ended(number)
        return event


def _numbered() -> dict[int, str | None]:
    """Map the signals that this system has to events; None means to end."""
    named: dict[str, str | None] = {**_NAMES, **dict.fromkeys(_ENDINGS)}
    numbers = {name: getattr(signal, f"SIG{name}", None) for name in named}
    return {number: named[name] for name, number in numbers.items() if number}


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Let the wakeup pipe tell."""


def _key(descriptor: int) -> str:
    try:
        typed = os.read(descriptor, 1024)
    except OSError:
        return QUIT  # the terminal is gone
    events = [_KEYS[key] for key in typed if key in _KEYS]
    return QUIT if events or not typed else REDRAW


def _sleep(seconds: Seconds) -> str:
    try:
        time.sleep(max(0.0, seconds))
    except KeyboardInterrupt:
        return QUIT
    return TICK


def _is_terminal(stream: Any) -> bool:  # noqa: ANN401 - None where it came closed
    return stream is not None and stream.isatty()
