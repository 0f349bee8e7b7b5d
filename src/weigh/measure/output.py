"""Read a file while the job writes it, without affecting the job's descriptor."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from weigh.units import KIB, Bytes

_BLOCK = 64 * KIB  # bytes per read, and of the end of what is new
Feed = Callable[[bytes], None]


class WatchedOutput:
    """A file that another process writes, read from an initial offset on.

    It has its own descriptor and offset, so the writer is not disturbed, and the file
    may be appended to, truncated, renamed or removed. ``size`` is the last known size.
    """

    def __init__(self, path: str, start: Bytes = 0, *, most: Bytes = _BLOCK) -> None:
        """Open *path*, which may be under /proc.

        Of what is new at a look, the first *most* bytes and the end are read.

        Raises OSError.
        """
        # never blocking, as on a pipe, and never the controlling terminal
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        self._fd = os.open(path, flags)
        self._at = start
        self._most = most
        self.size = start

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def look(self, feed: Feed) -> bool:
        """Pass new content to *feed*; return whether anything was written."""
        try:
            size = os.fstat(self._fd).st_size
        except OSError:  # a network disk lost it
            return False
        has_changed = size != self.size
        self.size = size
        if size < self._at:  # it was truncated: everything in it is new
            self._at = 0
        for chunk in self._new(size):
            feed(chunk)
        return has_changed

    def _new(self, size: Bytes) -> Iterator[bytes]:
        enough = self._at + self._most
        while self._at < size:
            # a flood, or the hole that a writer leaves which goes on at its old offset
            is_too_much = self._at >= enough and size - self._at > _BLOCK
            if is_too_much:
                self._at = size - _BLOCK
            chunk = self._read(min(_BLOCK, size - self._at))
            if not chunk:
                return
            # the line that the jump fell into is no line
            yield b"\n" + chunk[end_of_line(chunk) :] if is_too_much else chunk

    def _read(self, most: Bytes) -> bytes:
        try:
            chunk = os.pread(self._fd, most, self._at)
        except OSError:
            return b""
        self._at += len(chunk)
        return chunk


def end_of_line(chunk: bytes) -> int:
    """Return the start of the first complete line of *chunk*."""
    # a progress bar ends its lines with a carriage return
    ends = [at for at in (chunk.find(b"\n"), chunk.find(b"\r")) if at >= 0]
    return min(ends) + 1 if ends else len(chunk)


def descriptors_by_file(
    fds: Sequence[int],
) -> Iterator[tuple[list[int], os.stat_result]]:
    """Yield the descriptors among *fds* of each open file, with its status."""
    found: dict[tuple[int, int, int], tuple[list[int], os.stat_result]] = {}
    for fd in fds:
        with suppress(OSError):  # it is closed
            status = os.fstat(fd)
            # stdout and stderr are often one file
            file = status.st_dev, status.st_ino, status.st_rdev
            found.setdefault(file, ([], status))[0].append(fd)
    yield from found.values()


def own_output_files(fds: Sequence[int] = (1, 2)) -> list[WatchedOutput]:
    """Open the regular files among weigh's *fds* a second time, for reading.

    What stands in them before the job is not its output. It is not detectable whether
    other processes append to the same file.
    """
    opened = []
    for (fd, *_), status in descriptors_by_file(fds):
        with suppress(OSError):  # it may not be read
            if stat.S_ISREG(status.st_mode):
                # through /proc, so that the offset is not shared with the job
                start = _initial_offset(fd, status.st_size)
                opened.append(WatchedOutput(f"/proc/self/fd/{fd}", start))
    return opened


def _initial_offset(descriptor: int, size: Bytes) -> Bytes:
    import fcntl  # noqa: PLC0415 - only where output is read

    # in append mode the job writes at the end, wherever the offset is
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
        return size
    return os.lseek(descriptor, 0, os.SEEK_CUR)
