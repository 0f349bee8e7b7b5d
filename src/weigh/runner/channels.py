"""The event files that programs with ``import weigh`` write their regions to.

Each slot has one file, named in the environment of its tasks. A file that a task wrote
to is moved aside for the watcher to read, and the slot gets a new one. All files are in
a folder that only this user may enter. The folder is locked, so that the next run can
recognize and remove the folders of killed runs.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress

# O_EXCL and O_NOFOLLOW: others may write to the folder above
_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_PREFIX = f"weigh-exec-{os.uname().nodename}-"  # locks may not reach other machines
_NEW = ".weigh-new-"  # until it is locked
VARIABLE = "WEIGH_CHANNEL"


class SlotChannels:
    """The event files of all slots, in a folder in the machine's temporary folder.

    They stay open, so that checking their size is cheap. ``paths`` are theirs by slot.
    """

    def __init__(
        self, run_id: str, slots: Iterable[int], folders: Iterable[str]
    ) -> None:
        """Make the files in the first of *folders* that takes them.

        If there is none, the programs run without regions.
        """
        self.paths: dict[int, str] = {}
        self._fds: dict[int, int] = {}
        self._taken = 0
        self._lock: int | None = None
        self._folder = ""
        for folder in folders:
            # a run that was killed could not remove its own
            remove_dead(folder)
            path = os.path.join(folder, _PREFIX + run_id)
            with suppress(OSError):
                self._lock = _make_locked(os.path.join(folder, _NEW + run_id), path)
                self._folder = path
                break
        for slot in slots if self._folder else ():
            self.paths[slot] = os.path.join(self._folder, f"{slot}.events")
            self._make(slot)

    def settings(self) -> dict[int, dict[str, str]]:
        """Return the environment variable of each slot that has a file."""
        return {slot: {VARIABLE: self.paths[slot]} for slot in self._fds}

    def take(self, slot: int) -> str | None:
        """Move the slot's file aside if a task wrote to it, and return its new path.

        Return None if there is nothing to read or the file cannot be moved.
        """
        fd = self._fds.get(slot)
        if fd is None:
            return None
        path = self.paths[slot]
        try:
            if not os.fstat(fd).st_size:
                return None
            self._taken += 1
            # it is read later, by the watcher's thread
            aside = f"{path}.{self._taken}"
            os.close(self._fds.pop(slot))
            os.rename(path, aside)
        except OSError:
            return None
        self._make(slot)
        return aside

    def close(self) -> None:
        """Remove the files."""
        for slot, fd in self._fds.items():
            with suppress(OSError):
                os.close(fd)
            remove_unneeded_file(self.paths[slot])
        self._fds.clear()
        if self._lock is not None:
            with suppress(OSError):
                os.rmdir(self._folder)
            os.close(self._lock)
            self._lock = None

    def _make(self, slot: int) -> None:
        try:
            self._fds[slot] = os.open(self.paths[slot], _FLAGS, 0o600)
        except OSError:
            return  # the programs of this slot run without regions


def remove_unneeded_file(path: str) -> None:
    """Remove a file that is no longer needed."""
    try:
        os.unlink(path)
    except OSError:
        return


def remove_dead(folder: str) -> None:
    """Remove this user's folders in *folder* whose ``weigh exec`` was killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_dead_channel(entry.path)


def _remove_dead_channel(path: str) -> None:
    fd = os.open(path, _FOLDER_FLAGS)
    try:
        # anybody may create a folder of this name in /tmp
        if os.fstat(fd).st_uid != os.geteuid():
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(path)
    finally:
        os.close(fd)


def _make_locked(new: str, path: str) -> int:
    """Make a folder, lock it, then rename it to *path*; return its descriptor.

    Raises:
        OSError: it cannot be made.
    """
    os.mkdir(new, 0o700)
    fd = os.open(new, _FOLDER_FLAGS)
    try:
        with suppress(OSError):  # without locks no process takes it for a dead one's
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # its name last: one without a lock would be removed as a dead run's
        os.rename(new, path)
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            os.rmdir(new)
        raise
    return fd
