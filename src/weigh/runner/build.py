"""Build a run of ``weigh exec``: its options, its files, its past, and its loop.

The verb describes the machine and the job; :func:`build_exec_run` opens the run's files
and :meth:`TaskFileRun.run` connects the parts of the runner with each other.
"""

import gc
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import StoreError, UsageError
from weigh.lazy_modules import lazy_module
from weigh.measure.orphans import adopt_orphans
from weigh.model.mask import SecretMask
from weigh.model.record import Record, RecordedJob, RunMeasurement
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.regular_file import only_regular
from weigh.runner import events as events_file
from weigh.runner import joblog_file, lock
from weigh.runner.channels import SlotChannels
from weigh.runner.halt import HaltRule
from weigh.runner.joblog_file import DONE, FAILED, WAITING, SettledTasks
from weigh.runner.loop import LoopParts, RunResult, RunRules, TaskLoop
from weigh.runner.memory_limits import MachineMemoryGauge
from weigh.runner.output import OutputFolder, TasksOutput, UngroupedOutput
from weigh.runner.progress_file import SUFFIX
from weigh.runner.progress_watch import ProgressRules, ProgressWatch
from weigh.runner.queue import TurnQueue
from weigh.runner.recording import reset_weigh_peak_memory
from weigh.runner.slots import NO_RESERVATION, SlotLayout, TaskReservation
from weigh.runner.spawn import AttemptSpawner
from weigh.runner.tally import TaskTally
from weigh.runner.task_source import TaskSource
from weigh.runner.watch import AttemptWatcher, WatcherSettings
from weigh.store import identity, location
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    import random

    from weigh.measure import checkpoint_signal as measure_checkpoint_signal
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.progress import reader
    from weigh.runner import gpu_meter, previous_run, shared_queue
    from weigh.runner.gpu_meter import SlotGpuMeter
    from weigh.runner.shared_queue import (
        OwnClaims,
        QueueOwner,
        SharedQueue,
        UntakenTasks,
    )
else:  # each is imported when it is first used
    random = lazy_module("random")
    measure_checkpoint_signal = lazy_module("weigh.measure.checkpoint_signal")
    reader = lazy_module("weigh.progress.reader")
    gpu_meter = lazy_module("weigh.runner.gpu_meter")
    previous_run = lazy_module("weigh.runner.previous_run")
    shared_queue = lazy_module("weigh.runner.shared_queue")

_RARELY = 20_000  # objects between collections: tasks create no reference cycles
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


def is_stopping() -> bool:
    """Return whether a signal to end has arrived."""
    return signal.sigtimedwait(handled_signals(), 0) is not None


class ExecOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options. Times are in seconds; ``jobs`` None: one per CPU or GPU.

    ``only`` are the tasks to run, in this order; without it, all that are left. A task
    that writes more than ``most_output`` is stopped. ``variables`` are added to the
    environment of the tasks.
    """

    jobs: int | None = None
    per_gpu: int | None = None  # tasks at once on each GPU
    gpus: int | None = None  # how many to use; None: all that are granted
    joblog: str | None = None
    output: str | None = None
    ungroup: bool = False
    resume: bool = True
    resume_failed: bool = False
    retries: int = 1  # per task, the first attempt included
    oom_retries: int = 3
    halt: HaltRule = HaltRule()
    timeout: Seconds | None = None
    grace: Seconds = 30.0
    time_limit: Seconds | None = None
    # of all tasks together; None: what the job or the machine has
    memory: Bytes | None = None
    guard: bool = True
    shuffle: bool = False
    pin: bool = True
    wait_orphans: bool = True
    interval: Seconds = 0.05  # between samples
    kill_survivors: bool = False
    forget_survivors: bool = False
    pull: str | None = None  # directory of the queue; None: tasks come from the file
    gone: tuple[str, ...] = ()  # hosts that have failed, as the user states
    progress_patterns: tuple[str, ...] = ()
    checkpoint_signal: str | None = None
    stalled_after: Seconds = 600.0  # without work or output, then a warning
    stop_nan: bool = False
    end_idle: Seconds | None = None  # without a busy GPU; None: however long
    only: tuple[int, ...] = ()
    most_output: Bytes | None = None
    variables: dict[str, str] = {}
    mask: SecretMask = SecretMask()


class RunConsole(msgspec.Struct, frozen=True):
    """Output to the user: ``notify`` prints a line, ``show`` displays the progress."""

    notify: Callable[[str], None]
    show: Callable[[TaskTally], Seconds]  # returns the seconds until it is due again


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that ended, and where its files are."""

    result: RunResult
    joblog: str
    events: str
    output: str | None
    slots: int
    wall_time: Seconds  # of the whole run
    warnings: tuple[str, ...]
    pulled: "PulledUnits | None" = None


