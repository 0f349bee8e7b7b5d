"""Every task's lines on weigh's own output, each behind the task's number.

One thread reads all the pipes. Lines are passed on whole, so that those of tasks side
by side never mix within a line.
"""

import os
import select
import signal
import threading

from weigh.runner.output import is_full
from weigh.units import Bytes

_PIECE = 65536
_TAIL = 16384
_STDOUT, _STDERR = 1, 2


class _Pipe:
    """One stream of one task, on its way to *target*."""

    __slots__ = ("prefix", "rest", "size", "tail", "target")

    def __init__(self, prefix: bytes, target: int) -> None:
        self.prefix = prefix
        self.target = target
        self.rest = b""
        self.tail = b""
        self.size = 0

    def take(self, piece: bytes) -> bytes:
        """Take in what was read; give the lines that are whole."""
        self.size += len(piece)
        self.tail = (self.tail + piece)[-_TAIL:]
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return b"".join([b"%b%b\n" % (self.prefix, line) for line in lines])

    def finish(self) -> bytes:
        """Give the line that had no end."""
        return b"%b%b\n" % (self.prefix, self.rest) if self.rest else b""


class TaggedStream:
    """The two pipes of one attempt."""

    path: str | None = None

    def __init__(self, pipes: tuple[_Pipe, _Pipe], ends: tuple[int, int]) -> None:
        self._pipes = pipes
        self._ends: tuple[int, int] | None = ends
        self.closed = threading.Semaphore(0)  # released as each pipe ends

    def descriptors(self) -> tuple[int, int] | None:
        """Give the ends to write to."""
        return self._ends

    def started(self) -> None:
        """Close our copies of these ends: the pipe ends with the task."""
        if self._ends is not None:
            for end in self._ends:
                os.close(end)
            self._ends = None

    def look(self) -> None:
        """Do nothing."""

    def tail(self) -> bytes:
        """Give the last of what came through either pipe."""
        return b"".join(pipe.tail for pipe in self._pipes)

    def close(self) -> Bytes:
        """Wait until all of it is passed on; give its size."""
        for _ in self._pipes:
            self.closed.acquire(timeout=1.0)
        return sum(pipe.size for pipe in self._pipes)


class Tagged:
    """Passes output on from a thread of its own."""

    folder: str | None = None

    def __init__(self) -> None:
        self._poll = select.poll()
        self._pipes: dict[int, tuple[_Pipe, TaggedStream]] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._poll.register(self._wake_read, select.POLLIN)
        self._closing = False
        self._is_full = False
        self._thread = threading.Thread(target=self._run, name="weigh-tag", daemon=True)
        self._thread.start()

    def open(self, _slot: int, seq: int, _attempt: int) -> TaggedStream:
        """Make the pipes of an attempt. Raises OSError where none can be made."""
        prefix = b"%d\t" % seq
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        pipes = _Pipe(prefix, _STDOUT), _Pipe(prefix, _STDERR)
        stream = TaggedStream(pipes, (out_write, err_write))
        for pipe, end in zip(pipes, (out_read, err_read), strict=True):
            self._pipes[end] = (pipe, stream)
            self._poll.register(end, select.POLLIN)
        self._wake()
        return stream

    def is_full(self) -> bool:
        """Tell whether lines were lost for want of room."""
        return self._is_full

    def close(self) -> None:
        """Pass the rest on, and end."""
        self._closing = True
        self._wake()
        self._thread.join(timeout=5.0)

    def _wake(self) -> None:
        os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not (self._closing and not self._pipes):
            for fd, _ in self._poll.poll(200 if self._closing else None):
                if fd == self._wake_read:
                    os.read(fd, _PIECE)
                else:
                    self._pass_on(fd)

    def _pass_on(self, fd: int) -> None:
        pipe, stream = self._pipes[fd]
        piece = os.read(fd, _PIECE)
        try:
            _write(pipe.target, pipe.take(piece) if piece else pipe.finish())
        except OSError as error:
            # a reader that went away is no reason to stop the tasks
            self._is_full = self._is_full or is_full(error)
        if not piece:
            self._poll.unregister(fd)
            del self._pipes[fd]
            os.close(fd)
            stream.closed.release()


def _write(target: int, text: bytes) -> None:
    """Write all of it. Raises OSError where that cannot be done."""
    while text:
        text = text[os.write(target, text) :]
