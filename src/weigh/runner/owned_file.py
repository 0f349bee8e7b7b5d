"""Files that belong to one process: the lock of a joblog, the joblog, its events.

The kernel's lock on an open file keeps a second writer out, where the file system has
locks, even if somebody removed the lock file. The lock file itself is only ever
created, never overwritten, so exactly one of several processes gets it, on any file
system. On the same machine the kernel's lock and the holder's process show whether the
holder is alive. From another machine only its heartbeat does: the holder touches the
file every few seconds, and a process that waits looks whether the file changes, by its
own clock. Clocks of two machines are never compared.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from weigh import waits
from weigh.errors import FormatError, UsageError, writing
from weigh.regular_file import write_all
from weigh.store.identity import MachineIdentity, ProcessIdentity, is_alive
from weigh.store.lines import UNREADABLE
from weigh.store.location import file_mode
from weigh.units import Seconds

LOCK_SUFFIX = ".lock"
OTHER_JOBLOG = "choose another --joblog"
_POLL = 0.5  # seconds between looks at another's lock
# how flock fails on a file system without locks, which is no reason to stop
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_LONGEST_NAME = 1 << 16  # bytes of a lock, which names its holder
# a FIFO planted under the name is refused, and never waited for
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = _FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class OwnedFile:
    """An open file that only this process appends to."""

    def __init__(self, file_path: str, joblog_path: str, *, follow: bool) -> None:
        """Open the file, create it where it is missing, and lock it.

        With *follow* it may be a symbolic link.

        Raises:
            OSError: it cannot be opened.
            FormatError: it is not a regular file, or has a second name.
            UsageError: another process has it locked.
        """
        self.path = file_path
        self.fd = _open_owned(file_path, os.O_CREAT | os.O_APPEND, follow=follow)
        if not _lock_descriptor(self.fd):
            os.close(self.fd)
            raise _held_joblog_error(joblog_path)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self.fd)

    def is_in_place(self) -> bool:
        """Return whether its path still leads to it: nobody removed or replaced it."""
        return _is_same(self.path, self.fd)


class JoblogHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a joblog; ``job`` is the id of its scheduler's job."""

    machine: MachineIdentity
    process: ProcessIdentity
    job: str | None = None


