"""Observe a process tree that another weigh measures, without disturbing it."""

import time
from collections.abc import Callable

import msgspec

from weigh.measure.memory.gauge import ForkFilter, TreeMemoryGauge
from weigh.measure.memory.holding import MemoryHolding
from weigh.probe.proc import ProcTree
from weigh.probe.processes import UserProcess, read_process
from weigh.units import Bytes, Seconds


class TreeGlance(msgspec.Struct, frozen=True):
    """A tree at one moment.

    ``held`` is its memory with shared pages counted once; ``largest`` the largest peak
    of a single process, by the kernel's high-water marks. ``cpu_time`` counts the live
    processes and the children they have waited for; ``cores`` are the cores busy since
    the previous glance, None at the first.
    """

    held: MemoryHolding
    largest: Bytes
    cpu_time: Seconds
    cores: float | None  # None: no two glances yet
    processes: tuple[UserProcess, ...]
    stopped: bool  # by a signal such as STOP


class TreeObserver:
    """Observes one process and its descendants."""

    def __init__(
        self,
        leader: int,
        root: str = "/proc",
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._leader = leader
        self._root = root
        self._clock = clock
        self._tree = ProcTree(leader, root)
        self._fork_filter = ForkFilter(self._tree)
        self._gauge = TreeMemoryGauge(self._tree, clock, is_alone=False)
        # when it was, and the CPU time then
        self._last: tuple[Seconds, Seconds] | None = None

    def close(self) -> None:
        """Close the descriptors."""
        self._tree.close()

    def glance(self, best: Bytes) -> TreeGlance | None:
        """Return the current state; None if no process is left.

        *best* is the peak so far: only where it may be exceeded are shared pages
        counted, which is expensive.
        """
        found = self._tree.read()
        leader = self._tree.reading(self._leader)
        # a leader that has ended is read no more, its descendants are
        readings, _ = self._fork_filter.sift([leader, *found] if leader else found)
        if not readings:
            return None
        held = self._gauge.hold(readings, best)
        # at another moment than the memory, since counting it takes time
        now = self._clock()
        # a zombie has no memory, and keeps its CPU time until its parent reaps it
        pids = dict.fromkeys([self._leader, *self._tree.pids()])
        read = (read_process(pid, self._root) for pid in pids)
        processes = tuple(one for one in read if one is not None)
        cpu_time = sum(one.cpu_time + one.reaped_time for one in processes)
        return TreeGlance(
            held=held,
            largest=max(reading.peak for reading in readings),
            cpu_time=cpu_time,
            cores=self._busy(now, cpu_time),
            processes=tuple(one for one in processes if one.resident),
            stopped=self._tree.is_stopped(self._leader),
        )

    def _busy(self, current_time: Seconds, cpu_time: Seconds) -> float | None:
        before, self._last = self._last, (current_time, cpu_time)
        if before is None or current_time <= before[0]:
            return None
        # a daemon that ends takes its CPU time away; the total never shrinks
        return max(0.0, cpu_time - before[1]) / (current_time - before[0])
