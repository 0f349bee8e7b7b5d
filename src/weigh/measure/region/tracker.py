"""Measure all regions of this process: one stack of spans, written to one file.

Any error here turns measuring off, with one warning; the program goes on. A fork starts
with a tracker of its own.
"""

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, TypeVar

from weigh.measure.region.channel import (
    BatchesLine,
    EventLine,
    PhaseLine,
    ProcessLine,
    RegionFile,
    clock,
    joined_phases,
    regions_of_lines,
)
from weigh.measure.region.gpu_meter import (
    ProbeFactory,
    RegionGpuMeter,
    joined_gpu_memory,
    most,
    visible_gpus,
)
from weigh.measure.region.spans import (
    LoopTotal,
    OpenPhase,
    OpenRegion,
    RunningLoop,
    cpu_time,
    innermost,
)
from weigh.model.gpu import GpuMemory
from weigh.model.record import ProgramEvent, ProgramPhase, ProgramRegions
from weigh.probe.gpu import GpuDevice
from weigh.probe.own_memory import OwnMemory, own_memory
from weigh.units import KIB, Bytes, Seconds

Report = Callable[["RegionTracker"], str]
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Key = tuple[str, ...] | str  # of a phase the names, of a loop size and length

# a program that makes up names, sizes or events without end stays within some MiB
_MOST_PLACES = 1000  # phases; more of them share one
_DEEPEST = 32  # levels of nesting; what lies deeper shares that one, too
_MOST_LOOPS = 100  # loops, by size and length; more of them share one
_MOST_EVENTS = 10_000  # events; the first ones are kept
_MORE = "(more phases)"
# a phase called often costs 26 us (docs/python.md), a call of the driver more than
# that: from so many calls on, a GPU reading may be so old
_OFTEN, _GPU_AGE = 10, 0.1  # calls; seconds
_SLACK = 64 * KIB  # VmHWM's own counters are off by as much