class JoblogLock:
    """The lock of a joblog, held by this process until :meth:`release`.

    ``trouble`` names the process that holds it instead, if any.
    """

    def __init__(
        self,
        joblog_path: str,
        new_holder: JoblogHolder,
        *,
        sleep: Callable[[Seconds], None] = time.sleep,
        notify: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Take the lock; wait to see whether a holder elsewhere is alive.

        Raises:
            UsageError: another ``weigh exec`` holds it.
            FormatError: the file of its name is not a lock.
            StoreError: the file cannot be written.
        """
        self.trouble: str | None = None
        self._joblog = joblog_path
        self._path = joblog_path + LOCK_SUFFIX
        self._me = new_holder
        self._sleep = sleep
        self._notify = notify
        self._fd = -1  # until it is created
        with writing(self._path, OTHER_JOBLOG):
            while not self._create():
                self._remove_dead()

    def keep(self, *, is_alive_sign_due: bool) -> None:
        """Create the file again if it was removed; note a new holder in ``trouble``.

        *is_alive_sign_due*: show other machines that this process is alive.
        """
        # its folder may be gone: then no other process can hold it either
        with suppress(OSError):
            if is_alive_sign_due:
                os.utime(self._fd)
            is_ours = _is_same(self._path, self._fd) or self._create()
            # anything else of its name is no evidence of another holder
            if not is_ours and _seen_holder(self._path) is not None:
                self.trouble = str(_held_joblog_error(self._joblog))

    def release(self) -> None:
        """Remove the file, unless another process owns it by now."""
        with suppress(OSError):
            if _is_same(self._path, self._fd):
                os.unlink(self._path)
        os.close(self._fd)

    def _create(self) -> bool:
        """Create the file with our name in it; return False if it exists."""
        try:
            fd = os.open(self._path, _NEW, file_mode(self._path))
        except FileExistsError:
            return False
        try:
            write_all(fd, msgspec.json.encode(self._me))
            # with or without the kernel's lock: having created the file decides
            _lock_descriptor(fd)
        except OSError:
            with suppress(OSError):
                # an empty lock would make the next process wait for its name
                os.unlink(self._path)
            os.close(fd)
            raise
        if not _is_same(self._path, fd):  # taken for a dead one's meanwhile
            os.close(fd)
            return False
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        return True

    def _remove_dead(self) -> None:
        """Remove the lock of a dead holder.

        Raises:
            UsageError: its holder is alive.
            FormatError: it is not a lock.
        """
        try:
            fd = _open_owned(self._path, 0, follow=False)
        except FileNotFoundError:
            return
        try:
            # the kernel's lock ends with its holder, so this is certain
            if _lock_descriptor(fd) and not self._is_holder_alive(fd):
                self._take_away(fd)
            elif _is_same(self._path, fd):  # else its holder has ended meanwhile
                raise _held_joblog_error(self._joblog)
        finally:
            os.close(fd)

    def _is_holder_alive(self, descriptor: int) -> bool:
        """Return whether the lock's holder lives: it is here, or changes the file."""
        text = os.pread(descriptor, _LONGEST_NAME, 0)
        holder = _decoded_holder(text)
        if holder is None:
            if text and not text.startswith(b"{"):
                raise FormatError(
                    f"{self._path} is not a lock file of weigh: remove it"
                )
            # no name: its creator is about to write it, or died before
            return self._is_changing(waits.times.lock_without_name)
        ours = self._me
        if ours.machine.sees_processes_of(holder.machine):
            return holder.process != ours.process and is_alive(holder.process)
        # also after a restart: a cloned node that runs looks like this one before
        self._notify(
            f"waiting up to {waits.times.silence:g} s to see whether weigh exec on "
            f"{holder.machine.host} still runs"
        )
        return self._is_changing(waits.times.silence)

    def _is_changing(self, longest: Seconds) -> bool:
        """Watch the file for *longest* seconds; return whether it changes or goes."""
        first = _lock_seen(self._path)
        waited = 0.0
        while waited < longest:
            self._sleep(_POLL)
            waited += _POLL
            if _lock_seen(self._path) != first:
                return True
        return False

    def _take_away(self, descriptor: int) -> None:
        """Remove the file open as *descriptor*, and no other that replaced it."""
        aside = f"{self._path}.{os.getpid()}.dead"
        with suppress(FileNotFoundError):
            # first rename, then compare: between a comparison and an unlink another
            # process could create its own lock there
            os.rename(self._path, aside)
            if not _is_same(aside, descriptor):
                # another's lock: its holder creates it again if it cannot be put back
                with suppress(OSError):
                    os.link(aside, self._path)
            os.unlink(aside)


def _lock_seen(lock_path: str) -> tuple[int, int, bytes] | None:
    """Open a lock anew, so that a network file system asks its server."""
    with suppress(OSError):
        fd = os.open(lock_path, _FLAGS | os.O_NOFOLLOW)
        try:
            status = os.fstat(fd)
            # a pipe has no position to read from: OSError
            return status.st_ino, status.st_mtime_ns, os.pread(fd, _LONGEST_NAME, 0)
        finally:
            os.close(fd)
    return None


def _seen_holder(lock_path: str) -> JoblogHolder | None:
    seen = _lock_seen(lock_path)
    return None if seen is None else _decoded_holder(seen[-1])


def _decoded_holder(file_content: bytes) -> JoblogHolder | None:
    with suppress(*UNREADABLE):
        return msgspec.json.decode(file_content, type=JoblogHolder)
    return None


def _held_joblog_error(joblog_path: str) -> UsageError:
    who = ""
    holder = _seen_holder(joblog_path + LOCK_SUFFIX)
    if holder is not None:
        job = f", job {holder.job}" if holder.job is not None else ""
        who = f": process {holder.process.pid} on {holder.machine.host}{job}"
    return UsageError(
        f"another weigh exec is running on {joblog_path}{who} "
        "(wait for it, or choose another --joblog)"
    )


def _lock_descriptor(descriptor: int) -> bool:
    """Lock an open file, where there are locks; return False if another process has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_same(file_path: str, descriptor: int) -> bool:
    """Return whether the file at *file_path* is the one open as *descriptor*."""
    try:
        return os.path.samestat(os.stat(file_path), os.fstat(descriptor))
    except OSError as error:
        # a server that does not answer is no evidence about the file
        return not isinstance(error, FileNotFoundError | NotADirectoryError)


def _open_owned(file_path: str, flags: int, *, follow: bool) -> int:
    """Open a regular file for reading and writing.

    Without *follow* refuse links, and a file with a second name: each may be an attack.

    Raises:
        OSError: it cannot be opened.
        FormatError: the file is refused.
    """
    flags |= _FLAGS | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(file_path, flags, file_mode(file_path))
    except OSError as error:
        if follow or not (os.path.islink(file_path) or os.path.isdir(file_path)):
            raise
        raise FormatError(f"{file_path} is not a regular file: remove it") from error
    # the open file, as the path may name another one by now
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and (follow or found.st_nlink <= 1):
        return fd
    os.close(fd)
    if stat.S_ISREG(found.st_mode):
        raise FormatError(f"{file_path} has a second name, a hard link: remove it")
    raise FormatError(f"{file_path} is not a regular file ({OTHER_JOBLOG})")
