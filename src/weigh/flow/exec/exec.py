"""``weigh exec``: run the lines of a task file, each measured, none lost."""

import gc
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from weigh import __version__
from weigh.errors import StoreError, UsageError
from weigh.flow.exec.options import (
    Console,
    ExecOptions,
    Finished,
    choose_layout,
    end_at,
    find_parameters,
    planned_needs,
    temporary_folder,
    within_open_files,
)
from weigh.flow.run.channel import with_regions
from weigh.flow.run.options import RunOptions
from weigh.flow.run.progress import asked_time_left, asking, time_left
from weigh.flow.run.run import blank_record
from weigh.measure.orphans import adopt_orphans
from weigh.model.record import Job, Measurement, Record
from weigh.probe.driver import a_card_may_be_here
from weigh.runner import events as events_file
from weigh.runner import joblog_file, lock
from weigh.runner.channels import Channels
from weigh.runner.joblog_file import DONE, FAILED, WAITING, Settled
from weigh.runner.loop import Loop, Parts, Result, Rules
from weigh.runner.memory_limits import MemoryGauge
from weigh.runner.output import Output, OutputFolder, Ungrouped
from weigh.runner.progress_file import SUFFIX
from weigh.runner.progress_watch import ProgressRules, ProgressWatch
from weigh.runner.queue import Queue
from weigh.runner.recording import forget_own_peak
from weigh.runner.slots import Layout
from weigh.runner.spawn import Spawner
from weigh.runner.tally import Tally
from weigh.runner.task_source import TaskSource
from weigh.runner.watch import Watcher, Watching
from weigh.store import identity, location
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.runner.gpu_meter import GpuMeter

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


def is_asked_to_end() -> bool:
    """Return whether a signal to end has arrived."""
    return signal.sigtimedwait(handled_signals(), 0) is not None


def with_task_regions(path: str, measured: Measurement) -> Measurement:
    """Add the regions that a task's program wrote to its measurement."""
    from weigh.measure.region.channel import clock, read_channel  # noqa: PLC0415 - few tasks

    started = clock() - (time.time() - measured.started)
    ended = started + measured.usage.wall_time
    regions = read_channel(path, started=started, ended=ended)
    return with_regions(measured, regions)


def watch_progress(
    options: ExecOptions,
    files: tuple[str, str, Mapping[int, Mapping[str, str]]],
    layout: Layout,
    *,
    env: Mapping[str, str],
    notify: Callable[[str], None],
) -> ProgressWatch:
    """Return the reader of the tasks' progress.

    *files* are the run's id, its joblog and the variables that name each slot's events.
    """
    run, joblog, channels = files
    ends_at = end_at(options.time_limit, env)
    signal = check_progress(options)
    if signal is not None and ends_at is None and options.timeout is None:
        notify("no time limit is known, so no checkpoint signal: add --time-limit")
    rules = ProgressRules(
        path=joblog + SUFFIX,
        run=run,
        slots=len(layout.slots),
        notify=notify,
        ask=asking(env),
        channels={slot: next(iter(words.values())) for slot, words in channels.items()},
        patterns=options.progress_patterns,
        ends_at=ends_at,
        timeout=options.timeout,
        checkpoint_signal=signal,
        stalled_after=options.stalled_after,
        gpus=len(layout.gpus),
    )
    return ProgressWatch(rules)


def with_limit(options: ExecOptions, env: Mapping[str, str]) -> ExecOptions:
    """Fill in the job's time limit if only the scheduler knows it."""
    if options.time_limit is not None or time_left(None, env) is not None:
        return options
    left = asked_time_left(env)
    return options if left is None else replace(options, time_limit=left)


def check_progress(options: ExecOptions) -> "CheckpointSignal | None":
    """Parse the checkpoint signal, and check the progress patterns.

    Raises:
        FormatError: one of them is invalid.
    """
    if options.progress_patterns:
        from weigh.progress.reader import Reader  # noqa: PLC0415 - where given

        Reader(options.progress_patterns)
    if options.checkpoint_signal is None:
        return None
    from weigh.measure.checkpoint_signal import parse_checkpoint_signal  # noqa: PLC0415 - rarely

    return parse_checkpoint_signal(options.checkpoint_signal)


_STDIN = "-"
_MOST_CHECKED = 50  # tasks that are checked for job scripts
_SCRIPT = re.compile(r"\bsh\b|\b(?:ba|k|z)sh\b|\.(?:slurm|sbatch|sge|job)\b")
_RARELY = 20_000  # objects between collections: tasks create no reference cycles


