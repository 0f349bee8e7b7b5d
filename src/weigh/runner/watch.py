"""The watcher: one thread that measures every task and writes its record.

It alone owns the trackers, so they need no lock: the loop passes it attempts through a
queue as they start and as they end. A slow read of /proc, a slow disk or a slow fsync
delays this thread and never the start of a task.
"""

import os
import threading
import time
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from weigh import waits
from weigh.errors import StoreError
from weigh.lazy_modules import lazy_module
from weigh.measure.launcher import own_peak
from weigh.measure.peak import PeakTracker
from weigh.measure.watcher import (
    ONE_PROCESS,
    TreeWatcher,
    kernel_measurement,
    with_traffic,
)
from weigh.model.record import (
    MeasuringCost,
    Record,
    RecordedJob,
    RunMeasurement,
    Usage,
)
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.runner.attempt import TaskAttempt, tracker_floor
from weigh.runner.channels import remove_unneeded_file
from weigh.runner.events import AttemptEnded, AttemptStarted
from weigh.runner.memory_guard import GuardedMemory
from weigh.runner.progress_watch import ProgressWatch, SampledAttempt
from weigh.runner.retry import AttemptEnding
from weigh.runner.run_context import RunContext
from weigh.runner.spawn import AttemptSpawner
from weigh.store import checkpoint, lines, shards
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.location import locate_store, make_folder
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.runner import gpus as runner_gpus
    from weigh.runner.gpus import SlotGpuMeter
else:  # imported when it is first used
    runner_gpus = lazy_module("weigh.runner.gpus")

_TICK = 0.02  # seconds between rounds of the thread
_FIRST_LOOK = 0.005  # seconds; shorter attempts are measured by the kernel alone
_SYNC_INTERVAL = 1.0  # seconds between flushes of the joblog to the disk
_FIRST_NODES = 0.1  # seconds; shorter tasks have no launchers
_MOST_LOOKS = 16  # in a row, before the queue is read again


