"""One ``weigh exec`` a joblog: a file beside it that names its holder.

The kernel's lock on that file tells on one machine, and on most network disks, whether
the holder lives. Where it cannot, the holder's sign of life does: it touches the file
every few seconds, and one that was not touched for a while belongs to nobody.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable

import msgspec

from weigh.errors import StoreError, UsageError
from weigh.store.identity import Machine, Process, is_alive
from weigh.store.lines import UNREADABLE
from weigh.units import Seconds

SIGN_OF_LIFE = 10.0
_DEAD_AFTER = 6 * SIGN_OF_LIFE
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Holder(msgspec.Struct, frozen=True):
    """Who holds a joblog."""

    machine: Machine
    process: Process


class Lock:
    """A joblog held by this process, until :meth:`release`."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    def touch(self) -> None:
        """Give a sign of life to those who cannot see this machine's processes."""
        os.utime(self._fd)

    def release(self) -> None:
        """Let go; the file goes with it."""
        try:
            os.unlink(self._path)
        finally:
            os.close(self._fd)


def acquire(
    path: str, me: Holder, *, sleep: Callable[[Seconds], None] = time.sleep
) -> Lock:
    """Take the lock at *path* or wait until its holder is surely dead.

    Raises:
        UsageError: another ``weigh exec`` holds it.
        StoreError: the file cannot be written.
    """
    try:
        fd = _open_locked(path)
        if fd is None:
            raise UsageError(_held(path, _holder(path)))
        holder = _holder(path)
        if holder is not None and _lives(path, holder, me, sleep):
            os.close(fd)
            raise UsageError(_held(path, holder))
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(me), 0)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror} "
            "(choose a --joblog in a folder that can be written to)"
        ) from error
    return Lock(path, fd)


def _open_locked(path: str) -> int | None:
    """Open the file with the kernel's lock on it; None where another has that."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        if _is_at(path, fd):
            return fd
        os.close(fd)  # its holder took it away meanwhile


def _is_at(path: str, fd: int) -> bool:
    try:
        there, here = os.stat(path), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _holder(path: str) -> Holder | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Holder)
    except (OSError, *UNREADABLE):
        return None


def _lives(
    path: str, holder: Holder, me: Holder, sleep: Callable[[Seconds], None]
) -> bool:
    """Tell whether *holder* is at work, whatever it takes to find out."""
    if me.machine.sees_processes_of(holder.machine):
        return holder.process != me.process and is_alive(holder.process)
    if me.machine.is_later_boot_of(holder.machine):
        return False
    first = os.stat(path).st_mtime
    if time.time() - first > 2 * _DEAD_AFTER:
        return False
    waited = 0.0
    while waited < _DEAD_AFTER:
        sleep(SIGN_OF_LIFE)
        waited += SIGN_OF_LIFE
        if os.stat(path).st_mtime != first:
            return True
    return False


def _held(path: str, holder: Holder | None) -> str:
    joblog = path.removesuffix(".lock")
    if holder is None:
        return f"another weigh exec is at work on {joblog}"
    return (
        f"another weigh exec is at work on {joblog}: process {holder.process.pid} on "
        f"{holder.machine.host} (wait for it, or choose another --joblog)"
    )
