"""The loop: start tasks while slots are free, sleep, see to what happened.

One thread sleeps in sigtimedwait. What wakes it is a child that ended, a signal to
weigh, or the time of something due. Everything slow is the watcher thread's.
"""

import os
import resource  # noqa: F401 - wait4 would load it when descriptors have run out
import signal
import time
from collections.abc import Callable, Collection

import msgspec

from weigh.errors import FormatError
from weigh.joblog import TIMED_OUT, Entry
from weigh.model.record import Measurement, Monitor, Series, Usage
from weigh.runner.attempt import Attempt, Stop
from weigh.runner.ending import TAIL, Ending, end
from weigh.runner.events import EventsFile, Started
from weigh.runner.halt import Halt
from weigh.runner.joblog_file import JoblogFile
from weigh.runner.leftovers import Leftovers
from weigh.runner.output import OutputFolder, is_full
from weigh.runner.queue import Queue, Turn
from weigh.runner.reaper import Reaped, Reaper
from weigh.runner.slots import FreeSlots, Layout
from weigh.runner.spawn import Spawner
from weigh.runner.stopping import Stopper
from weigh.runner.tally import Tally
from weigh.runner.task_source import TaskSource
from weigh.runner.watch import Watcher, new_records
from weigh.units import Seconds

_TICK = 0.25
_RESPAWN_PAUSE = 0.5  # seconds after the system had no process to give
_NO_USAGE = Usage(wall_time=0.0)
_NOTHING = (Series(), Monitor())


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks are to be run. ``retries`` and ``oom_retries`` are tries in all."""

    retries: int = 1
    oom_retries: int = 3
    halt: Halt = Halt()
    timeout: Seconds | None = None
    grace: Seconds = 30.0
    wait_orphans: bool = True
    time_limit: Seconds | None = None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop works with."""

    run: str
    source: TaskSource
    queue: Queue
    layout: Layout
    spawner: Spawner
    watcher: Watcher
    joblog: JoblogFile
    events: EventsFile
    output: OutputFolder | None
    streams: tuple[int, int] | None
    attempts: dict[int, int]
    digest: Callable[[bytes], str]
    say: Callable[[str], None]
    show: Callable[[Tally], Seconds]


class Result(msgspec.Struct, frozen=True):
    """How a run ended. ``signal`` told it to; ``trouble`` made it stop launching."""

    tally: Tally
    signal: int | None = None
    trouble: str | None = None
    halted: str | None = None
    halt_code: int | None = None


