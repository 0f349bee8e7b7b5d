"""A file that one process appends to and restores if others remove or replace it.

Its data stays readable through the open descriptor, so a file that was removed, moved
or replaced is written again from there. The kernel's lock on it prevents a second
writer even if the lock file next to it was removed.
"""

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress

from weigh.errors import FormatError, UsageError
from weigh.store.location import file_mode

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE = 1 << 20
_TRIES = 40
_PAUSE = 0.05


class AppendFile:
    """An open file that only this process appends to.

    ``path`` is where it is now: it changes when the folder of the file is renamed.
    """

    def __init__(self, path: str, *, follow: bool) -> None:
        """Open the file, create it where it is missing, and lock it.

        With *follow* it may be a symbolic link and another user's file.

        Raises:
            OSError: it cannot be opened.
            FormatError: it is not a regular file, or belongs to another user.
            UsageError: another process has it locked.
        """
        self.path = path
        flags = _FLAGS | os.O_CREAT | (0 if follow else os.O_NOFOLLOW)
        try:
            self.fd = os.open(path, flags, file_mode(path))
        except OSError as error:
            if not follow and os.path.islink(path):
                raise FormatError(f"{path} is a link, not a file: remove it") from error
            raise
        try:
            check_regular(os.fstat(self.fd), path, own=not follow)
            _lock(self.fd, path)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self.fd)

    def is_at_its_path(self) -> bool:
        """Return whether the file of that name is still this one."""
        return is_same(self.path, self.fd)

    def put_back(self) -> str | None:
        """Write the file again if it was removed, moved or replaced.

        Return what happened to it; None if nothing did.

        Raises:
            OSError: it cannot be written again.
        """
        if self.is_at_its_path():
            return None
        before = self.path
        folder = os.path.dirname(os.path.realpath(before))
        if not os.path.isdir(folder):
            moved_to = self._new_path()
            if moved_to is not None:
                self.path = moved_to
                return f"{before} was moved: weigh continues in {moved_to}"
            os.makedirs(folder, exist_ok=True)
        was_replaced = os.path.lexists(before)
        if was_replaced:
            os.rename(before, before + ".replaced")
        self.replace_by(None)
        if was_replaced:
            return f"{before} was replaced ({before}.replaced): written again"
        return f"{before} was removed: written again"

    def replace_by(self, content: bytes | None) -> None:
        """Replace the file by a new one with *content*, by default the present content.

        Raises:
            OSError: it cannot be written; the old file stays.
        """
        path = os.path.realpath(self.path)
        temporary = f"{path}.{os.getpid()}.tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(
            temporary, _FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file_mode(path)
        )
        try:
            os.fchmod(fd, stat.S_IMODE(os.fstat(self.fd).st_mode))
            if content is None:
                at = 0
                while piece := os.pread(self.fd, _PIECE, at):
                    write_all(fd, piece)
                    at += len(piece)
            else:
                write_all(fd, content)
            os.fsync(fd)
            _lock(fd, path)
            os.rename(temporary, path)
            os.dup2(fd, self.fd, inheritable=False)  # another thread may use it
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)

    def _new_path(self) -> str | None:
        """Return where the file was moved to; None if it was removed."""
        if os.fstat(self.fd).st_nlink == 0:
            return None
        try:
            path = os.readlink(f"/proc/self/fd/{self.fd}")
        except OSError:
            return None
        return path if is_same(path, self.fd) else None


def is_locked(path: str) -> bool:
    """Return whether another process has locked a file; False if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # the next one to open it gets the error
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def is_same(path: str, fd: int) -> bool:
    """Return whether the file at *path* is the one open as *fd*."""
    try:
        there, here = os.stat(path), os.fstat(fd)
    except OSError as error:
        # a server that does not answer is no evidence about the file
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def check_regular(found: os.stat_result, path: str, *, own: bool) -> None:
    """Refuse anything but a regular file; with *own*, also one of another user.

    With *own* a file with a second name is refused too: it may be an attack.

    Raises:
        FormatError: the file is refused.
    """
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{path} is not a regular file (choose another --joblog)")
    if own and found.st_uid not in {os.geteuid(), _shown_uid(path, found)}:
        raise FormatError(f"{path} belongs to another user (choose another --joblog)")
    if own and found.st_nlink > 1:
        raise FormatError(f"{path} has a second name, a hard link: remove it")


def _shown_uid(path: str, found: os.stat_result) -> int:
    """Return the owner that a file we create next to *path* appears to have.

    A network file system may show another user id than ours for our own files.
    """
    if found.st_uid == os.geteuid():
        return found.st_uid
    probe = f"{path}.{os.getpid()}.tmp"
    try:
        fd = os.open(probe, _FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.geteuid()
    try:
        os.unlink(probe)
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


def write_all(fd: int, text: bytes) -> None:
    """Write all of *text*.

    Raises:
        OSError: not all of it was written.
    """
    if os.write(fd, text) != len(text):
        raise OSError(errno.ENOSPC, "No space left on device")


def _lock(fd: int, path: str) -> None:
    """Lock a file; a weigh that only inspects it holds the lock briefly."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise _in_use(path) from error
            time.sleep(_PAUSE)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return
        else:
            return


def _in_use(path: str) -> UsageError:
    return UsageError(
        f"another weigh exec is running on {path.removesuffix('.events.jsonl')} "
        "(wait for it, or choose another --joblog)"
    )
