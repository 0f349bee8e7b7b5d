"""How an attempt ended, and whether its task has another turn."""

import os
import signal
from typing import Literal

from weigh.model.record import Measurement, Monitor, Outcome, Series, Usage
from weigh.probe.cgroup import read_cgroup
from weigh.runner.attempt import Attempt
from weigh.runner.ending import Ending, end

Next = Literal["settled", "unfinished", "again", "with more", "alone"]

_MOST_STOPS = 3  # to make room, before a task runs alone
_UNFINISHED = ("told", "halt")
_MADE_ROOM = ("memory", "gpu_memory")
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_NO_USAGE = Usage(wall_time=0.0)
_NOTHING = (Series(), Monitor())


class Verdicts:
    """Judges attempts; *retries* and *oom_retries* are tries in all."""

    def __init__(self, retries: int, oom_retries: int) -> None:
        self._retries = retries
        self._oom_retries = oom_retries
        self._tries: dict[int, int] = {}
        self._oom_tries: dict[int, int] = {}
        self._stops: dict[int, int] = {}
        self._oom_kills = read_cgroup().oom_kills

    def judge(self, attempt: Attempt) -> Ending:
        """Say how an attempt ended, before its output is let go."""
        status = 0 if attempt.status is None else attempt.status
        if status == 0 and attempt.stop is None:
            return Ending("COMPLETED", 0, None)
        code = os.waitstatus_to_exitcode(status)
        if attempt.refused is not None and attempt.stop is None:
            return Ending("FAILED", code, None, Outcome(attempt.refused))
        measured = Measurement(
            attempt.started,
            None,
            code if code >= 0 else None,
            -code if code < 0 else None,
            _NO_USAGE,
            *_NOTHING,
            oom_kills=self._new_oom_kills() if code in _KILLED else None,
        )
        tail = b"" if attempt.output is None else attempt.output.tail()
        return end(measured, attempt.stop, tail)

    def next(self, attempt: Attempt, ending: Ending) -> Next:
        """Say whether a task is settled, left for a later run, or has another turn.

        One that ran out of memory has more of it at first, and then all of it.
        """
        seq = attempt.seq
        if attempt.stop in _UNFINISHED or ending.state == "INTERRUPTED":
            return "unfinished"
        if attempt.stop in _MADE_ROOM:
            return "again" if _count(self._stops, seq) < _MOST_STOPS else "alone"
        if ending.succeeded:
            return "settled"
        if ending.is_oom and _count(self._oom_tries, seq) < self._oom_retries:
            had_more = attempt.alone or self._oom_tries[seq] > 1
            return "alone" if had_more else "with more"
        if _count(self._tries, seq) < self._retries:
            return "again"
        self._tries.pop(seq)
        return "settled"

    def _new_oom_kills(self) -> int | None:
        """Count what the kernel killed for memory since this was asked last."""
        before, self._oom_kills = self._oom_kills, read_cgroup().oom_kills
        if before is None or self._oom_kills is None:
            return None
        return max(0, self._oom_kills - before)


def _count(counts: dict[int, int], seq: int) -> int:
    counts[seq] = counts.get(seq, 0) + 1
    return counts[seq]
