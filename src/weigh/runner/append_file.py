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
from weigh.regular_file import write_all
from weigh.store.location import file_mode

# how flock fails on a file system without locks, which is no reason to stop
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE = 1 << 20  # bytes copied at once
# two seconds in all, for a process that inspects the lock
_TRIES = 40
_PAUSE = 0.05  # seconds


class AppendFile:
    """An open file that only this process appends to."""

    def __init__(self, file_path: str, *, follow: bool) -> None:
        """Open the file, create it where it is missing, and lock it.

        With *follow* it may be a symbolic link and another user's file.

        Raises:
            OSError: it cannot be opened.
            FormatError: it is not a regular file, or belongs to another user.
            UsageError: another process has it locked.
        """
        self.path = file_path
        flags = _FLAGS | os.O_CREAT | (0 if follow else os.O_NOFOLLOW)
        try:
            self.fd = os.open(file_path, flags, file_mode(file_path))
        except OSError as error:
            if not follow and os.path.islink(file_path):
                raise FormatError(
                    f"{file_path} is a link, not a file: remove it"
                ) from error
            raise
        try:
            # the open file, as the path may name another one by now
            check_regular(os.fstat(self.fd), file_path, must_be_owned=not follow)
            _lock_append_file(self.fd, file_path)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self.fd)

    def put_back(self) -> str | None:
        """Write the file again if it was removed, moved or replaced.

        Return what happened to it; None if nothing did.

        Raises:
            OSError: it cannot be written again.
        """
        if is_same(self.path, self.fd):
            return None
        os.makedirs(os.path.dirname(os.path.realpath(self.path)), exist_ok=True)
        what = "removed"
        if os.path.lexists(self.path):
            # what another program put there may be somebody's only copy
            os.rename(self.path, self.path + ".replaced")
            what = f"replaced ({self.path}.replaced)"
        self._write_again()
        return f"{self.path} was {what}: written again"

    def _write_again(self) -> None:
        path = os.path.realpath(self.path)
        temporary = f"{path}.{os.getpid()}.tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(
            temporary, _FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file_mode(path)
        )
        try:
            # who could read it before still can
            os.fchmod(fd, stat.S_IMODE(os.fstat(self.fd).st_mode))
            at = 0
            while piece := os.pread(self.fd, _PIECE, at):
                write_all(fd, piece)
                at += len(piece)
            os.fsync(fd)
            # before it has its name, so that no second writer comes between
            _lock_append_file(fd, path)
            os.rename(temporary, path)
            os.dup2(fd, self.fd, inheritable=False)  # another thread may use it
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)


def is_locked(file_path: str) -> bool:
    """Return whether another process has locked a file; False if there is none."""
    try:
        fd = os.open(file_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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


def is_same(file_path: str, descriptor: int) -> bool:
    """Return whether the file at *file_path* is the one open as *descriptor*."""
    try:
        there, here = os.stat(file_path), os.fstat(descriptor)
    except OSError as error:
        # a server that does not answer is no evidence about the file
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def check_regular(
    file_status: os.stat_result, file_path: str, *, must_be_owned: bool
) -> None:
    """Refuse anything but a regular file.

    With *must_be_owned*, also another user's, and one with a second name, which may be
    an attack.

    Raises:
        FormatError: the file is refused.
    """
    if not stat.S_ISREG(file_status.st_mode):
        raise FormatError(
            f"{file_path} is not a regular file (choose another --joblog)"
        )
    if must_be_owned and file_status.st_uid not in {
        os.geteuid(),
        _shown_uid(file_path, file_status),
    }:
        raise FormatError(
            f"{file_path} belongs to another user (choose another --joblog)"
        )
    if must_be_owned and file_status.st_nlink > 1:
        raise FormatError(f"{file_path} has a second name, a hard link: remove it")


def _shown_uid(file_path: str, file_status: os.stat_result) -> int:
    """Return the owner that a file we create next to *file_path* appears to have.

    A network file system may show another user id than ours for our own files.
    """
    if file_status.st_uid == os.geteuid():
        return file_status.st_uid
    probe = f"{file_path}.{os.getpid()}.tmp"
    try:
        fd = os.open(probe, _FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.geteuid()
    try:
        os.unlink(probe)
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


def _lock_append_file(descriptor: int, file_path: str) -> None:
    """Lock a file; a weigh that only inspects it holds the lock briefly."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise _joblog_in_use_error(file_path) from error
            time.sleep(_PAUSE)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return
        else:
            return


def _joblog_in_use_error(file_path: str) -> UsageError:
    return UsageError(
        f"another weigh exec is running on {file_path.removesuffix('.events.jsonl')} "
        "(wait for it, or choose another --joblog)"
    )
