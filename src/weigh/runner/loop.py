"""The main loop: start tasks while slots are free, sleep, handle what happened.

One thread sleeps in sigtimedwait. A child that ended, a signal to weigh or a deadline
wakes it. Everything slow happens in the watcher's thread.
"""

import errno
import gc
import resource  # noqa: F401 - wait4 would load it when descriptors have run out
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weigh import waits
from weigh.errors import SIGNAL_BASE, FormatError, StoreError, cannot_write, is_full
from weigh.joblog import TIMED_OUT, JoblogEntry
from weigh.lazy_modules import lazy_module
from weigh.measure.watch_loop import adopt_orphans
from weigh.model.progress import FailedTask
from weigh.model.record import RunOutcome
from weigh.progress.eta import TaskTally
from weigh.project_folders import temporary_folders
from weigh.runner.attempt import AttemptOutput, Stop, TaskAttempt, TasksOutput
from weigh.runner.channels import SlotChannels
from weigh.runner.memory_guard import MemoryGuard, TurnPlacer
from weigh.runner.orphans import ChildReaper, TaskOrphans, stamp_processes
from weigh.runner.progress_watch import ProgressWatch
from weigh.runner.retry import MADE_ROOM, AttemptEnding, RetryPolicy
from weigh.runner.run_context import RunContext
from weigh.runner.slots import NO_RESERVATION, FreeSlots, RunSlot, TaskTurn, TurnQueue
from weigh.runner.spawn import AttemptSpawner
from weigh.runner.stopping import AttemptStopper
from weigh.runner.watch import AttemptWatcher, reset_weigh_peak_memory
from weigh.store.identity import new_id
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.runner import divergence
else:  # imported when it is first used
    divergence = lazy_module("weigh.runner.divergence")


class RunResult(msgspec.Struct, frozen=True):
    """How a run ended: by ``signal``, or by ``trouble`` that kept it from going on.

    ``failures`` are the first ones; the joblog has all. ``has_abandoned``: a process
    that cannot be killed is still running.
    """

    tally: TaskTally
    signal: int | None = None
    trouble: str | None = None
    halted: str | None = None  # why --halt stopped the run; None: it did not
    halt_code: int | None = None  # exit code of the task that decided --halt
    failures: tuple[FailedTask, ...] = ()  # at most MOST_FAILURES
    has_abandoned: bool = False


_RARELY = 20_000  # objects between collections: tasks create no reference cycles
_TICK = 0.25  # seconds; the longest sleep
MOST_FAILURES = 20  # that are named
_LONGEST_DOUBT = 160  # characters; the last line of an output may be long
_POLL = 0.02  # seconds between looks at tasks that end after an unexpected error
_RESPAWN_PAUSE = 0.5  # seconds until the next try after a fork failed
# descriptors, processes or memory ran out: the end of a task frees some
_PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_NOT_WRITTEN = 74  # EX_IOERR: the exit code of a task whose output is lost


