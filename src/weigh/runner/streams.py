"""Where a task's output goes: what every way of it can do."""

import os
import stat
from typing import Protocol

from weigh.runner.output import has_no_room
from weigh.units import Bytes


class Stream(Protocol):
    """The output of one attempt. ``path`` is its file, where it has one by now."""

    path: str | None

    def descriptors(self) -> tuple[int, int] | None:
        """Give stdout and stderr for the task; None for weigh's own."""

    def started(self) -> None:
        """Take note that the task has its descriptors now, or will never."""

    def look(self) -> None:
        """Take note of what the task has written by now."""

    def tail(self) -> bytes:
        """Give the last of what the task wrote."""

    def close(self) -> Bytes:
        """Let go of it, nobody writing to it any more; give its size."""


class Output(Protocol):
    """Where the output of all tasks goes. ``folder`` has their files, if any."""

    folder: str | None

    def open(self, slot: int, seq: int, attempt: int, /) -> Stream:
        """Prepare for an attempt. Raises OSError where that cannot be done."""

    def is_full(self) -> bool:
        """Tell whether what tasks write is lost for want of room."""

    def close(self) -> None:
        """Finish, no task running any more."""


class _Inherited:
    """Weigh's own stdout and stderr."""

    path: str | None = None

    def descriptors(self) -> tuple[int, int] | None:
        """Give none: weigh's own are inherited."""
        return None

    def started(self) -> None:
        """Do nothing."""

    def look(self) -> None:
        """Do nothing."""

    def tail(self) -> bytes:
        """Give nothing: it went by."""
        return b""

    def close(self) -> Bytes:
        """Do nothing; its size is not known."""
        return 0


class Ungrouped:
    """Tasks write to weigh's own stdout and stderr, as they come."""

    folder: str | None = None

    def open(self, _slot: int, _seq: int, _attempt: int) -> _Inherited:
        """Prepare for an attempt: nothing to do."""
        return _Inherited()

    def is_full(self) -> bool:
        """Tell whether weigh's own output goes to a file on a disk that is full."""
        return any(map(_is_on_a_full_disk, (1, 2)))

    def close(self) -> None:
        """Do nothing."""


def _is_on_a_full_disk(fd: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and has_no_room(os.fstatvfs(fd))
    except OSError:
        return False
