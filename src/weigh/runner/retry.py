"""Decide how an attempt ended, whether its task is retried, and when to stop early."""

import os
import re
import signal
from collections import Counter
from collections.abc import Collection
from typing import Literal

import msgspec

from weigh.errors import SIGNAL_BASE, UsageError
from weigh.model.record import RunMeasurement, RunOutcome, State, Usage
from weigh.probe.cgroup import OomKillCount
from weigh.runner.attempt import Stop, TaskAttempt
from weigh.runner.events import STOPPED_FOR_MEMORY
from weigh.why_run_ended import (
    counted_no_kill,
    error_at_end,
    fixed_heap,
    judge_run_end,
    out_of_memory,
)

_KILLED_IN_A_SHELL = SIGNAL_BASE + signal.SIGKILL
_STOPPED: dict[Stop, tuple[State, str]] = {
    "timeout": ("TIMEOUT", "took longer than --timeout"),
    "signal": ("INTERRUPTED", "weigh received a signal"),
    "halt": ("CANCELLED", "stopped by --halt"),
    "memory": ("PREEMPTED", STOPPED_FOR_MEMORY),
    "diverged": ("DIVERGED", "diverged: stopped by --stop nan"),
    "stuck": ("STUCK", "stuck: ended by --end-stuck"),
    "gpu_memory": ("PREEMPTED", "stopped to make room: GPU memory was running out"),
}


class AttemptEnding(msgspec.Struct, frozen=True):
    """How an attempt ended.

    ``is_oom``: probably out of memory, so that more may help; ``on_gpu``: out of a
    GPU's memory.
    """

    state: State
    exit_code: int | None
    signal: int | None
    outcome: RunOutcome | None = None
    is_oom: bool = False
    on_gpu: bool = False

    @property
    def succeeded(self) -> bool:
        """Return whether the task is done."""
        return self.state == "COMPLETED"


def judge_attempt_end(
    measurement: RunMeasurement,
    stop: Stop | None = None,
    tail: bytes = b"",
    command: bytes = b"",
) -> AttemptEnding:
    """Judge an attempt by its exit, why weigh stopped it, and the end of its output.

    An option of *command* may limit its memory to less than what it was granted.
    """
    code, number = measurement.exit_code, measurement.signal
    if stop is not None:
        state, reason = _STOPPED[stop]
        return AttemptEnding(state, code, number, RunOutcome(reason))
    # a program may survive the kill of one of its workers
    if code == 0:
        state, why = judge_run_end(measurement)
        if state == "COMPLETED":
            return AttemptEnding(state, code, number)
        # a joblog knows exit codes only: the worker's, as a shell reports it
        return AttemptEnding(state, _KILLED_IN_A_SHELL, None, why, is_oom=True)
    words = tail.decode("utf-8", "replace")
    lacked = out_of_memory(words, by_kill=not counted_no_kill(measurement))
    if lacked is not None:
        evidence = [f"its output says {lacked.words!r}"]
        fixed = fixed_heap(lacked.words, command.decode("utf-8", "replace"))
        if fixed is not None:
            evidence.append(f"raise {fixed}: more memory for the job cannot help")
        outcome = RunOutcome("ran out of memory", tuple(evidence))
        return AttemptEnding(
            "OUT_OF_MEMORY",
            code,
            number,
            outcome,
            is_oom=fixed is None,
            on_gpu=lacked.on_gpu,
        )
    state, why = judge_run_end(measurement)
    # no reason is known: probably memory, so that more may help
    killed = number == signal.SIGKILL or code == _KILLED_IN_A_SHELL
    is_oom = state == "OUT_OF_MEMORY" or killed
    return AttemptEnding(state, code, number, why, is_oom=is_oom)


Next = Literal["settled", "unfinished", "again", "with more", "alone"]

_OOM_ATTEMPTS = 3  # as planned, with more memory, alone
_MOST_STOPS = 3  # of a task to make room, before it runs alone
_UNFINISHED = ("signal", "halt")
MADE_ROOM = ("memory", "gpu_memory")  # stopped for memory: not its own fault
_KILLED_CODES = (-signal.SIGKILL, _KILLED_IN_A_SHELL)
_MUCH_SMALLER = 2  # times: the kernel kills the largest process
_NO_USAGE = Usage(wall_time=0.0)


