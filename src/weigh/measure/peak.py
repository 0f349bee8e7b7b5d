"""Compute a tree's peak memory from samples; no access to the machine.

The kernel's high-water marks show spikes between two samples, and the ru_maxrss of a
reaped process shows its final size. What neither shows widens the bounds. Where the
samples are the kernel's own account of the job, that has the spikes too.
"""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.measure.memory.gauge import Holding, nearest
from weigh.model.record import PeakMemory, Sample
from weigh.probe.proc import ProcessReading
from weigh.units import GIB, KIB, MIB, Bytes, Seconds

# Faulting memory in means zeroing or copying it: no process is known to do that faster
_FASTEST_GROWTH = 4 * GIB  # bytes a second
_CORRECTION = 64 * KIB  # by which the kernel corrects the mark of a process that ends
_MOST_DEPARTURES = 16
_MOST_WAITING = 64
_NOTHING: Mapping[int, Bytes] = {}
_SHORT = 0.1  # seconds; a shorter program is mostly start-up and exit
_UNSEEN = 1.05  # a reaped peak this far above all samples: an unseen process


class _Gone(msgspec.Struct, frozen=True):
    """A process that ended between two samples.

    ``held`` is its memory at the earlier one, ``shared`` what others mapped of it.
    """

    held: Bytes
    shared: Bytes


class _Departure(msgspec.Struct, frozen=True):
    """Processes that ended between two samples, and may have grown before that.

    ``high`` is the upper bound of the tree's memory at the earlier sample, ``others``
    that memory without the largest ended process, ``room`` how far one could grow
    between the samples, and ``whole_room`` how far all could together, if known.
    """

    others: Bytes
    high: Bytes
    gone: tuple[_Gone, ...]
    room: Bytes
    whole_room: Bytes | None

    def value(self, largest: Bytes) -> Bytes:
        """Estimate the peak if one of them grew to *largest*, as far as it could."""
        if self.whole_room is not None:
            held = max(one.held for one in self.gone)
            largest = min(largest, held + self.whole_room)
        return self.others + largest

    def bound(self, largest: Bytes) -> Bytes:
        """Bound the peak if no process ever exceeded *largest*.

        A fork may also have copied what it shared.
        """
        growth = sum(
            min(self.room, max(0, largest - one.held) + one.shared) for one in self.gone
        )
        if self.whole_room is not None:
            growth = min(growth, self.whole_room)
        return self.high + growth


class _Waiting(msgspec.Struct, frozen=True):
    """A look at which shared pages were not counted.

    ``high`` bounds its memory, ``unseen`` what may have come between the looks, and
    ``back`` is what the processes have given back since.
    """

    high: Bytes
    unseen: Bytes
    back: Bytes = 0


