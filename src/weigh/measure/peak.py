"""Compute a tree's peak memory from samples; no access to the machine.

The kernel's high-water marks show spikes between two samples, and the ru_maxrss of a
reaped process shows its final size. What neither shows widens the bounds.
"""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.measure.shared_memory import Holding
from weigh.model.record import PeakMemory, Sample
from weigh.probe.proc import ProcessReading
from weigh.units import GIB, Bytes, Seconds

# Faulting memory in means zeroing it: no process is known to grow faster than this
_FASTEST_GROWTH = 4 * GIB  # bytes a second
_MOST_DEPARTURES = 16
_NOTHING: Mapping[int, Bytes] = {}
_SHORT = 0.1  # seconds; a shorter program is mostly start-up and exit
_UNSEEN = 1.05  # a reaped peak this far above all samples: an unseen process


class _Departure(msgspec.Struct, frozen=True):
    """Processes that ended between two samples, and may have grown before that.

    ``high`` is the upper bound of the tree's memory at the earlier sample, ``others``
    that memory without the largest ended process, ``held`` the memory of each ended
    process, and ``room`` how far one could grow between the samples.
    """

    others: Bytes
    high: Bytes
    held: tuple[Bytes, ...]
    room: Bytes

    def value(self, largest: Bytes) -> Bytes:
        """Estimate the peak if one of them grew to *largest*."""
        return self.others + largest

    def bound(self, largest: Bytes) -> Bytes:
        """Bound the peak if no process ever exceeded *largest*."""
        growth = (min(self.room, max(0, largest - held)) for held in self.held)
        return self.high + sum(growth)


