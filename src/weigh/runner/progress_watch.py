"""Read the progress of every running task, and estimate when all tasks are done.

The watcher's thread reads; the loop's thread asks. They share a dictionary that is
never changed, only replaced.
"""

import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from weigh import waits
from weigh.lazy_modules import lazy_module
from weigh.measure.output import WatchedOutput
from weigh.measure.watcher import TreeWatcher, WatchedRun
from weigh.model.record import ReportedProgress
from weigh.probe.proc import ProcTree
from weigh.progress.eta import (
    TaskDurations,
    TaskTally,
    TimeSpan,
    time_left_of,
    until_done,
)
from weigh.progress.notices import LimitWatch, StallWatch, StuckWatch
from weigh.regular_file import file_head
from weigh.runner.attempt import TaskAttempt, tracker_floor
from weigh.runner.events import (
    PROGRESS_SUFFIX,
    RunningProgress,
    TaskHeadway,
    write_progress,
)
from weigh.runner.run_context import RunContext
from weigh.runner.stopping import send_warning_to_attempt
from weigh.units import KIB, MIB, Bytes, Seconds, format_duration

if TYPE_CHECKING:
    from weigh.measure import programs, progress_reader
    from weigh.measure.progress_reader import ProgressReader
    from weigh.runner import divergence
    from weigh.runner.divergence import LostNumber
    from weigh.runner.gpus import SlotGpuMeter
    from weigh.runner.node_watch import NodeWatch
else:  # each is imported when it is first used
    programs = lazy_module("weigh.measure.programs")
    progress_reader = lazy_module("weigh.measure.progress_reader")
    divergence = lazy_module("weigh.runner.divergence")

_MOST_OPEN = 200  # processes of one tree whose files stay open
_FILES_EACH = 3  # of a process: its status, its children, its stat
_SHARE = 2  # half of the descriptors that weigh may open


class TaskTree(ProcTree):
    """A process tree including its leader, one of *trees* watched at the same time."""

    def __init__(self, leader: int, trees: int) -> None:
        super().__init__(leader)
        allowed = os.sysconf("SC_OPEN_MAX") // (_SHARE * _FILES_EACH * trees)
        self._most_open = max(1, min(_MOST_OPEN, allowed))
        self.adopt(leader)

    def children(self) -> list[int] | None:
        """Return the leader's own children; none once it has ended.

        Open descriptors lead to the children where there are any: after its end the
        leader's process id may belong to another process.
        """
        known = self._known.get(self.top)
        if known is None or known.keeps_open:
            return []
        return super().children()


_MOST_FOR_NAN = MIB  # of new output: all of it, so that the lines are counted
_SURE = 3  # lines with a NaN


class TaskProgress:
    """The progress of one attempt. What reads it is imported for the first long one."""

    def __init__(
        self, attempt: TaskAttempt, context: RunContext, channel: str | None
    ) -> None:
        """*channel* is its file of regions."""
        options, checkpoint = context.options, context.checkpoint
        self.attempt = attempt
        self.due = attempt.launch.began + waits.times.first_look_at_task
        self.forecast: ReportedProgress | None = None
        self.limit = _attempt_time_limit(attempt, context)
        self.limits = (
            None if self.limit is None else LimitWatch(self.limit, context.ask)
        )
        self.stalls = StallWatch(options.stalled_after, gpus=len(context.layout.gpus))
        self.stuck = StuckWatch(options.end_stuck) if options.end_stuck else None
        self.work: Seconds = 0.0
        self.diverged: LostNumber | None = None
        self._output: WatchedOutput | None = None
        self._watch = divergence.DivergenceWatch(_SURE)
        self._cpu_time: Seconds = 0.0
        self._patterns = options.progress_patterns
        self._channel = channel
        self._listener: ProgressReader | None = None
        # seconds from its start; None: none is due, or it was sent
        self.signal_at: Seconds | None = None
        if checkpoint is not None and self.limit is not None:
            # where the limit is shorter than the warning: soon, but not at once
            earliest = min(1.0, self.limit / 2)
            self.signal_at = max(self.limit - checkpoint.before, earliest)

    @property
    def wrote_at(self) -> Seconds | None:
        """Return when it last wrote, in seconds since it began; 0 if it has not yet.

        Return None if its output cannot be read.
        """
        return None if self._listener is None else self._listener.wrote_at

    def look(self, current_time: Seconds, *, is_through: bool = False) -> None:
        """Read what it wrote, *current_time* seconds after its start.

        *is_through*: all done.
        """
        # made for the first look, as most tasks are too short for one
        if self._listener is None:
            path, streams = self.attempt.output.path, []
            with suppress(OSError):
                if path is not None:
                    streams.append(WatchedOutput(path))
            self._listener = progress_reader.ProgressReader(
                streams, self._channel, patterns=self._patterns
            )
        self._listener.look(current_time)
        self.forecast = self._listener.forecast(current_time, is_through=is_through)

    def spent(self, watcher: TreeWatcher, process_count: int) -> Seconds:
        """Return the work it has done: changes of CPU time, and new processes."""
        times = (one.cpu_time for one in reversed(watcher.samples))
        latest = next((one for one in times if one is not None), 0.0)
        # abs: the sum is that of live processes, and falls when one of them ends
        self.work += abs(latest - self._cpu_time)
        self._cpu_time = latest
        return self.work + process_count

    def look_for_divergence(self) -> "LostNumber | None":
        """Return what shows that it has diverged; it is found once."""
        path = self.attempt.output.path
        if self._output is None and path is not None:
            with suppress(OSError):
                self._output = WatchedOutput(path, most=_MOST_FOR_NAN)
        # it cannot be read, or is being stopped already
        if self._output is None or self.diverged is not None:
            return None

        def feed(piece: bytes) -> None:
            self.diverged = self.diverged or self._watch.feed(piece)

        self._output.look(feed)
        return self.diverged

    def close(self) -> None:
        """Close its files."""
        if self._output is not None:
            self._output.close()
        if self._listener is not None:
            self._listener.close()


