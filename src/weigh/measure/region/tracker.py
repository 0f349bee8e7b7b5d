"""The tracker of one process, which measures all its regions.

Any error here turns measuring off, with one warning; the program goes on.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from threading import RLock

from weigh.measure.region import channel
from weigh.measure.region.account import (
    LoopSum,
    OpenRegion,
    RegionNode,
    RegionSpan,
    cpu_time,
    innermost,
    step_in,
    step_out,
)
from weigh.measure.region.durations import DurationSummary
from weigh.measure.region.gpu_meter import GpuMark, ProbeFactory, RegionGpuMeter
from weigh.measure.region.high_water import HighWater
from weigh.model.record import ProgramEvent, ProgramPhase, ProgramRegions
from weigh.probe.gpu import GpuDevice
from weigh.probe.own_memory import OwnMemory, own_memory
from weigh.units import MIB, Bytes, Seconds

_INTERVAL = 1.0  # seconds between writes, at most, early in a run
_SOON, _LATE = 5, 50  # fractions of the elapsed time between writes; at least 1 s
_PEAK_STEP = 1024  # a new peak is written if it is higher by this fraction
_MOST_WRITTEN = 32 * MIB  # beyond it, only the final figures are written


class EventThrottle:
    """Writes to the event file at limited intervals, until that fails.

    A failure is passed to *warn*. ``is_under_weigh_run`` is whether the file was ever
    written, so that weigh run reports the regions. With ``at_the_end``, changes are
    written immediately.
    """

    def __init__(
        self, env: Mapping[str, str], process: str, warn: Callable[[str], None]
    ) -> None:
        path = env.get(channel.VARIABLE)
        self.is_under_weigh_run = False
        self.at_the_end = False
        self.process = process
        self._warn = warn
        # a path is set, whether or not the file can be written here
        self._has_wrapper = bool(path)
        self._writer = channel.ChannelWriter(path) if path else None
        self._peak = 0
        self._began = self._due = channel.clock()
        self.write(channel.this_process(env, process))
        # the first line has reached the file
        self.is_under_weigh_run = self.is_open

    @property
    def is_open(self) -> bool:
        """Whether the event file can be written."""
        return self._writer is not None

    def write(self, *lines: channel.Line) -> None:
        """Write *lines* now."""
        if self._writer is None or not lines:
            return
        try:
            self._writer.write(lines)
        except OSError as error:
            self._writer = None
            self._warn_why(error)

    def write_peak(self, peak: Bytes) -> bool:
        """Write the process's own peak before it is lost; return False on failure."""
        if not self._has_wrapper:
            # without weigh run nobody reads the file, and nothing is lost by a reset
            return True
        if peak > self._peak + self._peak // _PEAK_STEP:
            self._peak = peak
            self.write(channel.PeakLine(self.process, peak))
        return self._writer is not None

    @property
    def has_room(self) -> bool:
        """Whether more than the final figures may be written."""
        return self._writer is not None and self._writer.written < _MOST_WRITTEN

    def is_due(self, current_time: Seconds) -> bool:
        """Return whether it is time to write the changes."""
        return self.has_room and (current_time >= self._due or self.at_the_end)

    def note_written(self, current_time: Seconds) -> None:
        """Set the next due time; the interval grows with the run."""
        gone = current_time - self._began
        # often at first, since a short program may be killed, then more and more seldom
        self._due = current_time + max(min(_INTERVAL, gone / _SOON), gone / _LATE)

    def _warn_why(self, os_error: OSError) -> None:
        if not isinstance(os_error, FileNotFoundError):
            self._warn(f"regions do not reach weigh run: {os_error.strerror}")
        elif not self.is_under_weigh_run:
            self._warn(
                "the file of weigh run is not here (another machine or a container): "
                "regions are reported here instead"
            )  # else weigh run has read it and ended