class RetryPolicy:
    """Judges attempts; *retries* includes the first attempt."""

    def __init__(self, retries: int, *, is_trial: bool) -> None:
        self._retries = retries
        self._oom_attempts = 1 if is_trial else _OOM_ATTEMPTS
        # by task number, as the two that follow: attempts that count against a limit
        self._tries, self._oom_tries, self._stops = (Counter[int]() for _ in range(3))
        # of the kernel's count, those that an attempt was found to be the cause of
        self._kills_explained = 0
        self._kill_count = OomKillCount()
        self._kills_before: dict[str, int | None] = {}  # by the attempt's record

    def started(self, attempt: TaskAttempt) -> None:
        """Note how many processes had been killed when an attempt began."""
        self._kills_before[attempt.record] = self._kill_count.read()

    def judge(
        self, attempt: TaskAttempt, others: Collection[TaskAttempt]
    ) -> AttemptEnding:
        """Return how an attempt ended; its output must still be open.

        *others* run: a process that was killed for memory may be theirs.
        """
        status = 0 if attempt.state.status is None else attempt.state.status
        code = os.waitstatus_to_exitcode(status)
        kills = self._new_oom_kills(attempt, others, was_killed=code in _KILLED_CODES)
        # the usual end: only the last lines of its output can cast doubt on it
        if status == 0 and attempt.state.stop is None and not kills:
            return AttemptEnding("COMPLETED", 0, None, _doubt_of(attempt))
        measured = RunMeasurement(
            attempt.launch.started,
            None,
            code if code >= 0 else None,
            -code if code < 0 else None,
            _NO_USAGE,
            oom_kills=kills,
        )
        tail = attempt.output.tail()
        ending = judge_attempt_end(measured, attempt.state.stop, tail, attempt.text)
        if attempt.state.evidence is None or ending.outcome is None:
            return ending
        outcome = RunOutcome(ending.outcome.reason, (attempt.state.evidence,))
        return msgspec.structs.replace(ending, outcome=outcome)

    def next(self, attempt: TaskAttempt, ending: AttemptEnding) -> Next:
        """Return whether a task is settled, left for a later run, or retried.

        After running out of memory it gets a larger reservation first, and then runs
        alone.
        """
        seq = attempt.seq
        if attempt.state.stop in _UNFINISHED or ending.state == "INTERRUPTED":
            return "unfinished"
        # not its fault: it does not count against the retries, within reason
        if attempt.state.stop in MADE_ROOM:
            self._stops[seq] += 1
            return "again" if self._stops[seq] < _MOST_STOPS else "alone"
        if ending.succeeded or attempt.state.stop == "diverged":
            return "settled"
        self._oom_tries[seq] += ending.is_oom
        if ending.is_oom and self._oom_tries[seq] < self._oom_attempts:
            # a larger reservation was not enough: all there is
            had_more = attempt.alone or self._oom_tries[seq] > 1
            return "alone" if had_more else "with more"
        self._tries[seq] += 1
        if self._tries[seq] < self._retries:
            return "again"
        self._tries.pop(seq)
        return "settled"

    def _new_oom_kills(
        self, attempt: TaskAttempt, others: Collection[TaskAttempt], *, was_killed: bool
    ) -> int | None:
        """Return how many processes of an attempt were killed for memory, if known.

        The count is one for all tasks. It is that of a task that was killed, else of
        none that held far less than another.
        """
        before = self._kills_before.pop(attempt.record, None)
        now = self._kill_count.read()
        if before is None or now is None:
            return None
        # what the end of another task has explained does not count twice
        rise = now - max(before, self._kills_explained)
        if rise <= 0:
            return 0
        largest = max((other.host.peak for other in others), default=0)
        # another task's: the kernel ends the largest process, and this was not killed
        if not was_killed and largest > _MUCH_SMALLER * attempt.host.peak:
            return 0
        # certain enough that no other task needs it as an explanation
        if was_killed or largest <= attempt.host.peak:
            self._kills_explained = now
        return rise


def _doubt_of(attempt: TaskAttempt) -> RunOutcome | None:
    """Return that a task with exit code 0 printed an error at its end, if it did."""
    tail = attempt.output.tail()
    error = error_at_end(tail.decode("utf-8", "replace")) if tail else None
    return None if error is None else RunOutcome("exit code 0 after an error", (error,))


When = Literal["never", "soon", "now"]
_HALT = (
    r"(?P<when>now|soon),(?P<why>fail|success|done)="
    r"(?P<number>[1-9]\d{0,8})(?P<percent>%?)"
)
_ALL = 100  # percent


class HaltRule(msgspec.Struct, frozen=True):
    """Stop ``now`` (running tasks too) or ``soon`` (start no more), and why.

    ``share`` is of all tasks; where it is None, ``count`` tasks are enough.
    """

    when: When = "never"
    why: str = "fail"
    count: int = 1
    share: float | None = None

    def is_due(self, *, failed: int, succeeded: int, tasks: int) -> bool:
        """Return whether enough tasks have failed, succeeded or ended."""
        if self.when == "never":
            return False
        ended = {"fail": failed, "success": succeeded}.get(self.why, failed + succeeded)
        if self.share is None:
            return ended >= self.count
        # before anything ended, 0 of 0 tasks would be enough
        return ended > 0 and ended >= self.share * tasks


def parse_halt(option_text: str) -> HaltRule:
    """Read ``never``, ``now,fail=1`` or ``soon,done=50%``, as GNU parallel does.

    Raises:
        UsageError: *option_text* is none of these.
    """
    if option_text == "never":
        return HaltRule()
    found = re.fullmatch(_HALT, option_text, re.ASCII)
    if found is None or (found["percent"] and int(found["number"]) > _ALL):
        raise UsageError(
            f"invalid --halt {option_text}: write now,fail=1 or soon,fail=10% "
            "(or success, done)"
        )
    chosen: When = "now" if found["when"] == "now" else "soon"
    number = int(found["number"])
    if found["percent"]:
        return HaltRule(chosen, found["why"], share=number / _ALL)
    return HaltRule(chosen, found["why"], count=number)
