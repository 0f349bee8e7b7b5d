"""Open regions of a process and their memory, and what loops add up to.

A region is a call of a phase or a running loop over batches.
"""

import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import msgspec

from weigh.measure.region.batch_shapes import longest_row, rows_of_batch
from weigh.measure.region.channel import BOUND, BatchesLine
from weigh.measure.region.gpu_meter import joined_gpu_memory, most
from weigh.model.gpu import GpuMemory
from weigh.model.record import BatchTimes, LengthPeak, ProgramPhase, WholeLoopForecast
from weigh.robust import median_of
from weigh.units import Bytes, Seconds

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None

_RESET = "kernel high-water mark, started anew at each region"
MOST_KEPT = 20_000  # durations for the median: 160 KB; of more, every 2nd, 4th...


class OpenRegion(msgspec.Struct, eq=False):
    """A region that is open, and its memory from the start until now."""

    owner: object = None  # the tracker that opened it: a fork inherits its parent's
    before: Bytes | None = None  # None: not known, as for all memory
    after: Bytes | None = None
    peak: Bytes | None = None
    exact: bool = False  # whether the peak is; known at the end
    gpus: tuple[GpuMemory, ...] = ()
    closed: bool = False


class OpenPhase(OpenRegion, eq=False):
    """A call of a phase; its figures are None until it has ended."""

    path: tuple[str, ...] = ()  # names of the phases around it and its own
    parent: "OpenPhase | None" = None
    start: Seconds = 0.0
    cpu_start: Seconds = 0.0
    wall_time: Seconds | None = None
    cpu_time: Seconds | None = None  # of the whole process
    peak_memory: Bytes | None = None  # of this process

    def figures(self) -> ProgramPhase:
        """Return the figures of a call, which may not have ended."""
        wall, has_ended = self.wall_time or 0.0, self.wall_time is not None
        source = _RESET if self.exact else BOUND
        return ProgramPhase(
            self.path[-1],
            len(self.path) - 1,
            int(has_ended),
            self.start,
            self.start + wall,
            wall,
            self.cpu_time,
            memory_before=self.before,
            memory_after=self.after,
            peak_memory=self.peak if has_ended else None,
            gpus=self.gpus if has_ended else (),
            source=source if has_ended and self.peak is not None else None,
        )


# of this thread or task; it may have ended, or be that of the parent of a fork
innermost: ContextVar[OpenPhase | None] = ContextVar("weigh_region", default=None)


def cpu_time() -> Seconds:
    """Return the CPU seconds of this process and its waited-for children."""
    if resource is None:
        return time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = float(children.ru_utime + children.ru_stime)
    return time.process_time() + waited_for


class LoopTotal(msgspec.Struct, eq=False):
    """All loops over batches of one nominal size and expected count.

    The median is exact up to :data:`MOST_KEPT` batches; of more it is that of an even
    selection.
    """

    key: str  # size and expected count
    size: int | None
    start: Seconds
    end: Seconds
    count: int = 0  # of batches that ran
    time: Seconds = 0.0  # of all of them
    quickest: Seconds | None = None
    slowest: Seconds | None = None
    kept: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    stride: int = 1  # of so many durations one is kept
    samples: int | None = 0  # None: a batch could not be counted
    total: int | None = None  # batches that are expected; None: unknown
    shortest: int | None = None  # of the shortest batch; None: no lengths
    lengths: list[LengthPeak] = []  # each longer than the one before
    forecast: WholeLoopForecast | None = None  # None: all batches ran
    peak: Bytes | None = None  # the highest of all
    gpus: tuple[GpuMemory, ...] = ()

    def add_times(self, times: Sequence[float]) -> None:
        """Add the durations of some batches."""
        if not times:
            return
        self.kept.extend(array("d", times[-self.count % self.stride :: self.stride]))
        self.count += len(times)
        self.time += sum(times)
        self.quickest = min(times if self.quickest is None else (self.quickest, *times))
        self.slowest = max(self.slowest or 0.0, *times)
        while len(self.kept) > MOST_KEPT:
            del self.kept[1::2]
            self.stride *= 2

    def add_forecast(self, forecast: WholeLoopForecast | None) -> None:
        """Add a pass of which some batches ran; None: all of them did."""
        if forecast is not None and self.forecast is not None:
            forecast = self.forecast.joined(forecast)
        self.forecast = forecast or self.forecast

    def line(self, process: str) -> BatchesLine:
        """Return the figures so far."""
        is_begun = self.count > 0
        batches = BatchTimes(
            size=self.size,
            count=self.count,
            samples=self.samples,
            time_min=self.quickest,
            time_mean=self.time / self.count if is_begun else None,
            time_median=median_of(self.kept) if is_begun else None,
            time_max=self.slowest,
            time_per_sample=self.time / self.samples if self.samples else None,
            peak_memory=self.peak,
            gpus=self.gpus,
            # the loop has reached its end
            total=self.total if self.forecast is None else self.count,
            start=self.start if is_begun else None,
            end=self.end if is_begun else None,
            shortest=self.shortest,
            lengths=tuple(self.lengths),
            forecast=self.forecast,
        )
        return BatchesLine(process, self.key, self.time, batches)


class RunningLoop(OpenRegion, eq=False, kw_only=True):
    """A running loop, with its batches that are not yet added to its total.

    Batches of the type ``plain`` are counted with len. ``longest`` is the length from
    which on a batch is so much longer that the memory is read.
    """

    total: LoopTotal
    times: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    samples: int = 0
    known: bool = True  # False once a batch could not be counted
    plain: type | None = None
    has_lengths: bool = True
    longest: float = 0.0
    shortest: int | None = None

    def add(self, time: Seconds, samples: int | None) -> None:
        """Add a batch; None: its samples are not known."""
        self.times.append(time)
        self.samples += samples or 0
        self.known = self.known and samples is not None

    def add_up(self, end: Seconds) -> None:
        """Add the batches, and the memory of this loop, to the total."""
        total = self.total
        total.end = end
        total.add_times(self.times)
        is_known = self.known and total.samples is not None
        total.samples = (total.samples or 0) + self.samples if is_known else None
        known = [one.shortest for one in (self, total) if one.shortest is not None]
        total.shortest = min(known, default=None)
        total.peak = most(total.peak, self.peak)
        total.gpus = joined_gpu_memory(total.gpus, self.gpus)

    def add_length(self, length: int) -> None:
        """Add the memory by the end of a batch that may be the longest so far."""
        # a length that was seen already: the first reading belongs to it
        lengths = self.total.lengths
        if not lengths or length > lengths[-1].length:
            on_gpu = max((gpu.of_program for gpu in self.gpus), default=None)
            lengths.append(LengthPeak(length, self.peak, on_gpu))

    def sample_count(self, batch: Any) -> int:  # noqa: ANN401 - any loader's batch
        """Return the number of samples: 1 for text, the rows for columns."""
        if isinstance(batch, str | bytes):
            return 1
        rows = rows_of_batch(batch, self.total.size)
        # rows that are the batch itself: the next one of this type needs only len
        if rows is batch:
            self.plain = type(batch)
        return len(rows)

    def length(self, batch: Any) -> int:  # noqa: ANN401 - as above
        """Return the length of the longest sample: its text, list or padded row.

        From the first batch without such samples on, it is not looked for.
        """
        found = None
        with suppress(Exception):  # as for the count of such a batch
            is_rows = type(batch) is self.plain
            found = longest_row(
                batch if is_rows else rows_of_batch(batch, self.total.size)
            )
        self.has_lengths = found is not None
        if found is not None and (self.shortest is None or found < self.shortest):
            self.shortest = found
        return found or 0
