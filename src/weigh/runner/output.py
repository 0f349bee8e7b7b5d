"""Where the output of tasks goes: one file per task, or weigh's own streams.

By default a task writes directly to its file, so that its output survives weigh. The
file of a task that prints nothing is removed.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import Protocol

from weigh.errors import StoreError
from weigh.joblog import output_name
from weigh.units import MIB, Bytes

# O_APPEND: no writer of the file overwrites what another one wrote
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST = 4096  # bytes; a disk with less left counts as full
_TAIL = 16384  # bytes at the end, where a failed task states why
_MOST_RESTORED = 64 * MIB  # of a removed file that is written again
# a second try may succeed
_PASSING = (errno.EIO, errno.ESTALE, errno.EINTR, errno.ENOENT, errno.EEXIST)


class AttemptOutputFile:
    """The file of one attempt; ``path`` is None once it has ended with no output."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path: str | None = path
        self._fd = descriptor

    def descriptors(self) -> tuple[int, int]:
        """Return the file for both streams, so that their lines stay in order."""
        return self._fd, self._fd

    def tail(self) -> bytes:
        """Return the end of what the task wrote; empty if it cannot be read."""
        try:
            size = os.fstat(self._fd).st_size
            return os.pread(self._fd, _TAIL, max(0, size - _TAIL))
        except OSError:
            return b""

    def close(self) -> Bytes:
        """Close the file and return its size; remove an empty one.

        Raises:
            OSError: the output is not safe; ``filename`` is the file it belongs in.
        """
        fd, self._fd = self._fd, -1
        path = self.path or ""
        try:
            try:
                found = os.fstat(fd)
                # no name is left: somebody removed it while the task wrote
                if found.st_size and not found.st_nlink:
                    _restore_output(fd, found.st_size, path)
            finally:
                os.close(fd)  # some file systems report lost data only now
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if not found.st_size:
            self.path = None
            if found.st_nlink:
                with suppress(OSError):
                    os.unlink(path)
        return found.st_size


def _restore_output(descriptor: int, file_size: Bytes, path: str) -> None:
    """Write an output file again after it or its folder was removed."""
    if file_size > _MOST_RESTORED:
        raise OSError(errno.ENOENT, "removed while the task ran")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # 0666: the umask decides who reads it, as for a shell's redirection
    copy = os.open(path, _FLAGS | os.O_TRUNC, 0o666)
    try:
        at = 0
        while piece := os.pread(descriptor, MIB, at):
            at += os.write(copy, piece)
    finally:
        os.close(copy)


class OutputFolder:
    """A folder with one file per task."""

    def __init__(self, folder: str) -> None:
        """Create the folder.

        Raises:
            StoreError: it cannot be created or written.
        """
        self.folder: str | None = folder
        self._path = folder
        try:
            os.makedirs(folder, exist_ok=True)
            trouble = None if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES
        except OSError as error:
            trouble = error.errno
        if trouble is not None:
            raise StoreError(
                f"cannot write to {folder}: {os.strerror(trouble)} "
                "(choose another --output folder)"
            )

    def open(self, task: int, attempt: int) -> AttemptOutputFile:
        """Return the file for an attempt; a removed folder is created again.

        Raises:
            OSError: no file can be created; ``filename`` is the folder.
        """
        return self._create(f"{self._path}/{output_name(task, attempt)}")

    def is_full(self) -> bool:
        """Return whether the disk is full."""
        try:
            return is_disk_full(os.statvfs(self._path))
        except OSError:
            return False

    def close(self) -> None:
        """Remove the folder if no task printed anything."""
        with suppress(OSError):  # where files are left, as it should
            os.rmdir(self._path)

    def _create(self, path: str) -> AttemptOutputFile:
        try:
            try:
                return AttemptOutputFile(path, os.open(path, _FLAGS | os.O_EXCL, 0o666))
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
            os.makedirs(self._path, exist_ok=True)
            # of a run whose events are gone; what still writes to it keeps that file
            with suppress(FileNotFoundError):
                os.unlink(path)
            return AttemptOutputFile(path, os.open(path, _FLAGS | os.O_EXCL, 0o666))
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error


def is_disk_full(disk: os.statvfs_result) -> bool:
    """Return whether a disk is full."""
    return disk.f_bavail * disk.f_frsize < _LEAST


def is_full(os_error: OSError) -> bool:
    """Return whether *os_error* means that a disk or a quota is full."""
    return os_error.errno in _FULL


class AttemptOutput(Protocol):
    """The output of one attempt; ``path`` is its file once it has one."""

    path: str | None

    def descriptors(self) -> tuple[int, int] | None:
        """Return the task's stdout and stderr; None if it inherits weigh's own."""

    def tail(self) -> bytes:
        """Return the end of what the task wrote."""

    def close(self) -> Bytes:
        """Close it after its last writer has ended; return its size."""


class TasksOutput(Protocol):
    """Where the output of all tasks goes; ``folder`` has their files, if any."""

    folder: str | None

    def open(self, task: int, attempt: int, /) -> AttemptOutput:
        """Prepare the output of an attempt. Raises OSError if that is impossible."""

    def is_full(self) -> bool:
        """Return whether output is lost because a disk is full."""

    def close(self) -> None:
        """Finish after the last task has ended."""


class _InheritedOutput:
    """Weigh's own stdout and stderr."""

    path: str | None = None

    def descriptors(self) -> tuple[int, int] | None:
        """Return None: weigh's own streams are inherited."""
        return None

    def tail(self) -> bytes:
        """Return nothing: the output was not kept."""
        return b""

    def close(self) -> Bytes:
        """Do nothing; the size is unknown."""
        return 0


class UngroupedOutput:
    """Tasks write directly to weigh's own stdout and stderr."""

    folder: str | None = None

    def open(self, _task: int, _attempt: int) -> _InheritedOutput:
        """Return weigh's own streams."""
        return _InheritedOutput()

    def is_full(self) -> bool:
        """Return whether weigh's own output goes to a file on a full disk."""
        return any(map(_is_on_a_full_disk, (1, 2)))

    def close(self) -> None:
        """Do nothing."""


def _is_on_a_full_disk(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and is_disk_full(
            os.fstatvfs(descriptor)
        )
    except OSError:
        return False
