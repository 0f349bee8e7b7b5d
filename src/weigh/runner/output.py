"""A file a task for its output, made when there is something in it.

A task writes straight to a file, so that it survives weigh. Each slot has an open file
under no task's name; once something is in it, it is renamed to the task's. A task that
says nothing leaves it to the next.
"""

import errno
import os

from weigh.errors import StoreError
from weigh.units import Bytes

_OPEN = ".open"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST = 4096  # bytes left on the disk, below which it is full
_TAIL = 16384
_Spare = tuple[int, str]


class OutputFile:
    """The file of one attempt; ``path`` is None until it has the task's name."""

    __slots__ = ("_fd", "_slot", "_spare", "_spares", "_target", "path")

    def __init__(
        self, slot: int, spare: _Spare, target: str, spares: dict[int, _Spare]
    ) -> None:
        self.path: str | None = None
        self._fd, self._spare = spare
        self._slot = slot
        self._target = target
        self._spares = spares

    def descriptors(self) -> tuple[int, int]:
        """Give the file for both, so that their lines stand in order."""
        return self._fd, self._fd

    def started(self) -> None:
        """Do nothing: weigh keeps the file open to look into it."""

    def look(self) -> None:
        """Name the file after its task if there is something in it."""
        if self.path is None and os.fstat(self._fd).st_size:
            self._name()

    def tail(self) -> bytes:
        """Give the last of what the task wrote."""
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, _TAIL, max(0, size - _TAIL))

    def close(self) -> Bytes:
        """Leave the file as it is, or to the next task if nothing is in it."""
        size = os.fstat(self._fd).st_size
        if not size:
            self._spares[self._slot] = (self._fd, self._spare)
            return size
        if self.path is None:
            self._name()
        os.close(self._fd)
        return size

    def _name(self) -> None:
        os.rename(self._spare, self._target)
        self.path = self._target


class OutputFolder:
    """A folder with one file a task."""

    def __init__(self, folder: str, run: str) -> None:
        """Make the folder.

        Raises:
            StoreError: it cannot be made or written.
        """
        self.folder: str | None = folder
        self._path = folder
        self._run = run
        self._spares: dict[int, _Spare] = {}
        try:
            os.makedirs(os.path.join(folder, _OPEN), exist_ok=True)
            self._spares[1] = self._new_spare(1)
        except OSError as error:
            raise StoreError(
                f"cannot write to {folder}: {error.strerror} "
                "(choose another --output folder)"
            ) from error

    def open(self, slot: int, seq: int, attempt: int) -> OutputFile:
        """Give the file for an attempt. Raises OSError where none can be made."""
        if slot not in self._spares:
            self._spares[slot] = self._new_spare(slot)
        name = f"{seq}.out" if attempt == 1 else f"{seq}.{attempt}.out"
        target = f"{self._path}/{name}"
        return OutputFile(slot, self._spares.pop(slot), target, self._spares)

    def is_full(self) -> bool:
        """Tell whether the disk takes nothing more."""
        try:
            return has_no_room(os.statvfs(self._path))
        except OSError:
            return False

    def close(self) -> None:
        """Take the spare files away, and the folder if nobody said a word."""
        for fd, spare in self._spares.values():
            os.close(fd)
            _remove(spare)
        self._spares.clear()
        try:
            os.rmdir(f"{self._path}/{_OPEN}")
            os.rmdir(self._path)
        except OSError:
            return

    def _new_spare(self, slot: int) -> _Spare:
        path = f"{self._path}/{_OPEN}/{self._run}-{slot}"
        return os.open(path, _FLAGS | os.O_TRUNC, 0o666), path


def has_no_room(disk: os.statvfs_result) -> bool:
    """Tell whether a disk takes nothing more."""
    return disk.f_bavail * disk.f_frsize < _LEAST


def is_full(error: OSError) -> bool:
    """Tell whether *error* says that a disk or a quota is full."""
    return error.errno in _FULL


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