def _measures_or_turns_off(
    step: "Callable[Concatenate[RegionTracker, _P], _T]",
) -> "Callable[Concatenate[RegionTracker, _P], _T | None]":
    """Run a step under the tracker's lock; an error turns measuring off, with None."""

    @wraps(step)
    def run(
        tracker: "RegionTracker", /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        if tracker.is_off:
            return None
        try:
            with tracker.lock:
                return step(tracker, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the program must go on
            tracker.is_off = True
            name = type(error).__name__
            tracker.warn(f"regions are no longer measured: {name}: {error}")
            return None

    return run


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
        self.changes = 0  # of the figures in a report
        self.is_off = False
        self.lock = RLock()
        self._warned: set[str] = set()
        self.file = RegionFile(env, self.warn)
        self._memory = memory or own_memory()
        self._resets = env.get("WEIGH_EXACT_PHASES") != "0"
        self._peak: Bytes | None = None
        self._meter = RegionGpuMeter(gpus, clock, self.warn)
        self._moment: tuple[GpuMemory, ...] = ()  # of the GPUs
        self._open: set[OpenRegion] = set()
        self._phases: dict[tuple[str, ...], ProgramPhase] = {}
        self._loops: dict[str, LoopTotal] = {}
        self._unwritten: set[_Key] = set()  # what has changed since it was written
        self._events: list[ProgramEvent] = []
        self._started = clock()

    @_measures_or_turns_off
    def enter(self, region: OpenPhase, name: str) -> None:
        """Start a phase below the innermost open one, unless measuring is off."""
        parent = innermost.get()
        # regions may end in another order, and a fork inherits those of its parent
        while parent is not None and (parent.closed or parent.owner is not self):
            parent = parent.parent
        path = (*(parent.path if parent else ()), name)
        is_full = path not in self._phases and len(self._phases) >= _MOST_PLACES
        if is_full or len(path) > _DEEPEST or path[0] == _MORE:
            path = (_MORE,)
        region.path, region.parent, region.start = path, parent, clock()
        self._begin(region, often=self._is_frequent(path))
        if path not in self._phases:
            self._phases[path] = region.figures()
            self._unwritten.add(path)
            if self.file.has_room:  # shows where a killed job was
                self._write_changes(region.start)
        region.owner = self
        innermost.set(region)
        # the clocks start last, so that measuring does not count in the region
        region.cpu_start = cpu_time()
        region.start = clock()

    @_measures_or_turns_off
    def leave(self, region: OpenPhase) -> None:
        """Add a call of a phase, whose clocks have stopped."""
        self._end(region, often=self._is_frequent(region.path))
        region.peak_memory = region.peak
        call = region.figures()
        self._phases[region.path] = joined_phases(self._phases[region.path], call)
        self._note_change(region.path, call.end)

    def _is_frequent(self, path: tuple[str, ...]) -> bool:
        return path in self._phases and self._phases[path].calls >= _OFTEN

    @_measures_or_turns_off
    def begin_loop(self, size: int | None, total: int | None) -> RunningLoop:
        """Start a loop over batches; None if measuring is off."""
        key = f"{size}/{total}"
        if key not in self._loops and len(self._loops) >= _MOST_LOOPS:
            key, size = "more", None
        now = clock()
        loop = self._loops.setdefault(key, LoopTotal(key, size, now, now))
        if total is not None:
            loop.total = (loop.total or 0) + total
        running = RunningLoop(self, total=loop)
        self._begin(running)
        return running

    def add_batches(self, loop: RunningLoop, *, ends: bool = False) -> None:
        """Add the batches of a running loop since the last call; read the memory."""
        self._add_batches(loop, ends=ends)
        loop.samples = 0
        del loop.times[:]

    @_measures_or_turns_off
    def _add_batches(self, loop: RunningLoop, *, ends: bool) -> None:
        if loop.owner is self and not loop.closed:
            (self._end if ends else self._look)(loop)
            now = clock()
            loop.add_up(now)
            self._note_change(loop.total.key, now)

    @_measures_or_turns_off
    def add_length(self, loop: RunningLoop, length: int) -> None:
        """Read the memory after a batch with the longest sample so far."""
        if not loop.closed:
            self._look(loop, often=True)
            loop.add_length(length)

    @_measures_or_turns_off
    def add_event(self, name: str, value: float | str | None) -> None:
        """Record an event of the program."""
        event = ProgramEvent(name, clock(), value)
        self.changes += 1
        if len(self._events) >= _MOST_EVENTS:
            self.warn(f"only the first {_MOST_EVENTS} events are kept")
            return
        self._events.append(event)
        self.file.write([EventLine(self.file.process, event)])

    def gpus(self) -> tuple[tuple[GpuDevice, Bytes | None], ...]:
        """Return the visible GPUs, each with what is in use of it by all users."""
        with self.lock:
            self._meter.read()
            return tuple(
                (gpu, self._meter.memory_used(gpu.uuid)) for gpu in self._meter.devices
            )

    def regions(self) -> ProgramRegions:
        """Return the regions so far, with times since the first one."""
        with self.lock:
            if not self.is_off:
                self._edge()
            lines = [
                # without its rank: to one process, that is no news
                ProcessLine("", memory=self._peak, gpus=self._meter.usage()),
                *self._lines((*self._phases, *self._loops)),
                *(EventLine("", event) for event in self._events),
            ]
            return regions_of_lines(lines, started=self._started, ended=clock())

    @_measures_or_turns_off
    def finish(self) -> None:
        """End all open regions, and write the final figures."""
        self._meter.close()  # the driver may be shut down by now
        for region in tuple(self._open):
            if isinstance(region, OpenPhase):
                leave_phase(region)
            elif isinstance(region, RunningLoop):
                self.add_batches(region, ends=True)
        self._edge()
        self._write_changes(clock())
        self.file.at_the_end = True  # exit handlers may have regions

    def warn(self, line: str) -> None:
        """Print a warning on stderr, once."""
        if line not in self._warned:
            self._warned.add(line)
            print_error(f"weigh: {line}\n")

    def _begin(self, region: OpenRegion, *, often: bool = False) -> None:
        """Open *region*; if that happens *often*, GPU figures may be a little old."""
        region.gpus = self._read_gpus(often=often)
        region.before, mark = self._edge()
        # a mark that was not reset is only an upper bound
        region.peak = region.before if self._resets else mark
        self._open.add(region)

    def _look(self, region: OpenRegion, *, often: bool = False) -> None:
        """Update an open region."""
        self._read_gpus(often=often)
        region.after, _ = self._edge()
        region.exact = self._resets

    def _end(self, region: OpenRegion, *, often: bool = False) -> None:
        """Close *region*."""
        self._look(region, often=often)
        region.closed = True
        self._open.discard(region)

    def _edge(self) -> tuple[Bytes | None, Bytes | None]:
        """Store the mark for all open regions, then reset it.

        Returns:
            The resident size, and the mark before the reset.
        """
        reading = self._memory.read()
        if reading is None:
            self._resets = False
            return None, None
        resident, mark = reading
        # the mark is the process's, so it counts for all that is open
        for region in tuple(self._open):
            region.peak = most(region.peak, mark)
        self._peak = most(self._peak, mark)
        # a mark at what is held now needs no reset
        if self._resets and mark > resident + _SLACK:
            is_kept = self.file.keep_peak(self._peak, self._meter.usage())
            self._resets = is_kept and self._memory.reset()
        return resident, mark

    def _read_gpus(self, *, often: bool) -> tuple[GpuMemory, ...]:
        moment = self._meter.read(_GPU_AGE if often else 0.0)
        if moment is not self._moment:  # otherwise all open regions have it
            self._moment = moment
            for region in tuple(self._open):
                region.gpus = joined_gpu_memory(region.gpus, moment)
        return moment

    def _note_change(self, key: _Key, current_time: Seconds) -> None:
        self.changes += 1
        self._unwritten.add(key)
        if self.file.is_due(current_time):
            self._write_changes(current_time)

    def _write_changes(self, current_time: Seconds) -> None:
        """Write all changes for weigh run."""
        own = self.file.process_line(self._peak, self._meter.usage())
        # a finalizer may add to it meanwhile
        changed, self._unwritten = self._unwritten, set()
        self.file.write_changes((own, *self._lines(changed)), current_time)

    def _lines(self, keys: Iterable[_Key]) -> Iterator[PhaseLine | BatchesLine]:
        process = self.file.process
        for key in keys:
            if isinstance(key, str):
                yield self._loops[key].line(process)
            else:
                yield PhaseLine(process, key, self._phases[key])


def print_error(text: str) -> None:
    """Write on stderr, if possible."""
    try:
        # otherwise something stands in its place that may have no descriptor
        if sys.stderr is sys.__stderr__ and sys.stderr is not None:
            sys.stderr.flush()
            os.write(sys.stderr.fileno(), text.encode(errors="backslashreplace"))
            return  # no buffered text that could fail at the program's end
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None, a broken pipe, closed
        return


class ProcessRegions:
    """The tracker of this process; a fork starts without one."""

    def __init__(self, report: Report | None = None) -> None:
        # another thread of the parent may hold the lock of before the fork
        self.making = RLock()
        self.tracker: RegionTracker | None = None
        self.report = report
        self.is_child = False  # worker or fork of another process
        self.reported = 0  # changes that were reported already


process = ProcessRegions()


def current() -> RegionTracker:
    """Return this process's tracker; create it at the first call."""
    if process.tracker is not None:
        return process.tracker
    with process.making:
        # another thread may have made it in the meantime
        if process.tracker is None:
            gpus = None if process.is_child else visible_gpus  # NVML breaks at a fork
            process.tracker = RegionTracker(os.environ, gpus=gpus)
            _finish_at_exit()
        return process.tracker


def leave_phase(region: OpenPhase) -> None:
    """End a call of a phase, unless this is a fork of the process that began it."""
    # the clocks stop first, for the same reason
    now, cpu = clock(), cpu_time()
    # it may have ended in another task than it began in
    if innermost.get() is region:
        innermost.set(region.parent)
    if isinstance(region.owner, RegionTracker) and not region.closed:
        region.wall_time, region.cpu_time = now - region.start, cpu - region.cpu_start
        region.owner.leave(region)


def report_at_exit(report: Report) -> None:
    """Write *report* on stderr at exit, if anything was measured.

    Not under ``weigh run``, in children, with WEIGH_REPORT=0, or if
    :func:`report_now` has written everything.
    """
    process.report = report


def report_now(show: Callable[[str], None]) -> RegionTracker:
    """Let *show* print the report now; return its tracker."""
    tracker = current()
    if process.report is not None:
        show(process.report(tracker))
    process.reported = tracker.changes
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
        or tracker.changes == process.reported
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
    process = ProcessRegions(process.report)
    process.is_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
