"""Build a run of ``weigh exec``: its output, its past, its parts, and its loop.

The verb describes the machine and the job in a :class:`RunContext`;
:meth:`TaskFileRun.run` connects the parts of the runner with each other.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from weigh._version import __version__
from weigh.joblog import output_folder, output_name
from weigh.lazy_modules import lazy_module
from weigh.model.progress import ExecReport, FailedTask
from weigh.progress.eta import TaskTally
from weigh.runner import events, orphans
from weigh.runner.attempt import TasksOutput
from weigh.runner.journal import FAILED, WAITING, SettledTasks
from weigh.runner.loop import MOST_FAILURES, RunResult, TaskLoop
from weigh.runner.run_context import ExecOptions, RunContext
from weigh.runner.slots import TurnQueue
from weigh.store import location
from weigh.units import Seconds, count_with_noun

if TYPE_CHECKING:
    from weigh.runner import shared_queue
    from weigh.runner.shared_queue import OwnClaims, SharedQueue, UntakenTasks
else:  # each is imported when it is first used
    shared_queue = lazy_module("weigh.runner.shared_queue")

_WAITED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGXCPU,
    }
)


def handled_signals() -> frozenset[signal.Signals]:
    """Return the signals to handle: those not ignored when weigh was started."""
    return frozenset(
        number for number in _WAITED if signal.getsignal(number) != signal.SIG_IGN
    )


def block_signals(opened: ExitStack) -> frozenset[int]:
    """Block the signals that the loop waits for; return the previous mask."""
    # with an inherited SIG_IGN the kernel would discard exit statuses
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, handled_signals() | {signal.SIGCHLD}
    )
    opened.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    return frozenset(before)


def pending_signal() -> int | None:
    """Take a signal to end that has arrived; return None if there is none."""
    info = signal.sigtimedwait(handled_signals(), 0)
    return None if info is None else info.si_signo


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that ended: how, what is reported of it, and what follows from it.

    ``untaken`` are tasks of a shared queue for which time was too short.
    """

    result: RunResult
    report: ExecReport
    warnings: tuple[str, ...]
    untaken: "UntakenTasks | None" = None
    then: bytes | None = None  # the command of the file when all are done


