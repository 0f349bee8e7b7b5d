"""The stack of open regions of a process, their memory, and what they add up to.

A region is a call of a phase or a running loop over batches. Each adds up in the total
of its phase, or of the loops of its size.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Generic, TypeVar

import msgspec

from weigh.measure.region.channel import BatchesLine, PhaseLine
from weigh.measure.region.gpu_meter import RegionGpuMeter, joined_gpu_memory, most
from weigh.model.gpu import GpuMemory
from weigh.model.record import (
    BatchTimes,
    LengthPeak,
    ProgramPhase,
    WholeLoopForecast,
)
from weigh.probe.own_memory import OwnMemory
from weigh.robust import median_of
from weigh.units import KIB, Bytes, Seconds

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

_RESET = "kernel high-water mark, started anew at each region"
_BOUND = "upper bound: the process's high-water mark, not reset"
_SLACK = 64 * KIB  # VmHWM's own counters are off by as much
# a phase called often costs 26 us (docs/python.md), a call of the driver more than that
_GPU_AGE = 0.1  # seconds

MOST_KEPT = 20_000  # durations for the median: 160 KB; of more, every 2nd, 4th...


class DurationSummary:
    """Durations with exact count, sum, minimum and maximum.

    The median is exact up to :data:`MOST_KEPT` durations; of more it is that of an even
    selection.
    """

    __slots__ = ("count", "kept", "maximum", "minimum", "stride", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Seconds = 0.0
        self.minimum: Seconds = float("inf")
        self.maximum: Seconds = 0.0
        self.kept = array("d")
        self.stride = 1  # of so many durations one is kept

    def extend(self, times: Sequence[float]) -> None:
        """Add durations."""
        if not times:
            return
        self.kept.extend(array("d", times[-self.count % self.stride :: self.stride]))
        self.count += len(times)
        self.total += sum(times)
        self.minimum = min(self.minimum, *times)
        self.maximum = max(self.maximum, *times)
        while len(self.kept) > MOST_KEPT:
            del self.kept[1::2]
            self.stride *= 2

    def median(self) -> Seconds | None:
        """Return the median; None without durations."""
        return median_of(self.kept) if self.count else None


class RegionTotal(msgspec.Struct, eq=False):
    """What the calls of a phase, or the loops of one size, add up to so far."""

    start: Seconds
    end: Seconds
    peak: Bytes | None = None  # the highest of all
    exact: bool = False  # whether that peak is
    gpus: tuple[GpuMemory, ...] = ()
    changed: bool = True  # since it was written

    def add_memory(self, region: "OpenRegion[Any]", current_time: Seconds) -> None:
        """Add the memory figures of a region up to now."""
        self.end = current_time
        self.changed = True
        self.gpus = joined_gpu_memory(self.gpus, region.gpus)
        if region.peak is None or region.peak < (self.peak or 0):
            return
        # several regions may have the same peak: one exact figure is enough
        self.exact = region.exact or (self.exact and region.peak == self.peak)
        self.peak = region.peak


class PhaseTotal(RegionTotal):
    """All calls of one phase at one place in the nesting; times add up."""

    path: tuple[str, ...] = ()
    entered: int = 0  # calls begun
    calls: int = 0  # calls ended
    wall: Seconds = 0.0
    cpu: Seconds = 0.0
    before: Bytes | None = None
    after: Bytes | None = None

    def add_call(self, region: "OpenRegion[PhaseTotal]", end: Seconds) -> None:
        """Add a call that has ended."""
        self.calls += 1
        self.wall += region.wall
        self.cpu += region.cpu
        self.after = region.after
        self.add_memory(region, end)

    def line(self, process: str) -> PhaseLine:
        """Return the calls so far."""
        source = _RESET if self.exact else _BOUND
        phase = ProgramPhase(
            name=self.path[-1],
            depth=len(self.path) - 1,
            calls=self.calls,
            start=self.start,
            end=self.end,
            wall_time=self.wall,
            cpu_time=self.cpu if self.calls else None,
            memory_before=self.before,
            memory_after=self.after,
            peak_memory=self.peak,
            gpus=self.gpus,
            source=None if self.peak is None else source,
        )
        return PhaseLine(process, self.path, phase)


class LoopTotal(RegionTotal):
    """All loops over batches of one nominal size and expected count."""

    key: str = ""  # size and expected count
    size: int | None = None
    times: DurationSummary = msgspec.field(default_factory=DurationSummary)
    samples: int | None = 0  # None: a batch could not be counted
    total: int | None = None  # batches that are expected; None: unknown
    shortest: int | None = None  # of the shortest batch; None: no lengths
    lengths: list[LengthPeak] = []  # each longer than the one before
    forecast: WholeLoopForecast | None = None  # None: all batches ran

    def add_batches(
        self, times: Sequence[float], samples: int | None, shortest: int | None
    ) -> None:
        """Add batches; their samples are unknown if any are unknown."""
        self.times.extend(times)
        known = self.samples is not None and samples is not None
        self.samples = (self.samples or 0) + (samples or 0) if known else None
        if shortest is not None:
            self.shortest = min(shortest, self.shortest or shortest)

    def add_length(self, length: int, region: "OpenRegion[LoopTotal]") -> None:
        """Add the memory by the end of a batch that may be the longest so far."""
        # a length that was seen already: the first reading belongs to it
        if self.lengths and length <= self.lengths[-1].length:
            return
        on_gpu = max((gpu.of_program for gpu in region.gpus), default=None)
        self.lengths.append(LengthPeak(length, region.peak, on_gpu))

    def add_forecast(self, forecast: WholeLoopForecast) -> None:
        """Add another pass of which some batches ran."""
        if self.forecast is not None:
            forecast = self.forecast.joined(forecast)
        self.forecast = forecast

    def line(self, process: str) -> BatchesLine:
        """Return the figures so far."""
        times = self.times
        some = times.count > 0
        batches = BatchTimes(
            size=self.size,
            count=times.count,
            samples=self.samples,
            time_min=times.minimum if some else None,
            time_mean=times.total / times.count if some else None,
            time_median=times.median(),
            time_max=times.maximum if some else None,
            time_per_sample=times.total / self.samples if self.samples else None,
            peak_memory=self.peak,
            gpus=self.gpus,
            # the loop has reached its end
            total=self.total if self.forecast is None else times.count,
            start=self.start if some else None,
            end=self.end if some else None,
            shortest=self.shortest,
            lengths=tuple(self.lengths),
            forecast=self.forecast,
        )
        return BatchesLine(process, self.key, times.total, batches)


_Total = TypeVar("_Total", bound=RegionTotal)


class OpenRegion(msgspec.Struct, Generic[_Total], eq=False):
    """A call of a phase or a running loop, and its memory from the start until now."""

    owner: object  # the tracker that opened it: a fork inherits those of its parent
    total: _Total
    parent: "OpenRegion[PhaseTotal] | None" = None
    start: Seconds = 0.0
    wall: Seconds = 0.0
    cpu: Seconds = 0.0
    before: Bytes | None = None  # bytes; None: not known
    after: Bytes | None = None
    peak: Bytes | None = None
    exact: bool = False  # whether the peak is; known at the end
    gpus: tuple[GpuMemory, ...] = ()
    closed: bool = False


OpenPhase = OpenRegion[PhaseTotal]
OpenLoop = OpenRegion[LoopTotal]
_innermost: ContextVar[OpenPhase | None] = ContextVar("weigh_region", default=None)


def here() -> OpenPhase | None:
    """Return this thread's or task's region; it may have ended, or be a parent's."""
    return _innermost.get()


