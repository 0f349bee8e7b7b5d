"""The progress of running tasks, in a small file next to the joblog."""

import os
from contextlib import suppress

import msgspec

from weigh.model.record import ReportedProgress
from weigh.regular_file import only_regular
from weigh.store.lines import UNREADABLE
from weigh.store.location import open_privately
from weigh.units import Seconds

SUFFIX = ".progress"
SCHEMA = "weigh.exec-progress/1"


class TaskHeadway(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an attempt; ``started`` is in seconds since the epoch."""

    seq: int  # number of the task in its file, from 1
    attempt: int  # from 1
    started: Seconds
    headway: ReportedProgress


class RunningProgress(msgspec.Struct, frozen=True, kw_only=True):
    """All running tasks with known progress, at ``time`` since the epoch.

    ``ends_at`` is when the run itself reaches its time limit, if known.
    """

    schema: str = SCHEMA
    run: str
    time: Seconds
    slots: int  # tasks that run at once, at most
    ends_at: Seconds | None = None
    tasks: tuple[TaskHeadway, ...] = ()


def write_progress(path: str, progress: RunningProgress) -> bool:
    """Replace the file; return whether that succeeded."""
    partial = f"{path}.partial"
    try:
        with open(partial, "wb", opener=open_privately) as file:
            file.write(msgspec.json.encode(progress) + b"\n")
        # a reader finds the old file or the new one, never a half
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            os.unlink(partial)
        return False
    return True


def read_progress(joblog_path: str) -> RunningProgress | None:
    """Read the progress of the running tasks of *joblog_path*; None if unknown."""
    try:
        with open(joblog_path + SUFFIX, "rb", opener=only_regular) as file:
            found = msgspec.json.decode(file.read(), type=RunningProgress)
    except (OSError, *UNREADABLE):
        return None
    return found if found.schema == SCHEMA else None


def remove_progress(path: str) -> None:
    """Remove the file, because no task is running any more."""
    with suppress(OSError):
        os.unlink(path)
