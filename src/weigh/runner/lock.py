"""Let one ``weigh exec`` at a time work on a joblog: the lock file next to it.

The file names its holder. It is only ever created, never overwritten, so exactly one of
several processes gets it, on any file system. On the same machine the kernel's lock and
the holder's process show whether the holder is alive. From another machine only its
heartbeat does: the holder touches the file every few seconds, and a process that waits
looks whether the file changes, by its own clock. Clocks of two machines are never
compared.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from weigh.errors import FormatError, StoreError, UsageError
from weigh.regular_file import write_all
from weigh.runner import events
from weigh.runner.append_file import (
    NO_LOCKS,
    check_regular,
    is_locked,
    is_same,
)
from weigh.store.identity import MachineIdentity, ProcessIdentity, is_alive
from weigh.store.lines import UNREADABLE
from weigh.store.location import file_mode
from weigh.units import Seconds

SUFFIX = ".lock"
SIGN_OF_LIFE = 10.0  # seconds between touches of the file by its holder
SILENCE = 6 * SIGN_OF_LIFE  # seconds after which a holder elsewhere counts as dead
_EMPTY_FOR = 3.0  # seconds in which its creator writes its name into it
_LOST_AFTER = 3  # looks that find another's lock: one alone may be transient
_POLL = 0.5  # seconds between looks at another's lock
_TRIES = 10  # to lock a file that another process inspects
# a link or a FIFO planted under the name is refused, and never waited for
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class JoblogHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a joblog; ``job`` is the id of its scheduler's job."""

    machine: MachineIdentity
    process: ProcessIdentity
    job: str | None = None


class JoblogLock:
    """A joblog held by this process, until :meth:`release`.

    ``trouble`` names the process that holds it instead, if any.
    """

    def __init__(
        self, lock_path: str, descriptor: int, new_holder: JoblogHolder
    ) -> None:
        self.trouble: str | None = None
        self._path = lock_path
        self._fd = descriptor
        self._me = new_holder
        # looks in a row that found another's lock
        self._strange = 0

    def touch(self) -> None:
        """Show other machines that this process is alive."""
        with suppress(OSError):
            os.utime(self._fd)

    def keep(self) -> None:
        """Create the file again if it was removed; note a new holder in ``trouble``."""
        if is_same(self._path, self._fd):
            self._strange = 0
            return
        try:
            fd = _create_lock_file(self._path, self._me)
        except OSError:
            return  # its folder is gone: no other process can hold it either
        if fd is not None:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # flock belongs to the open file: closing one of its descriptors keeps it
            os.dup2(fd, self._fd, inheritable=False)
            os.close(fd)
            self._strange = 0
            return
        holder = _lock_holder(self._path)
        # a file that cannot be read is no evidence of another holder
        self._strange += holder is not None
        if self._strange >= _LOST_AFTER:
            self.trouble = _lock_held_message(self._path, holder)

    def release(self) -> None:
        """Remove the file, unless another process owns it by now."""
        with suppress(OSError):
            if is_same(self._path, self._fd):
                os.unlink(self._path)
        os.close(self._fd)


def acquire_lock(
    lock_path: str,
    new_holder: JoblogHolder,
    *,
    sleep: Callable[[Seconds], None] = time.sleep,
    notify: Callable[[str], None] = lambda _line: None,
) -> JoblogLock:
    """Take the lock at *lock_path*; wait to see whether a holder elsewhere is alive.

    Raises:
        UsageError: another ``weigh exec`` holds it.
        FormatError: the file at *lock_path* is not a lock.
        StoreError: the file cannot be written.
    """
    joblog = lock_path.removesuffix(SUFFIX)
    if is_locked(joblog) or is_locked(joblog + events.SUFFIX):
        raise UsageError(
            _lock_held_message(lock_path, _lock_holder(lock_path))
        )  # even if the lock was removed
    try:
        while True:
            fd = _create_lock_file(lock_path, new_holder)
            if fd is not None and _has_locked_created_file(lock_path, fd, sleep):
                return JoblogLock(lock_path, fd, new_holder)
            if fd is None:
                _remove_dead_lock(lock_path, new_holder, sleep, notify)
    except OSError as error:
        raise StoreError(
            f"cannot write {lock_path}: {error.strerror} "
            "(choose a --joblog in a folder that can be written to)"
        ) from error


def _create_lock_file(lock_path: str, new_holder: JoblogHolder) -> int | None:
    """Create the file with our name in it; return None if it exists."""
    try:
        fd = os.open(lock_path, _FLAGS | os.O_CREAT | os.O_EXCL, file_mode(lock_path))
    except FileExistsError:
        return None
    try:
        write_all(fd, msgspec.json.encode(new_holder))
    except OSError:
        with suppress(OSError):
            # an empty lock would make the next process wait for its name
            os.unlink(lock_path)
        os.close(fd)
        raise
    return fd


