"""Read the progress of every running task, and estimate when all tasks are done.

The watcher's thread reads; the loop's thread asks for the latest forecast of a task,
and never goes through all of them.
"""

import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from weigh import waits
from weigh.lazy_modules import lazy_module
from weigh.measure.checkpoint_signal import NO_TIME_LIMIT
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
from weigh.units import KIB, MIB, Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure import programs, progress_follower
    from weigh.runner import divergence
    from weigh.runner.gpus import SlotGpuMeter
    from weigh.runner.node_watch import NodeWatch
else:  # each is imported when it is first used
    programs = lazy_module("weigh.measure.programs")
    progress_follower = lazy_module("weigh.measure.progress_follower")
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


_MOST_READ = MIB  # of new output: all of it, so that --stop nan counts the lines
_SURE = 3  # lines with a NaN


class TaskProgress:
    """Follows one attempt, and finds that it is stuck or has diverged."""

    def __init__(
        self, watched: "SampledAttempt", run: "ProgressWatch", channel: str | None
    ) -> None:
        """*channel* is its file of regions."""
        attempt, context = watched.attempt, run.context
        options, path = context.options, attempt.output.path
        self.attempt = attempt
        self._watched = watched
        self._run = run
        self._follower = progress_follower.ProgressFollower(
            progress_follower.ProgressReader(
                _opened(path), channel, patterns=options.progress_patterns
            ),
            StallWatch(options.stalled_after, gpus=len(context.layout.gpus)),
            notify=partial(run.notify_of, attempt),
            warn=partial(run.warn_of, attempt),
            send=partial(send_warning_to_attempt, attempt),
        )
        limit = _attempt_time_limit(attempt, context)
        if limit is not None:
            limits = LimitWatch(limit, context.ask)
            self._follower.set_limit(limits, context.checkpoint)
        self._stuck = StuckWatch(options.end_stuck) if options.end_stuck else None
        self._searched = _opened(path) if options.stop_nan else []
        self._divergence = divergence.DivergenceWatch(_SURE)

    @property
    def forecast(self) -> ReportedProgress | None:
        """Return the latest forecast; None while nothing is counted."""
        return self._follower.forecast

    def look(self) -> Seconds:
        """Read what it wrote; return the seconds until the next look."""
        wait = self._follower.look(self._watched.watcher)
        if self._stuck is not None:
            self._look_whether_stuck(self._stuck)
        for output in self._searched:
            output.look(self._look_for_divergence)
        return wait

    def finish(self) -> None:
        """Read the rest of what it wrote, and close its files."""
        for output in self._searched:
            output.close()
        state = self.attempt.state
        wall_time = state.ended - self.attempt.launch.began
        self._follower.finish(wall_time, is_through=state.status == 0)

    def _look_for_divergence(self, output_piece: bytes) -> None:
        lost = self._divergence.feed(output_piece)
        if lost is not None:
            words = f"{lost.word} in line {lost.line} of its output"
            self._run.lost.append((self.attempt, words))

    def _look_whether_stuck(self, stuck: StuckWatch) -> None:
        watched, size = self._watched, self.attempt.output.size()
        elapsed, gpu_idle = watched.watcher.elapsed(), watched.watcher.gpu_idle()
        seen = _traffic_of(watched.tree.pids(), self._run.clients)
        # a new process is work as well
        work, nodes = self._follower.work + watched.tree.seen, watched.nodes
        is_elsewhere = seen.has_client or (nodes is not None and nodes.has_launched)
        signs = {
            "output": size,
            # what docker, ssh or srun has started may work there
            "work": elapsed if is_elsewhere else work,
            "traffic": seen.traffic,
            "gpu": None if gpu_idle is None else elapsed - gpu_idle,
        }
        lacks = stuck.look(
            elapsed, signs, is_suspended=seen.is_suspended, forecast=self.forecast
        )
        if lacks is not None:
            self._run.stuck.append((self.attempt, lacks, size))


def _opened(path: str | None) -> list[WatchedOutput]:
    """Open the output of a task for reading, if it has a file that can be read."""
    with suppress(OSError):
        return [] if path is None else [WatchedOutput(path, most=_MOST_READ)]
    return []


