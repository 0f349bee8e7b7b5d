"""Where the output of tasks goes: one file per task, or weigh's own streams.

By default a task writes directly to its file, so that its output survives weigh. Each
slot has an open file without a task's name; once it has content, it is renamed after
its task. If a task prints nothing, the next task of the slot uses the file.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import Protocol

from weigh.errors import StoreError
from weigh.joblog import output_name
from weigh.units import MIB, Bytes

_OPEN = ".open"  # folder of the files without a task's name
# O_APPEND: no writer of the file overwrites what another one wrote
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST = 4096  # bytes; a disk with less left counts as full
_TAIL = 16384  # bytes at the end, where a failed task states why
_MOST_RESTORED = 64 * MIB  # of a removed file that is written again
_PASSING = (
    errno.EIO,
    errno.ESTALE,
    errno.EINTR,
    errno.ENOENT,
)  # a second try may succeed
_Spare = tuple[int, str]  # descriptor and path


class AttemptOutputFile:
    """The file of one attempt; ``path`` is None until it has the task's name."""

    __slots__ = ("_fd", "_folder", "_slot", "_spare", "_target", "path")

    def __init__(
        self, slot: int, spare: _Spare, target: str, folder: "OutputFolder"
    ) -> None:
        self.path: str | None = None
        self._fd, self._spare = spare
        self._slot = slot
        self._target = target
        self._folder = folder

    def descriptors(self) -> tuple[int, int]:
        """Return the file for both streams, so that their lines stay in order."""
        return self._fd, self._fd

    def look(self) -> None:
        """Name the file after its task once it has content.

        If that fails, :meth:`close` tries it again.
        """
        try:
            if self.path is None and os.fstat(self._fd).st_size:
                self._name()
        except OSError:
            return

    def tail(self) -> bytes:
        """Return the end of what the task wrote; empty if it cannot be read."""
        try:
            size = os.fstat(self._fd).st_size
            return os.pread(self._fd, _TAIL, max(0, size - _TAIL))
        except OSError:
            return b""

    def close(self) -> Bytes:
        """Close the file and return its size; keep an empty one for the next task.

        Raises:
            OSError: the output is not safe; ``filename`` is the file it belongs in.
        """
        try:
            return self._close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._target) from error

    def _close(self) -> Bytes:
        fd, self._fd = self._fd, -1
        try:
            found = os.fstat(fd)
            if not found.st_size:
                kept, fd = fd, -1  # the spare file stays open
                self._folder.keep(self._slot, (kept, self._spare))
                return 0
            # no name is left: somebody removed it while the task wrote
            if not found.st_nlink:
                self._restore(fd, found.st_size)
            elif self.path is None:
                self._name_somehow(fd)
        finally:
            if fd >= 0:
                os.close(fd)  # some file systems report lost data only now
        return found.st_size

    def _name(self) -> None:
        os.rename(self._spare, self._target)
        self.path = self._target

    def _name_somehow(self, descriptor: int) -> None:
        """Name the file after its task; if that fails, keep its present name."""
        try:
            self._name()
        except OSError:
            # the output has neither name: it is lost with its descriptor
            if not os.path.samestat(os.stat(self._spare), os.fstat(descriptor)):
                raise
            self.path = self._spare

    def _restore(self, descriptor: int, file_size: Bytes) -> None:
        """Write the file again after it or its folder was removed."""
        if file_size > _MOST_RESTORED:
            raise OSError(errno.ENOENT, "removed while the task ran")
        os.makedirs(os.path.dirname(self._target), exist_ok=True)
        # 0666: the umask decides who reads it, as for a shell's redirection
        copy = os.open(self._target, _FLAGS | os.O_TRUNC, 0o666)
        try:
            at = 0
            while piece := os.pread(descriptor, MIB, at):
                at += os.write(copy, piece)
        finally:
            os.close(copy)
        self.path = self._target