class AttemptWatcher:
    """The watcher thread. ``floor`` is weigh's own peak memory, in bytes.

    The loop's thread calls the public methods and reads the public attributes.
    """

    def __init__(
        self, context: RunContext, spawner: AttemptSpawner, progress: ProgressWatch
    ) -> None:
        self.floor: Bytes = own_peak()
        self.trouble: str | None = None
        self.set_aside: Callable[[int], None] = lambda _pid: None  # the loop's
        self._context = context
        self._spawner = spawner
        self._progress = progress
        # with one, a task has the machine's launchers to itself
        self._slots = len(context.layout.slots)
        self._interval = context.options.interval
        self._root = locate_store(context.cwd, context.env)
        self._batch = RecordBatch(self._root, context.journal.holder.machine)
        # outside of a job the run's own id keeps its records together
        job = context.blank.job or RecordedJob(context.id)
        self._blank = msgspec.structs.replace(context.blank, job=job)
        # events of this round, appended in one write
        self._news: list[AttemptStarted | AttemptEnded] = []
        # from the loop's thread: how an attempt ended, an orphan of it, or None
        # as it started; append and popleft of a deque are atomic
        self._queue: deque[tuple[TaskAttempt, AttemptEnding | int | None]] = deque()
        self._young: dict[str, TaskAttempt] = {}  # not yet sampled, by record
        self._watched: dict[str, SampledAttempt] = {}
        self._gpus = self._metered_gpus()
        self._closing = threading.Event()
        self._sync_at = 0.0
        self._thread = threading.Thread(target=self._run, name="weigh-watch")

    def _metered_gpus(self) -> "SlotGpuMeter | None":
        """Start measuring our GPUs if there may be any: most machines have none."""
        env = self._context.env
        if not gpu_may_be_present(env):
            return None
        return runner_gpus.SlotGpuMeter(
            lambda: open_probe(os.environ),
            self._pids,
            names=self._context.layout.gpus,
            env=env,
            interval=self._interval,
        )

    def guarded_gpus(self) -> tuple[GuardedMemory, ...]:
        """Return the memory of the measured GPUs; none without a driver."""
        meter = self._gpus
        if meter is None:
            return ()

        def guarded(name: str | None) -> GuardedMemory:
            return GuardedMemory("gpu_memory", lambda _: meter.room_of(name), name)

        return tuple(map(guarded, self._context.layout.gpus or (None,)))

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def started(self, attempt: TaskAttempt) -> None:
        """Note that an attempt has started."""
        self._queue.append((attempt, None))

    def left(self, attempt: TaskAttempt, orphan: int) -> None:
        """Note an orphan: a process of an attempt that is not in its process tree."""
        self._queue.append((attempt, orphan))

    def ended(self, attempt: TaskAttempt, ending: AttemptEnding) -> None:
        """Note that an attempt has ended; the loop does not use it any more."""
        self._queue.append((attempt, ending))

    def close(self) -> tuple[str, ...]:
        """Record everything that is queued, and end the thread; return warnings."""
        self._closing.set()
        self._thread.join()
        with self._noting("progress"):
            self._progress.close()
        warnings: tuple[str, ...] = ()
        if self._gpus is not None:
            with self._noting("GPUs"):
                warnings = self._gpus.stop()
        troubles = (self._batch.trouble, self.trouble)
        return (*warnings, *filter(None, troubles))

    def _run(self) -> None:
        while True:
            closing = self._closing.is_set()  # read before the queue is drained
            self._drain()
            with self._noting("measuring"):
                self._look()
            self._write(closing=closing)
            if closing:
                return
            self._closing.wait(_TICK)

    @contextmanager
    def _noting(self, failed_action: str) -> Iterator[None]:
        """Note an error in ``trouble``; the tasks and the queue go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no error stops the tasks
            self.trouble = f"{failed_action} failed: {type(error).__name__}: {error}"

    def _noting_task(
        self, failed_action: str, seq: int
    ) -> AbstractContextManager[None]:
        """Note an error with the number that users know the task by."""
        return self._noting(f"{failed_action} task {self._context.number_of(seq)}")

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            attempt, news = queue.popleft()
            with self._noting_task("recording", attempt.seq):
                self._take(attempt, news)

    def _take(self, attempt: TaskAttempt, news: AttemptEnding | int | None) -> None:
        if news is None:
            self._news.append(_start_event(attempt, self._context.id))
            self._young[attempt.record] = attempt
        # its parent has ended, so no link of the tree leads to it
        elif isinstance(news, int):
            tree = self._watch(attempt).tree
            if news not in tree.pids():
                tree.adopt(news)
        else:
            self._young.pop(attempt.record, None)
            self._end(attempt, news, self._watched.pop(attempt.record, None))

    def _watch(self, attempt: TaskAttempt) -> SampledAttempt:
        """Return the sampled attempt; start sampling it if necessary."""
        self._young.pop(attempt.record, None)
        watched = self._watched.get(attempt.record)
        if watched is None:
            watched = SampledAttempt(attempt, self._interval, self._slots, self._gpus)
            watcher = watched.watcher
            watcher.on_set_aside = self.set_aside
            first = waits.times.first_checkpoint_of_task
            watcher.call_at(partial(self._checkpoint, watched), first)
            look = partial(self._progress.look, watched)
            watcher.call_at(look, waits.times.first_look)
            # the nodes are a task's own only if it is the only one at a time
            if self._slots == 1:
                watcher.call_at(partial(self._look_at_nodes, watched), _FIRST_NODES)
            self._watched[attempt.record] = watched
        return watched

    def _pids(self) -> list[int]:
        """Return the processes of all tasks; the GPU sampler's thread calls it."""
        # a copy: the watcher's thread changes the dictionary meanwhile
        trees = [watched.tree for watched in tuple(self._watched.values())]
        return [pid for tree in trees for pid in tree.pids()]

    def _look(self) -> None:
        now = time.monotonic()
        grown = [a for a in self._young.values() if now - a.launch.began >= _FIRST_LOOK]
        for attempt in grown:
            self._watch(attempt)
        looks = 0
        for record, watched in list(self._watched.items()):
            # one that ended in a drain below must not get a new checkpoint
            if watched.watcher.pause() <= 0 and record in self._watched:
                self._look_at(watched)
                looks += 1
                if looks % _MOST_LOOKS == 0:
                    self._drain()
        self._progress.write_if_due(now)

    def _look_at(self, watched: SampledAttempt) -> None:
        watcher = watched.watcher
        watcher.look_if_due()
        self.trouble = watcher.trouble or self.trouble
        # read by the memory guard in the loop's thread
        watched.attempt.host.peak = watcher.tracker.best
        watched.attempt.host.now = watcher.samples[-1].memory if watcher.samples else 0

    def _look_at_nodes(self, watched: SampledAttempt) -> Seconds:
        """Look for launchers of a task; return the seconds until the next look."""
        if watched.nodes is None:
            from weigh.runner.node_watch import NodeWatch  # noqa: PLC0415 - rarely

            watched.nodes = NodeWatch(self._context.env, self._interval, self._note)
        return watched.nodes.look(watched.watcher)

    def _note(self, trouble_line: str) -> None:
        self.trouble = trouble_line

    def _checkpoint(self, watched: SampledAttempt) -> Seconds:
        """Save an attempt's present measurement, in case weigh is killed."""
        attempt, holder = watched.attempt, self._context.journal.holder
        watched.has_checkpoint = True
        measured = attempt_measurement(attempt, watched.watcher, ended=False)
        headway = self._progress.headway(attempt)
        measured = msgspec.structs.replace(measured, progress=headway)
        if watched.nodes is not None:
            measured = watched.nodes.joined(measured)
        record = fill_record(
            self._blank,
            attempt,
            measured,
            command=self._masked_argv(attempt),
            ending=None,
        )
        seen = checkpoint.RunCheckpoint(
            machine=holder.machine,
            weigh=holder.process,
            leader=ProcessIdentity(attempt.launch.pid, attempt.launch.start_time),
            record=record,
        )
        try:
            checkpoint.save_checkpoint(self._root, seen)
        except StoreError as error:
            self.trouble = str(error)
        return waits.times.checkpoint_of_task

    def _end(
        self,
        attempt: TaskAttempt,
        ending: AttemptEnding,
        watched: SampledAttempt | None,
    ) -> None:
        """Queue the record of an attempt, and its event even if the record fails."""
        usage = Usage(wall_time=attempt.state.ended - attempt.launch.began)
        needs: Seconds | None = None
        with self._noting_task("recording", attempt.seq):
            measured = self._measured(attempt, watched)
            usage = measured.usage
            if attempt.state.stop is not None:
                progress = measured.progress
                needs = None if progress is None else progress.whole_time
            record = self._record(attempt, ending, measured)
            if self._context.console.keeps(record):
                self._batch.add(record)
        # also without a record: an attempt without this event counts as running
        self._news.append(_end_event(attempt, ending, usage, needs))
        if watched is not None:
            watched.watcher.close()
            if watched.has_checkpoint:
                checkpoint.remove_checkpoint(self._root, attempt.record)

    def _measured(
        self, attempt: TaskAttempt, watched: SampledAttempt | None
    ) -> RunMeasurement:
        """Return the measurement of an attempt; leave out a part that fails."""
        seq, headway = attempt.seq, None
        # first: its files are closed whatever fails
        with self._noting_task("progress of", seq):
            headway = self._progress.ended(attempt)
        measured = attempt_measurement(
            attempt, None if watched is None else watched.watcher
        )
        if watched is not None and watched.nodes is not None:
            with self._noting_task("nodes of", seq):
                measured = watched.nodes.finish(measured)
        measured = msgspec.structs.replace(measured, progress=headway)
        if attempt.state.channel is not None:
            with self._noting_task("regions of", seq):
                measured = self._context.add_regions(attempt.state.channel, measured)
            # also if it could not be read: its folder has to become empty
            remove_unneeded_file(attempt.state.channel)
        return measured

    def _record(
        self, attempt: TaskAttempt, ending: AttemptEnding, measured: RunMeasurement
    ) -> Record:
        context, hide = self._context, self._context.options.mask.value
        command = self._masked_argv(attempt)
        record = fill_record(
            self._blank, attempt, measured, command=command, ending=ending
        )
        with self._noting_task("parameters of", attempt.seq):
            parameters = context.table.of(attempt.seq, os.fsdecode(attempt.text))
            if parameters:
                shown = {name: hide(name, parameters[name]) for name in parameters}
                record = msgspec.structs.replace(record, parameters=shown)
        return record

    def _masked_argv(self, attempt: TaskAttempt) -> tuple[str, ...]:
        # records are kept and shown to others, task files are not
        return self._context.options.mask.words(self._spawner.argv(attempt.text))

    def _write(self, *, closing: bool) -> None:
        now = time.monotonic()
        is_due = closing or now >= self._sync_at
        # what could not be written, on a full disk say, is tried again less often
        if is_due or self._batch.trouble is None:
            with self._noting("recording"):
                # first: the events name these records
                self._batch.flush()
        news, self._news = self._news, []
        self._append(news)
        if is_due:
            self._sync_at = now + _SYNC_INTERVAL
            # a child's peak starts at the size of what forked it, and weigh grows
            self.floor = own_peak()
            with self._noting("writing the joblog to disk"):
                self._context.journal.keep()

    def _append(self, news: list[AttemptStarted | AttemptEnded]) -> None:
        """Append events in one write; leave out one that cannot be encoded."""
        if not news:
            return
        try:
            self._context.journal.append_events(*news)
        except Exception:  # noqa: BLE001 - retried below, one by one
            for event in news:
                with self._noting_task("an event of", event.seq):
                    self._context.journal.append_events(event)


