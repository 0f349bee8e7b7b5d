"""Measure all regions of this process: one stack of spans, written to one file.

A region is a call of a phase or a running loop over batches. Any error here turns
measuring off, with one warning; the program goes on. A fork starts with a tracker of
its own.
"""

# ruff: noqa: ANN401 - any loader's batch

import atexit
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from math import isnan
from threading import RLock
from types import ModuleType
from typing import Any, NoReturn, Self, TypeVar

import msgspec

from weigh.errors import UsageError, is_raised_by_program
from weigh.measure.gpu_account import GpuAccount
from weigh.measure.region.batch_shapes import rows_of_batch, shape_of_rows
from weigh.measure.region.channel import (
    BOUND,
    MARK_SLACK,
    MOST_EVENTS,
    PhasePath,
    RegionFile,
    RegionLine,
    clock,
    joined_phases,
    regions_of_lines,
)
from weigh.measure.region.gpu_meter import ProbeFactory, RegionGpuMeter
from weigh.measure.region.peaks import PeaksSince, joined_gpu_memory, most
from weigh.model.gpu import GpuMemory
from weigh.model.record import (
    BatchTimes,
    LengthPeak,
    ProgramEvent,
    ProgramPhase,
    ProgramRegions,
    WholeLoopForecast,
)
from weigh.probe.driver import visible_gpus
from weigh.probe.gpu_libraries import wait_quietly
from weigh.probe.own_memory import OwnMemory, own_memory
from weigh.robust import median_of
from weigh.units import Bytes, Seconds

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

Report = Callable[["RegionTracker"], str]
_Step = TypeVar("_Step", bound=Callable[..., Any])
_Key = PhasePath | str  # of a loop size and length

# a program that makes up names, sizes or events without end stays within some MiB
_MOST_PLACES = 1000  # phases; more of them share one
_MOST_LOOPS = 100  # loops, by size and length; more of them share one
_MORE = "(more phases)"
_RESET = "kernel high-water mark, started anew at each region"
MOST_KEPT = 20_000  # durations for the median: 160 KB; of more, every 2nd, 4th...
# what makes a batch so much longer that the memory is read: of a loader that sorts its
# samples each batch is longer, and these are a hundred readings from 1 to 130 tokens
_LONGER = 21 / 20


class OpenRegion(msgspec.Struct, eq=False):
    """A region and its memory from its start until now, or until it ended."""

    # None: it is not open; that of another process: a fork inherits its parent's
    tracker: "RegionTracker | None" = None
    before: Bytes | None = None  # None: not known, as for all memory
    after: Bytes | None = None
    peak_memory: Bytes | None = None  # of this process
    gpus: tuple[GpuMemory, ...] = ()
    opened_at: int = 0  # the number of the edge

    def end(self) -> None:
        """End the region, if it is open."""
        raise NotImplementedError


class MeasuredRegion(OpenRegion, eq=False):
    """A call of a phase: the block of a ``with`` statement.

    Its figures are available after its end. It can be used once. ``and_then`` is
    called with its name at the end.
    """

    name: str = ""
    sync: bool = False  # wait for the GPU at both edges
    and_then: Callable[[str], None] | None = None
    is_used: bool = False
    path: PhasePath = ()
    parent: "MeasuredRegion | None" = None
    is_recursive: bool = False  # called within another call of this phase
    start: Seconds = 0.0
    cpu_start: Seconds = 0.0
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None  # of the whole process

    def __enter__(self) -> Self:
        if self.is_used:
            raise UsageError(
                f"phase {self.name!r} is used twice: "
                "write `with weigh.phase(...)` anew each time"
            )
        self.is_used = True
        if self.sync:
            wait_quietly()
        try:
            current().enter(self)
        except BaseException:  # of a signal's handler: the block will not run
            self.tracker = None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.sync:
            wait_quietly()
        self.end()
        if self.and_then is not None:
            self.and_then(self.name)

    def __call__(self, *_: object) -> NoReturn:
        """Raise UsageError: a phase is no decorator."""
        raise UsageError(
            f"phase {self.name!r} goes into a with statement; above a function, "
            f"write @weigh.measured(name={self.name!r})"
        )

    def end(self) -> None:
        """End the call, if it is open."""
        # the clocks stop first, so that measuring does not count in the region
        now, cpu = clock(), cpu_time()
        tracker = self.tracker  # another thread may end all regions
        if tracker is not None:
            self.wall_time, self.cpu_time = now - self.start, cpu - self.cpu_start
            tracker.leave(self, now, cpu)


