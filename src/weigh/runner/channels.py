"""The event files that programs with ``import weigh`` tell their regions to.

Each slot has one, named in the environment of its tasks. One that a task wrote to is
put aside for the watcher to read, and the slot gets another.
"""

import os
from collections.abc import Iterable

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
VARIABLE = "WEIGH_CHANNEL"


class Channels:
    """The event files of all slots, in the machine's own temporary folder."""

    def __init__(self, run: str, slots: Iterable[int], folder: str) -> None:
        self._paths: dict[int, str] = {}
        self._taken = 0
        for slot in slots:
            path = os.path.join(folder, f"weigh-{run}-{slot}.events")
            if _make(path):
                self._paths[slot] = path

    def settings(self) -> dict[int, dict[str, str]]:
        """Give the variable for each slot that has a file."""
        return {slot: {VARIABLE: path} for slot, path in self._paths.items()}

    def take(self, slot: int) -> str | None:
        """Put the slot's file aside if a task wrote to it; give where it is then."""
        path = self._paths.get(slot)
        if path is None or not _size(path):
            return None
        self._taken += 1
        aside = f"{path}.{self._taken}"
        try:
            os.rename(path, aside)
        except OSError:
            return None
        _make(path)
        return aside

    def close(self) -> None:
        """Remove the files."""
        for path in self._paths.values():
            forget(path)


def forget(path: str) -> None:
    """Remove a file that nobody needs any more."""
    try:
        os.unlink(path)
    except OSError:
        return


def _make(path: str) -> bool:
    try:
        os.close(os.open(path, _FLAGS, 0o600))
    except OSError:
        return False
    return True


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