class TaskFileRun:
    """One run: its output, what earlier runs left, and the loop over the rest."""

    def __init__(self, context: RunContext, opened: ExitStack, typed_name: str) -> None:
        """Open the output before anything is started; the file is *typed_name*.

        Raises:
            StoreError: it cannot be written.
        """
        self._context = context
        self._typed_name = typed_name
        self._shared: SharedQueue | None = None
        self._failed_before: tuple[FailedTask, ...] = ()
        self._folder = context.options.output or output_folder(context.journal.path)
        self._output = TasksOutput(None if context.options.ungroup else self._folder)
        opened.callback(self._output.close)

    def run(self, began: Seconds) -> FinishedRun:
        """Run the tasks that are left, after those of earlier runs have ended.

        The whole run began at *began*, on the monotonic clock.

        Raises:
            FormatError: the joblog belongs to another task file.
            UsageError: tasks of an earlier run may be alive.
        """
        context, journal = self._context, self._context.journal
        settled, past = journal.read_past(context.source)
        signal_number = self._outlast_earlier_runs(past)
        queue, tally = self._queue_what_is_left(settled)
        if tally.failed:
            earlier = self._failed_in_earlier_runs(settled, past)
            self._failed_before = tuple(islice(earlier, MOST_FAILURES))
        if signal_number is not None:
            return self._finished(RunResult(tally, signal_number), (), began)
        opening = events.RunOpened(
            run=context.id,
            time=round(time.time(), 3),
            machine=context.journal.holder.machine,
            process=context.journal.holder.process,
            task_file=context.source.name,
            tasks=len(context.source),
            weigh=__version__,
            job=context.journal.holder.job,
            afresh=not context.options.resume,
        )
        journal.append_events(opening)
        loop = TaskLoop(context, self._output, queue, tally, past.attempts)
        reason: str | None = "weigh failed"  # None: the run is left open in its events
        try:
            result = loop.run(
                tuple(int(number) for number in (*handled_signals(), signal.SIGCHLD))
            )
            # the next run looks for what is still running
            reason = None if result.has_abandoned else _end_reason(result)
        finally:
            try:
                warnings = loop.close()
            finally:
                if reason is not None:
                    journal.sync()  # what the queue's other runs read after it
                    journal.append_events(
                        events.RunClosed(context.id, time.time(), reason)
                    )
        if result.signal is not None:
            # typed again as the run ended, it would cut off what is printed about it
            while pending_signal() is not None:
                continue
        return self._finished(result, warnings, began)

    def _finished(
        self, result: RunResult, warnings: tuple[str, ...], began: Seconds
    ) -> FinishedRun:
        """Return the result with its files."""
        context, journal, queue = self._context, self._context.journal, self._shared
        tally, folder = result.tally, self._output.folder
        untaken = None if queue is None else queue.untaken
        report = ExecReport(
            task_file=self._typed_name,
            joblog=journal.path,
            events=journal.events_path,
            # the folder is made with the first output file
            output=folder if folder and os.path.isdir(folder) else None,
            tasks=tally.tasks,
            done=tally.done,
            failed=tally.failed,
            interrupted=tally.interrupted,
            left=tally.tasks - tally.done - tally.failed,
            earlier=tally.earlier,
            retried=tally.again,
            wall_time=round(time.monotonic() - began, 3),
            slots=len(context.layout.slots),
            # of this run first: those before it were shown then
            failures=(*result.failures, *self._failed_before)[:MOST_FAILURES],
            signal=result.signal,
            trouble=result.trouble,
            halted=result.halted,
            untaken=None if untaken is None else untaken.words,
            queue=None if queue is None else queue.claims.folder,
            unsure=() if queue is None else self._hosts_in_doubt(queue),
            links=None if queue is None else queue.claims.links,
        )
        note = location.note_on_store(context.cwd, context.env)
        return FinishedRun(
            result, report, tuple(filter(None, [*warnings, note])), untaken
        )

    def _failed_in_earlier_runs(
        self, settled: SettledTasks, past: events.PastRuns
    ) -> Iterator[FailedTask]:
        """Yield the tasks that failed before and do not run again."""
        for seq, state in enumerate(settled.states, 1):
            if state != FAILED:
                continue
            number = self._context.number_of(seq)
            # where numbers have moved, the events of one are about another task
            end = None if settled.moved else past.ended.get(seq)
            if end is None:
                yield FailedTask(number, "failed in an earlier run")
                continue
            # without --ungroup, perhaps
            path = f"{self._folder}/{output_name(number, end.attempt)}"
            reason = f"{end.reason or 'failed'}, in an earlier run"
            yield FailedTask(number, reason, path if os.path.exists(path) else None)

    def _queue_what_is_left(self, settled: SettledTasks) -> tuple[TurnQueue, TaskTally]:
        """Return the tasks left to run, and the counts to begin with."""
        context, options = self._context, self._context.options
        if settled.moved:
            context.console.notify(
                f"{count_with_noun(settled.moved, 'task')} found again by text, "
                "with a new number"
            )
        shared = context.shared
        # those that run again have not failed yet
        failed = settled.failed if shared or not options.resume_failed else 0
        ended = settled.done + failed
        tally = TaskTally(
            # of the queue's tasks the run counts what it claims, and no others
            ended if shared else len(options.only) or len(context.source),
            len(context.layout.slots),
            done=settled.done,
            failed=failed,
            earlier=ended,
        )
        if shared is None:
            queue = TurnQueue(left_to_run(settled, options))
        else:
            claims = self._claims(shared.folder)
            claims.enter()
            run = shared_queue.PullingRun(context, tally, claims.owner)
            queue = self._shared = shared_queue.SharedQueue(claims, shared, run)
        return queue, tally

    def _claims(self, queue_folder: str) -> "OwnClaims":
        """Return the claims of a queue, with this run among its owners."""
        holder = self._context.journal.holder
        joblog = os.path.abspath(self._context.journal.path)
        folder = os.path.abspath(queue_folder)
        owner = shared_queue.QueueOwner(
            name=os.path.basename(joblog).removesuffix(".joblog"),
            joblog=os.path.relpath(joblog, folder),
            run=self._context.id,
            machine=holder.machine,
            process=holder.process,
            folder=folder,
            job=holder.job,
        )
        return shared_queue.OwnClaims(folder, owner)

    def _outlast_earlier_runs(self, past_runs: events.PastRuns) -> int | None:
        """Wait for tasks of killed runs; return the signal that ended the wait.

        Raises:
            UsageError: such a run, or tasks of it elsewhere, may be alive.
        """
        context, holder = self._context, self._context.journal.holder
        if past_runs.open_runs:
            orphans.refuse_living(past_runs, holder.machine, holder.process)
        if not past_runs.open_runs or context.options.forget_survivors:
            return None
        kill = context.options.kill_survivors
        # those on other machines can be neither seen nor waited for
        orphans.refuse_elsewhere(past_runs, holder.machine, holder.job)
        found = orphans.find_survivors(past_runs, holder.machine)
        if found:
            numbers = sorted({context.number_of(seq) for seq in found.values()})
            tasks = ", ".join(map(str, numbers[:8]))
            verb = "terminating" if kill else "waiting for"
            what = "1 process" if len(found) == 1 else f"{len(found)} processes"
            context.console.notify(f"{verb} {what} of an earlier run, of task {tasks}")
        return orphans.outlast_survivors(
            past_runs, holder.machine, pending_signal, may_kill=kill
        )

    def _hosts_in_doubt(self, queue: "SharedQueue") -> tuple[str, ...]:
        """Return hosts of runs that may live, as neither they nor a job is seen."""
        here = self._context.journal.holder.machine
        hosts = (
            owner.machine.host
            for owner in queue.unsure
            if owner.job is None and not here.sees_processes_of(owner.machine)
        )
        return tuple(dict.fromkeys(hosts))


def left_to_run(settled: SettledTasks, options: ExecOptions) -> Iterator[int]:
    """Return the numbers of the tasks left to run, in their order."""
    if options.only:
        return iter(options.only)
    wanted = {WAITING, FAILED} if options.resume_failed else {WAITING}
    return (seq for seq, state in enumerate(settled.states, 1) if state in wanted)


def _end_reason(result: RunResult) -> str:
    if result.signal is not None:
        return f"signal {result.signal}"
    return result.trouble or result.halted or "all tasks ended"