# of this thread or task; it may have ended, or be that of the parent of a fork
innermost: ContextVar[MeasuredRegion | None] = ContextVar("weigh_region", default=None)


def cpu_time() -> Seconds:
    """Return the CPU seconds of this process and its waited-for children."""
    if resource is None:
        return time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = float(children.ru_utime + children.ru_stime)
    return time.process_time() + waited_for


class PhaseTotal(msgspec.Struct, eq=False):
    """All calls of one phase, so far."""

    figures: ProgramPhase
    running: int = 0  # calls: threads, tasks and recursion have several at once
    cpu_counted: Seconds = 0.0  # until then, on the clock of cpu_time

    def begin(self, call: MeasuredRegion) -> None:
        """Note that a call begins."""
        if not self.running:
            self.cpu_counted = call.cpu_start
        self.running += 1

    def add(
        self, call: MeasuredRegion, end: Seconds, cpu: Seconds, source: str
    ) -> None:
        """Add a call, which ended when the clocks showed *end* and *cpu*.

        The CPU time is the whole process's, so that of calls at once counts once.
        """
        one = msgspec.structs.replace(
            self.figures,
            calls=1,
            start=call.start,
            end=end,
            wall_time=0.0 if call.is_recursive else end - call.start,
            cpu_time=cpu - self.cpu_counted,
            memory_before=call.before,
            memory_after=call.after,
            peak_memory=call.peak_memory,
            gpus=call.gpus,
            source=None if call.peak_memory is None else source,
        )
        self.figures = joined_phases(self.figures, one)
        self.running, self.cpu_counted = self.running - 1, cpu


class LoopTotal(msgspec.Struct, eq=False):
    """All loops over batches of one nominal size and expected count, so far.

    The median is exact up to :data:`MOST_KEPT` batches; of more it is that of an even
    selection.
    """

    key: str  # size and expected count
    batches: BatchTimes  # without samples, means and median
    seconds: float = 0.0
    samples: float = 0  # nan once a batch could not be counted
    kept: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    stride: int = 1  # of so many durations one is kept
    longest: float = 0.0  # the length from which on the memory is read

    def add(self, loop: "RunningLoop", end: Seconds) -> None:
        """Add the new batches of a running loop, and its memory."""
        times, so_far = loop.times, self.batches
        bounds = (so_far.time_min, so_far.time_max, *times)
        known = [seconds for seconds in bounds if seconds is not None]
        lengths = [one for one in (so_far.shortest, loop.shortest) if one is not None]
        count = so_far.count + len(times)
        self.seconds += sum(times)
        self.samples += loop.samples
        forecast = so_far.forecast
        if loop.forecast is not None:
            forecast = forecast.joined(loop.forecast) if forecast else loop.forecast
        if times:
            self.kept.extend(times[-so_far.count % self.stride :: self.stride])
        while len(self.kept) > MOST_KEPT:
            del self.kept[1::2]
            self.stride *= 2
        self.batches = msgspec.structs.replace(
            so_far,
            count=count,
            time_min=min(known, default=None),
            time_max=max(known, default=None),
            peak_memory=most(so_far.peak_memory, loop.peak_memory),
            gpus=joined_gpu_memory(so_far.gpus, loop.gpus),
            # of a loop of which some batches ran, these were all
            total=so_far.total if forecast is None else count,
            end=end,
            shortest=min(lengths, default=None),
            forecast=forecast,
        )

    def add_length(self, loop: "RunningLoop") -> None:
        """Add the memory by the end of the longest batch so far."""
        self.longest = loop.length * _LONGER
        on_gpu = max((gpu.of_program for gpu in loop.gpus), default=None)
        peak = LengthPeak(loop.length, loop.peak_memory, on_gpu)
        self.batches = msgspec.structs.replace(
            self.batches, lengths=(*self.batches.lengths, peak)
        )

    def figures(self) -> BatchTimes:
        """Return the figures so far."""
        count, seconds, samples = self.batches.count, self.seconds, self.samples
        return msgspec.structs.replace(
            self.batches,
            samples=None if isnan(samples) else samples,
            time_mean=seconds / count if count else None,
            time_median=median_of(self.kept) if self.kept else None,
            time_per_sample=seconds / samples if samples > 0 else None,
        )