def _attempt_time_limit(attempt: TaskAttempt, context: RunContext) -> Seconds | None:
    """Return an attempt's time limit from its start; None without one."""
    limits = [] if context.options.timeout is None else [context.options.timeout]
    if context.ends_at is not None:
        limits.append(max(0.0, context.ends_at - attempt.launch.began))
    return min(limits, default=None)


_OF_ELAPSED = 0.02  # of its time so far: long tasks are read less often
_MOST_KEPT = 1000  # times of done tasks
_MOST_WARNINGS = 5  # about single tasks, in one run
_NOBODY = 0  # no process has this id


class SampledAttempt:
    """An attempt that runs long enough to be sampled."""

    __slots__ = ("attempt", "has_checkpoint", "nodes", "tree", "watcher")

    def __init__(
        self,
        attempt: TaskAttempt,
        interval: Seconds,
        slots: int,
        meter: "SlotGpuMeter | None",
    ) -> None:
        self.attempt = attempt
        self.tree = tree = TaskTree(self.leader() or _NOBODY, slots)
        self.watcher = TreeWatcher(
            self.tree,
            interval,
            WatchedRun(
                floor=tracker_floor(attempt),
                leader=self.leader,
                gpus=None if meter is None else meter.begin(attempt, tree.pids),
                is_alone=slots == 1,
            ),
            started=attempt.launch.began,
        )
        self.has_checkpoint = False
        self.nodes: NodeWatch | None = None

    def leader(self) -> int | None:
        """Return the task's first process while it runs."""
        # the id of one that was reaped may belong to another process
        attempt = self.attempt
        return attempt.launch.pid if attempt.state.status is None else None


