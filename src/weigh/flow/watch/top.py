"""``weigh top``: the runs and GPUs of this moment, look after look."""

import os
import time
from typing import NamedTuple

from weigh.flow.records.records import RecordStore
from weigh.flow.watch.gpus import GpuFactory, GpuWatch, gpus_of
from weigh.measure.memory.gauge import ForkFilter, TreeMemoryGauge
from weigh.model.record import Record
from weigh.probe.host import read_host
from weigh.probe.proc import ProcTree
from weigh.render.top_screen import MachineView, TopRun, TopView
from weigh.store.checkpoint import UnfinishedRun, finalise_interrupted, runs_in_progress
from weigh.store.identity import ProcessIdentity, is_alive
from weigh.units import KIB, Bytes, Seconds

_STORE_INTERVAL = 2.0  # seconds between looks into the store: it may be on a network


class TreeGlance(NamedTuple):
    """A process tree at one moment, with shared pages counted once."""

    held: Bytes
    largest: Bytes  # the highest mark of a single process
    cores: float | None  # busy since the glance before; None at the first
    stopped: bool  # by a signal such as STOP


class TreeObserver:
    """Observes one process and its descendants."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._tree = ProcTree(leader)
        self._fork_filter = ForkFilter(self._tree)
        self._gauge = TreeMemoryGauge(self._tree, is_alone=False)
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
        before, now = self._last, time.monotonic()
        # a zombie keeps its CPU time until its parent reaps it
        times = map(self._tree.times, dict.fromkeys([self._leader, *self._tree.pids()]))
        cpu_time = sum(one.cpu_time for one in times if one is not None)
        self._last = now, cpu_time
        cores = None
        if before is not None and now > before[0]:
            # a daemon that ends takes its CPU time away; the total never shrinks
            cores = max(0.0, cpu_time - before[1]) / (now - before[0])
        largest = max(reading.peak for reading in readings)
        stopped = self._tree.is_stopped(self._leader)
        return TreeGlance(held.total, largest, cores, stopped)


class TopWatcher:
    """Looks at runs and GPUs; each look is one :class:`TopView`."""

    def __init__(self, store: RecordStore, gpus: GpuFactory = lambda: None) -> None:
        """Watch what *store* knows; *gpus* opens the source of GPU readings."""
        self._store = store
        self._host = read_host()
        self._runs: list[UnfinishedRun] = []
        self._followers: dict[str, _RunFollower] = {}
        self._refreshed: Seconds = 0.0
        # before the thread of GPUs starts, so that the first look has runs to show
        self._refresh(time.monotonic())
        self._gpus = GpuWatch(gpus)

    def close(self) -> None:
        """Close the descriptors."""
        for follower in self._followers.values():
            follower.close()
        self._gpus.close()

    def look(self) -> TopView:
        """Look at everything once.

        Raises:
            StoreError: the store cannot be read.
        """
        moment = time.monotonic()
        has_ended = any(one.has_ended() for one in self._followers.values())
        # a run that ended is taken off the screen at once, not at the next interval
        if has_ended or moment - self._refreshed >= _STORE_INTERVAL:
            self._refresh(moment)
        now = time.time()
        runs = (self._followers[one.record.id].look(one, now) for one in self._runs)
        gpus = self._gpus.look()
        return TopView(
            clock=time.strftime("%H:%M:%S", time.localtime(now)),
            machine=self._machine(),
            store=self._store.root,
            runs=tuple(runs),
            gpus=gpus_of(gpus, os.environ),
            gpu_note=gpus.note,
        )

    def _refresh(self, moment: Seconds) -> None:
        """See which runs are in progress now."""
        store = self._store
        # runs whose weigh is gone get their record now
        over = {one.id for one in finalise_interrupted(store.root, store.machine)}
        everyone = runs_in_progress(store.root, store.machine, time.time())
        runs = [one for one in everyone if one.record.id not in over]
        self._runs = sorted(runs, key=lambda one: one.record.started, reverse=True)
        for gone in self._followers.keys() - {one.record.id for one in self._runs}:
            self._followers.pop(gone).close()
        for one in self._runs:
            self._followers.setdefault(one.record.id, _RunFollower()).follow(one.leader)
        self._refreshed = moment

    def _machine(self) -> MachineView:
        free, total = _available_memory(), self._host.memory
        used = None if free is None or total is None else total - free
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # Windows
        cpus = self._host.cpus
        return MachineView(self._host.name, cpus, used, total, load, os.cpu_count())


class _RunFollower:
    """Follows the processes of one run, where they are on this machine."""

    def __init__(self) -> None:
        self._leader: ProcessIdentity | None = None
        self._observer: TreeObserver | None = None
        self._largest: Bytes = 0

    def close(self) -> None:
        """Close the descriptors."""
        if self._observer is not None:
            self._observer.close()
        self._observer = self._leader = None

    def has_ended(self) -> bool:
        """Return whether the command ended since it was found here."""
        return self._leader is not None and not is_alive(self._leader)

    def follow(self, leader: ProcessIdentity | None) -> None:
        """Observe *leader*; of several runs it is another one than before."""
        if leader != self._leader:
            self.close()
            self._largest = 0
            if leader is not None and is_alive(leader):
                self._leader, self._observer = leader, TreeObserver(leader.pid)

    def look(self, unfinished_run: UnfinishedRun, current_time: Seconds) -> TopRun:
        """Look at its processes if they are here; else return what was written."""
        # what the checkpoint has; it may be some seconds old
        usage = unfinished_run.record.usage
        age = max(0.0, current_time - unfinished_run.seen)
        elapsed = (usage.wall_time if usage else 0.0) + age
        peak = _peak_value(unfinished_run.record)
        glance = None
        if self._observer is not None and not self.has_ended():
            glance = self._observer.glance(max(peak or 0, self._largest))
        if (
            glance is None or unfinished_run.record.nodes
        ):  # on other nodes there is more
            return TopRun(
                record=unfinished_run.record,
                elapsed=elapsed,
                peak=peak,
                age=age,
                stale=unfinished_run.stale,
            )
        # the peak in the checkpoint includes what happened before weigh top was started
        self._largest = max(self._largest, glance.held, glance.largest)
        return TopRun(
            record=unfinished_run.record,
            elapsed=elapsed,
            memory=glance.held,
            peak=max(peak or 0, self._largest),
            cores=glance.cores,
            stopped=glance.stopped,
        )


def _peak_value(record: Record) -> Bytes | None:
    usage = record.usage
    return usage.peak_memory.value if usage and usage.peak_memory else None


def _available_memory() -> Bytes | None:
    """Read MemAvailable of meminfo, which is what programs could still get."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * KIB
    except (OSError, IndexError, ValueError):
        return None
    return None