class RunningLoop(OpenRegion, eq=False, kw_only=True):
    """A running loop, with its batches that are not yet added to its total."""

    total: LoopTotal
    times: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    samples: float = 0  # nan once a batch could not be counted
    length: int = 0  # of the longest sample in the last batch
    shortest: int | None = None  # such length; None: no batch has one
    has_lengths: bool = True
    plain: type | None = None  # the rows of such batches are the batches themselves
    forecast: WholeLoopForecast | None = None  # at its end; None: all batches ran

    def end(self) -> None:
        """Add the last batches, and end the loop."""
        self.flush(ends=True)

    def flush(self, *, ends: bool = False) -> None:
        """Add the batches since the last call to the total; read the memory."""
        tracker = self.tracker  # another thread may end all regions
        if tracker is not None:
            tracker.add_batches(self, ends=ends)
        self.samples = 0
        del self.times[:]

    def count(self, batch: Any) -> int:
        """Return the number of samples: 1 for text, the rows for columns.

        Notes the length of the longest sample: its text, list or padded row.

        Raises:
            Exception: the batch cannot be counted.
        """
        self.length, self.has_lengths = 0, False
        rows = rows_of_batch(batch, self.total.batches.size)
        # rows that are the batch itself: so are those of the next one of this type
        if rows is batch:
            self.plain = type(batch)
        shape = shape_of_rows(rows)
        if shape is None:
            return len(rows)
        self.length, self.has_lengths = shape.longest, True
        if self.shortest is None or self.length < self.shortest:
            self.shortest = self.length
        return shape.rows


def _measures_or_turns_off(step: _Step) -> _Step:
    """Run a step under the tracker's lock; an error turns measuring off, with None."""

    @wraps(step)
    def run(tracker: "RegionTracker", *args: Any, **kwargs: Any) -> Any:
        if tracker.is_off:
            return None
        try:
            with tracker.lock:
                return step(tracker, *args, **kwargs)
        except Exception as error:
            if is_raised_by_program(error):
                raise
            # the program must go on
            tracker.is_off = True
            name = type(error).__name__
            tracker.warn(f"regions are no longer measured: {name}: {error}")
            return None

    return run  # type: ignore[return-value] # called in the same way