class Loop:
    """One run over the tasks of a queue."""

    def __init__(self, parts: Parts, rules: Rules, tally: Tally) -> None:
        self._parts = parts
        self._rules = rules
        self._tally = tally
        self._free = FreeSlots(parts.layout.slots)
        self._running: dict[int, Attempt] = {}
        self._reaper = Reaper()
        self._stopper = Stopper(rules.grace)
        self._leftovers = Leftovers(self._running)
        self._new_record = new_records()
        self._attempts = parts.attempts
        self._tries: dict[int, int] = {}
        self._oom_tries: dict[int, int] = {}
        self._told: int | None = None
        self._trouble: str | None = None
        self._halted: str | None = None
        self._halt_code: int | None = None
        self._is_alone = False
        self._spawn_at: Seconds = 0.0
        self._show_at: Seconds = 0.0
        self._look_at: Seconds = 0.0

    def run(self, waited: Collection[signal.Signals]) -> Result:
        """Run until nothing is left to do or something says stop.

        *waited* are the signals to see to, SIGCHLD among them, all blocked.
        """
        try:
            while True:
                self._start_tasks()
                self._show()
                if not self._running and not self._may_start():
                    break
                info = signal.sigtimedwait(waited, self._pause())
                if info is not None and info.si_signo != signal.SIGCHLD:
                    self._take_signal(info.si_signo)
                self._reap()
                self._see_to_what_is_due()
        finally:
            self._leftovers.clear(self._rules.grace)
        return Result(
            self._tally, self._told, self._trouble, self._halted, self._halt_code
        )

    def _is_stopping(self) -> bool:
        return (
            self._told is not None
            or self._trouble is not None
            or self._halted is not None
        )

    def _may_start(self) -> bool:
        return not self._is_stopping() and not self._parts.queue.is_empty()

    def _start_tasks(self) -> None:
        while self._free and self._may_start() and not self._is_alone:
            if time.monotonic() < self._spawn_at:
                return
            turn = self._parts.queue.take(len(self._running))
            if turn is None or not self._start(turn):
                return

    def _start(self, turn: Turn) -> bool:
        """Start an attempt; False where that is not possible now."""
        parts = self._parts
        number = self._attempts.get(turn.seq, 0) + 1
        try:
            text = parts.source.text(turn.seq)
        except FormatError as error:
            self._stop_launching(str(error))
            return False
        slot = self._free.take()
        attempt = Attempt(turn.seq, number, text, slot)
        attempt.alone = turn.alone
        try:
            streams = parts.streams
            if parts.output is not None:
                attempt.output = parts.output.open(slot.number, turn.seq, number)
                streams = (attempt.output.fd, attempt.output.fd)
            attempt.floor = parts.watcher.floor
            attempt.record = self._new_record()
            parts.spawner.start(attempt, streams)
        except OSError as error:
            self._not_started(turn, attempt, error)
            return False
        self._attempts[turn.seq] = number
        self._is_alone = turn.alone
        self._running[attempt.pid] = attempt
        self._tally.running += 1
        self._note_start(attempt)
        return True

    def _not_started(self, turn: Turn, attempt: Attempt, error: OSError) -> None:
        """Put a task back that could not be started, and stop or wait a little."""
        parts = self._parts
        if attempt.output is not None and parts.output is not None:
            parts.output.close(attempt.slot.number, attempt.output, is_reusable=True)
        self._free.give_back(attempt.slot)
        if turn.alone:
            parts.queue.alone(turn.seq)
        else:
            parts.queue.again(turn.seq)
        if is_full(error):
            where = "" if parts.output is None else f" {parts.output.folder}"
            self._stop_launching(f"cannot write to{where}: {error.strerror}")
        elif self._running:
            self._spawn_at = time.monotonic() + _RESPAWN_PAUSE
        else:
            self._stop_launching(f"cannot start a process: {error.strerror}")

    def _note_start(self, attempt: Attempt) -> None:
        parts = self._parts
        parts.watcher.started(attempt)
        parts.events.append(
            Started(
                seq=attempt.seq,
                attempt=attempt.number,
                run=parts.run,
                time=round(attempt.started, 3),
                slot=attempt.slot.number,
                pid=attempt.pid,
                start_time=attempt.start_time,
                task=parts.digest(attempt.text),
                gpu=attempt.slot.gpu,
            )
        )
        if parts.events.trouble is not None:
            self._stop_launching(
                f"cannot write {parts.events.path}: {parts.events.trouble}"
            )

    def _reap(self) -> None:
        """See to every child that ended."""
        touched: dict[int, Attempt] = {}
        for reaped in self._reaper.reap():
            attempt = self._running.get(reaped.pid)
            if attempt is None:
                attempt = self._leftovers.claim(reaped.pid)
            else:
                attempt.status = reaped.status
            if attempt is not None:
                _add_up(attempt, reaped)
                touched[attempt.pid] = attempt
        if not touched:
            return
        for attempt in self._leftovers.find():
            touched[attempt.pid] = attempt
        for attempt in touched.values():
            if attempt.status is None:
                continue
            if attempt.orphans:
                self._keep_waiting(attempt)
            else:
                self._finish(attempt)

    def _keep_waiting(self, attempt: Attempt) -> None:
        """Decide about what a task left behind."""
        for orphan in attempt.orphans:
            self._parts.watcher.left(attempt, orphan)
        if not self._rules.wait_orphans or attempt.stop is not None:
            self._stopper.stop_orphans(attempt)

    def _finish(self, attempt: Attempt) -> None:
        """Write down the end of an attempt of which nothing is left."""
        parts = self._parts
        del self._running[attempt.pid]
        self._tally.running -= 1
        self._is_alone = self._is_alone and not attempt.alone
        self._stopper.forget(attempt)
        ending = self._judge(attempt)
        size = 0
        if attempt.output is not None and parts.output is not None:
            size = parts.output.close(
                attempt.slot.number, attempt.output, is_reusable=True
            )
            if size and parts.output.is_full():
                self._stop_launching(f"the disk under {parts.output.folder} is full")
                ending = Ending("INTERRUPTED", ending.exit_code, ending.signal)
        self._free.give_back(attempt.slot)
        if not self._goes_again(attempt, ending):
            self._settle(attempt, ending, size)
        parts.watcher.ended(attempt, ending)

    def _judge(self, attempt: Attempt) -> Ending:
        status = 0 if attempt.status is None else attempt.status
        if status == 0 and attempt.stop is None:
            return Ending("COMPLETED", 0, None)
        code = os.waitstatus_to_exitcode(status)
        measured = Measurement(
            attempt.started,
            None,
            code if code >= 0 else None,
            -code if code < 0 else None,
            _NO_USAGE,
            *_NOTHING,
        )
        tail = b""
        if attempt.output is not None:
            size = os.fstat(attempt.output.fd).st_size
            tail = os.pread(attempt.output.fd, TAIL, max(0, size - TAIL))
        return end(measured, attempt.stop, tail)

    def _goes_again(self, attempt: Attempt, ending: Ending) -> bool:
        """Give a task another turn, if it has one left and deserves it."""
        seq, queue = attempt.seq, self._parts.queue
        if ending.succeeded or self._told is not None or self._halted is not None:
            return False
        if attempt.stop in ("told", "halt") or ending.state == "INTERRUPTED":
            return False
        if ending.is_oom:
            self._oom_tries[seq] = self._oom_tries.get(seq, 0) + 1
            if self._oom_tries[seq] < self._rules.oom_retries:
                queue.alone(seq)
                self._tally.again += 1
                return True
        self._tries[seq] = self._tries.get(seq, 0) + 1
        if self._tries[seq] < self._rules.retries:
            queue.again(seq)
            self._tally.again += 1
            return True
        self._tries.pop(seq)
        return False

    def _settle(self, attempt: Attempt, ending: Ending, size: int) -> None:
        """Write a task's last end into the joblog, unless it has to run again."""
        if ending.state == "INTERRUPTED" or attempt.stop in ("told", "halt"):
            self._tally.interrupted += 1
            return
        wall = attempt.ended - attempt.began
        timed_out = attempt.stop == "timeout"
        trouble = self._parts.joblog.append(
            Entry(
                seq=attempt.seq,
                host=":",
                started=attempt.started,
                wall_time=wall,
                sent=0,
                received=size,
                exit_code=TIMED_OUT if timed_out else ending.exit_code or 0,
                signal=ending.signal or 0,
                command=attempt.text.decode("utf-8", "surrogateescape"),
            )
        )
        if trouble is not None:
            self._stop_launching(trouble)
        self._tally.ended += 1
        self._tally.spent += wall
        if ending.succeeded:
            self._tally.done += 1
        else:
            self._tally.failed += 1
            self._say_failed(attempt, ending)
        self._consider_halt(attempt, ending)

    def _say_failed(self, attempt: Attempt, ending: Ending) -> None:
        reason = "" if ending.outcome is None else f": {ending.outcome.reason}"
        where = ""
        if attempt.output is not None and attempt.output.path is not None:
            where = f"   {attempt.output.path}"
        self._parts.say(f"task {attempt.seq} failed{reason}{where}")

    def _consider_halt(self, attempt: Attempt, ending: Ending) -> None:
        rules, tally = self._rules, self._tally
        is_due = rules.halt.is_due(
            failed=tally.failed, succeeded=tally.done, tasks=tally.tasks
        )
        if self._halted is not None or not is_due:
            return
        self._halted = f"--halt: task {attempt.seq} was enough to stop"
        self._halt_code = (
            128 + ending.signal if ending.signal else ending.exit_code or 0
        )
        if rules.halt.when == "now":
            self._stop_all("halt", signal.SIGTERM)

    def _stop_launching(self, why: str) -> None:
        if self._trouble is None:
            self._trouble = why
            self._parts.say(f"{why}: no more tasks are started")

    def _stop_all(self, why: Stop, number: int) -> None:
        for attempt in self._running.values():
            self._stopper.stop(attempt, why, number)

    def _take_signal(self, number: int) -> None:
        """Tell the tasks that the end is near; told twice, end them."""
        if self._told is not None and number in (signal.SIGINT, signal.SIGTERM):
            self._stopper.hurry()
            return
        if self._told is None:
            self._told = number
            name = signal.Signals(number).name
            self._parts.say(
                f"{name}: {len(self._running)} tasks have "
                f"{self._rules.grace:g} s to end (run it again to go on)"
            )
        self._stop_all("told", number)

    def _see_to_what_is_due(self) -> None:
        now = time.monotonic()
        rules = self._rules
        if rules.timeout is not None:
            for attempt in self._running.values():
                if attempt.stop is None and now - attempt.began >= rules.timeout:
                    self._stopper.stop(attempt, "timeout", signal.SIGTERM)
        self._stopper.see_to_what_is_due(now)
        limit = rules.time_limit
        if limit is not None and now >= limit - rules.grace and self._told is None:
            self._take_signal(signal.SIGTERM)
        if now >= self._look_at:
            self._look_at = now + _TICK
            self._name_outputs()

    def _name_outputs(self) -> None:
        if self._parts.output is not None:
            for attempt in self._running.values():
                if attempt.output is not None and attempt.output.path is None:
                    self._parts.output.look(attempt.output)

    def _show(self) -> None:
        now = time.monotonic()
        if now >= self._show_at:
            self._show_at = now + self._parts.show(self._tally)

    def _pause(self) -> Seconds:
        """Give the seconds to sleep, at most."""
        now = time.monotonic()
        wake_at = min(now + _TICK, self._stopper.wake_at, self._show_at)
        if self._rules.timeout is not None:
            for attempt in self._running.values():
                if attempt.stop is None:
                    wake_at = min(wake_at, attempt.began + self._rules.timeout)
        return max(0.0, wake_at - now)


def _add_up(attempt: Attempt, reaped: Reaped) -> None:
    attempt.ended = reaped.at
    attempt.user += reaped.user
    attempt.system += reaped.system
    attempt.max_rss = max(attempt.max_rss, reaped.max_rss)
    attempt.read_bytes += reaped.read_bytes
    attempt.write_bytes += reaped.write_bytes
    attempt.reaped += 1
