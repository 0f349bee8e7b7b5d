"""The tracker of this process, its forks and its end."""

import atexit
import os
import sys
from collections.abc import Callable
from threading import RLock

from weigh.errors import NoGpuError
from weigh.measure.region.tracker import Tracker, say
from weigh.probe.gpu import DetailedGpuProbe, GpuDevice, GpuProbe, GpuReading

Report = Callable[[Tracker], str]


class _Process:
    """What is known of this process; a fork starts anew."""

    def __init__(self) -> None:
        self.making = RLock()
        self.tracker: Tracker | None = None
        self.report: Report | None = None
        self.is_child = False
        self.reported = 0
        self.endings: list[Callable[[], None]] = []

    def forget(self) -> None:
        """Leave to the parent what it began: nothing is told twice."""
        self.making = RLock()  # a thread that is not here may hold the old one
        self.tracker = None
        self.is_child = True


_process = _Process()


def current() -> Tracker:
    """Give this process's tracker; made when first asked for."""
    if _process.tracker is not None:
        return _process.tracker
    with _process.making:
        if _process.tracker is None:
            gpus = None if _process.is_child else visible_gpus  # NVML does not fork
            _process.tracker = Tracker(os.environ, gpus=gpus)
            _finish_at_exit()
        return _process.tracker


def is_current(tracker: object) -> bool:
    """Tell whether *tracker* is this process's, and not of one it was forked from."""
    return _process.tracker is tracker


def before_the_end(ending: Callable[[], None]) -> None:
    """Have *ending* called before the last word is said."""
    _process.endings.append(ending)


def report_at_exit(report: Report) -> None:
    """Have *report* written on stderr at the end, if something was measured.

    Not under ``weigh run``, in children, where WEIGH_REPORT is 0, or where
    :func:`report_now` has said it all.
    """
    _process.report = report


def report_now() -> Tracker:
    """Write the report on stderr now; give the tracker it is about."""
    tracker = current()
    if _process.report is not None:
        say(_process.report(tracker))
    _process.reported = tracker.changes
    return tracker


def visible_gpus() -> GpuProbe | None:
    """Make a probe of the GPUs that are mine; None where no card may be.

    Raises:
        GpuError: there is a driver, and it does not start.
    """
    from weigh.probe.driver import a_card_may_be_here  # noqa: PLC0415 - start-up time

    if not a_card_may_be_here(os.environ):
        return None
    from weigh.probe.nvml import NvmlProbe  # noqa: PLC0415 - imports NVML

    try:
        return _MemoryAlone(NvmlProbe(os.environ))
    except NoGpuError:
        return None


class _MemoryAlone:
    """A probe that is asked for memory, and for nothing that costs more."""

    def __init__(self, probe: DetailedGpuProbe) -> None:
        self._probe = probe

    def devices(self) -> tuple[GpuDevice, ...]:
        """Give the GPUs that are mine, in CUDA's order."""
        return self._probe.devices()

    def read(self) -> tuple[GpuReading, ...]:
        """Look at the memory of each once."""
        return self._probe.read(activity=False)


def _finish_at_exit() -> None:
    atexit.register(_finish)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _is_worker():  # these end by os._exit
        util.Finalize(None, _finish, exitpriority=0)


def _finish() -> None:
    tracker = _process.tracker
    if tracker is None:
        return
    for ending in _process.endings:
        ending()
    tracker.finish()
    silent = (
        _process.report is None
        or tracker.is_under_weigh_run
        or tracker.changes == _process.reported
        or os.environ.get("WEIGH_REPORT") == "0"
        or _process.is_child
        or _is_worker()
    )
    if silent:
        return
    try:
        report_now()
    except Exception as error:  # noqa: BLE001 - the program has ended well
        say(f"weigh: no report: {type(error).__name__}: {error}\n")


def _is_worker() -> bool:
    """Tell whether this is a process of a multiprocessing pool or the like."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.parent_process() is not None


def _forget() -> None:
    _process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