_MOST_PLACES = 1000  # nodes; more of them share one
_DEEPEST = 32  # levels of nesting
_MOST_LOOPS = 10  # by size and length; then by size; then all in one
_MOST_SIZES = 100  # loops, by size alone
_MOST_WARNINGS = 20
_MOST_EVENTS = 10_000  # events; the first ones are kept
_OFTEN = 10  # calls after which a GPU reading may be a little old
_MORE = "(more phases)"


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
        self._off = False
        self._lock = RLock()
        self._warned: set[str] = set()
        # a process id may be used again while the run lasts
        process = f"{os.getpid()}.{time.time_ns():x}"
        self._events_file = EventThrottle(env, process, self.warn)
        self._meter = RegionGpuMeter(gpus, channel.clock)
        self._high_water = HighWater(
            memory or own_memory(),
            self._meter,
            resets=env.get("WEIGH_EXACT_PHASES") != "0",
            before_reset=self._events_file.write_peak,
        )
        self._nodes: dict[tuple[str, ...], RegionNode] = {}
        self._open: set[OpenRegion] = set()
        self._loops: dict[str, LoopSum] = {}
        self._events: list[ProgramEvent] = []
        self._started = channel.clock()

    @property
    def is_under_weigh_run(self) -> bool:
        """Whether ``weigh run`` reports the regions."""
        return self._events_file.is_under_weigh_run

    def enter(self, name: str) -> OpenRegion | None:
        """Start a region below the innermost open one; None if measuring is off."""
        if self._off:
            return None
        try:
            with self._lock:
                account = self._enter(name)
        except Exception as error:  # noqa: BLE001 - the program must go on
            self._turn_off(error)
            return None
        # the clocks start last, so that measuring does not count in the region
        step_in(account)
        account.cpu = cpu_time()
        account.start = channel.clock()
        return account

    def leave(
        self,
        account: OpenRegion,
        wall: Seconds | None = None,
        cpu: Seconds | None = None,
    ) -> None:
        """End a region; *wall* and *cpu* are given if it did not run all the time."""
        # the clock stops first, for the same reason
        now = channel.clock()
        account.wall = now - account.start if wall is None else wall
        account.cpu = cpu_time() - account.cpu if cpu is None else cpu
        step_out(account)
        # `finish` has closed it already
        if self._off or account.span.closed:
            return
        try:
            with self._lock:
                self._leave(account, now)
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)

    def begin_loop(self, size: int | None, total: int | None) -> "OpenLoop | None":
        """Start a loop over batches; None if measuring is off."""
        if self._off:
            return None
        try:
            with self._lock:
                return OpenLoop(self._loop(size, total), self._opened(RegionSpan()))
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)
            return None

    def add_batches(
        self,
        loop: "OpenLoop",
        times: DurationSummary,
        samples: int | None,
        shortest: int | None = None,
        *,
        ends: bool,
    ) -> None:
        """Add batches of a running loop, and read the memory."""
        if self._off or loop.span.closed:
            return
        try:
            with self._lock:
                loop.sum.add_shortest(shortest)
                self._add_batches(loop, times, samples, ends=ends)
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)

    def add_length(self, loop: "OpenLoop", length: int) -> None:
        """Read the memory after a batch with the longest sample so far."""
        if self._off or loop.span.closed:
            return
        try:
            with self._lock:
                self._high_water.look(loop.span, often=True)
                loop.sum.add_length(length, loop.span)
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)

    def add_event(self, name: str, value: float | str | None) -> None:
        """Record an event of the program."""
        if self._off:
            return
        event = ProgramEvent(name, channel.clock(), value)
        try:
            with self._lock:
                self._add_event(event)
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)

    def gpus(self) -> tuple[tuple[GpuDevice, ...], tuple[GpuMark, ...]]:
        """Return the visible GPUs, and their memory."""
        with self._lock:
            marks = self._meter.read()
            return self._meter.devices, marks

    def regions(self) -> ProgramRegions:
        """Return the regions so far, with times since the first one."""
        with self._lock:
            if not self._off:
                self._high_water.edge()
            phases = {
                (-1, path): self._phase(node, self._started)
                for path, node in tuple(self._nodes.items())
            }
            loops = sorted(self._loops.values(), key=lambda loop: -loop.times.total)
            return ProgramRegions(
                phases=tuple(channel.in_order(phases)),
                batches=tuple(loop.batches(self._started) for loop in loops),
                events=tuple(
                    ProgramEvent(event.name, event.time - self._started, event.value)
                    for event in self._events
                ),
                peak_memory=self._high_water.peak,
                wall_time=channel.clock() - self._started,
                gpus=self._meter.usage(),
            )

    def finish(self) -> None:
        """End all open regions, and write the final figures."""
        if self._off:
            return
        try:
            with self._lock:
                self._meter.close()  # the driver may be shut down by now
                now = channel.clock()
                for account in tuple(self._open):
                    account.wall = now - account.start
                    account.cpu = cpu_time() - account.cpu
                    self._leave(account, now)
                self._high_water.edge()
                self._write_changes(now)
                self._events_file.at_the_end = True  # exit handlers may have regions
        except Exception as error:  # noqa: BLE001 - as above
            self._turn_off(error)

    def warn(self, line: str, *, matters: bool = True) -> None:
        """Print a warning on stderr, once; limit those that do not *matter*."""
        if line in self._warned or not (matters or len(self._warned) < _MOST_WARNINGS):
            return
        self._warned.add(line)
        print_error(f"weigh: {line}\n")

    def _enter(self, name: str) -> OpenRegion:
        parent = innermost(self)
        node = self._node(parent.node.path if parent else (), name)
        account = OpenRegion(self, node, parent)
        node.entered += 1
        self._opened(account.span, often=node.entered > _OFTEN)
        self._open.add(account)
        if node.entered == 1:  # shows where a killed job was
            node.before = account.span.before
            if self._events_file.has_room:
                self._write_changes(channel.clock())
        return account

    def _leave(self, account: OpenRegion, current_time: Seconds) -> None:
        node = account.node
        self._high_water.close(account.span, often=node.entered > _OFTEN)
        self._open.discard(account)
        node.add(account, current_time)
        self.changes += 1
        self._warn_of_gpu_trouble()
        if self._events_file.is_due(current_time):
            self._write_changes(current_time)

    def _opened(self, region_span: RegionSpan, *, often: bool = False) -> RegionSpan:
        self._high_water.open(region_span, often=often)
        self._warn_of_gpu_trouble()
        return region_span

    def _node(self, above: tuple[str, ...], name: str) -> RegionNode:
        """Return the node of a region; those too deep or too many share one."""
        path = (*above, name)
        if len(path) > _DEEPEST:
            path = (*path[: _DEEPEST - 1], _MORE)
        node = self._nodes.get(path)
        # too many: they share one node at the top level
        if node is None and len(self._nodes) >= _MOST_PLACES:
            path = (_MORE,)
            node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = RegionNode(path, channel.clock())
        return node

    def _loop(self, size: int | None, total: int | None) -> LoopSum:
        key = f"{size}/{total}"
        if key not in self._loops and len(self._loops) >= _MOST_LOOPS:
            key = f"{size}"
        if key not in self._loops and len(self._loops) >= _MOST_SIZES:
            key, size = "more", None
        loop = self._loops.setdefault(key, LoopSum(size, channel.clock()))
        loop.add_total(total)
        return loop

    def _add_event(self, event: ProgramEvent) -> None:
        self.changes += 1
        if len(self._events) >= _MOST_EVENTS:
            self.warn(f"only the first {_MOST_EVENTS} events are kept")
            return
        self._events.append(event)
        self._events_file.write(channel.EventLine(self._events_file.process, event))

    def _add_batches(
        self,
        loop: "OpenLoop",
        times: DurationSummary,
        samples: int | None,
        *,
        ends: bool,
    ) -> None:
        if ends:
            self._high_water.close(loop.span)
        else:
            self._high_water.look(loop.span)
        loop.sum.add(times, samples)
        now = channel.clock()
        loop.sum.look(loop.span, now)
        self.changes += 1
        self._warn_of_gpu_trouble()
        if self._events_file.is_due(now):
            self._write_changes(now)

    def _write_changes(self, current_time: Seconds) -> None:
        """Write all changes for weigh run."""
        if not self._events_file.is_open:
            return
        process = self._events_file.process
        if self._high_water.peak is not None:
            self._events_file.write_peak(self._high_water.peak)
        lines: list[channel.Line] = []
        for node in tuple(self._nodes.values()):
            if node.changed:
                node.changed = False
                lines.append(self._phase_line(node))
        for key, loop in tuple(self._loops.items()):
            if loop.changed and loop.times.count:
                loop.changed = False
                total = loop.times.total
                lines.append(channel.BatchesLine(process, key, total, loop.batches()))
        if self._meter.devices:
            lines.append(channel.GpusLine(process, self._meter.usage()))
        self._events_file.write(*lines)
        self._events_file.note_written(current_time)

    def _phase_line(self, cluster_node: RegionNode) -> channel.PhaseLine:
        phase = self._phase(cluster_node, 0.0)
        return channel.PhaseLine(self._events_file.process, cluster_node.path, phase)

    def _phase(self, cluster_node: RegionNode, origin: Seconds) -> ProgramPhase:
        return cluster_node.phase(origin, resets=self._high_water.resets)

    def _warn_of_gpu_trouble(self) -> None:
        if self._meter.trouble is not None:
            self.warn(self._meter.trouble)

    def _turn_off(self, error: Exception) -> None:
        self._off = True
        self.warn(f"regions are no longer measured: {type(error).__name__}: {error}")


class OpenLoop:
    """A running loop: its totals, and its own memory."""

    __slots__ = ("span", "sum")

    def __init__(self, total: LoopSum, region_span: RegionSpan) -> None:
        self.sum = total
        self.span = region_span


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