def _has_locked_created_file(
    lock_path: str, descriptor: int, sleep: Callable[[Seconds], None]
) -> bool:
    """Lock the file we created; a process that inspects it holds it only briefly."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(_POLL)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        break
    # with or without the kernel's lock: having created the file decides
    if is_same(lock_path, descriptor):
        return True
    os.close(descriptor)
    return False


def _remove_dead_lock(
    lock_path: str,
    new_holder: JoblogHolder,
    sleep: Callable[[Seconds], None],
    notify: Callable[[str], None],
) -> None:
    """Remove the lock of a dead holder; return once the file is gone.

    Raises:
        UsageError: its holder is alive.
        FormatError: it is not a lock.
    """
    try:
        fd = os.open(lock_path, _FLAGS)
    except FileNotFoundError:
        return
    except OSError as error:
        if os.path.islink(lock_path) or os.path.isdir(lock_path):
            raise FormatError(
                f"{lock_path} is not a regular file: remove it"
            ) from error
        raise
    try:
        check_regular(os.fstat(fd), lock_path, must_be_owned=True)
        try:
            # the kernel's lock ends with its holder, so this is certain
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                _lock_held_message(lock_path, _lock_holder(lock_path))
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        if _is_holder_dead(lock_path, fd, new_holder, sleep, notify):
            _take_away(lock_path, fd)
    finally:
        os.close(fd)


def _is_holder_dead(
    lock_path: str,
    descriptor: int,
    new_holder: JoblogHolder,
    sleep: Callable[[Seconds], None],
    notify: Callable[[str], None],
) -> bool:
    """Return whether the lock's holder is dead; False if the file is gone.

    Raises:
        UsageError: it is alive.
    """
    text = os.pread(descriptor, 1 << 16, 0)
    holder = _decoded_holder(text)
    if holder is None:
        if text and not text.startswith(b"{"):
            raise FormatError(f"{lock_path} is not a lock file of weigh: remove it")
        # no name: its creator is about to write it, or died before
        return not _is_file_changing(lock_path, descriptor, _EMPTY_FOR, sleep)
    if new_holder.machine.sees_processes_of(holder.machine):
        if holder.process != new_holder.process and is_alive(holder.process):
            raise UsageError(_lock_held_message(lock_path, holder))
        return True
    # a cloned node may look like this one before a restart: silence decides
    silent = time.time() - os.fstat(descriptor).st_mtime > SILENCE
    if silent and new_holder.machine.is_later_boot_of(holder.machine):
        return True
    notify(
        f"waiting up to {SILENCE:g} s to see whether weigh exec on "
        f"{holder.machine.host} still runs"
    )
    if not _is_file_changing(lock_path, descriptor, SILENCE, sleep):
        return True
    if is_same(lock_path, descriptor):
        raise UsageError(_lock_held_message(lock_path, holder))
    return False


def _is_file_changing(
    lock_path: str, descriptor: int, longest: Seconds, sleep: Callable[[Seconds], None]
) -> bool:
    """Watch the file for *longest* seconds; return whether it changes or disappears.

    Each look opens it anew, so that a network file system asks its server.
    """
    first = _lock_file_state(lock_path)
    waited = 0.0
    while waited < longest:
        sleep(_POLL)
        waited += _POLL
        if _lock_file_state(lock_path) != first or not is_same(lock_path, descriptor):
            return True
    return False


def _lock_file_state(lock_path: str) -> tuple[int, int, int, bytes] | None:
    try:
        fd = os.open(lock_path, _FLAGS)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        text = os.pread(fd, 1 << 16, 0)
    except OSError:  # a pipe
        return None
    else:
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, text
    finally:
        os.close(fd)


def _take_away(lock_path: str, descriptor: int) -> None:
    """Remove the file that is open as *descriptor*, and no other that replaced it."""
    aside = f"{lock_path}.{os.getpid()}.dead"
    with suppress(FileNotFoundError):
        # first rename, then compare: between a comparison and an unlink another
        # process could create its own lock there
        os.rename(lock_path, aside)
        if not is_same(aside, descriptor):
            try:
                # it was another's lock: put it back, unless a newer one is there
                os.link(aside, lock_path)
            except FileExistsError:
                pass  # its holder has already created another
            except OSError:  # this file system has no hard links
                os.rename(aside, lock_path)
                return
        os.unlink(aside)


def _lock_holder(lock_path: str) -> JoblogHolder | None:
    state = _lock_file_state(lock_path)
    return None if state is None else _decoded_holder(state[-1])


def _decoded_holder(file_content: bytes) -> JoblogHolder | None:
    with suppress(*UNREADABLE):
        return msgspec.json.decode(file_content, type=JoblogHolder)
    return None


def _lock_held_message(lock_path: str, holder: JoblogHolder | None) -> str:
    joblog = lock_path.removesuffix(SUFFIX)
    if holder is None:
        return (
            f"another weigh exec is running on {joblog} "
            "(wait for it, or choose another --joblog)"
        )
    job = f", job {holder.job}" if holder.job is not None else ""
    return (
        f"another weigh exec is running on {joblog}: process {holder.process.pid} on "
        f"{holder.machine.host}{job} (wait for it, or choose another --joblog)"
    )
