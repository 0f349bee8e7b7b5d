"""Watch a running process and all its descendants.

weigh did not start it: it gets no signals from weigh, its exit code is unknown, and CPU
time is as last read. The memory peak includes the time before the watch, because the
kernel keeps it; the GPU peak does not, because no driver keeps one.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import closing

from weigh.errors import UsageError
from weigh.measure import signals
from weigh.measure.watcher import (
    RunCheckpoints,
    TreeWatcher,
    WatchedRun,
    WatchSettings,
    kernel_measurement,
    start_gpu_sampler,
)
from weigh.model.record import RunMeasurement, Usage
from weigh.probe.proc import ProcTree, usable_proc
from weigh.probe.visible import ORDER, VARIABLE
from weigh.process_ids import is_own_proc
from weigh.regular_file import file_head

_CHOICE = (VARIABLE, ORDER)  # variables that choose GPUs


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
    if not tree.adopt(pid) or tree.reading(pid) is None:
        raise UsageError(f"no running process {pid} (ps -u $USER lists yours)")
    # the GPUs that are visible to the process may differ from weigh's
    environment = _environment_with_their_gpus(tree.environment(pid))
    gpus = start_gpu_sampler(watch.interval, tree.pids, environment, joined=True)
    run = WatchedRun(gpus=gpus, has_begun=True)
    with (
        closing(TreeWatcher(tree, watch.interval, run)) as watcher,
        closing(signals.SignalWakeup()) as wakeup,
    ):
        return _watched_to_the_end(pid, watcher, wakeup, watch)


def _watched_to_the_end(
    pid: int, watcher: TreeWatcher, wakeup: signals.SignalWakeup, watch: WatchSettings
) -> RunMeasurement:
    watcher.look_if_due()
    cpu_before = watcher.cpu_time()
    end_signal: int | None = None

    def measurement(*, has_ended: bool = False) -> RunMeasurement:
        usage = Usage(watcher.elapsed(), watcher.cpu_time() - cpu_before)
        known = kernel_measurement(
            usage, watcher.started, has_ended=has_ended, end_signal=end_signal
        )
        return watcher.joined(known)

    RunCheckpoints(watcher, lambda: watch.checkpoint(measurement(), pid))
    # a process that ended and is not reaped yet is in no sample
    while end_signal is None and (not watcher.samples or watcher.samples[-1].processes):
        # signals are for weigh here: the watched process gets none of them
        info = wakeup.wait(watcher.pause())
        if info is not None and wakeup.is_stop_request(info.si_signo):
            end_signal = info.si_signo
        elif info is not None and info.si_signo == signal.SIGTSTP:
            signals.stop_self()
        watcher.look_if_due()
    watcher.finish()
    return measurement(has_ended=True)


def command_of_process(pid: int) -> list[str]:
    """Read a process's argv; empty when it is gone or a kernel thread."""
    text = os.fsdecode(file_head(f"{usable_proc()}/{pid}/cmdline"))
    return text.split("\0")[:-1]


def _environment_with_their_gpus(theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with *their* GPU selection, if it is readable."""
    # an environment that may not be read is one empty name
    if not any(theirs):
        return dict(os.environ)
    ours = {name: os.environ[name] for name in os.environ if name not in _CHOICE}
    return ours | {name: theirs[name] for name in _CHOICE if name in theirs}
