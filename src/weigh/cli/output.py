"""Write to a terminal, pipe or file that may be blocked or dead, without hanging.

Ctrl-S, a pager that is paused or a full pipe that nobody reads block whoever writes; a
terminal that is gone fails. Neither may stop tasks, delay signals or decide an exit
code. A thread of its own writes here; the program only waits for a limited time.
"""

import atexit
import os
import signal
import sys
import threading
from collections import deque
from typing import Any

from weigh.units import Seconds

PATIENCE: Seconds = 5.0  # that a blocked stream holds up weigh, in all
_MOST = 1 << 20  # bytes that wait to be written; beyond them the newest are dropped
_PIECE = 4096


class PatientStream:
    """A text stream in place of *stream*, whose writes return at once.

    ``error`` is what became of the stream: from then on nothing is written.
    """

    def __init__(self, stream: Any, *, patience: Seconds = PATIENCE) -> None:  # noqa: ANN401 - any text stream
        """Write to the file descriptor of *stream*; wait *patience* seconds in all."""
        self.error: OSError | None = None
        self._stream = stream
        self._fd: int = stream.fileno()
        self._patience = patience
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes in it, and those that are being written
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it has
        """Return anything else from the stream itself."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Queue *text*; drop it where far too much waits already."""
        self._queue(text, _MOST)
        return len(text)

    def draw(self, text: str) -> bool:
        """Queue *text* if all before it is written; return whether it was."""
        return self._queue(text, 0)

    def flush(self) -> None:
        """Wait until everything is written, as long as patience lasts."""
        if self._patience > 0 and not self.wait(self._patience):
            self._patience = 0.0

    def wait(self, seconds: Seconds) -> bool:
        """Wait until everything is written; return False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, seconds)

    def _queue(self, text: str, most: int) -> bool:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        piece = text.encode(encoding, "backslashreplace")
        with self._changed:
            if self.error is not None or self._size > most:
                return False
            self._waiting.append(piece)
            self._size += len(piece)
            if self._thread is None:
                self._start()
            self._changed.notify_all()
        return True

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name="weigh-write", daemon=True
        )
        if not hasattr(signal, "pthread_sigmask"):
            self._thread.start()
            return
        # signals are for the main thread, which may have blocked them to wait for them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                piece = self._waiting.popleft()
            try:
                rest = piece
                while rest:
                    rest = rest[os.write(self._fd, rest[:_PIECE]) :]
            except OSError as error:
                self._give_up(error)
                return
            with self._changed:
                self._size -= len(piece)
                self._changed.notify_all()

    def _give_up(self, error: OSError) -> None:
        with self._changed:
            self.error = error
            self._waiting.clear()
            self._size = 0
            self._changed.notify_all()


def make_stderr_patient() -> None:
    """Keep a blocked or dead stderr from hanging or failing weigh."""
    stderr = sys.stderr
    try:
        wrapped = getattr(stderr, "raw", stderr)
        if stderr is None or isinstance(wrapped, PatientStream) or stderr.fileno() != 2:  # noqa: PLR2004 - not one that a test put there
            return
    except (OSError, ValueError):
        return
    patient = PatientStream(stderr)
    sys.stderr = patient

    def leave() -> None:
        """Give stderr back before Python stops the thread, which may hold the lock."""
        patient.flush()
        sys.stderr = stderr

    atexit.register(leave)


def draw_on_stderr(text: str, *, is_ours: bool = False) -> bool:
    """Write *text* to stderr unless it is behind; return whether it was written.

    With *is_ours* all of it is weigh's own, control sequences too.
    """
    from weigh.render.printable import (  # noqa: PLC0415 - start-up time
        Terminal,
        shown,
        unguarded,
    )

    stderr: Any = sys.stderr
    if isinstance(stderr, Terminal) and not is_ours:
        text = shown(text)
    stream: Any = None if stderr is None else unguarded(stderr)
    if isinstance(stream, PatientStream):
        return stream.draw(text)
    if stream is not None:
        stream.write(text)
        stream.flush()
    return True


def print_patiently(text: str) -> OSError | None:
    """Write *text* to stdout; return what is in the way, if anything is."""
    stdout = sys.stdout
    if stdout is None:
        return None
    try:
        stdout.flush()
        fd = stdout.fileno()
    except OSError as error:
        return error
    except ValueError:
        fd = -1
    if fd != 1:  # one that a test put there
        stdout.write(text)
        return None
    from weigh.render.printable import Terminal, shown  # noqa: PLC0415 - start-up time

    out = PatientStream(stdout)
    out.write(shown(text) if isinstance(stdout, Terminal) else text)
    out.flush()
    return out.error


def settle_stdout() -> OSError | None:
    """Write what stdout still holds; return what is in the way.

    What cannot be written is dropped, so that Python does not try again at its end and
    exits with 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    except ValueError:  # closed
        return None
    return None