class TaskLoop:
    """Runs the tasks of a queue. Its methods run in the main thread alone."""

    def __init__(
        self,
        context: RunContext,
        output: TasksOutput,
        queue: TurnQueue,
        tally: TaskTally,
        attempts: dict[int, int],
    ) -> None:
        """*attempts*: how often each task was started, earlier runs included."""
        self._context = context
        self._queue = queue
        self._output = output
        numbers = [slot.number for slot in context.layout.slots]
        self._channels = SlotChannels(
            context.id, numbers, temporary_folders(context.env)
        )
        self._spawner = AttemptSpawner(context, self._channels.settings())
        self._progress = ProgressWatch(context, self._channels.paths)
        _become_the_parent()  # before the watcher reads weigh's own peak
        self._watcher = AttemptWatcher(context, self._spawner, self._progress)
        self._options = context.options
        self._journal = context.journal
        self._notify = context.console.notify
        self._tally = tally
        self._free = FreeSlots(context.layout.slots)
        # by record, because the kernel reuses the ids of ended processes
        self._running: dict[str, TaskAttempt] = {}
        self._reaper = ChildReaper()
        self._stopper = AttemptStopper(context.options.grace)
        # by process id, until the leader is reaped
        self._leaders: dict[int, TaskAttempt] = {}
        self._orphans = TaskOrphans(context.id, self._running, self._leaders)
        self._watcher.set_aside = self._orphans.set_aside
        self._has_abandoned = False
        self._attempts = attempts
        self._awaiting_retry: set[int] = set()  # tasks
        self._retry_policy = RetryPolicy(
            context.options.retries, is_trial=context.options.is_trial
        )
        self._memory = MemoryGuard(context, self._watcher.guarded_gpus(), self._stopper)
        self._placer = TurnPlacer(queue, self._free, self._memory, context)
        self._signal: int | None = None
        self._signal_at: Seconds = 0.0
        self._trouble: str | None = None
        self._halted: str | None = None
        self._halt_code: int | None = None
        self._failures: list[FailedTask] = []
        self._doubts: list[tuple[int, str]] = []  # exit code 0 after an error
        # while a task runs that needs all memory, nothing starts
        self._is_alone = False
        # --halt counts what this run's tasks did, not those of earlier runs
        self._earlier = (tally.failed, tally.done)
        # deadlines on the monotonic clock; 0: due at once
        self._spawn_at: Seconds = 0.0
        self._show_at: Seconds = 0.0
        self._look_at: Seconds = 0.0
        self._mentioned: set[int] = set()  # tasks whose orphans were reported

    def run(self, waited: Collection[int]) -> RunResult:
        """Run until no task is left or the run has to stop.

        *waited* are the signals to handle, including SIGCHLD, all of them blocked.
        """
        handled = frozenset(waited) - {signal.SIGCHLD}
        self._watcher.begin()
        try:
            while True:
                self._start_tasks()
                self._show()
                if not self._running and not self._may_start():
                    break
                info = signal.sigtimedwait(waited, self._pause())
                # after SIGSTOP and SIGCONT, CPython returns an uninitialized siginfo
                if info is not None and info.si_signo in handled:
                    self._take_signal(info.si_signo)
                # at each wake-up: the kernel merges the SIGCHLDs of several children
                self._reap()
                self._act_on_deadlines()
        except Exception:
            self._end_tasks()
            raise
        finally:
            # no task runs any more: what is left nobody else would end
            self._clear()
        self._write_the_rest()
        self._report_doubts()
        return RunResult(
            self._tally,
            self._signal,
            self._trouble,
            self._halted,
            self._halt_code,
            tuple(self._failures),
            has_abandoned=self._has_abandoned,
        )

    def close(self) -> tuple[str, ...]:
        """Record all that ended, and remove temporary files; return warnings."""
        warnings = self._watcher.close()
        self._channels.close()
        return warnings

    def _end_tasks(self) -> None:
        """Stop the running tasks, with all of --grace, after an unexpected error."""
        self._stop_all("signal", signal.SIGTERM)
        while self._running:
            for reaped in self._reaper.reap():
                attempt = self._leaders.pop(reaped.pid, None)
                if attempt is not None:
                    self._running.pop(attempt.record, None)
            now = time.monotonic()
            self._stopper.act_on_deadlines(now)
            # stuck in the kernel: waiting for it might never end
            for attempt in self._stopper.outlived(now - waits.times.end_after_kill):
                self._running.pop(attempt.record, None)
            time.sleep(_POLL)

    def _clear(self) -> None:
        """Terminate remaining processes of no known task, and report them."""
        cleared = self._orphans.clear(self._options.grace)
        if cleared.ended:
            self._notify(
                f"terminated what tasks left behind: process {', '.join(cleared.ended)}"
            )
        if cleared.left:
            self._has_abandoned = True
            self._notify(
                f"process {', '.join(cleared.left)} cannot be killed and keeps running"
            )

    def _is_stopping(self) -> bool:
        return (
            self._signal is not None
            or self._trouble is not None
            or self._halted is not None
        )

    def _may_start(self) -> bool:
        return not self._is_stopping() and not self._queue.is_empty()

    def _start_tasks(self) -> None:
        while self._free and self._may_start() and not self._is_alone:
            # a fork has just failed
            if time.monotonic() < self._spawn_at:
                return
            try:
                found = self._placer.next(self._running.values())
            except StoreError as error:  # the claims of a shared queue
                self._stop_launching(str(error))
                return
            if found is None or not self._start(*found):
                return

    def _start(self, task_turn: TaskTurn, run_slot: RunSlot) -> bool:
        """Start an attempt; return False if that is impossible now."""
        context = self._context
        number = self._attempts.get(task_turn.seq, 0) + 1
        try:
            text = context.source.text(task_turn.seq)
        except FormatError as error:
            self._stop_launching(str(error))
            return False
        except OSError as error:
            self._queue.put(task_turn, is_first=True)
            self._free.give_back(run_slot)
            self._stop_launching(f"cannot read {context.source.name}: {error.strerror}")
            return False
        stream = None
        try:
            stream = self._output.open(context.number_of(task_turn.seq), number)
            attempt = TaskAttempt(
                task_turn.seq,
                number,
                text,
                run_slot,
                record=new_id(),
                reservation=task_turn.reservation,
                plan=context.plan.need_of(task_turn.seq),
                alone=task_turn.alone,
                floor=self._watcher.floor,
                output=stream,
            )
            # both before the fork: the child inherits the stamp, and a process that
            # the kernel kills at once for memory counts as one of this attempt
            stamp_processes(context.id, task_turn.seq)
            self._retry_policy.started(attempt)
            self._spawner.start(attempt, stream.descriptors())
        except OSError as error:
            self._free.give_back(run_slot)
            self._not_started(task_turn, stream, error)
            return False
        self._attempts[task_turn.seq] = number
        if task_turn.seq in self._awaiting_retry:
            self._awaiting_retry.remove(task_turn.seq)
            self._tally.again += 1
        self._is_alone = task_turn.alone
        # memory that ran out next to other tasks may be theirs
        attempt.state.shared = bool(self._running)
        if len(self._running) == 1:  # with more, all are marked already
            next(iter(self._running.values())).state.shared = True
        self._running[attempt.record] = attempt
        self._leaders[attempt.launch.pid] = attempt
        self._tally.running += 1
        self._watcher.started(attempt)
        return True

    def _not_started(
        self, task_turn: TaskTurn, stream: AttemptOutput | None, os_error: OSError
    ) -> None:
        """Queue a task again that could not be started; pause, or stop the run."""
        if stream is not None:
            with suppress(OSError):
                stream.close()
        self._queue.put(task_turn, is_first=True)
        is_resource = os_error.errno in _PASSING
        # without a stream its output could not be opened, and waiting does not help
        if is_full(os_error) or (stream is None and not is_resource):
            where = self._output.folder or "the output"
            self._stop_launching(cannot_write(where, os_error))
        elif self._running:
            if not self._spawn_at:
                self._notify(
                    f"only {len(self._running)} tasks at a time: {os_error.strerror}"
                )
            self._spawn_at = time.monotonic() + _RESPAWN_PAUSE
        else:
            self._stop_launching(
                f"cannot start task {self._context.number_of(task_turn.seq)}: "
                f"{os_error.strerror}"
            )

    def _reap(self) -> None:
        """Handle every child that ended."""
        touched: dict[str, TaskAttempt] = {}
        ended = self._reaper.reap()
        for reaped in ended:
            attempt = self._leaders.pop(reaped.pid, None)
            if attempt is None:
                # not a leader: a process that a task left behind
                attempt = self._orphans.claim(reaped.pid)
            else:
                attempt.state.status = reaped.status
            if attempt is not None:
                attempt.state.ended = reaped.at
                attempt.usage.add(reaped.usage)
                touched[attempt.record] = attempt
        if not ended:
            return
        # the kernel gave the children of the ended processes to weigh
        for attempt, orphan in self._orphans.find():
            touched[attempt.record] = attempt
            self._watcher.left(attempt, orphan)
        for attempt in touched.values():
            # only an orphan ended: its leader still runs
            if attempt.state.status is None:
                continue
            if not attempt.state.orphans:
                self._finish(attempt)
            # a task that was stopped must leave nothing running
            elif not self._options.wait_orphans or attempt.state.stop is not None:
                self._stopper.stop_orphans(attempt)

    def _finish(self, attempt: TaskAttempt) -> None:
        """Complete an attempt after all its processes have ended."""
        del self._running[attempt.record]
        self._tally.running -= 1
        self._is_alone = self._is_alone and not attempt.alone
        self._stopper.forget(attempt)
        # before its output is closed, whose end shows why it failed
        if self._options.stop_nan and attempt.state.stop is None:
            # it ended before it was looked at
            word = divergence.lost_at_end(attempt.output.tail())
            if word is not None:
                attempt.state.stop = "diverged"
                attempt.state.evidence = f"{word} at the end of its output"
        ending = self._retry_policy.judge(attempt, self._running.values())
        size, fault = _close_output(attempt)
        if fault is not None:
            ending = _ending_without_output(ending, fault)
        is_short = fault is not None and is_full(fault)
        # tasks write their files themselves: weigh sees no error of theirs, so a
        # full disk makes any output doubtful, and any failure
        if is_short or ((size or not ending.succeeded) and self._output.is_full()):
            where = self._output.folder or "the output"
            self._stop_launching(f"the disk under {where} is full")
            outcome = RunOutcome("the disk under its output was full")
            ending = AttemptEnding(
                "INTERRUPTED", ending.exit_code, ending.signal, outcome
            )
        self._memory.ended(attempt)
        # before its slot is free: the slot's next task writes to the same file
        attempt.state.channel = self._channels.take(attempt.slot.number)
        self._free.give_back(attempt.slot)
        if not self._is_retried(attempt, ending):
            self._settle(attempt, ending, size)
        # last: from here on the attempt is the watcher's alone
        self._watcher.ended(attempt, ending)

    def _is_retried(self, attempt: TaskAttempt, ending: AttemptEnding) -> bool:
        """Retry a task, or leave it for a later run; return False if it is settled."""
        verdict, queue = self._retry_policy.next(attempt, ending), self._queue
        if verdict == "settled":
            return False
        is_short = ending.is_oom and verdict in {"with more", "alone"}
        # there is no more memory here: another attempt would fail as well
        if is_short and self._memory.had_everything(attempt, ending):
            return False
        if attempt.state.stop in MADE_ROOM:
            self._memory.learn(attempt)
        # nothing starts any more: the next run repeats the task
        if verdict == "unfinished" or self._is_stopping():
            self._tally.interrupted += 1
            return True
        reservation = None
        if verdict == "with more":
            reservation = self._memory.larger_reservation(attempt, ending)
        elif verdict == "again" and attempt.state.stop in MADE_ROOM:
            reservation = self._memory.reservation_after_stop(attempt)
        is_alone = reservation is None and verdict != "again"
        queue.put(TaskTurn(attempt.seq, is_alone, reservation or NO_RESERVATION))
        attempt.state.again = True
        self._awaiting_retry.add(attempt.seq)
        return True

    def _settle(
        self, attempt: TaskAttempt, ending: AttemptEnding, output_size: int
    ) -> None:
        """Write a task's final end to the joblog."""
        wall = attempt.state.ended - attempt.launch.began
        # it may exit with 0 when it is stopped, and is not done all the same
        was_stopped = attempt.state.stop is not None
        trouble = self._journal.append_end(
            JoblogEntry(
                seq=attempt.seq,
                host=":",  # as GNU parallel names this machine
                started=attempt.launch.started,
                wall_time=wall,
                sent=0,
                received=output_size,
                exit_code=TIMED_OUT if was_stopped else ending.exit_code or 0,
                signal=ending.signal or 0,
                command=attempt.text.decode("utf-8", "surrogateescape"),
            )
        )
        if trouble is not None:
            self._stop_launching(trouble)
        if ending.succeeded:
            if ending.outcome is not None:
                self._doubts.append((attempt.seq, ending.outcome.evidence[0]))
            self._tally.done += 1
            self._progress.note_done(wall)
        else:
            self._tally.failed += 1
            self._keep_failure(attempt, ending)
        self._consider_halt(attempt, ending)

    def _write_the_rest(self) -> None:
        """Write the rest of the joblog; tasks it cannot record count as not done."""
        trouble = self._journal.try_again() or self._journal.trouble()
        if self._trouble is None:
            self._trouble = trouble
        # the run stopped before their retries: they began, and a later run repeats them
        self._tally.interrupted += len(self._awaiting_retry)
        for entry in self._journal.unwritten:
            self._tally.take_back(was_done=entry.succeeded)

    def _keep_failure(self, attempt: TaskAttempt, ending: AttemptEnding) -> None:
        if len(self._failures) >= MOST_FAILURES:
            return
        reason = "failed" if ending.outcome is None else ending.outcome.reason
        if attempt.state.evidence is not None:
            reason += f" ({attempt.state.evidence})"
        task = self._context.number_of(attempt.seq)
        self._failures.append(FailedTask(task, reason, attempt.output.path))

    def _report_doubts(self) -> None:
        """State that tasks count as done whose output ends in an error."""
        if self._doubts:
            seq, error = min(self._doubts)  # in the order of the file
            which = f"task {self._context.number_of(seq)}"
            if len(self._doubts) > 1:
                which = f"{len(self._doubts):,} tasks, the first is {which},"
            words = f"{which} ended with 0, yet the output ends in: {error}"
            self._notify(words[:_LONGEST_DOUBT])

    def _consider_halt(self, attempt: TaskAttempt, ending: AttemptEnding) -> None:
        options, tally = self._options, self._tally
        failed, done = self._earlier
        is_due = options.halt.is_due(
            failed=tally.failed - failed, succeeded=tally.done - done, tasks=tally.tasks
        )
        if self._halted is not None or not is_due:
            return
        task = self._context.number_of(attempt.seq)
        self._halted = f"--halt: task {task} was enough to stop"
        self._halt_code = (
            SIGNAL_BASE + ending.signal if ending.signal else ending.exit_code or 0
        )
        if options.halt.when == "now":
            self._stop_all("halt", signal.SIGTERM)

    def _stop_launching(self, why: str) -> None:
        if self._trouble is None:
            self._trouble = why
            self._notify(f"{why}: no more tasks are started")

    def _stop_all(self, why: Stop, signal_number: int) -> None:
        for attempt in self._running.values():
            self._stopper.stop(attempt, why, signal_number)

    def _take_signal(self, signal_number: int) -> None:
        """Pass a signal on to the tasks; a second one ends their grace time."""
        now = time.monotonic()
        if self._signal is not None and signal_number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):
            # a person types ^C twice on purpose
            if (
                signal_number == signal.SIGINT
                or now - self._signal_at > waits.times.second_signal
            ):
                self._stopper.end_grace()
            return
        if self._signal is None:
            self._signal, self._signal_at = signal_number, now
            name = signal.Signals(signal_number).name
            count = len(self._running)
            self._notify(
                f"{name}: {count} running task{'s have' if count != 1 else ' has'} "
                f"{self._options.grace:g} s to end (run it again to continue)"
            )
        self._stop_all("signal", signal_number)

    def _act_on_deadlines(self) -> None:
        now = time.monotonic()
        options = self._options
        if options.timeout is not None:
            for attempt in self._running.values():
                if (
                    attempt.state.stop is None
                    and now - attempt.launch.began >= options.timeout
                ):
                    self._stopper.stop(attempt, "timeout", signal.SIGTERM)
        self._end_lost()
        self._stopper.act_on_deadlines(now)
        for attempt in self._stopper.outlived(now - waits.times.end_after_kill):
            self._abandon(attempt, now)
        if options.guard and now >= self._memory.due:
            self._memory.look(now, self._running.values())
        end_at = self._context.ends_at
        # early enough for the tasks to have all of their grace time
        if (
            end_at is not None
            and now >= end_at - options.grace
            and self._signal is None
        ):
            self._notify("the time limit is near")
            self._take_signal(signal.SIGTERM)
        if now >= self._look_at:
            self._look_at = now + waits.times.look_at_files
            self._look_around(now)

    def _end_lost(self) -> None:
        """End the attempts that have diverged or are stuck, if they still run."""

        def runs_on(attempt: TaskAttempt) -> bool:
            return attempt.state.stop is None and attempt.record in self._running

        lost, stuck = self._progress.lost, self._progress.stuck
        while lost:
            attempt, evidence = lost.popleft()
            if runs_on(attempt):
                attempt.state.evidence = evidence
                self._stopper.stop(attempt, "diverged", signal.SIGTERM)
        while stuck:
            attempt, evidence, size = stuck.popleft()
            if runs_on(attempt):
                self._end_stuck(attempt, evidence, size)

    def _end_stuck(
        self, attempt: TaskAttempt, evidence: str, output_size: Bytes | None
    ) -> None:
        """End an attempt that is stuck, unless it has woken up meanwhile."""
        now = time.monotonic()
        # what left its tree and works may not have been met: it is given time anew
        for its_attempt, orphan in self._orphans.find():
            self._watcher.left(its_attempt, orphan)
            its_attempt.state.alive_until = now + (self._options.end_stuck or 0.0)
        if now < attempt.state.alive_until or attempt.output.size() != output_size:
            return
        lines = attempt.output.tail().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in lines[::-1] if line.strip()), "nothing")
        evidence += f"; printed last: {last[-_LONGEST_DOUBT:]}"
        attempt.state.evidence = evidence
        number = self._context.number_of(attempt.seq)
        self._notify(f"task {number} is stuck: {evidence}")
        self._stopper.stop(attempt, "stuck", signal.SIGTERM)

    def _abandon(self, attempt: TaskAttempt, current_time: Seconds) -> None:
        """Continue without the processes of an attempt that cannot be killed."""
        names = self._orphans.abandon(attempt)
        self._notify(
            f"task {self._context.number_of(attempt.seq)}: process {', '.join(names)} "
            "cannot be killed and keeps running"
        )
        self._has_abandoned = True
        # count it as killed: its status will not come
        if attempt.state.status is None:
            self._leaders.pop(attempt.launch.pid, None)
            attempt.state.status, attempt.state.ended = signal.SIGKILL, current_time
        self._finish(attempt)

    def _look_around(self, current_time: Seconds) -> None:
        trouble = self._journal.trouble()
        if trouble is not None:
            self._stop_launching(trouble)
        for attempt in self._running.values():
            # a copy: the watcher's thread sets processes of weigh's own aside
            orphans = tuple(attempt.state.orphans)
            silent = current_time - attempt.state.ended
            is_due = (
                attempt.state.status is not None  # its leader has ended
                and orphans
                and silent > waits.times.orphans_reported
            )
            if is_due and attempt.seq not in self._mentioned:
                self._mentioned.add(attempt.seq)
                self._notify(
                    f"task {self._context.number_of(attempt.seq)} has ended and left "
                    f"process {min(orphans)} behind: its slot waits "
                    "(--no-wait-orphans stops what is left)"
                )

    def _show(self) -> None:
        now = time.monotonic()
        if now >= self._show_at:
            self._progress.update(now, self._running.values(), self._tally)
            self._show_at = now + self._context.console.show(self._tally)

    def _pause(self) -> Seconds:
        """Return the longest time to sleep."""
        now = time.monotonic()
        wake_at = min(now + _TICK, self._stopper.wake_at, self._show_at)
        if self._options.guard:
            wake_at = min(wake_at, self._memory.due)
        if self._options.timeout is not None:
            for attempt in self._running.values():
                if attempt.state.stop is None:
                    wake_at = min(wake_at, attempt.launch.began + self._options.timeout)
        return max(0.0, wake_at - now)


def _close_output(attempt: TaskAttempt) -> tuple[Bytes, OSError | None]:
    """Close the output of an attempt; return its size, and the error if it failed."""
    try:
        return attempt.output.close(), None
    except OSError as error:
        return 0, error


def _ending_without_output(ending: AttemptEnding, fault: OSError) -> AttemptEnding:
    """Return the ending of an attempt whose output is lost: never completed."""
    lost = f"output not kept: {fault.filename or 'output'}: {fault.strerror}"
    if not ending.succeeded:
        outcome = ending.outcome or RunOutcome("failed")
        more = msgspec.structs.replace(outcome, evidence=(*outcome.evidence, lost))
        return msgspec.structs.replace(ending, outcome=more)
    return AttemptEnding("FAILED", _NOT_WRITTEN, None, RunOutcome(lost))


def _become_the_parent() -> None:
    """Prepare this process for many children: adopt orphans, collect rarely."""
    adopt_orphans()
    gc.freeze()  # no object that exists now will become garbage
    gc.set_threshold(_RARELY)
    reset_weigh_peak_memory()
