"""The event files that programs with ``import weigh`` write their regions to.

Each slot has one file, named in the environment of its tasks. A file that a task wrote
to is moved aside for the watcher to read, and the slot gets a new one. All files are in
a folder in /tmp that only this user may enter.
"""

import os
from collections.abc import Iterable
from contextlib import suppress

from weigh.project_folders import HeldTemporary

# O_EXCL and O_NOFOLLOW: others may write to the folder above
_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
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
        self._folder = HeldTemporary(
            folders, f".weigh-exec-{run_id}", lambda path: os.mkdir(path, 0o700)
        )
        for slot in slots if self._folder.path else ():
            self.paths[slot] = f"{self._folder.path}/{slot}.events"
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
        """Remove the files, and those of runs that were killed long ago."""
        for slot, fd in self._fds.items():
            with suppress(OSError):
                os.close(fd)
            remove_unneeded_file(self.paths[slot])
        self._fds.clear()
        self._folder.close(os.rmdir)

    def _make(self, slot: int) -> None:
        # without one, the programs of this slot run without regions
        with suppress(OSError):
            self._fds[slot] = os.open(self.paths[slot], _FLAGS, 0o600)


def remove_unneeded_file(path: str) -> None:
    """Remove a file that is no longer needed."""
    with suppress(OSError):
        os.unlink(path)