class PulledUnits(msgspec.Struct, frozen=True):
    """What a run did with a shared queue.

    ``links`` and ``listings`` are how often it linked a claim and listed the directory.
    ``unsure`` are hosts of runs that have tasks without an end, and may be alive;
    ``untaken`` are the tasks for which time was too short.
    """

    folder: str
    links: int
    listings: int
    unsure: tuple[str, ...]
    untaken: "UntakenTasks | None" = None


class PulledQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue that this run pulls from, and what the verb knows about it.

    ``folder`` is its directory. ``units``, ``elements``, ``kind_of`` and
    ``time_to_start`` are as in :class:`~weigh.runner.shared_queue.PullSettings`;
    ``number_of`` returns a task's number in the plan. ``room`` is what the plan has for
    all tasks that run at once. ``gone`` returns the names of the given runs that have
    certainly ended.
    """

    folder: str
    units: Sequence[Sequence[int]]
    elements: int
    kind_of: Callable[[int], int]
    number_of: Callable[[int], int]
    time_to_start: Callable[[int], Seconds | None]
    room: TaskReservation
    gone: Callable[[Collection["QueueOwner"]], Collection[str]]


class RunMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes place, and what the verb knows about it.

    ``held`` is the lock on the joblog by this process, ``me``; ``mask`` are the signals
    that tasks find blocked; ``blank`` is the record of any attempt before it starts.
    ``ends_at`` returns the time limit of weigh itself, on the monotonic clock. ``ask``
    writes a time limit as an option of the scheduler. ``add_regions`` adds what a
    program wrote to its file of regions. ``parameters`` returns those of a task, by its
    number and text; ``plan_of`` returns a task's planned need, ``number_of`` the number
    that users know it by: its place in the whole task file. ``shared`` is the queue to
    pull from, if it is not the task file's own. ``variables`` are added to the
    environment of the tasks.
    """

    cwd: str
    env: Mapping[str, str]
    version: str
    me: lock.JoblogHolder
    held: lock.JoblogLock
    layout: SlotLayout
    mask: frozenset[int]
    blank: Record
    temporary: Sequence[str]
    ends_at: Callable[[], Seconds | None]
    ask: Callable[[Seconds], str]
    add_regions: Callable[[str, RunMeasurement], RunMeasurement]
    parameters: Callable[[int, str], dict[str, int | float | str]]
    plan_of: Callable[[int], TaskReservation]
    number_of: Callable[[int], int] = int
    variables: Mapping[str, str] = {}
    shared: PulledQueue | None = None


def build_exec_run(
    options: ExecOptions,
    machine: RunMachine,
    tasks: tuple[TaskSource, str],
    console: RunConsole,
    opened: ExitStack,
) -> "TaskFileRun":
    """Return a run of *tasks*, the task file and its joblog, with its files open.

    Raises:
        FormatError: the joblog or the events file is not one.
        UsageError: another process writes them.
        StoreError: they or the output cannot be written.
    """
    source, joblog = tasks
    run = TaskFileRun(options, machine, source, console)
    run.open_files(joblog, opened)
    return run


def _refuse_lost_joblog(joblog_path: str) -> None:
    """Refuse to run tasks again that ended by the events of a joblog that is gone.

    Raises:
        UsageError: some did.
    """
    path = joblog_path + events_file.SUFFIX
    ended = events_file.ended_in_events(path)
    if ended:
        noun = "1 task" if len(ended) == 1 else f"{len(ended):,} tasks"
        raise UsageError(
            f"{joblog_path} is gone, but by {path} {noun} ended: put it back, or "
            "remove "
            "both to run all again"
        )


