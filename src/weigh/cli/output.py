"""Write to a terminal, pipe or file that may be blocked or gone, without hanging.

Ctrl-S, a paused pager or a full pipe block the writer; writing to a closed terminal
fails. Neither may stop tasks, delay signals or change an exit code. So a separate
thread writes, and the program waits for it only for a limited time.
"""

import atexit
import os
import signal
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from weigh import waits
from weigh.lazy_modules import lazy_module
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.render import printable
else:  # each is imported when it is first used
    printable = lazy_module("weigh.render.printable")

_MOST = 1 << 20  # bytes that may wait to be written; newer ones are dropped
_PIECE = 4096  # bytes of one write


class PatientStream:
    """A text stream that replaces *stream* and whose writes return immediately.

    After an ``error`` of the stream nothing is written any more.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - any text stream
        """Write to the descriptor of *stream*."""
        self.error: OSError | None = None
        self._stream = stream
        self._fd: int = stream.fileno()
        self._patience = waits.times.blocked_stream
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes in it, and those being written
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it has
        """Return any other attribute of the stream itself."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Queue *text*; drop it if too much waits already."""
        self._queue(text, _MOST)
        return len(text)

    def draw(self, text: str) -> bool:
        """Queue *text* if everything before it is written; return whether it was."""
        return self._queue(text, 0)

    def flush(self) -> None:
        """Wait until everything is written, or patience is used up."""
        # used up once, patience is used up for good: each print would wait again
        if self._patience > 0 and not self.wait(self._patience):
            self._patience = 0.0

    def wait(self, seconds: Seconds) -> bool:
        """Wait until everything is written; return False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, seconds)

    def _queue(self, text: str, most: int) -> bool:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        piece = text.encode(encoding, "backslashreplace")
        with self._changed:
            # "most" bytes may wait before it; 0 means that only an empty queue takes it
            if self.error is not None or self._size > most:
                return False
            self._waiting.append(piece)
            self._size += len(piece)
            # started with the first text: most commands never write to stderr
            if self._thread is None and not self._start():
                self._write_now()
            self._changed.notify_all()
        return True

    def _write_now(self) -> None:
        """Write what waits here: no thread can be started (ulimit -u)."""
        while self._waiting:
            with suppress(OSError):
                # this may block, but without a thread there is no other way
                os.write(self._fd, self._waiting.popleft())
        self._size = 0

    def _start(self) -> bool:
        """Start the thread that writes; return False if none can be started."""
        thread = threading.Thread(target=self._run, name="weigh-write", daemon=True)
        # the main thread handles signals, and may have blocked them to wait for them
        has_masks = hasattr(signal, "pthread_sigmask")
        masked = signal.valid_signals() if has_masks else set()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, masked) if has_masks else ()
        try:
            thread.start()
        except RuntimeError:
            return False
        finally:
            if has_masks:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                piece = self._waiting.popleft()
            try:
                rest = piece
                while rest:
                    # os.write() may take only a part
                    rest = rest[os.write(self._fd, rest[:_PIECE]) :]
            except OSError as error:
                self._give_up(error)
                return
            # only after it was written, so that wait() includes the piece in progress
            with self._changed:
                self._size -= len(piece)
                self._changed.notify_all()

    def _give_up(self, os_error: OSError) -> None:
        with self._changed:
            self.error = os_error
            self._waiting.clear()
            self._size = 0
            self._changed.notify_all()


def make_stderr_patient() -> None:
    """Replace stderr, so that weigh does not hang or fail if it is blocked or gone."""
    stderr = sys.stderr
    try:
        # a stream that is guarded already has the patient one inside
        wrapped = getattr(stderr, "raw", stderr)
        if stderr is None or isinstance(wrapped, PatientStream) or stderr.fileno() != 2:  # noqa: PLR2004 - a test's own stream
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


def shall_use_colour(stream: TextIO | None) -> bool:
    """Follow NO_COLOR and FORCE_COLOR; otherwise colour a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return stream is not None and stream.isatty() and not is_dumb


def guard_terminal() -> None:
    """Remove control sequences from what weigh prints on a terminal.

    Labels, commands, file names and a scheduler's messages may contain them.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            is_terminal = stream is not None and stream.isatty()
        except (OSError, ValueError):  # closed
            continue
        if is_terminal:
            setattr(sys, name, printable.SafeTerminal(stream))


def draw_on_stderr(text: str, *, is_ours: bool = False) -> bool:
    """Write *text* to stderr unless older output waits; return whether it was written.

    With *is_ours* all of it is weigh's own, including control sequences.
    """
    stderr: Any = sys.stderr
    if isinstance(stderr, printable.SafeTerminal) and not is_ours:
        text = printable.without_control_characters(text)
    stream: Any = None if stderr is None else printable.unguarded_stream(stderr)
    if isinstance(stream, PatientStream):
        return stream.draw(text)
    if stream is not None:
        stream.write(text)
        stream.flush()
    return True


def print_patiently(text: str) -> OSError | None:
    """Write *text* to stdout; return the error if that fails."""
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
    # a thread and a copy of the descriptor serve only the real stdout
    if fd != 1:  # a test's own stream
        stdout.write(text)
        return None
    out = PatientStream(stdout)
    out.write(
        printable.without_control_characters(text)
        if isinstance(stdout, printable.SafeTerminal)
        else text
    )
    out.flush()
    return out.error


def settle_stdout() -> OSError | None:
    """Flush stdout; return the error if that fails.

    Output that cannot be written is dropped. Otherwise Python tries again at its end,
    and exits with 120.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # Python's own flush at the end then succeeds
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    except ValueError:  # closed
        return None
    return None
