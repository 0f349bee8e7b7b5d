"""The event files that programs with ``import weigh`` tell their regions to.

Each slot has one, named in the environment of its tasks. One that a task wrote to is
put aside for the watcher to read, and the slot gets another.
"""

import os
from collections.abc import Iterable
from contextlib import suppress

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
VARIABLE = "WEIGH_CHANNEL"


class Channels:
    """The event files of all slots, in the machine's own temporary folder.

    They stay open: to look at their size costs little then.
    """

    def __init__(self, run: str, slots: Iterable[int], folder: str) -> None:
        self._paths: dict[int, str] = {}
        self._fds: dict[int, int] = {}
        self._taken = 0
        for slot in slots:
            path = os.path.join(folder, f"weigh-{run}-{slot}.events")
            self._paths[slot] = path
            self._make(slot)

    def settings(self) -> dict[int, dict[str, str]]:
        """Give the variable for each slot that has a file."""
        return {slot: {VARIABLE: self._paths[slot]} for slot in self._fds}

    def take(self, slot: int) -> str | None:
        """Move the slot's file aside if a task wrote to it; return its path then.

        Return None where there is nothing to read, or it cannot be moved.
        """
        fd = self._fds.get(slot)
        path = self._paths[slot]
        try:
            if fd is None or not os.fstat(fd).st_size:
                return None
            self._taken += 1
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
            forget(self._paths[slot])
        self._fds.clear()

    def _make(self, slot: int) -> None:
        try:
            self._fds[slot] = os.open(self._paths[slot], _FLAGS, 0o600)
        except OSError:
            return  # the programs of this slot do without


def forget(path: str) -> None:
    """Remove a file that nobody needs any more."""
    try:
        os.unlink(path)
    except OSError:
        return
