"""Open files that others may have replaced: a FIFO or a device is never waited for."""

import errno
import os
import stat

# opening a FIFO without a writer would block; on Windows the flag does not exist
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def is_regular_file(file_path: str) -> bool:
    """Return whether *file_path* is a file that exists: no FIFO, device or folder."""
    try:
        return stat.S_ISREG(os.stat(file_path).st_mode)
    except (OSError, ValueError):  # missing, not accessible, or not a path
        return False


def only_regular(file_path: str, flags: int) -> int:
    """Open *file_path* as ``open(opener=only_regular)``: its reading ends.

    Raises:
        OSError: it cannot be opened, or is a FIFO or a device, also behind a link.
    """
    descriptor = os.open(file_path, flags | _FLAGS)
    # by its descriptor: the path may be replaced between a check of it and open()
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # open() itself names a folder
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", file_path)
    return descriptor


def file_head(file_path: str, most_bytes: int = 1 << 16) -> bytes:
    """Return the beginning of a file in one read; nothing if it cannot be read.

    For files of the kernel, which disappear with what they are about.
    """
    try:
        with open(file_path, "rb", buffering=0, opener=only_regular) as file:
            return file.read(most_bytes) or b""
    except OSError:
        return b""


def whole_file(file_path: str) -> bytes:
    """Return all of a file; nothing if it cannot be read.

    For long lists of the kernel, of which one read has a page.
    """
    try:
        with open(file_path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def write_all(descriptor: int, file_content: bytes) -> None:
    """Write all of *file_content*.

    Raises:
        OSError: not all of it was written.
    """
    if os.write(descriptor, file_content) != len(file_content):
        raise OSError(errno.ENOSPC, "No space left on device")