class TaskFileRun:
    """One run: its files, what earlier runs left, and the loop over the rest."""

    def __init__(
        self,
        options: ExecOptions,
        machine: RunMachine,
        source: TaskSource,
        console: RunConsole,
    ) -> None:
        self.id = identity.new_id()
        self._options = options
        self._machine = machine
        self._source = source
        self._console = console
        self._warnings: list[str] = []
        self._output: TasksOutput
        # by task number, also those of earlier runs
        self._attempts: dict[int, int] = {}
        self._ends_at: Seconds | None = None  # on the monotonic clock; None: no limit
        self._shared: SharedQueue | None = None

    def open_files(self, joblog_path: str, opened: ExitStack) -> None:
        """Open joblog, events and output, before anything is started."""
        # before the joblog is opened, which creates it
        if not self._options.resume:
            joblog_file.put_aside(joblog_path)
        elif not os.path.exists(joblog_path):
            _refuse_lost_joblog(joblog_path)
        self._joblog = joblog_file.JoblogFile(joblog_path, self._options.mask)
        opened.callback(self._joblog.close)
        self._events = events_file.EventsFile(joblog_path + events_file.SUFFIX)
        opened.callback(self._events.close)
        self._output = self._new_output(joblog_path)
        opened.callback(self._output.close)

    def _new_output(self, joblog_path: str) -> TasksOutput:
        options = self._options
        if options.ungroup:
            return UngroupedOutput()
        folder = options.output or f"{joblog_path.removesuffix('.joblog')}.out"
        return OutputFolder(folder, self.id)

    def _queue_what_is_left(self) -> tuple[TurnQueue, TaskTally]:
        """Return the tasks left to run, once processes of earlier runs have ended."""
        options = self._options
        settled = joblog_file.settle_by(self._joblog.path, self._source, options.mask)
        states = settled.states

        # attempts are counted only of tasks that may run, to save memory
        def is_left(task_number: int) -> bool:
            return not 0 < task_number <= len(states) or states[task_number - 1] != DONE

        past = self._events.read_past(is_left)
        self._attempts = past.attempts
        if past.open_runs:
            previous_run.refuse_living(
                past, self._machine.me.machine, self._machine.me.process
            )
            if not options.forget_survivors:
                self._wait_or_kill(past)
        if settled.moved:
            self._console.notify(
                f"{settled.moved} tasks have new numbers; their text identifies them"
            )
        shared = self._machine.shared
        if shared is not None:
            return self._shared_queue(shared, settled)
        order = left_to_run(settled, options)
        # those that run again have not failed yet
        failed = 0 if options.resume_failed else settled.failed
        tally = TaskTally(
            len(options.only) or len(self._source),
            len(self._machine.layout.slots),
            done=settled.done,
            failed=failed,
            earlier=settled.done + failed,
        )
        return TurnQueue(order), tally

    def _shared_queue(
        self, shared: PulledQueue, settled: SettledTasks
    ) -> tuple[TurnQueue, TaskTally]:
        """Return the queue that several runs pull from; count only what is ours."""
        ours = settled.done + settled.failed
        # of the queue's tasks the run counts what it claims, and no others
        tally = TaskTally(
            ours,
            len(self._machine.layout.slots),
            done=settled.done,
            failed=settled.failed,
            earlier=ours,
        )

        def taken(tasks: int) -> None:
            tally.tasks += tasks

        def ended(owner: shared_queue.QueueOwner) -> dict[int, bool]:
            path = os.path.join(shared.folder, owner.joblog)
            try:
                return shared_queue.ended_tasks(path)
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from error

        def left(owner: shared_queue.QueueOwner) -> dict[int, events_file.TaskLeft]:
            path = os.path.join(shared.folder, owner.joblog) + events_file.SUFFIX
            try:
                with open(path, "rb", opener=only_regular) as file:
                    return events_file.read_left(file)
            except OSError:
                return {}

        def time_left() -> Seconds | None:
            if self._ends_at is None:
                return None
            return self._ends_at - self._options.grace - time.monotonic()

        claims = self._claims(shared)
        claims.enter()
        element = claims.owner.element
        pulling = shared_queue.PullSettings(
            units=shared.units,
            elements=shared.elements,
            # any number that differs between runs by hand
            place=sum(claims.owner.name.encode()) if element is None else element,
            kind_of=shared.kind_of,
            alike=shared.room == NO_RESERVATION,
            time_to_start=shared.time_to_start,
            time_left=time_left,
            gone=shared.gone,
            sync=self._joblog.sync,
            ended=ended,
            left=left,
            choose=random.choice,
            taken=taken,
        )
        self._shared = shared_queue.SharedQueue(claims, pulling)
        return self._shared, tally

    def _claims(self, shared: PulledQueue) -> "OwnClaims":
        """Return the claims of a queue, with this run among its owners."""
        me, job = self._machine.me, self._machine.blank.job
        joblog = os.path.abspath(self._joblog.path)
        folder = os.path.abspath(shared.folder)
        owner = shared_queue.QueueOwner(
            name=os.path.basename(joblog).removesuffix(".joblog"),
            joblog=os.path.relpath(joblog, folder),
            run=self.id,
            machine=me.machine,
            process=me.process,
            folder=folder,
            job=None if job is None else job.id,
        )
        return shared_queue.OwnClaims(folder, owner)

    def _wait_or_kill(self, past_runs: events_file.PastRuns) -> None:
        here, kill = self._machine.me.machine, self._options.kill_survivors
        # those on other machines can be neither seen nor waited for
        previous_run.refuse_elsewhere(past_runs, here, self._machine.me.job)
        found = previous_run.find_survivors(past_runs, here)
        if not found:
            return
        numbers = sorted({self._machine.number_of(seq) for seq in found.values()})
        tasks = ", ".join(map(str, numbers[:8]))
        verb = "terminating" if kill else "waiting for"
        what = "1 process" if len(found) == 1 else f"{len(found)} processes"
        self._console.notify(f"{verb} {what} of an earlier run, of task {tasks}")
        over = previous_run.wait_or_kill(
            found,
            may_kill=kill,
            should_stop=is_stopping,
            find=lambda: previous_run.find_survivors(past_runs, here),
        )
        if not over:
            raise UsageError("interrupted while waiting for an earlier run's tasks")

    def run(self) -> RunResult:
        """Run the tasks that are left, after those of earlier runs have ended."""
        machine = self._machine
        queue, tally = self._queue_what_is_left()
        self._ends_at = machine.ends_at()
        job = machine.blank.job
        self._events.append(self._opening(job))
        # outside of a job the run's own id keeps its records together
        blank = msgspec.structs.replace(machine.blank, job=job or RecordedJob(self.id))
        numbers = [slot.number for slot in machine.layout.slots]
        channels = SlotChannels(self.id, numbers, machine.temporary)
        settings = channels.settings()
        variables = {
            number: {**settings.get(number, {}), **machine.variables}
            for number in numbers
        }
        spawner = AttemptSpawner(
            self.id, machine.layout, machine.mask, variables, self._memory_limit()
        )
        progress = self._watch_progress(settings)
        # before the watcher reads weigh's own peak, which this resets
        _become_the_parent()
        watcher = AttemptWatcher(self._watching(blank, spawner, progress))
        watcher.begin()
        parts = self._parts(queue, spawner, watcher, channels, progress)
        loop = TaskLoop(parts, self._rules(), tally)
        reason: str | None = "weigh failed"  # None: the run is left open in its events
        try:
            result = loop.run(
                tuple(int(number) for number in (*handled_signals(), signal.SIGCHLD))
            )
            # the next run looks for what is still running
            reason = None if result.has_abandoned else _end_reason(result)
        finally:
            try:
                watcher.close()
                channels.close()
            finally:
                if reason is not None:
                    self._joblog.sync()  # what the queue's other runs read after it
                    closed = events_file.RunClosed(self.id, time.time(), reason)
                    self._events.append(closed)
        result = self._with_joblog_restored(result)
        self._warnings += watcher.warnings
        for line in (watcher.trouble, location.note_on_store(machine.cwd, machine.env)):
            if line is not None:
                self._warnings.append(line)
        return result

    def _watching(
        self,
        unfinished_record: Record,
        spawner: AttemptSpawner,
        progress: ProgressWatch,
    ) -> WatcherSettings:
        machine, mask = self._machine, self._options.mask
        return WatcherSettings(
            run=self.id,
            interval=self._options.interval,
            slots=len(machine.layout.slots),
            blank=unfinished_record,
            machine=machine.me.machine,
            weigh=machine.me.process,
            root=location.locate_store(machine.cwd, machine.env),
            # records are kept and shown to others, task files are not
            command=lambda text: mask.words(spawner.argv(text)),
            events=self._events,
            sync=self._syncer(),
            add_regions=machine.add_regions,
            hide=mask.value,
            parameters=machine.parameters,
            meter_gpus=self._meter_gpus,
            progress=progress,
            number_of=machine.number_of,
            env=machine.env,
        )

    def _with_joblog_restored(self, result: RunResult) -> RunResult:
        """Restore the joblog a last time if it was removed or changed."""
        try:
            happened = self._joblog.restore()
        except StoreError as error:
            return msgspec.structs.replace(result, trouble=result.trouble or str(error))
        if happened is not None:
            self._warnings.append(happened)
        return result

    def finished(self, result: RunResult, began: Seconds) -> FinishedRun:
        """Return the result with its files; the run began at *began*."""
        return FinishedRun(
            result,
            self._joblog.path,
            self._events.path,
            self._output.folder,
            len(self._machine.layout.slots),
            time.monotonic() - began,
            tuple(self._warnings),
            None if self._shared is None else self._pulled(self._shared),
        )

    def _pulled(self, queue: "SharedQueue") -> PulledUnits:
        return PulledUnits(
            queue.claims.folder,
            queue.claims.links,
            queue.claims.listings,
            tuple(
                dict.fromkeys(
                    o.machine.host for o in queue.unsure if self._is_hidden(o)
                )
            ),
            queue.untaken,
        )

    def _is_hidden(self, owner: "QueueOwner") -> bool:
        """Return whether neither this machine nor a scheduler knows if a run lives."""
        here = self._machine.me.machine
        return owner.job is None and not here.sees_processes_of(owner.machine)

    def _watch_progress(
        self, channels: Mapping[int, Mapping[str, str]]
    ) -> ProgressWatch:
        """Return the reader of the tasks' progress.

        *channels* are the variables that name the event file of each slot.
        """
        options, layout = self._options, self._machine.layout
        checkpoint = checkpoint_signal(options)
        # the signal is sent so many seconds before a limit
        no_limit = self._ends_at is None and options.timeout is None
        if checkpoint is not None and no_limit:
            self._console.notify(
                "no time limit is known, so no checkpoint signal: add --time-limit"
            )
        rules = ProgressRules(
            path=self._joblog.path + SUFFIX,
            run=self.id,
            slots=len(layout.slots),
            notify=self._console.notify,
            number_of=self._machine.number_of,
            ask=self._machine.ask,
            # each slot has one variable, whose value is the path
            channels={slot: next(iter(one.values())) for slot, one in channels.items()},
            patterns=options.progress_patterns,
            ends_at=self._ends_at,
            timeout=options.timeout,
            checkpoint_signal=checkpoint,
            stalled_after=options.stalled_after,
            gpus=len(layout.gpus),
            stop_nan=options.stop_nan,
            end_idle=options.end_idle,
            most_output=options.most_output,
        )
        return ProgressWatch(rules)

    def _parts(
        self,
        queue: TurnQueue,
        spawner: AttemptSpawner,
        watcher: AttemptWatcher,
        channels: SlotChannels,
        progress: ProgressWatch,
    ) -> LoopParts:
        return LoopParts(
            run=self.id,
            source=self._source,
            queue=queue,
            layout=self._machine.layout,
            spawner=spawner,
            watcher=watcher,
            joblog=self._joblog,
            events=self._events,
            held=self._machine.held,
            output=self._output,
            channels=channels,
            gauge=self._gauge(),
            progress=progress,
            attempts=self._attempts,
            plan_of=self._machine.plan_of,
            number_of=self._machine.number_of,
            room=self._room(),
            notify=self._console.notify,
            show=self._console.show,
        )

    def _room(self) -> TaskReservation:
        shared = self._machine.shared
        return NO_RESERVATION if shared is None else shared.room

    def _meter_gpus(self, pids: Callable[[], list[int]]) -> "SlotGpuMeter | None":
        """Start measuring our GPUs if there may be any: most machines have none."""
        env = self._machine.env
        if not gpu_may_be_present(env):
            return None
        return gpu_meter.SlotGpuMeter(
            lambda: open_probe(os.environ),
            pids,
            names=self._machine.layout.gpus,
            env=env,
            interval=self._options.interval,
        )

    def _gauge(self) -> MachineMemoryGauge:
        """Return the memory limits; granted memory counts if no group enforces it."""
        gauge = MachineMemoryGauge(self._options.memory)
        allocation = self._machine.blank.allocation
        granted = None if allocation is None else allocation.memory
        if self._options.memory is None and granted and not gauge.is_grouped:
            return MachineMemoryGauge(granted)
        return gauge

    def _memory_limit(self) -> Bytes | None:
        """Return the limit of all tasks together: the user's, or the job's."""
        if self._options.memory is not None:
            return self._options.memory
        allocation = self._machine.blank.allocation
        return None if allocation is None else allocation.memory

    def _rules(self) -> RunRules:
        chosen = self._options
        return RunRules(
            retries=chosen.retries,
            oom_retries=chosen.oom_retries,
            halt=chosen.halt,
            timeout=chosen.timeout,
            grace=chosen.grace,
            guard=chosen.guard,
            wait_orphans=chosen.wait_orphans,
            end_at=self._ends_at,
        )

    def _opening(self, recorded_job: RecordedJob | None) -> events_file.RunOpened:
        return events_file.RunOpened(
            run=self.id,
            time=round(time.time(), 3),
            machine=self._machine.me.machine,
            process=self._machine.me.process,
            task_file=self._source.name,
            tasks=len(self._source),
            weigh=self._machine.version,
            job=None if recorded_job is None else recorded_job.id,
        )

    def _syncer(self) -> Callable[[], None]:
        """Return what runs once per second: flush, keep the lock, heartbeat."""
        touched, held = time.monotonic(), self._machine.held

        def sync() -> None:
            nonlocal touched
            held.keep()
            self._events.restore()
            self._joblog.sync()
            if time.monotonic() - touched >= lock.SIGN_OF_LIFE:
                touched = time.monotonic()
                held.touch()

        return sync