class RegionTracker:
    """Measures the regions of one process.

    Peaks are the kernel's single high-water mark: every start and end of a region reads
    it, stores it for all that is open, and resets it. Only a spike of another thread
    between reading and resetting is lost.

    Args:
        env: the environment, with WEIGH_CHANNEL, WEIGH_EXACT_PHASES and the rank.
        memory: the source of this process's memory figures.
        gpus: creates the GPU probe when the first region starts.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        memory: OwnMemory | None = None,
        gpus: ProbeFactory | None = None,
    ) -> None:
        self.has_news = False  # figures that no report has shown
        self.is_off = False
        self.lock = RLock()
        self._warned: set[str] = set()
        self.file = RegionFile(env, self.warn)
        self._memory = memory or own_memory()
        self._resets = env.get("WEIGH_EXACT_PHASES") != "0"
        self._meter = RegionGpuMeter(gpus, clock, self.warn)
        self._open: set[OpenRegion] = set()
        self._peaks = PeaksSince()
        self._phases: dict[PhasePath, PhaseTotal] = {}
        self._loops: dict[str, LoopTotal] = {}
        self._unwritten: set[_Key] = set()  # what has changed since it was written
        self._events: list[ProgramEvent] = []
        self._started = clock()

    @_measures_or_turns_off
    def enter(self, phase: MeasuredRegion) -> None:
        """Start a phase below the innermost open one, unless measuring is off."""
        parent = self._open_call(innermost.get())
        outer = parent.path if parent else ()
        # recursion nests no deeper: a report of 500 levels serves nobody
        depth = outer.index(phase.name) if phase.name in outer else len(outer)
        path = (*outer[:depth], phase.name)
        if path not in self._phases and len(self._phases) >= _MOST_PLACES:
            path = (_MORE,)
        phase.path, phase.parent, phase.start = path, parent, clock()
        phase.is_recursive = self._open_call(parent, path) is not None
        self._begin(phase)
        if path not in self._phases:
            begun = (path[-1], len(path) - 1, 0, phase.start, phase.start, 0.0)
            self._phases[path] = PhaseTotal(
                ProgramPhase(*begun, memory_before=phase.before)
            )
            # at once: it shows where a killed job was
            self._note_change(path, phase.start, is_due=True)
        innermost.set(phase)
        # the clocks start last, so that measuring does not count in the phase
        phase.cpu_start = cpu_time()
        self._phases[path].begin(phase)
        phase.start = clock()

    @_measures_or_turns_off
    def leave(self, phase: MeasuredRegion, end: Seconds, cpu: Seconds) -> None:
        """Add a call of a phase, whose clocks have stopped at *end* and *cpu*."""
        if phase.tracker is self:
            self._look(phase, ends=True)
            source = _RESET if self._resets else BOUND
            self._phases[phase.path].add(phase, end, cpu, source)
            self._note_change(phase.path, end)

    def _open_call(
        self, call: MeasuredRegion | None, path: PhasePath | None = None
    ) -> MeasuredRegion | None:
        """Return the innermost call around that is open: *call*, or one around it.

        One may have ended in any order and in another task, or be a fork's parent's.
        With *path*, only calls of that phase count.
        """
        while call is not None and (
            call.tracker is not self or path not in (None, call.path)
        ):
            call = call.parent
        return call

    @_measures_or_turns_off
    def begin_loop(self, size: int | None, total: int | None) -> RunningLoop | None:
        """Start a loop over batches; None if measuring is off."""
        key = f"{size}/{total}"
        if key not in self._loops and len(self._loops) >= _MOST_LOOPS:
            key, size = "more", None
        now = clock()
        none = BatchTimes(size, 0, 0, start=now, end=now)
        loops = self._loops.setdefault(key, LoopTotal(key, none))
        if total is not None:
            expected = (loops.batches.total or 0) + total
            loops.batches = msgspec.structs.replace(loops.batches, total=expected)
        loop = RunningLoop(total=loops)
        self._begin(loop)
        return loop

    @_measures_or_turns_off
    def add_batches(self, loop: RunningLoop, *, ends: bool) -> None:
        """Add the new batches of a running loop; read the memory."""
        if loop.tracker is self:
            self._look(loop, ends=ends)
            now = clock()
            loop.total.add(loop, now)
            self._note_change(loop.total.key, now)

    @_measures_or_turns_off
    def add_length(self, loop: RunningLoop) -> None:
        """Read the memory after a batch with the longest sample so far."""
        self._look(loop)
        loop.total.add_length(loop)

    @_measures_or_turns_off
    def add_event(self, name: str, value: float | str | None) -> None:
        """Record an event of the program."""
        event = ProgramEvent(name, clock(), value)
        self.has_news = True
        if len(self._events) >= MOST_EVENTS:
            self.warn(f"only the first {MOST_EVENTS} events are kept")
            return
        self._events.append(event)
        self.file.write(self._line(events=(event,)))

    def gpus(self) -> tuple[GpuAccount, ...]:
        """Return the accounts of the visible GPUs, read anew."""
        with self.lock:
            self._meter.read()
            return tuple(self._meter.accounts.values())

    def regions(self) -> ProgramRegions:
        """Return the regions so far, with times since the first one."""
        with self.lock:
            if not self.is_off:
                self._edge()
            line = self._line((*self._phases, *self._loops), tuple(self._events))
            # without its rank: to one process, no news
            line = msgspec.structs.replace(line, rank=None)
            return regions_of_lines([line], started=self._started, ended=clock())

    @_measures_or_turns_off
    def finish(self) -> None:
        """End all open regions, and write the final figures."""
        self._meter.close()  # the driver may be shut down by now
        for region in tuple(self._open):
            region.end()
        self._edge()
        self._write_changes(clock())
        self.file.at_the_end = True  # exit handlers may have regions

    def warn(self, line: str) -> None:
        """Print a warning on stderr, once."""
        if line not in self._warned:
            self._warned.add(line)
            print_error(f"weigh: {line}\n")

    def _begin(self, region: OpenRegion) -> None:
        """Open a region."""
        region.before, mark, region.gpus = self._edge()
        region.opened_at = self._peaks.edges
        # a mark that was not reset is only an upper bound
        region.peak_memory = region.before if self._resets else mark
        region.tracker = self
        self._open.add(region)

    def _look(self, region: OpenRegion, *, ends: bool = False) -> None:
        """Update an open region, and close it if it *ends*."""
        region.after, _, gpus = self._edge()
        peaks, since = self._peaks, region.opened_at
        region.peak_memory = most(region.peak_memory, peaks.memory(since))
        peak_gpus = (peaks.on_gpu(gpu, since) for gpu in gpus)
        region.gpus = joined_gpu_memory(region.gpus, peak_gpus)
        if ends:
            region.tracker = None
            self._open.discard(region)

    def _edge(self) -> tuple[Bytes | None, Bytes | None, tuple[GpuMemory, ...]]:
        """Note the marks for all open regions, then reset that of the memory.

        Returns:
            The resident size, its mark before the reset, and the GPUs' memory.
        """
        gpus = self._meter.read()
        resident, mark = self._memory.read() or (None, None)
        # the mark is the process's, so it counts for all that is open
        self._peaks.add(mark, gpus)
        if resident is None or mark is None:
            self._resets = False
        # a mark at what is held now needs no reset
        elif self._resets and mark > resident + MARK_SLACK:
            is_kept = self.file.keep_peak(self._line())
            self._resets = is_kept and self._memory.reset()
        return resident, mark, gpus

    def _note_change(
        self, key: _Key, current_time: Seconds, *, is_due: bool = False
    ) -> None:
        self.has_news = True
        self._unwritten.add(key)
        if is_due or self.file.is_due(current_time):
            self._write_changes(current_time)

    def _write_changes(self, current_time: Seconds) -> None:
        """Write all changes for weigh run."""
        # a finalizer may add to it meanwhile
        changed, self._unwritten = self._unwritten, set()
        self.file.write_changes(self._line(changed), current_time)

    def _line(
        self, keys: Iterable[_Key] = (), events: tuple[ProgramEvent, ...] = ()
    ) -> RegionLine:
        """Return this process's figures, with those of its phases and loops *keys*."""
        return RegionLine(
            self.file.process,
            self.file.rank,
            self._peaks.memory(0),
            self._meter.usage(),
            tuple(
                (key, self._phases[key].figures)
                for key in keys
                if isinstance(key, tuple)
            ),
            {key: self._loops[key].figures() for key in keys if isinstance(key, str)},
            events,
        )


