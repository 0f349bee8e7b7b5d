"""Judge whether spikes of several processes came at the same moment; pure.

A high-water mark shows that one process held more between two looks, not when. Whether
another was large just then, or the two take turns, the looks show in time: of those
with one process near its mark, how many also have the other near its own. So spikes are
kept, and judged with all the evidence there is at the end.
"""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.measure.memory.gauge import Holding, nearest
from weigh.probe.proc import ProcessReading
from weigh.units import Bytes, Seconds

_YOUNG = 5  # looks; too few to judge by
_NEAR = 2  # a process is near its mark with more than 1 / 2 of it
_MOST_AT_ONCE = 4  # spikes of one look
_MOST_OTHERS = 16  # of the largest processes
_MOST_WATCHED = 12
_MATERIAL = 20  # a process with less than 1 / 20 of the peak is not watched
_MOST_KEPT = 24


class _Other(msgspec.Struct, frozen=True):
    """Another process at a spike.

    ``counted`` bytes of it are in the spike's size; ``spike`` is how much more it held
    itself between the same looks; ``is_young`` if little is known about the two.
    """

    counted: Bytes
    spike: Bytes
    is_young: bool


class Spike(msgspec.Struct, frozen=True):
    """A moment between two looks at which process ``pid`` was at its mark.

    ``size`` is the tree's memory if no other process had a spike; ``held`` the memory
    at one of the looks around it.
    """

    pid: int
    size: Bytes
    others: Mapping[int, _Other]
    time: Seconds
    held: Holding

    @property
    def most(self) -> Bytes:
        """The size if all other spikes came at the same moment."""
        return self.size + sum(other.spike for other in self.others.values())


class Spikes:
    """Collects the spikes of a run and the evidence about them."""

    def __init__(self) -> None:
        self._kept: list[Spike] = []
        self._before: Mapping[int, Bytes] = {}
        self._last: Holding | None = None
        # (looks with both near their marks, looks with the first alone near its own)
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        self._lowest: dict[int, Bytes] = {}
        self._ages: dict[int, int] = {}

    def look(
        self,
        now: Seconds,
        readings: Sequence[ProcessReading],
        held: Holding,
        own: Mapping[int, Bytes],
        best: Bytes,
    ) -> None:
        """Add one look.

        *own* is by how much processes exceeded their current size since the look
        before; *best* the peak so far.
        """
        residents = {reading.pid: reading.resident for reading in readings}
        if own:
            self._add(now, residents, held, own, best)
        if len(readings) > 1:
            self._note_pairs(readings, best)
            self._ages = {pid: self._ages.get(pid, 0) + 1 for pid in residents}
        self._before, self._last = residents, held

    def forget(self, pid: int) -> None:
        """Drop the evidence about a process that executes another program now."""
        self._pairs = {
            pair: seen for pair, seen in self._pairs.items() if pid not in pair
        }
        self._lowest.pop(pid, None)
        self._ages.pop(pid, None)

    def largest(self) -> tuple[Spike, Bytes] | None:
        """Return the largest spike and its size by all evidence; None without one."""
        judged = ((spike, self._size(spike)) for spike in self._kept)
        return max(judged, key=lambda pair: pair[1], default=None)

    def _add(
        self,
        now: Seconds,
        residents: Mapping[int, Bytes],
        held: Holding,
        own: Mapping[int, Bytes],
        best: Bytes,
    ) -> None:
        before, last = self._before, self._last
        others = sorted(residents, key=lambda pid: -residents[pid])[:_MOST_OTHERS]
        # beyond what each held at the look before, where memory may be back since
        beyond = {
            pid: max(0, spike + residents[pid] - before.get(pid, residents[pid]))
            for pid, spike in own.items()
        }
        for pid in sorted(own, key=lambda pid: -own[pid])[:_MOST_AT_ONCE]:
            size, spikes = held.total + own[pid], own
            if last is not None and pid in before:
                grown = residents[pid] - before[pid]
                earlier = last.total + own[pid] + grown
                if earlier + _others(beyond, pid) < size + _others(own, pid):
                    size, spikes = earlier, beyond
            spike = Spike(
                pid,
                size,
                {
                    other: _Other(
                        min(residents[other], before.get(other, residents[other])),
                        spikes.get(other, 0),
                        min(self._ages.get(pid, 0), self._ages.get(other, 0)) < _YOUNG,
                    )
                    for other in others
                    if other != pid
                },
                now,
                nearest(size, held, last),
            )
            if spike.most > best:
                self._kept.append(spike)
        if len(self._kept) > _MOST_KEPT:
            self._kept.sort(key=lambda spike: (-self._size(spike), -spike.most))
            del self._kept[_MOST_KEPT // 2 :]

    def _size(self, spike: Spike) -> Bytes:
        size = spike.size
        for pid, other in spike.others.items():
            together, alone = self._pairs.get((spike.pid, pid), (0, 0))
            if together < alone:
                size -= max(0, other.counted - self._lowest.get(pid, 0))
            elif together or other.is_young:
                size += other.spike
        return size

    def _note_pairs(self, readings: Sequence[ProcessReading], best: Bytes) -> None:
        watched = sorted(
            (reading for reading in readings if reading.peak * _MATERIAL > best),
            key=lambda reading: -reading.peak,
        )[:_MOST_WATCHED]
        near = {r.pid for r in watched if r.resident * _NEAR >= r.peak}
        for reading in watched:
            lowest = self._lowest.get(reading.pid, reading.resident)
            self._lowest[reading.pid] = min(lowest, reading.resident)
        for pid in near:
            for reading in watched:
                if reading.pid == pid:
                    continue
                pair = (pid, reading.pid)
                together, alone = self._pairs.get(pair, (0, 0))
                if reading.pid in near:
                    self._pairs[pair] = together + 1, alone
                else:
                    self._pairs[pair] = together, alone + 1


def _others(spikes: Mapping[int, Bytes], pid: int) -> Bytes:
    return sum(size for other, size in spikes.items() if other != pid)