def checkpoint_signal(options: ExecOptions) -> "CheckpointSignal | None":
    """Parse the checkpoint signal, and check the progress patterns.

    Raises:
        FormatError: one of them is invalid.
    """
    if options.progress_patterns:
        reader.RunProgressReader(options.progress_patterns)
    if options.checkpoint_signal is None:
        return None
    return measure_checkpoint_signal.parse_checkpoint_signal(options.checkpoint_signal)


def left_to_run(settled: SettledTasks, options: ExecOptions) -> Iterator[int]:
    """Return the numbers of the tasks left to run, in their order."""
    if options.only:
        return iter(options.only)
    wanted = {WAITING, FAILED} if options.resume_failed else {WAITING}
    left = (seq for seq, state in enumerate(settled.states, 1) if state in wanted)
    if not options.shuffle:
        return left
    shuffled = list(left)
    random.shuffle(shuffled)
    return iter(shuffled)


def _become_the_parent() -> None:
    """Prepare this process for many children: adopt orphans, collect rarely."""
    adopt_orphans()
    gc.freeze()  # no object that exists now will become garbage
    gc.set_threshold(_RARELY)
    reset_weigh_peak_memory()


def _end_reason(result: RunResult) -> str:
    if result.signal is not None:
        return f"signal {result.signal}"
    return result.trouble or result.halted or "all tasks ended"
