"""Derive the peak of every open region from the kernel's single high-water mark.

Every start and end of a region reads the mark, stores it for all open spans and for the
process, and resets it. Only a spike of another thread between reading and resetting is
lost. The caller holds a lock.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from weigh.measure.region.account import RegionSpan
from weigh.measure.region.gpu_meter import GpuMark, GpuSpan, RegionGpuMeter, most
from weigh.probe.own_memory import OwnMemory
from weigh.units import KIB, Bytes, Seconds

_SLACK = 64 * KIB  # VmHWM's own counters are off by as much
_GPU_AGE = 0.1  # seconds
_FEW = 100  # surplus over twice the open spans at which marks are dropped


class HighWaterMark:
    """The highest mark since any moment.

    A mark is dropped when a later one reaches it, so the kept marks are descending.
    """

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._marks: list[Bytes] = []
        self._now = 0

    def __len__(self) -> int:
        return len(self._marks)

    def moment(self) -> int:
        """Start a new moment and return its number."""
        self._now += 1
        return self._now

    def take(self, mark: Bytes) -> None:
        """Add a mark."""
        while self._marks and self._marks[-1] <= mark:
            self._marks.pop()
            self._moments.pop()
        # of one moment only the highest mark stays
        if not self._moments or self._moments[-1] < self._now:
            self._marks.append(mark)
            self._moments.append(self._now)

    def since(self, moment: int) -> Bytes | None:
        """Return the highest mark since *moment*; None if there was none."""
        at = bisect_left(self._moments, moment)
        return self._marks[at] if at < len(self._marks) else None

    def keep_since(self, moments: Iterable[int]) -> None:
        """Drop the marks that none of *moments* needs."""
        # of each moment only the first mark since then is needed
        places = {bisect_left(self._moments, moment) for moment in moments}
        places.discard(len(self._marks))
        kept = sorted(places)
        self._moments = [self._moments[at] for at in kept]
        self._marks = [self._marks[at] for at in kept]


class HighWater:
    """Peaks of all open spans; ``peak`` is the process's own.

    Args:
        memory: the source of this process's memory figures.
        meter: the source of the GPUs' figures.
        resets: whether the mark may be reset.
        before_reset: called with the process's peak before a reset; if it returns
            False, the mark is not reset any more.
    """

    def __init__(
        self,
        memory: OwnMemory,
        meter: RegionGpuMeter,
        *,
        resets: bool,
        before_reset: Callable[[Bytes], bool],
    ) -> None:
        self.resets = resets
        self.peak: Bytes | None = None
        self._memory = memory
        self._meter = meter
        self._before_reset = before_reset
        self._open: set[RegionSpan] = set()
        self._highest = HighWaterMark()
        self._marks: tuple[GpuMark, ...] = ()

    def open(self, region_span: RegionSpan, *, often: bool = False) -> None:
        """Open *region_span*.

        If that happens *often*, GPU figures may be a little old.
        """
        marks = self._read_gpus(_GPU_AGE if often else 0.0)
        region_span.gpus = GpuSpan(marks) if marks else None
        resident, mark = self.edge()
        region_span.before = resident
        region_span.mark = mark
        # a mark that was not reset is only an upper bound
        region_span.peak = resident if self.resets else mark
        region_span.moment = self._highest.moment()
        self._open.add(region_span)

    def close(self, region_span: RegionSpan, *, often: bool = False) -> None:
        """Close *region_span*."""
        self.look(region_span, often=often)
        region_span.closed = True
        self._open.discard(region_span)

    def look(self, region_span: RegionSpan, *, often: bool = False) -> None:
        """Update an open span."""
        self._read_gpus(_GPU_AGE if often else 0.0)
        # of all open spans: the mark is the process's, not the region's
        resident, mark = self.edge()
        region_span.after = resident
        region_span.peak = most(
            region_span.peak, self._highest.since(region_span.moment)
        )
        rose = (
            mark is not None
            and region_span.mark is not None
            and mark > region_span.mark
        )
        region_span.exact = self.resets or region_span.exact or rose

    def edge(self) -> tuple[Bytes | None, Bytes | None]:
        """Store the mark for all open spans, then reset it.

        Returns:
            The resident size, and the mark before the reset.
        """
        reading = self._memory.read()
        if reading is None:
            self.resets = False
            return None, None
        resident, mark = reading
        self._highest.take(mark)
        if len(self._highest) > 2 * len(self._open) + _FEW:
            self._highest.keep_since(span.moment for span in self._open)
        self.peak = max(self.peak or 0, mark)
        # a mark at what is held now needs no reset
        if self.resets and mark > resident + _SLACK:
            self.resets = self._before_reset(self.peak) and self._memory.reset()
        return resident, mark

    def _read_gpus(self, at_most_old: Seconds) -> tuple[GpuMark, ...]:
        marks = self._meter.read(at_most_old)
        if marks is not self._marks:  # otherwise all open spans have them
            self._marks = marks
            for span in tuple(self._open):
                if span.gpus is not None:
                    span.gpus.fold(marks)
        return marks
