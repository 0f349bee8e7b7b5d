"""Copy the job's terminal or pipe output through a second process, and read it.

The copier is a process of its own: if weigh is killed, it goes on copying and the job
is not affected. If weigh reads too slowly, the output still passes. A terminal is
replaced by one of the same size without output processing; the user's terminal does
that, so every byte arrives unchanged.

On a terminal the copier also draws weigh's line, below what the job has printed: it is
the only process that knows when the cursor stands at the beginning of an empty line.
"""

import errno
import os
import select
import signal
import stat
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from weigh.measure.launcher import fork_with_pipes
from weigh.measure.output import Feed, descriptors_by_file, end_of_line
from weigh.units import KIB

_BLOCK = 64 * KIB  # bytes per read
_HIGHEST = 1 << 20  # above any descriptor
_PATIENCE = 2.0  # seconds for the copier to finish after the job
_NEWLINE = b"\n"
_ERASE = b"\r\x1b[K"  # to the first column, and delete to the end of the line
_QUIET_FOR = 50  # ms without output until the line is drawn again below it


class OutputPassage:
    """One terminal or pipe of the job, and weigh's descriptor that it replaces.

    ``targets`` are weigh's descriptors of the same file; ``inner`` is the end that the
    job gets instead, ``outer`` the end that the copier reads. What it copies it also
    writes to ``side``, which weigh reads as ``heard``.
    """

    def __init__(self, targets: list[int]) -> None:
        self.targets, self.target = targets, targets[0]
        self.is_terminal = os.isatty(self.target)
        self.outer = self.inner = self.heard = self.side = -1
        self._is_torn = False  # the beginning of a line was not written to the side

    def open(self) -> None:
        """Open its descriptors. Raises OSError."""
        self.outer, self.inner = os.openpty() if self.is_terminal else os.pipe()
        if self.is_terminal:
            _make_like(self.inner, self.target)
        self.heard, self.side = os.pipe()
        # neither weigh nor the copier may wait for the other
        os.set_blocking(self.heard, False)
        os.set_blocking(self.side, False)

    def close(self) -> None:
        """Close all descriptors that are open here."""
        self.close_ends("outer", "inner", "heard", "side")

    def close_ends(self, *names: str) -> None:
        """Close those of its descriptors, if they are open here."""
        for name in names:
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def opened_as(self) -> str:
        """Return how the job's first process opens it, in shell notation."""
        mode = "<>" if self.is_terminal else ">"
        # the number of this process in that /proc, which may be another namespace's
        return f"{mode}{os.path.realpath('/proc/self')}/fd/{self.inner}"

    def look(self, feed: Feed) -> bool:
        """Pass new output to *feed*; return whether there was any."""
        if self.heard < 0:
            return False
        try:
            # all that the pipe holds: what did not fit was dropped
            chunk = os.read(self.heard, _BLOCK)
        except BlockingIOError:
            return False
        if chunk:
            feed(chunk)
        else:
            self.close_ends("heard")
        return bool(chunk)

    def copy(self, line: "_DrawnLine") -> bool:
        """Copy available output; return False when one end is closed."""
        try:
            chunk = os.read(self.outer, _BLOCK)
        except OSError:  # EIO: the last process has closed that terminal
            chunk = b""
        # the job's output begins where weigh's line stood
        line.erase()
        if not chunk or not self._write(chunk):
            return False
        line.follow(chunk)
        self._write_side(chunk)
        return True

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
        if self.side < 0:
            return
        # the beginning of a line was lost: go on at the next one
        if self._is_torn:
            chunk = _NEWLINE + chunk[end_of_line(chunk) :]
        try:
            self._is_torn = os.write(self.side, chunk) < len(chunk)
        except OSError as error:
            self._is_torn = True
            if error.errno != errno.EAGAIN:  # weigh is gone
                self.close_ends("side")


class PtyTee:
    """The copier of one run, and the ``passages`` from which weigh reads the output.

    ``streams`` maps the job's descriptors to the files to open. ``terminal`` is weigh's
    descriptor of the terminal on which it may draw a line, None if there is none.
    """

    def __init__(self, fds: Sequence[int] = (1, 2), *, draws: bool = False) -> None:
        """Fork the copier if one of *fds* is a terminal or a pipe.

        With *draws* a line can be shown, unless the output goes to a pipe too: its
        reader may write to the terminal at any time.

        Raises:
            OSError: no process or terminal can be created.
        """
        self.pid: int | None = None
        self.terminal: int | None = None
        self.streams: dict[int, str] = {}
        self.passages = _passages_of(fds)
        if not self.passages:
            return
        if draws and len(self.passages) == 1 and self.passages[0].is_terminal:
            self.terminal = self.passages[0].target
        try:
            for passage in self.passages:
                passage.open()
                self.streams |= dict.fromkeys(passage.targets, passage.opened_as())
            self._fork()
        except OSError:
            self._close()
            raise

    def _fork(self) -> None:
        # before the copier has handlers of its own, a signal must not run weigh's
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid, notes, self._notes = fork_with_pipes()
            if self.pid == 0:
                _be_the_copier(self.passages, notes)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(notes)  # the copier reads, and answers nothing
        os.set_blocking(self._notes, False)
        # the copier has these ends now
        for passage in self.passages:
            passage.close_ends("outer", "side")

    def show(self, line: str) -> None:
        """Let the copier draw *line* below the output, in place of the last one."""
        if self.terminal is not None:
            with suppress(OSError):  # the copier is gone, or has not read the last ones
                os.write(self._notes, line.encode("utf-8", "replace") + _NEWLINE)

    def erase(self) -> None:
        """Erase the line at once, for a message of weigh's own."""
        if self.terminal is not None:
            with suppress(OSError):
                os.write(self.terminal, _ERASE)

    def launched(self) -> None:
        """Close weigh's copies of the job's ends, so that they close with the job."""
        for passage in self.passages:
            passage.close_ends("inner")

    def finish(self, read: Callable[[], bool]) -> None:
        """Wait for the rest of the output, as long as *read* finds more."""
        if not self.passages:
            return
        # otherwise the copier would never see the end
        self.launched()
        patience = time.monotonic() + _PATIENCE
        while open_ends := [p.heard for p in self.passages if p.heard >= 0]:
            left = patience - time.monotonic()
            if left <= 0:
                break
            select.select(open_ends, (), (), left)
            # there is still output: be patient anew
            if read():
                patience = time.monotonic() + _PATIENCE
        # a copier that still has output to copy, or whose ends another process still
        # has open, goes on without weigh
        if not open_ends and self.pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._close()
        os.close(self._notes)
        self.passages = []
        self.terminal = None

    def _close(self) -> None:
        for passage in self.passages:
            passage.close()


