"""Passes the job's terminal or pipe on through a copier, and reads what passes.

The copier is a process of its own: it goes on copying when weigh is killed, and the job
never notices. What weigh is too slow to read passes all the same. A terminal stays a
terminal with the size of the user's; it does no output processing, which is left to
the user's own, so that every byte arrives as the job wrote it.
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
_HIGHEST = 1 << 20  # no descriptor is as high
_PATIENCE = 2.0  # seconds that the copier has for what is left, after the job
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NEWLINE = b"\n"


class Passage:
    """One terminal or pipe of the job: where it comes out, and where that is to go.

    ``targets`` are weigh's own descriptors that were one and the same before; ``inner``
    is what the job gets in their place and ``outer`` where the copier reads.
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
        """Let go of all of it: nothing is to pass here."""
        for fd in (self.outer, self.inner, self.heard, self.side):
            if fd >= 0:
                os.close(fd)

    def opened_as(self) -> str:
        """Give how the job's first process opens it, as a shell would write it."""
        return (
            "<>" if self.is_terminal else ">"
        ) + f"/proc/{_own_folder()}/fd/{self.inner}"


class Interposed:
    """The copier of one run, and what it lets weigh read.

    ``size`` is how much was read so far; ``streams`` says for the job's descriptors how
    they are to be opened.
    """

    def __init__(self, fds: Sequence[int] = (1, 2)) -> None:
        """Fork the copier, where one of *fds* is a terminal or a pipe.

        Raises:
            OSError: no process or terminal can be made.
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
        """Let go of the job's ends: they are to close when the job has ended."""
        for passage in self._passages:
            if passage.inner >= 0:
                os.close(passage.inner)
                passage.inner = -1

    def look(self, feeds: Sequence[Callable[[bytes], None]], *, cost: Seconds) -> bool:
        """Hand what passed to *feeds*, one a passage; say whether anything did.

        After *cost* seconds of CPU the rest is left to the next time.
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
        """Count the passages."""
        return len(self._passages)

    def finish(self, feeds: Sequence[Callable[[bytes], None]]) -> None:
        """Wait until all has passed, for as long as something does."""
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
            if passage.heard >= 0:  # something outside the job still holds it open
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
    """Open a passage for each terminal or pipe among *fds*; the same share one."""
    found: dict[tuple[int, int, int], Passage] = {}
    for fd in fds:
        try:
            status = os.fstat(fd)
            if not os.get_inheritable(fd):  # weigh's own, where the user's was closed
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
    """Give a new terminal the size and settings of another, but no processing."""
    with suppress(termios.error, OSError):
        settings = termios.tcgetattr(terminal)
        settings[1] &= ~termios.OPOST  # the user's own terminal does it, once
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(inner, termios.TCSANOW, settings)
    _resize(inner, terminal)


def _resize(inner: int, terminal: int) -> bool:
    """Give one terminal the size of another; say whether it had not."""
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
    """Copy until every passage has ended; never returns."""
    code = 1
    try:
        kept = {fd for p in passages for fd in (p.outer, p.side, p.target)}
        _close_all_but(kept)
        terminals = [p for p in passages if p.is_terminal]

        def follow(_number: int, _frame: object) -> None:
            changed = [_resize(passage.outer, passage.target) for passage in terminals]
            if any(changed):  # the job may have looked before this
                os.killpg(0, signal.SIGWINCH)

        signal.signal(signal.SIGWINCH, follow)
        # no other signal is for the copier: it ends when the job's ends are closed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
        _copy({p.outer: _Copy(p.outer, p.target, p.side) for p in passages})
        code = 0
    finally:
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    """Close what is not the copier's, above all weigh's ends of other pipes."""
    below = -1
    for fd in (*sorted(kept), _HIGHEST):
        os.closerange(below + 1, fd)
        below = fd


def _copy(copies: "dict[int, _Copy]") -> None:
    poll = select.poll()
    for copy in copies.values():
        poll.register(copy.source, select.POLLIN)
        poll.register(copy.target, 0)  # it says when nobody reads there any more
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
    """Copies from one descriptor to another, and to the side what that takes."""

    def __init__(self, source: int, target: int, side: int) -> None:
        self.source = source
        self.target = target
        self._side = side
        self._is_torn = False

    def step(self) -> bool:
        """Copy what is there; False where nothing can come or go any more."""
        try:
            chunk = os.read(self.source, _BLOCK)
        except OSError:  # EIO: the last to have that terminal open has closed it
            return False
        if not chunk or not self._write(chunk):
            return False
        self._tell(chunk)
        return True

    def close(self) -> None:
        """Let go, so that the job learns that nobody reads."""
        os.close(self.source)
        if self._side >= 0:
            os.close(self._side)

    def _write(self, chunk: bytes) -> bool:
        at = 0
        while at < len(chunk):
            try:
                at += os.write(self.target, chunk[at:])
            except BlockingIOError:  # somebody else made it so
                select.select((), (self.target,), ())
            except OSError:
                return False
        return True

    def _tell(self, chunk: bytes) -> None:
        """Write to the side what goes in; what does not is lost up to a line's end."""
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