def print_error(text: str) -> None:
    """Write on stderr, if possible."""
    with suppress(AttributeError, OSError, ValueError):  # None, a broken pipe, closed
        sys.stderr.flush()
        # otherwise something stands in its place that may have no descriptor
        if sys.stderr is sys.__stderr__:
            # no buffered text that could fail at the program's end
            number = sys.stderr.fileno()  # type: ignore[union-attr] # it was flushed
            os.write(number, text.encode(errors="backslashreplace"))
        else:
            sys.stderr.write(text)
            sys.stderr.flush()


class ProcessRegions:
    """The tracker of this process; a fork starts without one."""

    def __init__(self, report: Report | None, *, is_child: bool = False) -> None:
        # another thread of the parent may hold the lock of before the fork
        self.making = RLock()
        self.tracker: RegionTracker | None = None
        # written on stderr at exit if anything was measured since `report_now`; not
        # under weigh run, in children, or with WEIGH_REPORT=0
        self.report = report
        self.is_child = is_child  # worker or fork of another process


process = ProcessRegions(None)


def current() -> RegionTracker:
    """Return this process's tracker; create it at the first call."""
    # each edge of a region asks: without a lock, once it is there
    if process.tracker is not None:
        return process.tracker
    # another thread may be making it
    with process.making:
        if process.tracker is None:
            gpus = None if process.is_child else visible_gpus  # NVML breaks at a fork
            process.tracker = RegionTracker(os.environ, gpus=gpus)
            _finish_at_exit()
        return process.tracker


def report_now(show: Callable[[str], None]) -> RegionTracker:
    """Let *show* print the report now; return its tracker."""
    tracker = current()
    if process.report is not None:
        show(process.report(tracker))
    tracker.has_news = False
    return tracker


def _finish_at_exit() -> None:
    atexit.register(finish_process)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _is_worker():  # workers end with os._exit
        util.Finalize(None, finish_process, exitpriority=0)


def finish_process() -> None:
    """End what this process measured, and report it unless somebody else does."""
    tracker = process.tracker
    if tracker is None:
        return
    tracker.finish()
    silent = (
        tracker.file.is_under_weigh_run
        or not tracker.has_news
        or os.environ.get("WEIGH_REPORT") == "0"
        or process.is_child
        or _is_worker()
    )
    if silent:
        return
    try:
        report_now(print_error)
    except Exception as error:  # noqa: BLE001 - the program's exit code stays
        print_error(f"weigh: no report: {type(error).__name__}: {error}\n")


def _is_worker() -> bool:
    """Return whether this is a worker process of multiprocessing or loky."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def _forget_parent() -> None:
    """Drop the parent's state, so that nothing is reported twice."""
    global process  # noqa: PLW0603 - the one of this process
    if process.tracker is not None:
        process.tracker.is_off = True  # its regions may end here, too
    process = ProcessRegions(process.report, is_child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
