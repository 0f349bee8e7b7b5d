"""Readings and looks made by hand, in round numbers."""

from collections.abc import Mapping

from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.peak import PeakTracker
from weigh.model.record import PeakMemory, TreeSample
from weigh.probe.proc import ProcessReading
from weigh.units import MIB

INTERVAL = 0.05


def reading(pid: int, resident: int, peak: int | None = None) -> ProcessReading:
    """Write a process all of whose memory is anonymous."""
    return ProcessReading(
        pid=pid,
        virtual=2 * resident,
        virtual_peak=2 * (peak or resident),
        resident=resident,
        peak=peak or resident,
        anonymous=resident,
        file=0,
        shared=0,
    )


def unshared(*readings: ProcessReading) -> MemoryHolding:
    """Add up processes that share nothing."""
    total = sum(reading.resident for reading in readings)
    return MemoryHolding(anonymous=total, shared=0, file=0, low=total, high=total)


class Looks:
    """A tracker that is shown processes by their sizes."""

    def __init__(self, floor: int = 0) -> None:
        self.tracker = PeakTracker(floor)
        self.now = 0.0

    def look(
        self,
        sizes: Mapping[int, int | tuple[int, int]],
        inherited: Mapping[int, int] | None = None,
    ) -> TreeSample:
        """Show processes as ``{pid: resident}`` or ``{pid: (resident, peak)}``."""
        self.now += INTERVAL
        readings = [
            reading(pid, *(size if isinstance(size, tuple) else (size,)))
            for pid, size in sizes.items()
        ]
        held = unshared(*readings)
        return self.tracker.look(self.now, readings, held, inherited or {})

    def end(self, max_rss: int) -> PeakMemory:
        """Reap the last of them; give the peak."""
        self.tracker.reap(max_rss)
        self.tracker.finish(self.now + INTERVAL)
        return self.peak()

    def peak(self) -> PeakMemory:
        """Give the peak as known by now."""
        peak = self.tracker.peak("by hand")
        assert peak is not None
        return peak


HUNDRED = 100 * MIB