def step_in(region: OpenPhase) -> None:
    """Make *region* the innermost region here."""
    _innermost.set(region)


def step_out(region: OpenPhase) -> None:
    """Make the parent of *region* the innermost region, if *region* is that now."""
    # it may have ended in another task than it began in
    if here() is region:
        _innermost.set(region.parent)


def cpu_time() -> Seconds:
    """Return the CPU seconds of this process and its waited-for children."""
    if resource is None:
        return time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = float(children.ru_utime + children.ru_stime)
    return time.process_time() + waited_for


class HighWater:
    """Peaks of all open regions, from the kernel's single high-water mark.

    Every start and end of a region reads the mark, stores it for all open regions and
    for the process (``peak``), and resets it if it *resets*. Only a spike of another
    thread between reading and resetting is lost. *before_reset* is called with the
    process's peak before a reset; if it returns False, the mark is not reset any more.
    """

    def __init__(
        self,
        memory: OwnMemory,
        meter: RegionGpuMeter,
        *,
        resets: bool,
        before_reset: Callable[[Bytes], bool],
    ) -> None:
        self.open_regions: set[OpenRegion[Any]] = set()
        self.resets = resets
        self.peak: Bytes | None = None
        self._memory = memory
        self._meter = meter
        self._before_reset = before_reset
        self._moment: tuple[GpuMemory, ...] = ()

    def open(self, region: OpenRegion[Any], *, often: bool = False) -> None:
        """Open *region*; if that happens *often*, GPU figures may be a little old."""
        region.gpus = self._read_gpus(often=often)
        region.before, mark = self.edge()
        # a mark that was not reset is only an upper bound
        region.peak = region.before if self.resets else mark
        self.open_regions.add(region)

    def look(self, region: OpenRegion[Any], *, often: bool = False) -> None:
        """Update an open region."""
        self._read_gpus(often=often)
        region.after, _ = self.edge()
        region.exact = self.resets

    def close(self, region: OpenRegion[Any], *, often: bool = False) -> None:
        """Close *region*."""
        self.look(region, often=often)
        region.closed = True
        self.open_regions.discard(region)

    def edge(self) -> tuple[Bytes | None, Bytes | None]:
        """Store the mark for all open regions, then reset it.

        Returns:
            The resident size, and the mark before the reset.
        """
        reading = self._memory.read()
        if reading is None:
            self.resets = False
            return None, None
        resident, mark = reading
        # the mark is the process's, so it counts for all that is open
        for region in tuple(self.open_regions):
            region.peak = most(region.peak, mark)
        self.peak = max(self.peak or 0, mark)
        # a mark at what is held now needs no reset
        if self.resets and mark > resident + _SLACK:
            self.resets = self._before_reset(self.peak) and self._memory.reset()
        return resident, mark

    def _read_gpus(self, *, often: bool) -> tuple[GpuMemory, ...]:
        moment = self._meter.read(_GPU_AGE if often else 0.0)
        if moment is not self._moment:  # otherwise all open regions have it
            self._moment = moment
            for region in tuple(self.open_regions):
                region.gpus = joined_gpu_memory(region.gpus, moment)
        return moment
