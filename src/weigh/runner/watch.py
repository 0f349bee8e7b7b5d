"""One thread that watches every task and writes down what they used.

It alone owns the trackers, so nothing of them needs a lock: the loop hands it attempts
as they start and as they end, through a queue. A slow read of /proc, a slow disk or a
slow fsync holds it up and never a launch.
"""

import os
import threading
import time
from binascii import crc32
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import StoreError
from weigh.measure.launcher import own_peak
from weigh.measure.sampler import Sampler
from weigh.model.record import Measurement, Record, Usage
from weigh.runner.attempt import Attempt
from weigh.runner.channels import forget
from weigh.runner.events import Ended, EventsFile, Started
from weigh.runner.memory_limits import CardRoom
from weigh.runner.progress_watch import ProgressWatch, TaskTree
from weigh.runner.recording import (
    RecordBatch,
    filled,
    measurement,
    peak_tracker,
    with_gpus,
)
from weigh.runner.retry import Ending
from weigh.runner.slots import Layout
from weigh.store import checkpoint
from weigh.store.identity import Machine, Process
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.peak import PeakTracker
    from weigh.runner.gpu_meter import GpuWatch, TaskGpus

_TICK = 0.02
_NOBODY = 0  # no process has this number
_FIRST_LOOK = 0.005  # seconds; what ends before is measured by the kernel alone
_SYNC_INTERVAL = 1.0
_CHECKPOINT_AFTER = 10.0
_CHECKPOINT_INTERVAL = 60.0
_MOST_LOOKS = 16  # in a row, before the queue is seen to


class Watching(msgspec.Struct, frozen=True, kw_only=True):
    """What the watcher needs to know of a run.

    ``blank`` is the record of any attempt before it starts, ``command`` gives the
    words that run a task's text; ``sync`` has the disk take the joblog; ``told`` adds
    what a program wrote of its regions to the file of that name. ``parameters`` gives
    those of a task, by its number and text. ``watch_gpus`` begins to watch the GPUs,
    given what lists the tasks' processes; ``progress`` reads along.
    """

    run: str
    interval: Seconds
    slots: int
    blank: Record
    machine: Machine
    weigh: Process
    root: str
    command: Callable[[bytes], tuple[str, ...]]
    events: EventsFile
    sync: Callable[[], None]
    told: Callable[[str, Measurement], Measurement]
    parameters: Callable[[int, str], dict[str, int | float | str]]
    hide: Callable[[str, int | float | str], int | float | str]
    watch_gpus: Callable[[Callable[[], list[int]]], "GpuWatch | None"]
    progress: ProgressWatch


class _Watched:
    """An attempt that lives long enough to be looked at."""

    __slots__ = (
        "attempt",
        "checkpoint_at",
        "due",
        "gpus",
        "sampler",
        "tracker",
        "tree",
    )

    def __init__(self, attempt: Attempt, interval: Seconds, slots: int) -> None:
        self.attempt = attempt
        # the number of a leader that was reaped may be another's by now
        leader = attempt.pid if attempt.status is None else _NOBODY
        self.tree = TaskTree(leader, slots)
        self.tracker = peak_tracker(attempt)
        self.sampler = Sampler(
            self.tree, self.tracker, None, interval, started=attempt.began
        )
        self.due: Seconds = 0.0
        self.checkpoint_at = attempt.began + _CHECKPOINT_AFTER
        self.gpus: TaskGpus | None = None