def _attempt_time_limit(attempt: TaskAttempt, context: RunContext) -> Seconds | None:
    """Return an attempt's time limit from its start; None without one."""
    limits = [] if context.options.timeout is None else [context.options.timeout]
    if context.ends_at is not None:
        limits.append(max(0.0, context.ends_at - attempt.launch.began))
    return min(limits, default=None)


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
    """The progress of all tasks of a run.

    ``lost`` are attempts that have diverged, and what shows it; ``stuck`` those that
    are stuck, why, and the size of their output then. The watcher's thread adds to
    them, the loop's thread empties them.
    """

    def __init__(self, context: RunContext, channels: Mapping[int, str]) -> None:
        """*channels* are the event files by slot."""
        self.context = context
        self.lost: deque[tuple[TaskAttempt, str]] = deque()
        self.stuck: deque[tuple[TaskAttempt, str, Bytes | None]] = deque()
        self._notify = context.console.notify
        self._path = context.journal.path + PROGRESS_SUFFIX
        self._channels = channels
        # the signal is sent so many seconds before a limit
        no_limit = context.ends_at is None and context.options.timeout is None
        if context.checkpoint is not None and no_limit:
            self._notify(NO_TIME_LIMIT)
        # by record, as a retry has the same number
        self._tasks: dict[str, TaskProgress] = {}
        self._times: deque[Seconds] = deque(maxlen=_MOST_KEPT)
        self._done = 0
        self._write_at: Seconds = 0.0
        self._update_at: Seconds = 0.0
        self._is_written = False
        self._warnings = 0

    @cached_property
    def clients(self) -> Collection[bytes]:
        """The programs that have others do their work."""
        return programs.client_programs(self.context.env)

    def look(self, watched: SampledAttempt) -> Seconds:
        """Read a task; return the seconds until the next look."""
        attempt = watched.attempt
        task = self._tasks.get(attempt.record)
        # made for the first look, as most tasks are too short for one
        if task is None:
            channel = self._channels.get(attempt.slot.number)
            task = self._tasks[attempt.record] = TaskProgress(watched, self, channel)
        return task.look()

    def ended(self, attempt: TaskAttempt) -> ReportedProgress | None:
        """Stop reading an attempt that has ended; return its progress, if known."""
        task = self._tasks.pop(attempt.record, None)
        # too short to have been read
        if task is None:
            return None
        task.finish()
        return task.forecast

    def headway(self, attempt: TaskAttempt) -> ReportedProgress | None:
        """Return the progress of a running attempt, if known."""
        task = self._tasks.get(attempt.record)
        return None if task is None else task.forecast

    def notify_of(self, attempt: TaskAttempt, text: str) -> None:
        """Print *text*, with the number of the task."""
        number = self.context.number_of(attempt.seq)
        for line in text.split("\n"):
            self._notify(f"task {number}: {line}")

    def warn_of(self, attempt: TaskAttempt, text: str) -> None:
        """Print a warning about a task, if there were not many before."""
        self._warnings += 1
        if self._warnings <= _MOST_WARNINGS:
            self.notify_of(attempt, text)

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
            span = time_left_of(self.headway(attempt), elapsed)
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
        """Remove the file: no task is running any more."""
        if self._is_written:
            with suppress(OSError):
                os.unlink(self._path)

    def write_if_due(self, current_time: Seconds) -> None:
        """Write the progress of the running tasks now and then, if any is known."""
        if current_time < self._write_at:
            return
        forecasts = [one.forecast for one in self._tasks.values()]
        has_forecast = any(one and one.remaining is not None for one in forecasts)
        self._write_at = current_time + waits.times.between_looks
        # once written it is kept up to date, also when nothing can be predicted
        if has_forecast or self._is_written:
            self._write_at = current_time + waits.times.progress_file
            self._write(current_time)

    def _write(self, current_time: Seconds) -> None:
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
        ends_at = self.context.ends_at
        self._is_written |= write_progress(
            self._path,
            RunningProgress(
                run=self.context.id,
                time=round(current_time + offset, 3),
                slots=len(self.context.layout.slots),
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