def _passages_of(fds: Sequence[int]) -> list[OutputPassage]:
    """Return a passage for each terminal or pipe among *fds*; equal ones share it."""
    found = []
    for targets, status in descriptors_by_file(fds):
        is_pipe = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        # else it is weigh's own file, not the user's
        is_users = os.get_inheritable(targets[0])
        if is_users and (is_pipe or os.isatty(targets[0])):
            found.append(OutputPassage(targets))
    return found


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
    with suppress(termios.error):
        size = termios.tcgetwinsize(terminal)
        if termios.tcgetwinsize(inner) != size:
            termios.tcsetwinsize(inner, size)
            return True
    return False


def _be_the_copier(passages: Sequence[OutputPassage], notes: int) -> None:
    """Copy until every passage is closed; never returns."""
    code = 1
    try:
        # nothing else: an open end of another pipe would never see its end
        kept = {fd for p in passages for fd in (p.outer, p.side, p.target)}
        _close_all_but(kept | {notes})
        terminals = [p for p in passages if p.is_terminal]

        def follow(_number: int, _frame: object) -> None:
            changed = [_resize(passage.outer, passage.target) for passage in terminals]
            if any(changed):  # the job may have read the old size
                os.killpg(0, signal.SIGWINCH)

        signal.signal(signal.SIGWINCH, follow)
        # the copier handles no other signal: it ends when the job's ends are closed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
        _copy_streams(list(passages), _DrawnLine(notes, passages[0].target))
        code = 0
    finally:
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    """Close all other descriptors, especially weigh's ends of other pipes."""
    below = -1
    # the gaps between the descriptors that are kept
    for fd in (*sorted(kept), _HIGHEST):
        os.closerange(below + 1, fd)
        below = fd


def _copy_streams(passages: list[OutputPassage], line: "_DrawnLine") -> None:
    poll = select.poll()
    poll.register(line.notes, select.POLLIN)
    for passage in passages:
        poll.register(passage.outer, select.POLLIN)
    while passages:
        # wait for a pause in the output, then draw the line below it
        found = poll.poll(_QUIET_FOR if line.is_due else None)
        if not found:
            line.draw()
        for fd, _event in found:
            if fd == line.notes and not line.read():
                poll.unregister(fd)
            for passage in tuple(passages):
                if passage.outer == fd and not passage.copy(line):
                    poll.unregister(passage.outer)
                    # where its reader has gone, the job gets SIGPIPE or EIO
                    passage.close_ends("outer", "side")
                    passages.remove(passage)


class _DrawnLine:
    """The line that is drawn below the job's output, and erased before more of it.

    ``notes`` is the pipe from which it is read; ``is_due``: it is to be drawn again.
    """

    def __init__(self, notes: int, terminal: int) -> None:
        self.notes = notes
        self.is_due = False
        self._terminal = terminal
        self._text = b""
        self._is_drawn = False
        self._is_free = True  # the cursor is at the beginning of an empty line

    def read(self) -> bool:
        """Read and draw the newest line; return False if weigh is gone."""
        lines = os.read(self.notes, _BLOCK)
        # of several lines only the newest
        self._text = lines.removesuffix(_NEWLINE).rpartition(_NEWLINE)[2]
        if lines:
            self.draw()
        else:
            self.erase()
        return bool(lines)

    def draw(self) -> None:
        """Draw it, if the job has ended its own line."""
        self.is_due = False
        if self._is_free and self._text:
            self._is_drawn = True
            self._write(_ERASE + self._text)

    def erase(self) -> None:
        """Leave the terminal to the job."""
        if self._is_drawn:
            self._is_drawn = False
            self._write(_ERASE)

    def follow(self, chunk: bytes) -> None:
        """Note what the job has written."""
        # in the middle of a line, weigh's would be mixed with it
        self._is_free = chunk.endswith(_NEWLINE)
        self.is_due = self._is_free and bool(self._text)

    def _write(self, text: bytes) -> None:
        with suppress(OSError):
            os.write(self._terminal, text)