class Watcher:
    """The thread. ``floor`` is the most that weigh itself has held, in bytes."""

    def __init__(self, watching: Watching) -> None:
        self.floor: Bytes = own_peak()
        self.trouble: str | None = None
        self.doubts: tuple[str, ...] = ()
        self._watching = watching
        self._batch = RecordBatch(watching.root, watching.machine)
        self._news: list[Started | Ended] = []
        self._queue: deque[tuple[Attempt, Ending | int | None]] = deque()
        self._young: dict[str, Attempt] = {}
        self._watched: dict[str, _Watched] = {}
        self._gpus = watching.watch_gpus(self._pids)
        self._closing = threading.Event()
        self._sync_at = 0.0
        self._thread = threading.Thread(target=self._run, name="weigh-watch")

    def cards(self, layout: Layout) -> tuple[str | None, ...]:
        """Give the watched GPUs, None for the only one; none where no driver is."""
        return () if self._gpus is None else layout.gpus or (None,)

    def card(self, name: str | None) -> CardRoom | None:
        """Give the memory of a card as it was read last."""
        return None if self._gpus is None else self._gpus.card(name)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def started(self, attempt: Attempt) -> None:
        """Take note of an attempt that runs."""
        self._queue.append((attempt, None))

    def left(self, attempt: Attempt, orphan: int) -> None:
        """Take note of a process that belongs to an attempt and is not below it."""
        self._queue.append((attempt, orphan))

    def ended(self, attempt: Attempt, ending: Ending) -> None:
        """Take note of an attempt of which nothing is left; the loop lets go of it."""
        self._queue.append((attempt, ending))

    def close(self) -> None:
        """Write down everything that is queued, and end the thread."""
        self._closing.set()
        self._thread.join()
        with self._noting("progress"):
            self._watching.progress.close()
        if self._gpus is not None:
            with self._noting("GPUs"):
                self.doubts = self._gpus.stop()

    def _run(self) -> None:
        while True:
            closing = self._closing.is_set()  # what was queued before it counts
            self._drain()
            with self._noting("measuring"):
                self._look()
            self._write(closing=closing)
            if closing:
                return
            self._closing.wait(_TICK)

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Note an error in ``trouble``: it costs no task and nothing else queued."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks go on
            self.trouble = f"{what} failed: {type(error).__name__}: {error}"

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            attempt, news = queue.popleft()
            with self._noting(f"recording task {attempt.seq}"):
                self._take(attempt, news)

    def _take(self, attempt: Attempt, news: Ending | int | None) -> None:
        if news is None:
            self._news.append(_started(attempt, self._watching.run))
            self._young[attempt.record] = attempt
        elif isinstance(news, int):
            tree = self._watch(attempt).tree
            if news not in tree.pids():
                tree.adopt(news)
        else:
            self._young.pop(attempt.record, None)
            self._end(attempt, news, self._watched.pop(attempt.record, None))

    def _watch(self, attempt: Attempt) -> _Watched:
        """Begin to look at an attempt, if that is not so yet."""
        self._young.pop(attempt.record, None)
        watched = self._watched.get(attempt.record)
        if watched is None:
            one = self._watching
            watched = _Watched(attempt, one.interval, one.slots)
            if self._gpus is not None:
                watched.gpus = self._gpus.begin(attempt, watched.tree.pids)
            self._watched[attempt.record] = watched
        return watched

    def _pids(self) -> list[int]:
        """Give the processes of all tasks; asked by the GPUs' own thread."""
        trees = [watched.tree for watched in tuple(self._watched.values())]
        return [pid for tree in trees for pid in tree.pids()]

    def _look(self) -> None:
        now = time.monotonic()
        grown = [a for a in self._young.values() if now - a.began >= _FIRST_LOOK]
        for attempt in grown:
            self._watch(attempt)
        looks = 0
        for watched in list(self._watched.values()):
            if now >= watched.due:
                self._look_at(watched)
                looks += 1
                if looks % _MOST_LOOKS == 0:
                    self._drain()
        self._watching.progress.look(now, self._watched.values())

    def _look_at(self, watched: _Watched) -> None:
        try:
            pause = watched.sampler.look()
        except Exception as error:  # noqa: BLE001 - whatever it is, the tasks go on
            self.trouble = f"measuring failed: {type(error).__name__}: {error}"
            pause = 1.0
        samples = watched.sampler.samples
        watched.attempt.peak = watched.tracker.best
        watched.attempt.now = samples[-1].memory if samples else 0
        now = time.monotonic()
        watched.due = now + pause
        if now >= watched.checkpoint_at:
            watched.checkpoint_at = now + _CHECKPOINT_INTERVAL
            self._checkpoint(watched)

    def _checkpoint(self, watched: _Watched) -> None:
        """Write an attempt down as it is, for the case that weigh is killed."""
        one, attempt = self._watching, watched.attempt
        measured = measurement(
            attempt,
            watched.tracker,
            watched.sampler,
            processes=watched.tree.seen,
            ended=False,
        )
        headway = one.progress.headway(attempt)
        measured = msgspec.structs.replace(measured, progress=headway)
        record = filled(
            one.blank,
            attempt,
            measured,
            command=one.command(attempt.text),
            ending=None,
        )
        seen = checkpoint.Checkpoint(
            machine=one.machine,
            weigh=one.weigh,
            leader=Process(attempt.pid, attempt.start_time),
            record=record,
        )
        try:
            checkpoint.save(one.root, seen)
        except StoreError as error:
            self.trouble = str(error)

    def _end(self, attempt: Attempt, ending: Ending, watched: _Watched | None) -> None:
        """Keep the record of an attempt, and its event whatever becomes of that."""
        usage = Usage(wall_time=attempt.ended - attempt.began)
        with self._noting(f"recording task {attempt.seq}"):
            measured = self._measured(attempt, watched)
            usage = measured.usage
            self._batch.add(self._record(attempt, ending, measured))
        self._news.append(_ended(attempt, ending, usage))
        if watched is not None:
            watched.tree.close()
            if watched.checkpoint_at > attempt.began + _CHECKPOINT_AFTER:
                checkpoint.finish(self._watching.root, attempt.record)

    def _measured(self, attempt: Attempt, watched: _Watched | None) -> Measurement:
        """Sum up what was measured; a part that fails is left out."""
        one, seq = self._watching, attempt.seq
        tracker: PeakTracker = (
            peak_tracker(attempt) if watched is None else watched.tracker
        )
        measured = measurement(
            attempt,
            tracker,
            None if watched is None else watched.sampler,
            processes=1 if watched is None else watched.tree.seen,
        )
        if self._gpus is not None and watched is not None and watched.gpus is not None:
            with self._noting(f"GPU usage of task {seq}"):
                usages, rows = self._gpus.end(watched.gpus)
                measured = with_gpus(measured, usages, rows, began=attempt.began)
        with self._noting(f"progress of task {seq}"):
            headway = one.progress.ended(attempt)
            if headway is not None:
                measured = msgspec.structs.replace(measured, progress=headway)
        if attempt.channel is not None:
            with self._noting(f"regions of task {seq}"):
                measured = one.told(attempt.channel, measured)
            forget(attempt.channel)
        return measured

    def _record(
        self, attempt: Attempt, ending: Ending, measured: Measurement
    ) -> Record:
        one = self._watching
        command = one.command(attempt.text)
        record = filled(one.blank, attempt, measured, command=command, ending=ending)
        with self._noting(f"parameters of task {attempt.seq}"):
            parameters = one.parameters(attempt.seq, os.fsdecode(attempt.text))
            if parameters:
                shown = {name: one.hide(name, parameters[name]) for name in parameters}
                record = msgspec.structs.replace(record, parameters=shown)
        return record

    def _write(self, *, closing: bool) -> None:
        with self._noting("recording"):
            self._batch.flush()
        news, self._news = self._news, []
        self._append(news)
        now = time.monotonic()
        if closing or now >= self._sync_at:
            self._sync_at = now + _SYNC_INTERVAL
            self.floor = own_peak()
            self.trouble = self._batch.trouble or self.trouble
            with self._noting("writing the joblog to disk"):
                self._watching.sync()

    def _append(self, news: list[Started | Ended]) -> None:
        """Append events in one write; one that cannot be encoded is left out."""
        if not news:
            return
        try:
            self._watching.events.append(*news)
        except Exception:  # noqa: BLE001 - found out below, one by one
            for event in news:
                with self._noting(f"an event of task {event.seq}"):
                    self._watching.events.append(event)


