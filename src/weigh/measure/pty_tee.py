"""Copy the job's terminal or pipe output through a second process, and read it.

The copier is a process of its own: if weigh is killed, it goes on copying and the job
is not affected. If weigh reads too slowly, the output still passes. A terminal is
replaced by a terminal of the same size without output processing; the user's own
terminal does that, so every byte arrives unchanged.
"""

import errno
import fcntl
import os
import select
import signal
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from weigh.measure.output import end_of_line
from weigh.units import KIB, MIB, Bytes, Seconds

_BLOCK = 64 * KIB
_WINDOW = struct.Struct("HHHH")
_HIGHEST = 1 << 20  # above any descriptor
_PATIENCE = 2.0  # seconds for the copier to finish after the job
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NEWLINE = b"\n"


class Passage:
    """One terminal or pipe of the job, and weigh's descriptor that it replaces.

    ``targets`` are weigh's descriptors of the same file; ``inner`` is the end that the
    job gets instead, ``outer`` the end that the copier reads.
    """

    def __init__(self, target: int, *, is_terminal: bool) -> None:
        """Open it. Raises OSError."""
        self.target = target
        self.targets = [target]
        self.is_terminal = is_terminal
        self.heard = self.side = -1
        self.outer, self.inner = os.openpty() if is_terminal else os.pipe()
        try:
            self._prepare()
        except OSError:
            self.close()
            raise

    def _prepare(self) -> None:
        if self.is_terminal:
            _make_like(self.inner, self.target)
        self.heard, self.side = os.pipe()
        os.set_blocking(self.heard, False)
        os.set_blocking(self.side, False)
        with suppress(OSError):
            fcntl.fcntl(self.side, fcntl.F_SETPIPE_SZ, MIB)

    def close(self) -> None:
        """Close all descriptors."""
        for fd in (self.outer, self.inner, self.heard, self.side):
            if fd >= 0:
                os.close(fd)

    def opened_as(self) -> str:
        """Return how the job's first process opens it, in shell notation."""
        return (
            "<>" if self.is_terminal else ">"
        ) + f"/proc/{_own_folder()}/fd/{self.inner}"


class PtyTee:
    """The copier of one run, and the output that weigh reads from it.

    ``size`` is how much was read so far; ``streams`` maps the job's descriptors to the
    files to open.
    """

    def __init__(self, fds: Sequence[int] = (1, 2)) -> None:
        """Fork the copier if one of *fds* is a terminal or a pipe.

        Raises:
            OSError: no process or terminal can be created.
        """
        self.size: Bytes = 0
        self.pid: int | None = None
        self._passages = _passages(fds)
        self.streams = {
            fd: passage.opened_as()
            for passage in self._passages
            for fd in passage.targets
        }
        if self._passages:
            try:
                self._fork()
            except OSError:
                _close_all(self._passages)
                raise

    def launched(self) -> None:
        """Close weigh's copies of the job's ends, so that they close with the job."""
        for passage in self._passages:
            if passage.inner >= 0:
                os.close(passage.inner)
                passage.inner = -1

    def look(self, feeds: Sequence[Callable[[bytes], None]], *, cost: Seconds) -> bool:
        """Pass new output to *feeds*, one per passage; return whether there was any.

        After *cost* CPU seconds the rest is left for the next call.
        """
        ends = time.thread_time() + cost
        before = self.size
        for passage, feed in zip(self._passages, feeds, strict=False):
            while passage.heard >= 0 and time.thread_time() <= ends:
                try:
                    chunk = os.read(passage.heard, _BLOCK)
                except BlockingIOError:
                    break
                if not chunk:
                    os.close(passage.heard)
                    passage.heard = -1
                    break
                self.size += len(chunk)
                feed(chunk)
        return self.size != before

    @property
    def count(self) -> int:
        """The number of passages."""
        return len(self._passages)

    def finish(self, feeds: Sequence[Callable[[bytes], None]]) -> None:
        """Wait for the rest of the output, as long as more arrives."""
        self.launched()
        patience = time.monotonic() + _PATIENCE
        while open_ends := [p.heard for p in self._passages if p.heard >= 0]:
            left = patience - time.monotonic()
            if left <= 0:
                break
            select.select(open_ends, (), (), left)
            if self.look(feeds, cost=_PATIENCE):
                patience = time.monotonic() + _PATIENCE
        self._let_go()

    def _let_go(self) -> None:
        is_over = True
        for passage in self._passages:
            if passage.heard >= 0:  # another process still has it open
                is_over = False
                os.close(passage.heard)
                passage.heard = -1
        if self.pid is not None and is_over:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._passages = []

    def _fork(self) -> None:
        every = signal.valid_signals()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, every)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _be_the_copier(self._passages)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for passage in self._passages:
            os.close(passage.outer)
            os.close(passage.side)


