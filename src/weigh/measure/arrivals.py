"""What is known of a process when it is first seen: whose memory it began with.

A vfork child runs in its parent's memory until it execs, and its status is its
parent's. A fork begins with all its parent held, and its high-water mark with that,
though no page is its own yet.
"""

from collections.abc import Mapping, Sequence

from weigh.probe.proc import ProcessReading, ProcTree
from weigh.units import Bytes


class Arrivals:
    """Looks once at each process that comes into a tree."""

    def __init__(self, tree: ProcTree) -> None:
        self._tree = tree
        self._residents: dict[int, Bytes] = {}

    def sift(
        self, readings: Sequence[ProcessReading]
    ) -> tuple[Sequence[ProcessReading], Mapping[int, Bytes]]:
        """Drop vfork children; tell how much of its parent's each new fork had."""
        inherited: dict[int, Bytes] = {}
        if len(readings) > 1 and any(r.pid not in self._residents for r in readings):
            readings = self._meet(readings, inherited)
        self._residents = {reading.pid: reading.resident for reading in readings}
        return readings, inherited

    def _meet(
        self, readings: Sequence[ProcessReading], inherited: dict[int, Bytes]
    ) -> list[ProcessReading]:
        from weigh.probe.kcmp import share_memory_map  # noqa: PLC0415 - start-up time

        residents = {reading.pid: reading.resident for reading in readings}
        kept = []
        for reading in readings:
            pid = reading.pid
            times = None if pid in self._residents else self._tree.times(pid)
            if times is None or times.parent not in residents:
                kept.append(reading)
                continue
            if share_memory_map(times.parent, pid):
                continue
            # read again: until a moment ago it may have been a vfork child
            times, parent = (
                self._tree.times(pid) or times,
                self._tree.times(times.parent),
            )
            if parent is not None and times.is_fork_of(parent):
                before = self._residents.get(times.parent, 0)
                inherited[pid] = max(before, residents[times.parent])
            # it may have been a vfork child still when it was read
            kept.append(self._tree.reading(pid) or reading)
        return kept
