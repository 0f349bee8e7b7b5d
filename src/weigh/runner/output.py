"""Where the tasks' output goes: a file each, made when there is something in it.

A task writes straight to a file, so that it survives weigh. Each slot has an open file
under no task's name; once something is in it, it is renamed to the task's. A task that
says nothing leaves it to the next.
"""

import errno
import os

from weigh.errors import StoreError

_OPEN = ".open"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST = 4096  # bytes left on the disk, below which it is full


class OutputFile:
    """The open file of one attempt; ``path`` is None until it has a name."""

    __slots__ = ("fd", "path", "spare", "target")

    def __init__(self, fd: int, spare: str, target: str) -> None:
        self.fd = fd
        self.spare = spare
        self.target = target
        self.path: str | None = None


class OutputFolder:
    """A folder with one file a task."""

    def __init__(self, folder: str, run: str) -> None:
        """Make the folder.

        Raises:
            StoreError: it cannot be made or written.
        """
        self.folder = folder
        self._run = run
        self._spares: dict[int, tuple[int, str]] = {}
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
        fd, spare = self._spares.pop(slot)
        name = f"{seq}.out" if attempt == 1 else f"{seq}.{attempt}.out"
        return OutputFile(fd, spare, os.path.join(self.folder, name))

    def look(self, output: OutputFile) -> int:
        """Name the file after its task if there is something in it; give its size."""
        size = os.fstat(output.fd).st_size
        if size and output.path is None:
            os.rename(output.spare, output.target)
            output.path = output.target
        return size

    def close(self, slot: int, output: OutputFile, *, is_reusable: bool) -> int:
        """Take an attempt's file back when nobody writes to it; give its size."""
        size = self.look(output)
        if output.path is None and is_reusable:
            self._spares[slot] = (output.fd, output.spare)
            return size
        os.close(output.fd)
        if output.path is None:
            os.unlink(output.spare)
        return size

    def is_full(self) -> bool:
        """Tell whether the disk takes nothing more."""
        try:
            disk = os.statvfs(self.folder)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < _LEAST

    def close_all(self) -> None:
        """Take the spare files away."""
        for fd, spare in self._spares.values():
            os.close(fd)
            os.unlink(spare)
        self._spares.clear()
        try:
            os.rmdir(os.path.join(self.folder, _OPEN))
            os.rmdir(self.folder)  # nobody said a word
        except OSError:
            return

    def _new_spare(self, slot: int) -> tuple[int, str]:
        path = os.path.join(self.folder, _OPEN, f"{self._run}-{slot}")
        return os.open(path, _FLAGS | os.O_TRUNC, 0o666), path


def is_full(error: OSError) -> bool:
    """Tell whether *error* says that a disk or a quota is full."""
    return error.errno in _FULL
