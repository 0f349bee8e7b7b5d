"""What a scheduler last said, kept beside the records so that it is asked seldom.

A scheduler serves many people: all jobs are asked about at once, at most once in an
interval, and less often while it does not answer.
"""

import os
from contextlib import suppress

import msgspec

from weigh.model.job import States
from weigh.store.lines import UNREADABLE
from weigh.store.location import make_folder, private
from weigh.units import Seconds

INTERVAL: Seconds = 30.0
_LONGEST_PAUSE: Seconds = 600.0
_ENDING: Seconds = 60.0  # jobs get so long to end after a signal, at most sites
_WHILE_ENDING: Seconds = 1.0
_FOLDER = "queue"


class Poll(msgspec.Struct, frozen=True):
    """The last answer, when it came, and how often none came since.

    ``tried`` is when it was last asked; times are seconds since the epoch.
    ``cancelled`` are elements that weigh cancelled, the last ``cancelled_at``: they may
    be gone without a trace. ``unsettled`` are jobs with an element that has left the
    queue and whose end accounting does not show yet, and since when; ``accounting`` is
    why accounting does not answer.
    """

    asked: Seconds = 0.0
    tried: Seconds = 0.0
    failures: int = 0
    trouble: str | None = None
    states: States = {}
    cancelled: dict[str, tuple[int, ...]] = {}
    cancelled_at: Seconds = 0.0
    unsettled: dict[str, Seconds] = {}
    accounting: str | None = None

    def is_due(self, now: Seconds, interval: Seconds) -> bool:
        """Return whether it may be asked again; a clock set back is no reason to wait.

        While a job that was just cancelled ends, it is asked more often.
        """
        if 0 <= now - self.cancelled_at < _ENDING and not self.failures:
            interval = min(interval, _WHILE_ENDING)
        pause = min(interval * 2**self.failures, max(_LONGEST_PAUSE, interval))
        return not 0 <= now - self.tried < pause


def load(root: str, name: str) -> Poll:
    """Read the last answer; an empty one where there is none, or none that parses."""
    try:
        with open(_path(root, name), "rb") as file:
            return msgspec.json.decode(file.read(), type=Poll)
    except (OSError, *UNREADABLE):
        return Poll()


def save(root: str, name: str, poll: Poll) -> None:
    """Keep an answer; where it cannot be kept, it is only asked for again."""
    make_folder(root, _FOLDER)
    path = _path(root, name)
    fresh = f"{path}.{os.getpid()}"
    with suppress(OSError):
        with open(fresh, "wb", opener=private) as file:
            file.write(msgspec.json.encode(poll))
        os.replace(fresh, path)


def forget(
    root: str,
    name: str,
    *,
    cancelled: tuple[str, tuple[int, ...], Seconds] | None = None,
) -> None:
    """Make the next look ask the scheduler: something was submitted or cancelled.

    *cancelled* is a job, its elements and the time.
    """
    poll = load(root, name)
    if cancelled is not None:
        job, elements, now = cancelled
        known = {*poll.cancelled.get(job, ()), *elements}
        told = poll.cancelled | {job: tuple(sorted(known))}
        poll = msgspec.structs.replace(poll, cancelled=told, cancelled_at=now)
    if not poll.failures:
        poll = msgspec.structs.replace(poll, tried=0.0)
    save(root, name, poll)


def _path(root: str, name: str) -> str:
    return os.path.join(root, _FOLDER, f"{name}.json")