class ProgressWatch:
    """The progress of all tasks of a run."""

    def __init__(self, context: RunContext, channels: Mapping[int, str]) -> None:
        """*channels* are the event files by slot."""
        self._context = context
        self._options = context.options
        self._notify = context.console.notify
        self._path = context.journal.path + PROGRESS_SUFFIX
        self._channels = channels
        # the signal is sent so many seconds before a limit
        no_limit = context.ends_at is None and context.options.timeout is None
        if context.checkpoint is not None and no_limit:
            self._notify("no time limit is known, so no checkpoint signal: add --time")
        self._tasks: dict[str, TaskProgress] = {}
        self._forecasts: dict[str, ReportedProgress] = {}
        self._times: deque[Seconds] = deque(maxlen=_MOST_KEPT)
        self._done = 0
        self._due: Seconds = 0.0
        self._write_at: Seconds = 0.0
        self._update_at: Seconds = 0.0
        self._is_written = False
        self._warnings = 0
        self._lost: deque[tuple[TaskAttempt, str]] = deque()
        self._stuck: deque[tuple[TaskAttempt, str, Bytes | None]] = deque()

    @cached_property
    def _clients(self) -> Collection[bytes]:
        return programs.client_programs(self._context.env)

    def lost(self) -> Iterator[tuple[TaskAttempt, str]]:
        """Yield the attempts that have diverged, and what shows it.

        The loop's thread calls this; the watcher's thread adds to the queue.
        """
        while self._lost:
            yield self._lost.popleft()

    def stuck(self) -> Iterator[tuple[TaskAttempt, str, Bytes | None]]:
        """Yield the attempts that are stuck, why, and the size of their output then."""
        while self._stuck:
            yield self._stuck.popleft()

    def look(self, current_time: Seconds, watched: Iterable[SampledAttempt]) -> None:
        """Read the tasks that are due; the watcher's thread calls this often."""
        if current_time < self._due:
            return
        self._due = current_time + waits.times.between_looks_at_task / 4
        try:
            self._look(current_time, watched)
        except Exception as error:  # noqa: BLE001 - tasks are recorded even without progress
            # for good: it would fail at each look
            self._due = float("inf")
            self._notify(f"reading progress failed: {type(error).__name__}: {error}")

    def _look(self, current_time: Seconds, watched: Iterable[SampledAttempt]) -> None:
        # by record, as a retry has the same number
        here = {one.attempt.record: one for one in watched}
        for record in [record for record in self._tasks if record not in here]:
            self._tasks.pop(record).close()
        for record, one in here.items():
            age = current_time - one.attempt.launch.began
            if age >= waits.times.first_look_at_task:
                task = self._tasks.get(record)
                if task is None:
                    channel = self._channels.get(one.attempt.slot.number)
                    task = self._tasks[record] = TaskProgress(
                        one.attempt, self._context, channel
                    )
                if current_time >= task.due:
                    self._look_at(task, one, current_time)
        self._forecasts = {
            record: task.forecast
            for record, task in self._tasks.items()
            if task.forecast
        }
        has_forecast = any(
            one.remaining is not None for one in self._forecasts.values()
        )
        # once written it is kept up to date, also when nothing can be predicted
        if current_time >= self._write_at and (has_forecast or self._is_written):
            self._write_at = current_time + waits.times.progress_file
            self._write(current_time)

    def ended(self, attempt: TaskAttempt) -> ReportedProgress | None:
        """Stop reading an attempt that has ended; return its progress, if known."""
        task = self._tasks.pop(attempt.record, None)
        # too short to have been read
        if task is None:
            return None
        is_through = attempt.state.status == 0
        try:
            task.look(attempt.state.ended - attempt.launch.began, is_through=is_through)
        finally:
            task.close()
        return task.forecast

    def headway(self, attempt: TaskAttempt) -> ReportedProgress | None:
        """Return the progress of a running attempt, if known."""
        return self._forecasts.get(attempt.record)

    def note_done(self, wall_time: Seconds) -> None:
        """Note how long a task took that succeeded."""
        self._times.append(wall_time)
        self._done += 1

    def update(
        self, current_time: Seconds, running: Iterable[TaskAttempt], tally: TaskTally
    ) -> None:
        """Write the remaining time into *tally*; only the loop's thread calls this."""
        # it costs some CPU time with many tasks
        if current_time < self._update_at:
            return
        self._update_at = current_time + waits.times.remaining_time
        tally.left = self.left(
            current_time, list(running), waiting=tally.waiting, lanes=tally.slots
        )

    def left(
        self,
        current_time: Seconds,
        running: Sequence[TaskAttempt],
        *,
        waiting: int,
        lanes: int,
    ) -> TimeSpan | None:
        """Estimate the time until all tasks are done; None without evidence."""
        spans: list[TimeSpan | Seconds] = []
        totals, silent = [], []
        for attempt in running:
            elapsed = current_time - attempt.launch.began
            span = time_left_of(self._forecasts.get(attempt.record), elapsed)
            if span is None:
                silent.append(elapsed)
            else:
                totals.append(elapsed + span.value)
            # a bare number is how long a task without a forecast has run
            spans.append(elapsed if span is None else span)
        times = (*self._times, *totals)
        known = TaskDurations(times, self._done + len(totals), tuple(silent))
        return until_done(spans, waiting, known, lanes=lanes)

    def close(self) -> None:
        """Stop reading, and remove the file: no task is running any more."""
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()
        if self._is_written:
            with suppress(OSError):
                os.unlink(self._path)

    def _look_at(
        self, task: TaskProgress, watched_attempt: SampledAttempt, current_time: Seconds
    ) -> None:
        elapsed = current_time - task.attempt.launch.began
        pause = max(waits.times.between_looks_at_task, elapsed * _OF_ELAPSED)
        task.due = current_time + min(waits.times.longest_between_looks, pause)
        task.look(elapsed)
        self._signal(task, elapsed)
        if task.signal_at is not None:  # the signal must not be late
            task.due = min(task.due, task.attempt.launch.began + task.signal_at)
        if task.limits is not None:
            self._warn(task, task.limits.look(elapsed, task.forecast))
        gpu_idle = watched_attempt.watcher.gpu_idle()
        work = task.spent(watched_attempt.watcher, watched_attempt.tree.seen)
        stalled = task.stalls.look(
            elapsed, cpu_time=work, wrote_at=task.wrote_at, gpu_idle=gpu_idle
        )
        self._warn(task, stalled)
        if task.stuck is not None:
            size = task.attempt.output.size()
            seen = _traffic_of(watched_attempt.tree.pids(), self._clients)
            nodes = watched_attempt.nodes
            is_elsewhere = seen.has_client or (nodes is not None and nodes.has_launched)
            signs = {
                "output": size,
                # what docker, ssh or srun has started may work there
                "work": elapsed if is_elsewhere else work,
                "traffic": seen.traffic,
                "gpu": None if gpu_idle is None else current_time - gpu_idle,
            }
            lacks = task.stuck.look(
                elapsed, signs, is_suspended=seen.is_suspended, forecast=task.forecast
            )
            if lacks is not None:
                self._stuck.append((task.attempt, lacks, size))
        lost = task.look_for_divergence() if self._options.stop_nan else None
        if lost is not None:
            words = f"{lost.word} in line {lost.line} of its output"
            self._lost.append((task.attempt, words))

    def _warn(self, task: TaskProgress, warning_text: str | None) -> None:
        if warning_text is not None and self._warnings < _MOST_WARNINGS:
            self._warnings += 1
            number = self._context.number_of(task.attempt.seq)
            for line in warning_text.split("\n"):
                self._notify(f"task {number}: {line}")

    def _signal(self, task: TaskProgress, elapsed: Seconds) -> None:
        wanted = self._context.checkpoint
        if wanted is None or task.signal_at is None or elapsed < task.signal_at:
            return
        task.signal_at = None
        sent = send_warning_to_attempt(task.attempt, wanted.number)
        what = "sent" if sent else "no process has a handler for"
        left = format_duration(max(0.0, (task.limit or 0.0) - elapsed))
        self._notify(
            f"task {self._context.number_of(task.attempt.seq)}: {what} {wanted.name}, "
            f"{left} to the time limit"
        )

    def _write(self, current_time: Seconds) -> None:
        """Write the progress of the running tasks, if any is known."""
        tasks = tuple(
            TaskHeadway(
                seq=task.attempt.seq,
                attempt=task.attempt.number,
                started=round(task.attempt.launch.started, 3),
                headway=task.forecast,
            )
            for task in self._tasks.values()
            if task.forecast is not None
        )
        # from the monotonic clock to seconds since the epoch
        offset = time.time() - current_time
        ends_at = self._context.ends_at
        self._is_written |= write_progress(
            self._path,
            RunningProgress(
                run=self._context.id,
                time=round(current_time + offset, 3),
                slots=len(self._context.layout.slots),
                ends_at=None if ends_at is None else round(ends_at + offset, 3),
                tasks=tasks,
            ),
        )


class _SeenProcesses(NamedTuple):
    """What the processes of a task have read and written, and how they stand."""

    traffic: Bytes
    is_suspended: bool
    has_client: bool
    """One of them has others do its work."""


def _traffic_of(pids: Iterable[int], clients: Collection[bytes]) -> _SeenProcesses:
    traffic, is_suspended, has_client = 0, False, False
    for pid in pids:
        moved = file_head(f"/proc/{pid}/io", KIB).split()[1:4:2]  # rchar and wchar
        traffic += sum(map(int, moved))
        # a name may have blanks and brackets: the state follows the last one
        name, _, state = file_head(f"/proc/{pid}/stat", KIB).rpartition(b") ")
        is_suspended |= state[:1] in {b"T", b"t"}
        has_client |= name.partition(b"(")[2] in clients
    return _SeenProcesses(traffic, is_suspended, has_client)