def execute(
    task_file: str,
    options: ExecOptions,
    console: Console,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> Finished:
    """Run the tasks of *task_file* that are left to run.

    Raises:
        UsageError: the file or an option is invalid.
        FormatError: a line is not a command, or the joblog belongs to another file.
        StoreError: the joblog or the output cannot be written.
    """
    began = time.monotonic()
    check_progress(options)
    options = with_limit(options, env)
    with ExitStack() as opened:
        source = TaskSource(task_file)
        opened.callback(source.close)
        layout, warning = within_open_files(
            choose_layout(options, env, opened), len(source)
        )
        if warning is not None:
            console.notify(warning)
        joblog_path = _joblog_path(task_file, options)
        job = blank_record([], RunOptions(), env).job
        me = lock.Holder(
            identity.this_machine(),
            identity.process(os.getpid()),
            None if job is None else job.id,
        )
        held = lock.acquire(joblog_path + lock.SUFFIX, me, notify=console.notify)
        opened.callback(held.release)
        run = _Run(source, options, console, layout=layout, me=me)
        _warn_of_job_scripts(source, console, cwd, env)
        mask = block_signals(opened)
        run.open_files(joblog_path, opened)
        queue, tally = run.queue_what_is_left()
        surroundings = Surroundings(cwd, env, mask, held, opened)
        result = run.run(queue, tally, surroundings)
        return run.finished(result, began)


def plan(task_file: str, options: ExecOptions) -> tuple[list[tuple[int, str]], int]:
    """Return (number, command) of the tasks that would run, and the total number.

    Raises:
        UsageError, FormatError: as for :func:`execute`.
    """
    source = TaskSource(task_file)
    path = _joblog_path(task_file, options)
    settled = Settled(bytearray(len(source)))
    if options.resume and os.path.exists(path):
        settled = joblog_file.settle_by(path, source, options.mask)
    order = _order(settled, options)
    texts = [(seq, options.mask.line(os.fsdecode(source.text(seq)))) for seq in order]
    source.close()
    return texts, len(source)


def _warn_of_job_scripts(
    source: TaskSource, console: Console, cwd: str, env: Mapping[str, str]
) -> None:
    """Warn about tasks that are job scripts, whose directives are not read here."""
    first = range(1, min(len(source), _MOST_CHECKED) + 1)
    lines = [os.fsdecode(source.text(seq)) for seq in first]
    if not any(_SCRIPT.search(line) for line in lines):
        return
    from weigh.flow.job_scripts import lost_directives  # noqa: PLC0415 - start-up time

    why = lost_directives(lines, cwd=cwd, path=env.get("PATH"))
    if why is not None:
        console.notify(why)


class Surroundings(NamedTuple):
    """Where a run takes place; *opened* closes what it opens."""

    cwd: str
    env: Mapping[str, str]
    mask: frozenset[int]
    held: lock.Lock
    opened: ExitStack


class _Run:
    """One run: its files, its past, and the loop over what is left."""

    def __init__(
        self,
        source: TaskSource,
        options: ExecOptions,
        console: Console,
        *,
        layout: Layout,
        me: lock.Holder,
    ) -> None:
        self.id = identity.new_id()
        self._source = source
        self._options = options
        self._console = console
        self._layout = layout
        self._me = me
        self._warnings: list[str] = []
        self._output: Output
        self._attempts: dict[int, int] = {}

    def open_files(self, joblog: str, opened: ExitStack) -> None:
        """Open joblog, events and output, before anything is started."""
        if not self._options.resume:
            joblog_file.put_aside(joblog)
        self._joblog = joblog_file.JoblogFile(joblog, self._options.mask)
        opened.callback(self._joblog.close)
        self._events = events_file.EventsFile(joblog + events_file.SUFFIX)
        opened.callback(self._events.close)
        self._output = self._new_output(joblog)
        opened.callback(self._output.close)

    def _new_output(self, joblog: str) -> Output:
        options = self._options
        if options.ungroup:
            return Ungrouped()
        if options.tag:
            from weigh.runner.output import Tagged  # noqa: PLC0415 - rarely

            return Tagged()
        folder = options.output or f"{joblog.removesuffix('.joblog')}.out"
        return OutputFolder(folder, self.id)

    def queue_what_is_left(self) -> tuple[Queue, Tally]:
        """Find out what is left to run, and wait_or_kill what still runs."""
        options = self._options
        settled = joblog_file.settle_by(self._joblog.path, self._source, options.mask)
        states = settled.states

        def is_left(seq: int) -> bool:
            return not 0 < seq <= len(states) or states[seq - 1] != DONE

        self._joblog.remember(self._source, settled.states)
        past = self._events.read_past(is_left)
        self._attempts = past.attempts
        if past.open_runs:
            from weigh.runner import previous_run  # noqa: PLC0415 - start-up time

            previous_run.refuse_living(past, self._me.machine, self._me.process)
            if not options.forget_survivors:
                self._wait_or_kill(past)
        if settled.moved:
            self._console.notify(
                f"{settled.moved} tasks have new numbers; their text identifies them"
            )
        order = _order(settled, options)
        failed = 0 if options.resume_failed else settled.failed
        tally = Tally(
            len(self._source),
            len(self._layout.slots),
            done=settled.done,
            failed=failed,
            earlier=settled.done + failed,
        )
        return Queue(order), tally

    def _wait_or_kill(self, past: events_file.Past) -> None:
        from weigh.runner import previous_run  # noqa: PLC0415 - start-up time

        here, kill = self._me.machine, self._options.kill_survivors
        previous_run.refuse_elsewhere(past, here, self._me.job)
        found = previous_run.find_survivors(past, here)
        if not found:
            return
        tasks = ", ".join(str(seq) for seq in sorted(set(found.values()))[:8])
        verb = "terminating" if kill else "waiting for"
        what = "1 process" if len(found) == 1 else f"{len(found)} processes"
        self._console.notify(f"{verb} {what} of an earlier run, of task {tasks}")
        over = previous_run.wait_or_kill(
            found,
            kill=kill,
            should_stop=is_asked_to_end,
            find=lambda: previous_run.find_survivors(past, here),
        )
        if not over:
            raise UsageError("interrupted while waiting for an earlier run's tasks")

    def run(self, queue: Queue, tally: Tally, around: "Surroundings") -> Result:
        """Run what is left."""
        cwd, env, mask, held, opened = around
        blank = self._blank(env)
        self._allocation = blank.allocation
        self._events.append(self._opening(blank))
        numbers = [slot.number for slot in self._layout.slots]
        channels = Channels(self.id, numbers, temporary_folder(env))
        spawner = Spawner(self.id, self._layout, mask, channels.settings())
        files = (self.id, self._joblog.path, channels.settings())
        self._progress = watch_progress(
            self._options, files, self._layout, env=env, notify=self._console.notify
        )
        adopt_orphans()
        gc.freeze()  # no object that exists now will become garbage
        gc.set_threshold(_RARELY)
        forget_own_peak()
        watcher = Watcher(
            Watching(
                run=self.id,
                interval=self._options.interval,
                slots=len(self._layout.slots),
                blank=blank,
                machine=self._me.machine,
                weigh=self._me.process,
                root=location.locate(cwd, env),
                command=lambda text: self._options.mask.words(spawner.argv(text)),
                events=self._events,
                sync=self._syncer(held),
                add_regions=_with_regions,
                hide=self._options.mask.value,
                parameters=find_parameters(self._source.name, opened),
                meter_gpus=lambda pids: self._meter_gpus(env, pids),
                progress=self._progress,
            )
        )
        watcher.begin()
        loop = Loop(
            self._parts(queue, spawner, watcher, channels, held),
            self._rules(env),
            tally,
        )
        reason: str | None = "weigh failed"
        try:
            result = loop.run(
                tuple(int(number) for number in (*handled_signals(), signal.SIGCHLD))
            )
            # the next run looks for what is still running
            reason = None if result.has_abandoned else _reason(result)
        finally:
            try:
                watcher.close()
                channels.close()
            finally:
                if reason is not None:
                    closed = events_file.Closed(self.id, time.time(), reason)
                    self._events.append(closed)
        result = self._with_joblog_restored(result)
        self._warnings += watcher.warnings
        for line in (watcher.trouble, location.note_on_store(cwd, env)):
            if line is not None:
                self._warnings.append(line)
        return result

    def _with_joblog_restored(self, result: Result) -> Result:
        """Restore the joblog a last time if it was removed or changed."""
        try:
            happened = self._joblog.restore()
        except StoreError as error:
            return msgspec.structs.replace(result, trouble=result.trouble or str(error))
        if happened is not None:
            self._warnings.append(happened)
        return result

    def finished(self, result: Result, began: Seconds) -> Finished:
        """Return the result with its files."""
        return Finished(
            result,
            self._joblog.path,
            self._events.path,
            self._output.folder,
            len(self._layout.slots),
            time.monotonic() - began,
            tuple(self._warnings),
        )

    def _parts(
        self,
        queue: Queue,
        spawner: Spawner,
        watcher: Watcher,
        channels: Channels,
        held: lock.Lock,
    ) -> Parts:
        return Parts(
            run=self.id,
            source=self._source,
            queue=queue,
            layout=self._layout,
            spawner=spawner,
            watcher=watcher,
            joblog=self._joblog,
            events=self._events,
            held=held,
            output=self._output,
            channels=channels,
            gauge=self._gauge(),
            progress=self._progress,
            attempts=self._attempts,
            plan_of=planned_needs(self._source.name, len(self._source)),
            notify=self._console.notify,
            show=self._console.show,
        )

    def _meter_gpus(
        self, env: Mapping[str, str], pids: Callable[[], list[int]]
    ) -> "GpuMeter | None":
        """Start measuring our GPUs if there may be any: most machines have none."""
        if not a_card_may_be_here(env):
            return None
        from weigh.probe.nvml import NvmlProbe  # noqa: PLC0415 - only with GPUs
        from weigh.runner.gpu_meter import GpuMeter  # noqa: PLC0415 - only with GPUs

        return GpuMeter(
            lambda: NvmlProbe(os.environ),
            pids,
            names=self._layout.gpus,
            env=env,
            interval=self._options.interval,
        )

    def _gauge(self) -> MemoryGauge:
        """Return the memory limits; granted memory counts if no group enforces it."""
        gauge = MemoryGauge(self._options.memory)
        granted = None if self._allocation is None else self._allocation.memory
        if self._options.memory is None and granted and not gauge.is_grouped:
            return MemoryGauge(granted)
        return gauge

    def _rules(self, env: Mapping[str, str]) -> Rules:
        chosen = self._options
        return Rules(
            retries=chosen.retries,
            oom_retries=chosen.oom_retries,
            halt=chosen.halt,
            timeout=chosen.timeout,
            grace=chosen.grace,
            guard=chosen.guard,
            wait_orphans=chosen.wait_orphans,
            end_at=end_at(chosen.time_limit, env),
        )

    def _blank(self, env: Mapping[str, str]) -> Record:
        blank = blank_record([], RunOptions(interval=self._options.interval), env)
        return msgspec.structs.replace(blank, job=blank.job or Job(self.id))

    def _opening(self, blank: Record) -> events_file.Opened:
        return events_file.Opened(
            run=self.id,
            time=round(time.time(), 3),
            machine=self._me.machine,
            process=self._me.process,
            task_file=self._source.name,
            tasks=len(self._source),
            weigh=__version__,
            job=blank.job.id if blank.job and blank.job.id != self.id else None,
        )

    def _syncer(self, held: lock.Lock) -> Callable[[], None]:
        """Return what runs once per second: flush, keep the lock, heartbeat."""
        touched = time.monotonic()

        def sync() -> None:
            nonlocal touched
            held.keep()
            self._events.restore()
            self._joblog.sync()
            if time.monotonic() - touched >= lock.SIGN_OF_LIFE:
                touched = time.monotonic()
                held.touch()

        return sync


def _with_regions(path: str, measured: Measurement) -> Measurement:
    from weigh.flow.exec.exec import with_task_regions  # noqa: PLC0415 - few tasks

    return with_task_regions(path, measured)


def _order(settled: Settled, options: ExecOptions) -> Iterator[int]:
    """Return the numbers of the tasks left to run, in their order."""
    wanted = {WAITING, FAILED} if options.resume_failed else {WAITING}
    left = (seq for seq, state in enumerate(settled.states, 1) if state in wanted)
    if not options.shuffle:
        return left
    import random  # noqa: PLC0415 - start-up time

    shuffled = list(left)
    random.Random(options.seed).shuffle(shuffled)  # noqa: S311 - no secret
    return iter(shuffled)


def _joblog_path(task_file: str, options: ExecOptions) -> str:
    if options.joblog is not None:
        return options.joblog
    if task_file == _STDIN:
        raise UsageError("tasks from standard input need --joblog FILE")
    return f"{task_file}.joblog"


def _reason(result: Result) -> str:
    if result.signal is not None:
        return f"signal {result.signal}"
    return result.trouble or result.halted or "all tasks ended"