def _start_event(attempt: TaskAttempt, run_id: str) -> AttemptStarted:
    return AttemptStarted(
        seq=attempt.seq,
        attempt=attempt.number,
        run=run_id,
        time=round(attempt.launch.started, 3),
        slot=attempt.slot.number,
        pid=attempt.launch.pid,
        start_time=attempt.launch.start_time,
        task=f"{crc32(attempt.text):08x}",
        gpu=attempt.slot.gpu,
        memory=attempt.reservation.memory or None,
        gpu_memory=attempt.reservation.gpu_memory or None,
        alone=attempt.alone,
    )


def _end_event(
    attempt: TaskAttempt, ending: AttemptEnding, usage: Usage, needs: Seconds | None
) -> AttemptEnded:
    peak, cpu_time = usage.peak_memory, usage.cpu_time
    if peak is not None and peak.anonymous is None and not attempt.host.peak:
        peak = None  # only weigh's own size is known
    return AttemptEnded(
        seq=attempt.seq,
        attempt=attempt.number,
        # by the monotonic clock, as the clock may have been set meanwhile
        time=round(
            attempt.launch.started + attempt.state.ended - attempt.launch.began, 3
        ),
        state=ending.state,
        exit_code=ending.exit_code,
        signal=ending.signal,
        record=attempt.record,
        reason=None if ending.outcome is None else ending.outcome.reason,
        again=attempt.state.again,
        wall_time=round(usage.wall_time, 4),
        cpu_time=None if cpu_time is None else round(cpu_time, 4),
        peak_memory=None if peak is None else peak.value,
        gpu_memory=max((gpu.job_peak or 0 for gpu in usage.gpus), default=None),
        needs=needs,
        alone=ending.is_oom and not ending.on_gpu and not attempt.state.shared,
    )