class PeakTracker:
    """Computes the peak, with bounds, from samples of a tree."""

    def __init__(self, floor: Bytes) -> None:
        """Start; a ru_maxrss up to *floor* may be the launcher's own."""
        self.best: Bytes = 0
        self.largest: Bytes = 0
        self.virtual: Bytes = 0
        self._floor = floor
        self._low: Bytes = 0
        self._high: Bytes = 0
        self._grown: Bytes = 0
        self._at: Seconds | None = None
        self._split: Holding | None = None
        self._reaped: Bytes = 0
        self._last: Holding | None = None
        self._last_time: Seconds = 0.0
        self._residents: dict[int, Bytes] = {}
        self._whole: dict[int, Bytes] = {}
        self._peaks: dict[int, Bytes] = {}
        self._virtual_peaks: dict[int, Bytes] = {}
        self._departures: list[_Departure] = []
        self._met = 0
        self._ended_at: Seconds | None = None

    def look(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        held: Holding,
        inherited: Mapping[int, Bytes] = _NOTHING,
    ) -> Sample:
        """Add one sample of all processes of the tree.

        *inherited* is the memory that new forks share with their parents; a high-water
        mark below that shows no memory of their own.
        """
        self._note_changes(now, readings)
        self._settle()
        spikes = own_spikes = 0
        for reading in readings:
            spike = self._spike(reading)
            spikes += spike
            own_spikes += min(
                spike, max(0, reading.peak - inherited.get(reading.pid, 0))
            )
        virtual = sum(map(self._virtual_with_spike, readings))
        self.virtual = max(self.virtual, virtual)
        self._remember(readings)
        self._last, self._last_time = held, now
        self._low = max(self._low, held.low, self.largest)
        self._high = max(self._high, held.high + spikes)
        value = held.total + own_spikes
        if value > self.best:
            self.best, self._at, self._split = value, now, held
        return Sample(now, value, held.high + spikes, None, len(readings))

    def _remember(self, readings: Sequence[ProcessReading]) -> None:
        """Store each process's memory, as it is and with all mapped files.

        A fork maps its parent's files one after another, which is no growth of the
        tree.
        """
        self._residents = {reading.pid: reading.resident for reading in readings}
        files = max((reading.file for reading in readings), default=0)
        self._whole = {r.pid: r.resident - r.file + files for r in readings}

    def _spike(self, reading: ProcessReading) -> Bytes:
        """Return a process's excess over its current size since the last sample."""
        before = self._peaks.get(reading.pid)
        if before is None:
            self._met += 1
        elif reading.peak <= before:
            return 0
        self._peaks[reading.pid] = reading.peak
        self.largest = max(self.largest, reading.peak)
        return max(0, reading.peak - reading.resident)

    def _virtual_with_spike(self, reading: ProcessReading) -> Bytes:
        if reading.virtual_peak <= self._virtual_peaks.get(reading.pid, 0):
            return reading.virtual
        self._virtual_peaks[reading.pid] = reading.virtual_peak
        return max(reading.virtual, reading.virtual_peak)

    def stay(self, now: Seconds) -> None:
        """Note that nothing has changed since the last sample."""
        self._last_time = now

    def reap(self, max_rss: Bytes) -> None:
        """Add the ru_maxrss of a reaped process and its waited-for children."""
        self._reaped = max(self._reaped, max_rss)

    def _settle(self) -> None:
        """Fix the bounds of past moments: later samples cannot change them."""
        self._grown = max(self._grown, self._grown_unseen())
        self._high = max(self._high, self._upper_bound())
        if len(self._departures) > _MOST_DEPARTURES:
            self._departures.sort(key=lambda d: d.high + d.room * len(d.held))
            del self._departures[0]

    def finish(self, now: Seconds) -> None:
        """Note that all processes have ended."""
        self._note_changes(now, ())
        self._residents = {}
        self._ended_at = now

    def max_process(self) -> Bytes | None:
        """Return the largest peak of a single process; None if unknown."""
        return max(self.largest, self._reaped_surely()) or None

    def peak(self, method: str) -> PeakMemory | None:
        """Return the peak; None if nothing could be read."""
        reaped = self._reaped_surely()
        if not self.best and not reaped and not self._reaped:
            return None
        if not reaped and self._reaped and (not self.best or self._was_short()):
            return self._below_the_floor()
        value = max(self.best, reaped, self._grown, self._grown_unseen())
        return PeakMemory(
            value=value,
            low=min(value, max(self._low, reaped)),
            high=max(value, self._high, self._upper_bound()),
            **self._split_of(value),
            source=method if self.best else "kernel: largest single process",
            time=self._at,
        )

    def _was_short(self) -> bool:
        """Return whether the last sample came too early to be useful."""
        return self._ended_at is not None and self._ended_at < _SHORT

    def _below_the_floor(self) -> PeakMemory:
        """Return a peak with the launcher's own memory as its upper bound."""
        high = max(self._floor, self.best, self._high, self._upper_bound())
        return PeakMemory(
            value=max(self._floor, self.best),
            low=self._low,
            high=high,
            anonymous=None,
            shared=None,
            file=None,
            source="launcher floor",
        )

    def _reaped_surely(self) -> Bytes:
        """Return the largest ru_maxrss that is not the launcher's own, or 0."""
        return self._reaped if self._reaped > self._floor else 0

    def _grown_unseen(self) -> Bytes:
        """Estimate the peak if a process grew after its last sample."""
        reaped = self._reaped_surely()
        if reaped <= self.largest:
            return 0
        return max((d.value(reaped) for d in self._departures), default=0)

    def _upper_bound(self) -> Bytes:
        largest = max(self.largest, self._reaped)
        bounds = [departure.bound(largest) for departure in self._departures]
        reaped = self._reaped_surely()
        if reaped > self.largest * _UNSEEN and self._met != 1:
            bounds.append(self.best + reaped)
        return max(bounds, default=0)

    def _split_of(self, value: Bytes) -> dict[str, Bytes | None]:
        """Split the peak as in the last sample before it; a spike is anonymous."""
        if self._split is None:
            return {"anonymous": None, "shared": None, "file": None}
        split = self._split
        return {
            "anonymous": value - split.shared - split.file,
            "shared": split.shared,
            "file": split.file,
        }

    def _note_changes(self, now: Seconds, readings: Sequence[ProcessReading]) -> None:
        """Bound the memory held while processes ended since the last sample.

        Processes that started or grew since then may have held it at the same time.
        """
        present = {reading.pid for reading in readings}
        gone = [pid for pid in self._residents if pid not in present]
        if not gone or self._last is None:
            return
        came = sum(
            max(0, reading.peak - self._peaks.get(reading.pid, 0))
            for reading in readings
        )
        self._departures.append(
            _Departure(
                others=self._last.total - max(self._whole[pid] for pid in gone),
                high=self._last.high + came,
                held=tuple(self._residents[pid] for pid in gone),
                room=round((now - self._last_time) * _FASTEST_GROWTH),
            )
        )
        for pid in gone:
            self._peaks.pop(pid, None)
            self._virtual_peaks.pop(pid, None)