def _passages(fds: Sequence[int]) -> list[Passage]:
    """Open a passage for each terminal or pipe among *fds*; equal ones share it."""
    found: dict[tuple[int, int, int], Passage] = {}
    for fd in fds:
        try:
            status = os.fstat(fd)
            if not os.get_inheritable(fd):  # weigh's own file, not the user's
                continue
        except OSError:  # closed
            continue
        same = (status.st_dev, status.st_ino, status.st_rdev)
        if same in found:
            found[same].targets.append(fd)
        elif (is_terminal := os.isatty(fd)) or _is_pipe(status):
            try:
                found[same] = Passage(fd, is_terminal=is_terminal)
            except OSError:
                _close_all(found.values())
                raise
    return list(found.values())


def _is_pipe(status: os.stat_result) -> bool:
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)


def _close_all(passages: Iterable[Passage]) -> None:
    for passage in passages:
        passage.close()


def _make_like(inner: int, terminal: int) -> None:
    """Copy size and settings to a new terminal, without output processing."""
    with suppress(termios.error, OSError):
        settings = termios.tcgetattr(terminal)
        settings[1] &= ~termios.OPOST  # the user's terminal does it
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(inner, termios.TCSANOW, settings)
    _resize(inner, terminal)


def _resize(inner: int, terminal: int) -> bool:
    """Copy the size of one terminal to another; return whether it differed."""
    empty = _WINDOW.pack(0, 0, 0, 0)
    try:
        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, empty)
        if fcntl.ioctl(inner, termios.TIOCGWINSZ, empty) == size:
            return False
        fcntl.ioctl(inner, termios.TIOCSWINSZ, size)
    except OSError:
        return False
    return True


def _be_the_copier(passages: Sequence[Passage]) -> None:
    """Copy until every passage is closed; never returns."""
    code = 1
    try:
        kept = {fd for p in passages for fd in (p.outer, p.side, p.target)}
        _close_all_but(kept)
        terminals = [p for p in passages if p.is_terminal]

        def follow(_number: int, _frame: object) -> None:
            changed = [_resize(passage.outer, passage.target) for passage in terminals]
            if any(changed):  # the job may have read the old size
                os.killpg(0, signal.SIGWINCH)

        signal.signal(signal.SIGWINCH, follow)
        # the copier handles no other signal: it ends when the job's ends are closed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
        _copy({p.outer: _Copy(p.outer, p.target, p.side) for p in passages})
        code = 0
    finally:
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    """Close all other descriptors, especially weigh's ends of other pipes."""
    below = -1
    for fd in (*sorted(kept), _HIGHEST):
        os.closerange(below + 1, fd)
        below = fd


def _copy(copies: "dict[int, _Copy]") -> None:
    poll = select.poll()
    for copy in copies.values():
        poll.register(copy.source, select.POLLIN)
        poll.register(copy.target, 0)  # reports when its reader has closed it
    while copies:
        for fd, what in poll.poll():
            ended = [
                copy
                for copy in copies.values()
                if (copy.source == fd and not copy.step())
                or (copy.target == fd and what & _GONE)
            ]
            for copy in ended:
                poll.unregister(copy.source)
                poll.unregister(copy.target)
                copy.close()
                del copies[copy.source]


class _Copy:
    """Copies from one descriptor to another, and to weigh's pipe what fits."""

    def __init__(self, source: int, target: int, side: int) -> None:
        self.source = source
        self.target = target
        self._side = side
        self._is_torn = False

    def step(self) -> bool:
        """Copy available output; return False when one end is closed."""
        try:
            chunk = os.read(self.source, _BLOCK)
        except OSError:  # EIO: the last process has closed that terminal
            return False
        if not chunk or not self._write(chunk):
            return False
        self._write_side(chunk)
        return True

    def close(self) -> None:
        """Close both ends, so that the job gets SIGPIPE or EIO."""
        os.close(self.source)
        if self._side >= 0:
            os.close(self._side)

    def _write(self, chunk: bytes) -> bool:
        at = 0
        while at < len(chunk):
            try:
                at += os.write(self.target, chunk[at:])
            except BlockingIOError:  # another process made it non-blocking
                select.select((), (self.target,), ())
            except OSError:
                return False
        return True

    def _write_side(self, chunk: bytes) -> None:
        """Write to weigh's pipe what fits; drop the rest up to a line's end."""
        if self._side < 0:
            return
        if self._is_torn:
            chunk = _NEWLINE + chunk[end_of_line(chunk) :]
        try:
            written = os.write(self._side, chunk)
            self._is_torn = written < len(chunk)
        except OSError as error:
            self._is_torn = True
            if error.errno != errno.EAGAIN:  # weigh is gone
                os.close(self._side)
                self._side = -1


def _own_folder() -> str:
    """Return this process's folder in /proc, which may number another namespace's."""
    try:
        return os.readlink("/proc/self")
    except OSError:
        return str(os.getpid())