def attempt_measurement(
    attempt: TaskAttempt, watcher: TreeWatcher | None, *, ended: bool = True
) -> RunMeasurement:
    """Return the measurement of an attempt, whether it was sampled or not."""
    wall = (attempt.state.ended if ended else time.monotonic()) - attempt.launch.began
    status = attempt.state.status if ended else None
    tracker = (
        PeakTracker(tracker_floor(attempt)) if watcher is None else watcher.tracker
    )
    if ended:
        # the kernel's peak is known only now
        tracker.reap(attempt.usage.max_rss)
        tracker.finish(wall)
    known = kernel_measurement(
        _attempt_usage(attempt, tracker, watcher, wall),
        attempt.launch.started,
        None if status is None else os.waitstatus_to_exitcode(status),
        has_ended=ended,
    )
    if watcher is None:
        return known
    measured = watcher.joined(known)
    # weigh's own cost is that of all tasks
    cost = MeasuringCost(samples=watcher.looks, interval=watcher.reached_interval())
    return msgspec.structs.replace(measured, monitor=cost)


def _attempt_usage(
    attempt: TaskAttempt,
    tracker: PeakTracker,
    watcher: TreeWatcher | None,
    wall: Seconds,
) -> Usage:
    """Return what the kernel knows of an attempt: all, if no look came in time."""
    kernel = attempt.usage
    usage = Usage(
        wall_time=wall,
        cpu_time=kernel.user + kernel.system,
        user_time=kernel.user,
        system_time=kernel.system,
        processes=max(kernel.reaped, 1),
    )
    usage = with_traffic(usage, kernel.traffic)
    if watcher is None:
        return msgspec.structs.replace(
            usage,
            peak_memory=tracker.peak(ONE_PROCESS),
            max_process_memory=tracker.max_process(),
            file_calls=None,
        )
    # the kernel's sum lacks processes that nobody waited for, the samples' those that
    # ended between two looks
    cpu_time = max(usage.cpu_time or 0.0, watcher.most_cpu_time)
    return msgspec.structs.replace(usage, cpu_time=cpu_time)