def _started(attempt: Attempt, run: str) -> Started:
    return Started(
        seq=attempt.seq,
        attempt=attempt.number,
        run=run,
        time=round(attempt.started, 3),
        slot=attempt.slot.number,
        pid=attempt.pid,
        start_time=attempt.start_time,
        task=f"{crc32(attempt.text):08x}",
        gpu=attempt.slot.gpu,
        memory=attempt.share.memory or None,
        gpu_memory=attempt.share.gpu_memory or None,
        alone=attempt.alone,
    )


def _ended(attempt: Attempt, ending: Ending, usage: Usage) -> Ended:
    peak, cpu_time = usage.peak_memory, usage.cpu_time
    if peak is not None and peak.anonymous is None and not attempt.peak:
        peak = None  # no more is known than how large weigh itself is
    return Ended(
        seq=attempt.seq,
        attempt=attempt.number,
        time=round(attempt.started + attempt.ended - attempt.began, 3),
        state=ending.state,
        exit_code=ending.exit_code,
        signal=ending.signal,
        record=attempt.record,
        reason=None if ending.outcome is None else ending.outcome.reason,
        again=attempt.again,
        wall_time=round(usage.wall_time, 4),
        cpu_time=None if cpu_time is None else round(cpu_time, 4),
        peak_memory=None if peak is None else peak.value,
        gpu_memory=max((gpu.job_peak or 0 for gpu in usage.gpus), default=None),
    )


def new_records() -> Callable[[], str]:
    """Give what draws the ids of records: random ones, many at a time."""
    drawn: deque[str] = deque()

    def draw() -> str:
        if not drawn:
            text = os.urandom(6 * 64).hex()
            drawn.extend(text[at : at + 12] for at in range(0, len(text), 12))
        return drawn.popleft()

    return draw