class _Bounds:
    """Upper bounds of looks at which shared pages were not counted.

    A later count bounds them too, with all that was given back in between.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []

    def add(self, high: Bytes, unseen: Bytes, given_back: Bytes) -> None:
        """Add a look; *given_back* is what was since the look before."""
        kept = [
            _Waiting(one.high, one.unseen, one.back + given_back)
            for one in self._waiting
            if one.high > high or one.unseen > unseen
        ]
        if len(kept) >= _MOST_WAITING:  # what holds for both of two looks
            first, second, *kept = kept
            both = zip(
                msgspec.structs.astuple(first),
                msgspec.structs.astuple(second),
                strict=True,
            )
            kept.insert(0, _Waiting(*map(max, both)))
        self._waiting = [*kept, _Waiting(high, unseen)]

    def settle(self, counted: Bytes, given_back: Bytes) -> Bytes:
        """Return the highest bound, after a count that was bounded by *counted*."""
        bounds = (
            min(one.high, counted + one.back + given_back) + one.unseen
            for one in self._waiting
        )
        highest = max(bounds, default=0)
        self._waiting = []
        return highest

    def highest(self) -> Bytes:
        """Return the highest bound without a count."""
        return max((one.high + one.unseen for one in self._waiting), default=0)


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
        self._bounds = _Bounds()
        self._grown: Bytes = 0
        self._at: Seconds | None = None
        self._split: Holding | None = None
        self._reaped: Bytes = 0
        self._last: Holding | None = None
        self._last_time: Seconds = 0.0
        self._residents: dict[int, Bytes] = {}
        self._whole: dict[int, Bytes] = {}
        self._mapped: dict[int, Bytes] = {}  # files and shared memory
        self._last_cpu: Seconds | None = None
        self._peaks: dict[int, Bytes] = {}
        self._virtual_peaks: dict[int, Bytes] = {}
        self._departures: list[_Departure] = []
        self._met = 0
        self._has_unseen = False  # processes that other processes waited for
        self._ended_at: Seconds | None = None

    def look(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        held: Holding,
        inherited: Mapping[int, Bytes] = _NOTHING,
        cpu_time: Seconds | None = None,
    ) -> Sample:
        """Add one sample of all processes of the tree.

        *inherited* is the memory that new forks share with their parents; a high-water
        mark below that shows no memory of their own. *cpu_time* is what the tree has
        used so far, if that is exact: only a process that runs can grow.
        """
        self._note_changes(now, readings, inherited, cpu_time)
        self._settle()
        marks = {reading.pid: self._spike(reading) for reading in readings}
        virtual = sum(map(self._virtual_with_spike, readings))
        self.virtual = max(self.virtual, virtual)
        unseen = self._unseen(now, readings, held, marks)
        if held.room is not None:
            unseen = min(unseen, held.room)
        spike = (
            0
            if held.is_account
            else self._largest_spike(readings, held, marks, inherited)
        )
        value = held.total + held.spike + spike
        self._bound(readings, held, unseen)
        self._remember(readings)
        last = self._last
        self._last, self._last_time, self._last_cpu = held, now, cpu_time
        self._low = max(self._low, self.largest)
        if held.is_account or len(readings) <= 1:
            self._low = max(self._low, held.low)
        if value > self.best:
            self.best, self._at = value, now
            self._split = nearest(value, held, last) if held.spike else held
        return Sample(now, value, max(value, held.high + unseen), None, len(readings))

    def _bound(
        self, readings: Sequence[ProcessReading], held: Holding, unseen: Bytes
    ) -> None:
        """Note the upper bound of a look."""
        now = {reading.pid: reading.resident for reading in readings}
        last = self._last
        given_back = sum(
            max(0, size - now.get(pid, 0)) for pid, size in self._residents.items()
        )
        if last is not None and not last.is_account:
            # the processes were not read at one moment: one may have grown while
            # another shrank. What they all still have now, they had at once
            lost = sum(
                max(0, size - now[pid]) if pid in now else last.private.get(pid, size)
                for pid, size in self._residents.items()
            )
            self._low = max(self._low, last.low - lost)
        if held.is_counted or held.is_account or len(readings) == 1:
            settled = self._bounds.settle(held.high, given_back)
            self._high = max(self._high, settled, held.high + unseen)
        else:
            self._bounds.add(held.high, unseen, given_back)

    def _unseen(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        held: Holding,
        marks: Mapping[int, Bytes],
    ) -> Bytes:
        """Bound what the processes may have held between the looks beyond this one.

        One may have come to its mark again, by as much as it has faulted in.
        """
        unseen = 0
        room = round((now - self._last_time) * _FASTEST_GROWTH)
        for reading in readings:
            again = 0
            before = self._residents.get(reading.pid)
            if before is not None and len(readings) > 1:
                most = before + held.faulted.get(reading.pid, room)
                again = min(reading.peak, most) - reading.resident
            unseen += max(marks[reading.pid], again)
        return unseen

    def _remember(self, readings: Sequence[ProcessReading]) -> None:
        """Store each process's memory, as it is and with all mapped files.

        A fork maps its parent's files one after another, which is no growth of the
        tree.
        """
        self._residents = {reading.pid: reading.resident for reading in readings}
        self._mapped = {one.pid: one.file + one.shared for one in readings}
        files = max((reading.file for reading in readings), default=0)
        self._whole = {r.pid: r.resident - r.file + files for r in readings}

    def _spike(self, reading: ProcessReading) -> Bytes:
        """Return a process's excess over its current size since the last sample."""
        before = self._peaks.get(reading.pid)
        if before is None:
            self._met += 1
        elif before <= reading.peak < before + _CORRECTION:
            self._peaks[reading.pid] = reading.peak
            self.largest = max(self.largest, reading.peak)
            return 0
        elif reading.peak < before - MIB:  # another program, with a mark of its own
            self._virtual_peaks.pop(reading.pid, None)
        self._peaks[reading.pid] = reading.peak
        self.largest = max(self.largest, reading.peak)
        return max(0, reading.peak - reading.resident)

    def _largest_spike(
        self,
        readings: Sequence[ProcessReading],
        held: Holding,
        marks: Mapping[int, Bytes],
        inherited: Mapping[int, Bytes],
    ) -> Bytes:
        """Return by how much one process's spike exceeded what the tree holds now.

        Of several spikes nobody knows whether they came at one moment: the largest
        counts, added to what the others held at the smaller of the two looks around it,
        for memory often goes from one process to the next. What its process has let go
        of files and shared memory, others may still hold.
        """
        last = self._last
        no_longer_mapped = held.unmapped - (0 if last is None else last.unmapped)
        largest = 0
        for one in readings:
            first = inherited.get(one.pid, 0)
            spike = min(marks[one.pid], one.peak - first) - max(0, no_longer_mapped)
            if spike > 0 and len(readings) > 1 and last is not None:
                mapped = self._mapped.get(one.pid, 0)
                spike -= max(0, mapped - one.file - one.shared)
                before = self._residents.get(one.pid, first)
                grown = one.resident - before
                spike = min(spike, last.total + spike + grown - held.total)
            largest = max(largest, spike)
        return largest

    def _virtual_with_spike(self, reading: ProcessReading) -> Bytes:
        if reading.virtual_peak <= self._virtual_peaks.get(reading.pid, 0):
            return reading.virtual
        self._virtual_peaks[reading.pid] = reading.virtual_peak
        return max(reading.virtual, reading.virtual_peak)

    def stay(self, now: Seconds) -> Bytes:
        """Note that nothing has changed since the last sample; return what is held."""
        self._last_time = now
        return 0 if self._last is None else self._last.total

    def reap(self, max_rss: Bytes) -> None:
        """Add the ru_maxrss of a reaped process and its waited-for children."""
        self._reaped = max(self._reaped, max_rss)

    def note_unseen(self) -> None:
        """Note that the one process that was met has waited for others."""
        self._has_unseen = True

    def _settle(self) -> None:
        """Fix the bounds of past moments: later samples cannot change them."""
        self._grown = max(self._grown, self._grown_unseen())
        self._high = max(self._high, self._upper_bound())
        if len(self._departures) > _MOST_DEPARTURES:
            self._departures.sort(key=lambda d: d.high + d.room * len(d.gone))
            del self._departures[0]

    def finish(self, now: Seconds, cpu_time: Seconds | None = None) -> None:
        """Note that all processes have ended, after *cpu_time* if that is exact."""
        self._note_changes(now, (), _NOTHING, cpu_time)
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
        value, at, split = self.best, self._at, self._split
        value = max(value, reaped, self._grown, self._grown_unseen())
        return PeakMemory(
            value=value,
            low=min(value, max(self._low, reaped)),
            high=max(value, self._high, self._bounds.highest(), self._upper_bound()),
            **_parts(value, split),
            source=method if self.best else "kernel: largest single process",
            time=at,
        )

    def _was_short(self) -> bool:
        """Return whether the last sample came too early to be useful."""
        return self._ended_at is not None and self._ended_at < _SHORT

    def _below_the_floor(self) -> PeakMemory:
        """Return a peak with the launcher's own memory as its upper bound."""
        seen = max(self._high, self._bounds.highest())
        high = max(self._floor, self.best, seen, self._upper_bound())
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
        unseen = reaped - self.largest
        if unseen <= 0:
            return 0
        if reaped > self.largest * _UNSEEN:
            return max((d.value(reaped) for d in self._departures), default=0)
        # the last pages of a process that was seen almost at its peak
        return max(
            (
                d.value(max(one.held for one in d.gone) + unseen)
                for d in self._departures
            ),
            default=0,
        )

    def _upper_bound(self) -> Bytes:
        largest = max(self.largest, self._reaped)
        bounds = [departure.bound(largest) for departure in self._departures]
        reaped = self._reaped_surely()
        is_alone = self._met == 1 and not self._has_unseen
        if reaped > self.largest * _UNSEEN and not is_alone:
            bounds.append(self.best + reaped)
        return max(bounds, default=0)

    def _note_changes(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        inherited: Mapping[int, Bytes],
        cpu_time: Seconds | None,
    ) -> None:
        """Bound the memory held while processes ended since the last sample.

        Processes that started or grew since then may have held it at the same time.
        """
        present = {reading.pid for reading in readings}
        gone = [pid for pid in self._residents if pid not in present]
        if gone and self._last is not None and not self._last.is_account:
            self._depart(now, readings, gone, inherited, cpu_time)
        for pid in gone:
            self._peaks.pop(pid, None)
            self._virtual_peaks.pop(pid, None)

    def _depart(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        gone: Sequence[int],
        inherited: Mapping[int, Bytes],
        cpu_time: Seconds | None,
    ) -> None:
        last = self._last
        if last is None:
            return
        came = sum(
            max(
                0,
                reading.peak
                - max(self._peaks.get(reading.pid, 0), inherited.get(reading.pid, 0)),
            )
            for reading in readings
        )
        whole_room = None
        if cpu_time is not None and self._last_cpu is not None:
            whole_room = round((cpu_time - self._last_cpu) * _FASTEST_GROWTH) + MIB
        self._departures.append(
            _Departure(
                others=last.total - max(self._whole[pid] for pid in gone),
                high=last.high + came,
                gone=tuple(
                    _Gone(
                        self._residents[pid],
                        max(0, self._residents[pid] - last.private[pid])
                        if pid in last.private
                        else 0,
                    )
                    for pid in gone
                ),
                room=round((now - self._last_time) * _FASTEST_GROWTH),
                whole_room=whole_room,
            )
        )


def _parts(value: Bytes, split: Holding | None) -> dict[str, Bytes | None]:
    """Split a peak as at the look next to it; a spike is anonymous memory."""
    if split is None:
        return {"anonymous": None, "shared": None, "file": None, "kernel": None}
    return {
        "anonymous": value - split.shared - split.file - split.kernel,
        "shared": split.shared,
        "file": split.file,
        "kernel": split.kernel,
    }