def fill_record(
    unfinished_record: Record,
    attempt: TaskAttempt,
    measured: RunMeasurement,
    *,
    command: tuple[str, ...],
    ending: AttemptEnding | None,
) -> Record:
    """Return an attempt's record; without *ending* it is still running."""
    # task and attempt are kept there, also outside of any job
    job = unfinished_record.job or RecordedJob("")
    return msgspec.structs.replace(
        unfinished_record.with_measurement(measured),
        id=attempt.record,
        command=command,
        state="RUNNING" if ending is None else ending.state,
        outcome=None if ending is None else ending.outcome,
        job=msgspec.structs.replace(job, task=attempt.seq, attempt=attempt.number),
    )


class RecordBatch:
    """Records waiting to be appended to this machine's shard."""

    def __init__(self, root: str, machine: MachineIdentity) -> None:
        self.trouble: str | None = None
        self._root = root
        self._machine = machine
        self._lines: dict[str, list[bytes]] = {}

    def add(self, record: Record) -> None:
        """Queue a record until the next :meth:`flush`."""
        month = shards.month_folder(record.started)
        self._lines.setdefault(month, []).append(lines.encode_record(record))

    def flush(self) -> None:
        """Append all of them in one write; keep what the store does not take.

        ``trouble`` states how many could not be written, until they are.
        """
        kept, self._lines = self._lines, {}
        for month, batch in kept.items():
            try:
                folder = make_folder(self._root, shards.RECORDS, month)
                path = os.path.join(folder, shards.shard_name(self._machine))
                shards.append_line(path, b"\n".join(batch))
                self.trouble = None
            except (StoreError, OSError) as error:
                self._lines[month] = batch
                few = (
                    "1 record was" if len(batch) == 1 else f"{len(batch)} records were"
                )
                self.trouble = f"{few} not kept: {error}"


def reset_weigh_peak_memory() -> None:
    """Reset weigh's own peak memory to what it holds now."""
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"5")  # resets VmHWM, see proc(5)
    except OSError:
        return
