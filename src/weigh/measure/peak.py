"""From looks at a tree, every so often, to the most it held at once: pure.

Between two looks the kernel's high-water marks tell of spikes, and when a process is
reaped its ru_maxrss tells how large it became at last. What neither tells widens the
bounds instead.
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
_SHORT = 0.1  # seconds; a program that runs for less is mostly start and end
_UNSEEN = 1.05  # a reaped peak beyond the largest seen by this is of one never seen


class _Departure(msgspec.Struct, frozen=True):
    """Processes that ended between two looks, and may have grown meanwhile.

    ``high`` bounds what the tree held at the look before, ``others`` is what it held
    beside the largest that ended; ``held`` is what each of these had, ``room`` how far
    one could grow before the look after.
    """

    others: Bytes
    high: Bytes
    held: tuple[Bytes, ...]
    room: Bytes

    def value(self, largest: Bytes) -> Bytes:
        """Estimate the peak, where one of them grew to *largest* at last."""
        return self.others + largest

    def bound(self, largest: Bytes) -> Bytes:
        """Bound the peak, where no process ever exceeded *largest*."""
        growth = (min(self.room, max(0, largest - held)) for held in self.held)
        return self.high + sum(growth)


class PeakTracker:
    """Take in looks at a tree; give the peak, with bounds."""

    def __init__(self, floor: Bytes) -> None:
        """Start; a ru_maxrss up to *floor* may be the launcher's and tells nothing."""
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
        """Take in one look at all processes of the tree.

        *inherited* is what new forks had of their parents' memory; a high-water mark
        up to that is no sign of memory of their own.
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
        """Note what each process holds, and would with every file that one maps.

        A fork comes to map its parent's files one after another: that it then holds
        more is no growth of the tree.
        """
        self._residents = {reading.pid: reading.resident for reading in readings}
        files = max((reading.file for reading in readings), default=0)
        self._whole = {r.pid: r.resident - r.file + files for r in readings}

    def _spike(self, reading: ProcessReading) -> Bytes:
        """Give what a process held beyond what it holds, since the look before."""
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
        """Take note that nothing changed since the last look."""
        self._last_time = now

    def reap(self, max_rss: Bytes) -> None:
        """Take in the ru_maxrss of a reaped process and all that it waited for."""
        self._reaped = max(self._reaped, max_rss)

    def _settle(self) -> None:
        """Keep what is known of past moments: later looks tell nothing about them."""
        self._grown = max(self._grown, self._grown_unseen())
        self._high = max(self._high, self._upper_bound())
        if len(self._departures) > _MOST_DEPARTURES:
            self._departures.sort(key=lambda d: d.high + d.room * len(d.held))
            del self._departures[0]

    def finish(self, now: Seconds) -> None:
        """Say that nothing of the tree is left."""
        self._note_changes(now, ())
        self._residents = {}
        self._ended_at = now

    def max_process(self) -> Bytes | None:
        """Give the most that a single process ever held; None when unknown."""
        return max(self.largest, self._reaped_surely()) or None

    def peak(self, method: str) -> PeakMemory | None:
        """Give the peak; None when nothing at all could be read."""
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
        """Tell whether the last look came so early that it says little."""
        return self._ended_at is not None and self._ended_at < _SHORT

    def _below_the_floor(self) -> PeakMemory:
        """Give what is left to say: no more than the launcher itself had held."""
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
        """Give the largest ru_maxrss that is not the launcher's own, or 0."""
        return self._reaped if self._reaped > self._floor else 0

    def _grown_unseen(self) -> Bytes:
        """Estimate the peak where one had grown after the last look at it."""
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
        """Split the peak as at the last look before it; a spike is anonymous."""
        if self._split is None:
            return {"anonymous": None, "shared": None, "file": None}
        split = self._split
        return {
            "anonymous": value - split.shared - split.file,
            "shared": split.shared,
            "file": split.file,
        }

    def _note_changes(self, now: Seconds, readings: Sequence[ProcessReading]) -> None:
        """Bound what was held while processes ended since the look before.

        Those that came or grew meanwhile may have held it at the same moment.
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
