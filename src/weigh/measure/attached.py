"""Watch a process that is running already, with everything below it.

It is not ours: nothing is passed on to it, its end tells no exit code, and CPU time is
as last seen. Its memory peak is from before the watch too, for the kernel keeps it.
"""

import os
import time

from weigh.errors import UsageError
from weigh.measure import signals
from weigh.measure.command import Watch
from weigh.measure.peak import PeakTracker
from weigh.measure.reduce import is_growing, thin_series
from weigh.measure.sampler import Sampler
from weigh.model.record import Measurement, Monitor, Usage
from weigh.probe.proc import ProcTree
from weigh.units import Seconds

_CHECKPOINT_INTERVAL = 10.0
_METHOD = "watched from a later start, with the kernel's high-water marks"


def watch_process(pid: int, watch: Watch) -> Measurement:
    """Watch *pid* until its tree has ended, or weigh is told to end.

    ``told_to_end`` of the result says which: the signal, or None.

    Raises:
        UsageError: there is no such process.
    """
    tree = ProcTree(pid)
    if not tree.adopt(pid):
        raise UsageError(f"no process {pid} (ps -u $USER lists yours)")
    wakeup = signals.Wakeup()
    try:
        return _Attached(pid, tree, watch).to_the_end(wakeup)
    finally:
        wakeup.restore()
        tree.close()


def command_of(pid: int, root: str = "/proc") -> list[str]:
    """Read a process's argv; empty when it is gone or a kernel thread."""
    try:
        with open(f"{root}/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


class _Attached:
    """One process under watch."""

    def __init__(self, pid: int, tree: ProcTree, watch: Watch) -> None:
        self._pid = pid
        self._tree = tree
        self._watch = watch
        self._began = time.time()
        self._own_cpu = time.process_time()
        self._tracker = PeakTracker(0)
        self._sampler = Sampler(tree, self._tracker, None, watch.interval)
        self._cpu = self._cpu_before = 0.0

    def to_the_end(self, wakeup: signals.Wakeup) -> Measurement:
        """Sample until nothing is left, or a signal asks weigh to end."""
        checkpoint_at = 0.0
        wait = self._sampler.look()
        self._cpu = self._cpu_before = self._cpu_time()  # of all that was there
        while True:
            if not self._tree.pids():
                return self._measurement(ended=True, told_to_end=None)
            self._cpu = max(self._cpu, self._cpu_time())
            now = self._sampler.elapsed()
            if now >= checkpoint_at and self._watch.checkpoint is not None:
                checkpoint_at = now + _CHECKPOINT_INTERVAL
                seen = self._measurement(ended=False, told_to_end=None)
                self._watch.checkpoint(seen, self._pid)
            info = wakeup.wait(wait)
            if info is not None and wakeup.asks_to_end(info.si_signo):
                return self._measurement(ended=True, told_to_end=info.si_signo)
            wait = self._sampler.look()

    def _cpu_time(self) -> Seconds:
        times = map(self._tree.times, self._tree.pids())
        return sum(each.cpu_time for each in times if each is not None)

    def _measurement(self, *, ended: bool, told_to_end: int | None) -> Measurement:
        wall = self._sampler.elapsed()
        cpu = self._cpu - self._cpu_before
        own = self._tree.reading(os.getpid())
        return Measurement(
            started=self._began,
            ended=self._began + wall if ended else None,
            exit_code=None,
            signal=None,
            usage=Usage(
                wall_time=wall,
                cpu_time=cpu,
                cpus_used=cpu / wall if wall else None,
                peak_memory=self._tracker.peak(_METHOD),
                max_process_memory=self._tracker.max_process(),
                virtual_memory=self._tracker.virtual or None,
                processes=self._tree.seen,
                growing=is_growing(self._sampler.samples),
            ),
            series=thin_series(self._sampler.samples),
            monitor=Monitor(
                cpu_time=time.process_time() - self._own_cpu,
                memory=None if own is None else own.peak,
                samples=self._sampler.looks,
                interval=self._sampler.interval,
            ),
            told_to_end=told_to_end,
        )
