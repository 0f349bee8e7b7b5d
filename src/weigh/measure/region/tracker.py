"""Measure all regions of this process: one stack of spans, written to one file.

Any error here turns measuring off, with one warning; the program goes on. A fork starts
with a tracker of its own.
"""

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, TypeVar

from weigh.measure.region import channel
from weigh.measure.region.gpu_meter import ProbeFactory, RegionGpuMeter, visible_gpus
from weigh.measure.region.spans import (
    HighWater,
    LoopTotal,
    OpenLoop,
    OpenPhase,
    OpenRegion,
    PhaseTotal,
    cpu_time,
    here,
    step_in,
    step_out,
)
from weigh.model.record import ProgramEvent, ProgramRegions, WholeLoopForecast
from weigh.probe.gpu import GpuDevice
from weigh.probe.own_memory import OwnMemory, own_memory
from weigh.units import Bytes, Seconds

Report = Callable[["RegionTracker"], str]
_P = ParamSpec("_P")
_T = TypeVar("_T")

# a program that makes up names, sizes or events without end stays within some MiB
_MOST_PLACES = 1000  # phases; more of them share one
_DEEPEST = 32  # levels of nesting
_MOST_LOOPS = 100  # loops, by size and length; more of them share one
_MOST_EVENTS = 10_000  # events; the first ones are kept
_MORE = "(more phases)"
_OFTEN = 10  # calls after which a GPU reading may be a little old


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
        self.endings: set[Callable[[], None]] = set()  # of loops that run now
        self._warned: set[str] = set()
        self._file = channel.RegionFile(env, self.warn)
        self._meter = RegionGpuMeter(gpus, channel.clock, self.warn)
        self._high_water = HighWater(
            memory or own_memory(),
            self._meter,
            resets=env.get("WEIGH_EXACT_PHASES") != "0",
            before_reset=self._file.write_process,
        )
        self._phases: dict[tuple[str, ...], PhaseTotal] = {}
        self._loops: dict[str, LoopTotal] = {}
        self._events: list[ProgramEvent] = []
        self._started = channel.clock()

    @property
    def is_under_weigh_run(self) -> bool:
        """Whether ``weigh run`` reports the regions."""
        return self._file.is_under_weigh_run

    def enter(self, name: str) -> OpenPhase | None:
        """Start a region below the innermost open one; None if measuring is off."""
        region = self._enter(name)
        if region is not None:
            # the clocks start last, so that measuring does not count in the region
            step_in(region)
            region.cpu = cpu_time()
            region.start = channel.clock()
        return region

    def leave(self, region: OpenPhase) -> None:
        """End a region."""
        # the clock stops first, for the same reason
        now = channel.clock()
        region.wall = now - region.start
        region.cpu = cpu_time() - region.cpu
        step_out(region)
        self._leave(region, now)

    @_measures_or_turns_off
    def begin_loop(self, size: int | None, total: int | None) -> OpenLoop:
        """Start a loop over batches; None if measuring is off."""
        key = f"{size}/{total}"
        if key not in self._loops and len(self._loops) >= _MOST_LOOPS:
            key, size = "more", None
        if key not in self._loops:
            now = channel.clock()
            self._loops[key] = LoopTotal(now, now, key=key, size=size)
        loop = self._loops[key]
        if total is not None:
            loop.total = (loop.total or 0) + total
        region = OpenRegion(self, loop)
        self._high_water.open(region)
        return region

    @_measures_or_turns_off
    def add_batches(
        self,
        region: OpenLoop,
        times: Sequence[float],
        samples: int | None,
        shortest: int | None = None,
        *,
        ends: bool,
    ) -> None:
        """Add batches of a running loop, and read the memory."""
        if region.closed:
            return
        loop = region.total
        loop.add_batches(times, samples, shortest)
        (self._high_water.close if ends else self._high_water.look)(region)
        now = channel.clock()
        loop.add_memory(region, now)
        self._changed(now)

    @_measures_or_turns_off
    def add_length(self, region: OpenLoop, length: int) -> None:
        """Read the memory after a batch with the longest sample so far."""
        if not region.closed:
            self._high_water.look(region, often=True)
            region.total.add_length(length, region)

    @_measures_or_turns_off
    def add_forecast(self, region: OpenLoop, forecast: WholeLoopForecast) -> None:
        """Add what all batches take of a loop that ran some of them."""
        region.total.add_forecast(forecast)

    @_measures_or_turns_off
    def add_event(self, name: str, value: float | str | None) -> None:
        """Record an event of the program."""
        event = ProgramEvent(name, channel.clock(), value)
        self.changes += 1
        if len(self._events) >= _MOST_EVENTS:
            self.warn(f"only the first {_MOST_EVENTS} events are kept")
            return
        self._events.append(event)
        self._file.write(channel.EventLine(self._file.process, event))

    def gpus(self) -> tuple[tuple[GpuDevice, Bytes | None], ...]:
        """Return the visible GPUs, each with what is in use of it by all users."""
        with self.lock:
            self._meter.read()
            readings = self._meter.readings
            return tuple(
                (
                    gpu,
                    readings[gpu.uuid].memory_used if gpu.uuid in readings else None,
                )
                for gpu in self._meter.devices
            )

    def regions(self) -> ProgramRegions:
        """Return the regions so far, with times since the first one."""
        with self.lock:
            if not self.is_off:
                self._high_water.edge()
            lines = [
                self._file.process_line(self._high_water.peak, self._meter.usage()),
                *self._lines(self._totals()),
                *(channel.EventLine("", event) for event in self._events),
            ]
            return channel.regions_of_lines(
                lines, started=self._started, ended=channel.clock()
            )

    @_measures_or_turns_off
    def finish(self) -> None:
        """End all open regions, and write the final figures."""
        self._meter.close()  # the driver may be shut down by now
        for ending in tuple(self.endings):
            ending()
        now = channel.clock()
        for region in tuple(self._high_water.open_regions):
            if not isinstance(region.total, PhaseTotal):
                continue
            region.wall = now - region.start
            region.cpu = cpu_time() - region.cpu
            self._leave(region, now)
        self._high_water.edge()
        self._write_changes(now)
        self._file.at_the_end = True  # exit handlers may have regions

    def warn(self, line: str) -> None:
        """Print a warning on stderr, once."""
        if line not in self._warned:
            self._warned.add(line)
            print_error(f"weigh: {line}\n")

    @_measures_or_turns_off
    def _enter(self, name: str) -> OpenPhase:
        parent = here()
        # regions may end in another order, and a fork inherits those of its parent
        while parent is not None and (parent.closed or parent.owner is not self):
            parent = parent.parent
        total = self._phase_total(parent, name)
        region = OpenRegion(self, total, parent)
        total.entered += 1
        self._high_water.open(region, often=total.entered > _OFTEN)
        if total.entered == 1:  # shows where a killed job was
            total.before = region.before
            if self._file.has_room:
                self._write_changes(channel.clock())
        return region

    @_measures_or_turns_off
    def _leave(self, region: OpenPhase, current_time: Seconds) -> None:
        if region.closed:  # `finish` has closed it already
            return
        total = region.total
        self._high_water.close(region, often=total.entered > _OFTEN)
        total.add_call(region, current_time)
        self._changed(current_time)

    def _changed(self, current_time: Seconds) -> None:
        self.changes += 1
        if self._file.is_due(current_time):
            self._write_changes(current_time)

    def _phase_total(self, parent: OpenPhase | None, name: str) -> PhaseTotal:
        """Return the total of a phase; those too deep or too many share one."""
        path = (*(parent.total.path if parent else ()), name)
        if len(path) > _DEEPEST:
            path = (*path[: _DEEPEST - 1], _MORE)
        # too many: they share one at the top level
        if path not in self._phases and len(self._phases) >= _MOST_PLACES:
            path = (_MORE,)
        if path not in self._phases:
            now = channel.clock()
            self._phases[path] = PhaseTotal(now, now, path=path)
        return self._phases[path]

    def _write_changes(self, current_time: Seconds) -> None:
        """Write all changes for weigh run."""
        if not self._file.is_open:
            return
        peak, gpus = self._high_water.peak, self._meter.usage()
        if peak is not None or gpus:
            self._file.write_process(peak or 0, gpus)
        changed = [total for total in self._totals() if total.changed]
        for total in changed:
            total.changed = False
        self._file.write(*self._lines(changed))
        self._file.note_written(current_time)

    def _totals(self) -> tuple[PhaseTotal | LoopTotal, ...]:
        return (*self._phases.values(), *self._loops.values())

    def _lines(
        self, totals: Sequence[PhaseTotal | LoopTotal]
    ) -> Iterator[channel.PhaseLine | channel.BatchesLine]:
        for total in totals:
            yield total.line(self._file.process)


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


def is_current(tracker: object) -> bool:
    """Return whether *tracker* is this process's, not that of its parent."""
    return process.tracker is tracker


def leave_region(region: OpenPhase) -> None:
    """Leave a region, unless this is a fork of the process that entered it."""
    if is_current(region.owner):
        current().leave(region)
    else:
        step_out(region)


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
        tracker.is_under_weigh_run
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
    process = ProcessRegions(process.report)
    process.is_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
