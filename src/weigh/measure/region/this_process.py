"""The tracker of this process, after forks and until the end."""

import atexit
import os
import sys
from collections.abc import Callable
from threading import RLock

from weigh.errors import NoGpuError
from weigh.measure.region.tracker import RegionTracker, print_error
from weigh.probe.gpu import DetailedGpuProbe, GpuDevice, GpuProbe, GpuReading

Report = Callable[[RegionTracker], str]
_WORKERS = "weigh: phases of worker processes are reported only under weigh run\n"


class _ProcessState:
    """The state of this process; a fork starts with a new one."""

    def __init__(self) -> None:
        self.making = RLock()
        self.tracker: RegionTracker | None = None
        self.report: Report | None = None
        self.is_child = False  # worker or fork of another process
        self.reported = 0  # changes that were reported already
        self.endings: list[Callable[[], None]] = []

    def forget(self) -> None:
        """Drop the parent's state, so that nothing is reported twice."""
        self.making = RLock()  # another thread of the parent may hold the old lock
        self.tracker = None
        self.is_child = True


_process = _ProcessState()


def current() -> RegionTracker:
    """Return this process's tracker; create it at the first call."""
    if _process.tracker is not None:
        return _process.tracker
    with _process.making:
        # another thread may have made it in the meantime
        if _process.tracker is None:
            gpus = None if _process.is_child else visible_gpus  # NVML breaks at a fork
            _process.tracker = RegionTracker(os.environ, gpus=gpus)
            _finish_at_exit()
        return _process.tracker


def is_current(tracker: object) -> bool:
    """Return whether *tracker* is this process's, not that of its parent."""
    return _process.tracker is tracker


def before_the_end(ending: Callable[[], None]) -> None:
    """Register *ending* to be called before the final report."""
    _process.endings.append(ending)


def report_at_exit(report: Report) -> None:
    """Write *report* on stderr at exit, if anything was measured.

    Not under ``weigh run``, in children, with WEIGH_REPORT=0, or if
    :func:`report_now` has written everything.
    """
    _process.report = report


def report_now(show: Callable[[str], None]) -> RegionTracker:
    """Let *show* print the report now; return its tracker."""
    tracker = current()
    if _process.report is not None:
        show(_process.report(tracker))
    _process.reported = tracker.changes
    return tracker


def visible_gpus() -> GpuProbe | None:
    """Return a probe of the visible GPUs; None if there is none.

    Raises:
        GpuError: the driver does not start.
    """
    from weigh.probe.driver import (  # noqa: PLC0415 - start-up time
        gpu_may_be_present,
        open_probe,
    )

    if not gpu_may_be_present(os.environ):
        return None

    try:
        return _MemoryOnly(open_probe(os.environ))
    except NoGpuError:
        return None


class _MemoryOnly:
    """A probe that reads only memory, which is cheap.

    A GPU whose memory has not changed, as under a caching allocator, keeps its last
    reading.
    """

    def __init__(self, probe: DetailedGpuProbe) -> None:
        self._probe = probe
        self._last: dict[str, GpuReading] = {}

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the visible GPUs, in CUDA's order."""
        return self._probe.devices()

    def read(self) -> tuple[GpuReading, ...]:
        """Read the memory of each GPU once."""
        for reading in self._probe.read(activity=False):
            self._last[reading.uuid] = reading
        return tuple(self._last.values())


def _finish_at_exit() -> None:
    atexit.register(_finish)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _is_worker():  # workers end with os._exit
        util.Finalize(None, _finish, exitpriority=0)


def _finish() -> None:
    tracker = _process.tracker
    if tracker is None:
        return
    for ending in _process.endings:
        ending()
    tracker.finish()
    silent = (
        tracker.is_under_weigh_run
        or tracker.changes == _process.reported
        or os.environ.get("WEIGH_REPORT") == "0"
        or _process.is_child
    )
    if silent:
        return
    if _is_worker():
        _process.reported = tracker.changes  # this may be called twice
        # one line is enough for all workers
        if _warns_for_workers():
            print_error(_WORKERS)
        return
    if _process.report is None:
        return
    try:
        report_now(print_error)
    except Exception as error:  # noqa: BLE001 - the program's exit code stays
        print_error(f"weigh: no report: {type(error).__name__}: {error}\n")


def _is_worker() -> bool:
    """Return whether this is a worker process of multiprocessing or loky."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def _warns_for_workers() -> bool:
    """Return whether this is the first of the workers, and not a fork."""
    name = str(sys.modules["multiprocessing.process"].current_process().name)
    return name.endswith("-1") and not name.startswith("Fork")


def _forget() -> None:
    _process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
