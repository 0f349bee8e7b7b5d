"""Watch a running process and all its descendants.

weigh did not start it: it gets no signals from weigh, its exit code is unknown, and CPU
time is as last read. The memory peak includes the time before the watch, because the
kernel keeps it; the GPU peak does not, because no driver keeps one.
"""

import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import UsageError
from weigh.lazy_modules import lazy_module
from weigh.measure import signals
from weigh.measure.command import WatchSettings
from weigh.measure.peak import PeakTracker
from weigh.measure.sampler import (
    RunSampler,
    is_sampled_memory_growing,
    peak_in_samples,
    thin_series,
)
from weigh.model.gpu import GpuUsage
from weigh.model.record import MeasuringCost, RunMeasurement, SampleSeries, Usage
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.proc import ProcTree, is_own_proc, usable_proc
from weigh.probe.processes import has_ended
from weigh.probe.visible import ORDER, VARIABLE
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.measure.gpu import account
    from weigh.measure.gpu import sampler as gpu_sampler
    from weigh.measure.gpu.sampler import GpuSampler
else:  # each is imported when it is first used
    account = lazy_module("weigh.measure.gpu.account")
    gpu_sampler = lazy_module("weigh.measure.gpu.sampler")

_CHECKPOINT_INTERVAL = 10.0  # seconds
_GPU_INTERVAL = 0.05  # seconds
_CHOICE = (VARIABLE, ORDER)  # variables that choose GPUs
_METHOD = "watched from a later start, with the kernel's high-water marks"


def watch_process(pid: int, watch: WatchSettings) -> RunMeasurement:
    """Watch *pid* until its tree has ended, or weigh receives an ending signal.

    ``end_signal`` of the result is that signal, or None.

    Raises:
        UsageError: the process does not exist or has no memory, or /proc shows another
            pid namespace.
    """
    if not is_own_proc():
        raise UsageError(
            "/proc shows another pid namespace: attach from outside the container"
        )
    tree = ProcTree(pid)
    # it is no descendant of weigh, so a walk would not find it
    if not tree.adopt(pid):
        raise UsageError(f"no process {pid} (ps -u $USER lists yours)")
    if has_ended(pid):
        raise UsageError(f"process {pid} has ended; its parent has not noticed yet")
    if tree.reading(pid) is None:
        raise UsageError(f"process {pid} is the kernel's own: it has no memory")
    wakeup = signals.SignalWakeup()
    attached = _AttachedProcess(pid, tree, watch)
    try:
        return attached.to_the_end(wakeup)
    finally:
        attached.close()
        wakeup.restore()