class OutputFolder:
    """A folder with one file per task."""

    def __init__(self, folder: str, run_id: str) -> None:
        """Create the folder.

        Raises:
            StoreError: it cannot be created or written.
        """
        self.folder: str | None = folder
        self._path = folder
        self._run = run_id
        self._made = 0
        self._spares: dict[int, _Spare] = {}
        try:
            # shows now whether the folder can be written; slot 1 takes it first
            self._spares[1] = self._new_spare(1)
        except OSError as error:
            raise StoreError(
                f"cannot write to {folder}: {error.strerror} "
                "(choose another --output folder)"
            ) from error

    def open(self, slot: int, task: int, attempt: int) -> AttemptOutputFile:
        """Return the file for an attempt; a removed folder is created again.

        Raises:
            OSError: no file can be created; ``filename`` is the folder.
        """
        spare = self._spares.pop(slot, None)
        if spare is None or not _is_linked(spare):
            spare = self._new_spare(slot)
        path = f"{self._path}/{output_name(task, attempt)}"
        return AttemptOutputFile(slot, spare, path, self)

    def keep(self, slot: int, spare: _Spare) -> None:
        """Keep an empty file for the next task of its slot."""
        self._spares[slot] = spare

    def is_full(self) -> bool:
        """Return whether the disk is full."""
        try:
            return is_disk_full(os.statvfs(self._path))
        except OSError:
            return False

    def close(self) -> None:
        """Remove the spare files, and the folder if no task printed anything."""
        for fd, spare in self._spares.values():
            _close_descriptor(fd)
            _remove_output_file(spare)
        self._spares.clear()
        try:
            # both fail where files are left, as they should
            os.rmdir(f"{self._path}/{_OPEN}")
            os.rmdir(self._path)
        except OSError:
            return

    def _new_spare(self, slot: int) -> _Spare:
        try:
            return self._create(slot)
        except OSError as error:
            if error.errno not in _PASSING:
                raise OSError(error.errno, error.strerror, self._path) from error
        try:
            return self._create(slot)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error

    def _create(self, slot: int) -> _Spare:
        """Create a spare file under a name that was not used before."""
        self._made += 1
        path = f"{self._path}/{_OPEN}/{self._run}-{slot}.{self._made}"
        try:
            return os.open(path, _FLAGS | os.O_EXCL, 0o666), path
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, _FLAGS | os.O_EXCL, 0o666), path


def is_disk_full(disk: os.statvfs_result) -> bool:
    """Return whether a disk is full."""
    return disk.f_bavail * disk.f_frsize < _LEAST


def is_full(os_error: OSError) -> bool:
    """Return whether *os_error* means that a disk or a quota is full."""
    return os_error.errno in _FULL


def _is_linked(spare: _Spare) -> bool:
    """Return whether a spare file still has its name; close it if not."""
    try:
        if os.fstat(spare[0]).st_nlink:
            return True
    except OSError:
        pass
    _close_descriptor(spare[0])
    return False


def _close_descriptor(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def _remove_output_file(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


class AttemptOutput(Protocol):
    """The output of one attempt; ``path`` is its file once it has one."""

    path: str | None

    def descriptors(self) -> tuple[int, int] | None:
        """Return the task's stdout and stderr; None if it inherits weigh's own."""

    def look(self) -> None:
        """Update ``path`` after what the task has written."""

    def tail(self) -> bytes:
        """Return the end of what the task wrote."""

    def close(self) -> Bytes:
        """Close it after its last writer has ended; return its size."""


class TasksOutput(Protocol):
    """Where the output of all tasks goes; ``folder`` has their files, if any."""

    folder: str | None

    def open(self, slot: int, task: int, attempt: int, /) -> AttemptOutput:
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

    def look(self) -> None:
        """Do nothing."""

    def tail(self) -> bytes:
        """Return nothing: the output was not kept."""
        return b""

    def close(self) -> Bytes:
        """Do nothing; the size is unknown."""
        return 0


class UngroupedOutput:
    """Tasks write directly to weigh's own stdout and stderr."""

    folder: str | None = None

    def open(self, _slot: int, _task: int, _attempt: int) -> _InheritedOutput:
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
