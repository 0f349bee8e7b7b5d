"""``weigh top``: the runs and GPUs of this moment, look after look."""

import os
import time

from weigh.flow.records.records import RecordStore
from weigh.flow.watch.gpus import GpuFactory, GpuWatch, gpus_of
from weigh.measure.memory.gauge import ForkFilter, TreeMemoryGauge
from weigh.probe.host import read_host
from weigh.probe.proc import ProcTree
from weigh.regular_file import file_head
from weigh.render.top_screen import MachineView, TopRun, TopView
from weigh.store.checkpoint import UnfinishedRun, finalise_interrupted, runs_in_progress
from weigh.store.identity import ProcessIdentity, is_alive
from weigh.units import KIB, Bytes, Seconds


class RunFollower:
    """Follows the process tree of one run on this machine."""

    def __init__(self, leader: int) -> None:
        """Observe the process *leader* and its descendants."""
        self._leader = leader
        self._tree = ProcTree(leader)
        # it is no descendant of weigh top, so a walk would not find it
        self._tree.adopt(leader)
        self._fork_filter = ForkFilter(self._tree)
        self._gauge = TreeMemoryGauge(self._tree, is_alone=False)
        self._peak: Bytes = 0
        # when it was, and the CPU time then
        self._last: tuple[Seconds, Seconds] | None = None

    def close(self) -> None:
        """Close the descriptors."""
        self._tree.close()

    def look(self, written: TopRun) -> TopRun | None:
        """Add the current figures to those *written*; None if no process is left."""
        readings, _ = self._fork_filter.sift(self._tree.read())
        if not readings:
            return None
        # what is written includes what happened before weigh top was started
        self._peak = max(self._peak, written.peak or 0)
        # shared pages are counted only where the peak may be exceeded: it is expensive
        held = self._gauge.hold(readings, self._peak).total
        self._peak = max(self._peak, held, *(reading.peak for reading in readings))
        return TopRun(
            record=written.record,
            elapsed=written.elapsed,
            memory=held,
            peak=self._peak,
            cores=self._busy_cores(),
            stopped=self._tree.is_stopped(self._leader),
        )

    def _busy_cores(self) -> float | None:
        """Return the CPUs busy since the look before; None at the first."""
        before, now = self._last, time.monotonic()
        # a zombie keeps its CPU time until its parent reaps it
        times = map(self._tree.times, self._tree.pids())
        cpu_time = sum(one.cpu_time for one in times if one is not None)
        self._last = now, cpu_time
        if before is None:
            return None
        # a daemon that ends takes its CPU time away; the total never shrinks
        return max(0.0, cpu_time - before[1]) / (now - before[0])


class TopWatcher:
    """Looks at runs and GPUs; each look is one :class:`TopView`."""

    def __init__(self, store: RecordStore, gpus: GpuFactory = lambda: None) -> None:
        """Watch what *store* knows; *gpus* opens the source of GPU readings."""
        self._store = store
        self._host = read_host()
        # each of the several runs of one record has another leader
        self._followers: dict[tuple[str, ProcessIdentity], RunFollower] = {}
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
        now = time.time()
        runs = tuple(self._look_at_run(one, now) for one in self._runs_now(now))
        gpus = self._gpus.look()
        return TopView(
            clock=time.strftime("%H:%M:%S", time.localtime(now)),
            machine=self._machine(),
            store=self._store.root,
            runs=runs,
            gpus=gpus_of(gpus, os.environ),
            gpu_note=gpus.note,
        )

    def _runs_now(self, now: Seconds) -> list[UnfinishedRun]:
        """Return the runs in progress, the latest first, and follow those here."""
        root, machine = self._store.root, self._store.machine
        # runs whose weigh is gone get their record now
        over = {one.id for one in finalise_interrupted(root, machine)}
        everyone = runs_in_progress(root, machine, now)
        runs = [one for one in everyone if one.record.id not in over]
        here = {
            (one.record.id, one.leader)
            for one in runs
            if one.leader is not None and is_alive(one.leader)
        }
        for gone in self._followers.keys() - here:
            self._followers.pop(gone).close()
        for new in here - self._followers.keys():
            self._followers[new] = RunFollower(new[1].pid)
        return sorted(runs, key=lambda one: one.record.started, reverse=True)

    def _look_at_run(self, unfinished_run: UnfinishedRun, now: Seconds) -> TopRun:
        """Look at its processes if they are here; else return what was written."""
        record, leader = unfinished_run.record, unfinished_run.leader
        # what the checkpoint has; it may be some seconds old
        usage = record.usage
        age = max(0.0, now - unfinished_run.seen)
        written = TopRun(
            record=record,
            elapsed=(usage.wall_time if usage else 0.0) + age,
            peak=usage.peak_memory.value if usage and usage.peak_memory else None,
            age=age,
            stale=unfinished_run.stale,
        )
        # of a run on several nodes there is more elsewhere
        follower = None
        if leader is not None and not record.nodes:
            follower = self._followers.get((record.id, leader))
        return (follower and follower.look(written)) or written

    def _machine(self) -> MachineView:
        free, total = _available_memory(), self._host.memory
        used = None if free is None or total is None else total - free
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # Windows
        cpus = self._host.cpus
        return MachineView(self._host.name, cpus, used, total, load, os.cpu_count())


def _available_memory() -> Bytes | None:
    """Read MemAvailable of meminfo, which is what programs could still get."""
    # MemTotal, MemFree, MemAvailable: three lines of three words
    words = file_head("/proc/meminfo").split(None, 9)
    return int(words[7]) * KIB if words[6:7] == [b"MemAvailable:"] else None