def command_of_process(pid: int, root: str = "/proc") -> list[str]:
    """Read a process's argv; empty when it is gone or a kernel thread."""
    try:
        with open(f"{usable_proc(root)}/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


class _AttachedProcess:
    """One watched process."""

    def __init__(self, pid: int, tree: ProcTree, watch: WatchSettings) -> None:
        self._pid = pid
        self._tree = tree
        self._watch = watch
        self._gpus = _start_gpu_sampler(pid, tree, watch.interval)
        self._began = time.time()
        self._own_cpu = time.process_time()
        # weigh launched nothing, so no memory can be a launcher's
        self._tracker = PeakTracker(0)
        self._sampler = RunSampler(tree, self._tracker, None, watch.interval)
        self._cpu = self._cpu_before = 0.0

    def close(self) -> None:
        """Close the descriptors, and release the GPU driver."""
        self._tree.close()
        if self._gpus is not None:
            self._gpus.stop()

    def to_the_end(self, wakeup: signals.SignalWakeup) -> RunMeasurement:
        """Sample until all processes have ended, or weigh receives an ending signal."""
        checkpoint_at = 0.0
        wait = self._sampler.look()
        self._cpu = self._cpu_before = self._cpu_time()  # of all present processes
        while not self._is_over():
            # the sum falls when a process ends: the most is kept
            self._cpu = max(self._cpu, self._cpu_time())
            now = self._sampler.elapsed()
            if now >= checkpoint_at and self._watch.checkpoint is not None:
                checkpoint_at = now + _CHECKPOINT_INTERVAL
                seen = self._measurement(ended=False, end_signal=None)
                self._watch.checkpoint(seen, self._pid)
            # signals are for weigh here: the watched process gets none of them
            info = wakeup.wait(wait)
            if info is not None and wakeup.is_stop_request(info.si_signo):
                return self._measurement(ended=True, end_signal=info.si_signo)
            if info is not None and info.si_signo == signal.SIGTSTP:
                signals.stop_self()
            wait = self._sampler.look()
        return self._measurement(ended=True, end_signal=None)

    def _is_over(self) -> bool:
        """Return whether all have ended, even if some are not reaped yet."""
        if self._sampler.samples and self._sampler.samples[-1].processes:
            return False
        return all(has_ended(pid) for pid in self._tree.pids())

    def _cpu_time(self) -> Seconds:
        times = map(self._tree.times, self._tree.pids())
        return sum(each.cpu_time for each in times if each is not None)

    def _measurement(self, *, ended: bool, end_signal: int | None) -> RunMeasurement:
        wall = self._sampler.elapsed()
        return RunMeasurement(
            started=self._began,
            ended=self._began + wall if ended else None,
            exit_code=None,
            signal=None,
            usage=self._usage(wall, self._gpu_usages(ended=ended)),
            series=self._series(),
            monitor=self._monitor(),
            end_signal=end_signal,
        )

    def _usage(self, wall: Seconds, gpus: tuple[GpuUsage, ...]) -> Usage:
        cpu = self._cpu - self._cpu_before
        peak = self._tracker.peak(_METHOD)
        samples = peak_in_samples(self._sampler.samples, peak)
        return Usage(
            wall_time=wall,
            cpu_time=cpu,
            cpus_used=cpu / wall if wall else None,
            peak_memory=peak,
            max_process_memory=self._tracker.max_process(),
            virtual_memory=self._tracker.virtual or None,
            processes=self._tree.seen,
            growing=is_sampled_memory_growing(samples),
            gpus=gpus,
        )

    def _gpu_usages(self, *, ended: bool) -> tuple[GpuUsage, ...]:
        if self._gpus is None:
            return ()
        return self._gpus.stop() if ended else self._gpus.usages()

    def _series(self) -> SampleSeries:
        peak = self._tracker.peak(_METHOD)
        series = thin_series(peak_in_samples(self._sampler.samples, peak))
        rows = () if self._gpus is None else self._gpus.rows()
        if not all(rows):  # the process's memory on one GPU is unknown
            return series
        # samples of GPUs are on the monotonic clock
        began = time.monotonic() - self._sampler.elapsed()
        columns = account.gpu_columns(rows, [began + at for at in series.t])
        return msgspec.structs.replace(series, gpu_memory=columns)

    def _monitor(self) -> MeasuringCost:
        own = self._tree.reading(os.getpid())
        return MeasuringCost(
            cpu_time=time.process_time() - self._own_cpu,
            memory=None if own is None else own.peak,
            samples=self._sampler.looks,
            interval=self._sampler.reached_interval(),
            warnings=self._gpus.warnings() if self._gpus is not None else (),
        )


def _start_gpu_sampler(
    pid: int, tree: ProcTree, interval: Seconds
) -> "GpuSampler | None":
    """Watch the GPUs that are visible to the process, which may differ from weigh's."""
    environment = _environment_with_their_gpus(tree.environment(pid))
    if not gpu_may_be_present(environment):
        return None
    sampler = gpu_sampler.GpuSampler(
        lambda: open_probe(environment),
        max(interval, _GPU_INTERVAL),
        pids=tree.pids,
        joined=True,
    )
    sampler.start()
    return sampler


def _environment_with_their_gpus(theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with *their* GPU selection, if it is readable."""
    # an environment that may not be read is one empty name
    if not any(theirs):
        return dict(os.environ)
    ours = {name: os.environ[name] for name in os.environ if name not in _CHOICE}
    return ours | {name: theirs[name] for name in _CHOICE if name in theirs}
