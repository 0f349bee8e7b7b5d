"""Sample the GPUs in a separate thread, so that nothing waits for their driver.

All calls of a driver, its start included, are made in one daemon thread. Other threads
only read its results; if a call never returns, the earlier results count, and the
process can still end.
"""

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import cycle

from weigh.errors import NoGpuError
from weigh.measure.gpu_account import GpuAccount, idle_for
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuProbe, GpuReading
from weigh.units import Bytes, Seconds

_ACTIVITY_INTERVAL = 0.2  # the driver updates these figures about as often
_BUS_INTERVAL = 10.0  # seconds between two readings of a GPU's bus
_FIRST_BUS = 1.0  # seconds after the start
# upper bounds of the sampler's cost (docs/gpu.md): per GPU, of one core, for memory
# readings and for full ones; and of its time, for the bus
_MEMORY_SHARE, _ACTIVITY_SHARE, _BUS_SHARE = 0.0075, 0.0025, 0.02
# CPU seconds that readings may take beyond their share. A driver that is creating a
# context spins for a tenth of a second (seen on an H100): just then memory rises
_CREDIT: Seconds = 0.5
_LONGEST_PAUSE: Seconds = 1.0  # between two readings of memory, however dear they are
_HUNG_AFTER = 5.0  # seconds without an answer until it is reported as hung

GpuListener = Callable[[tuple[GpuDevice, ...], tuple[GpuReading, ...]], None]


class _ReadingBudget:
    """The CPU time that readings may take: a share of a core, and a credit."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = _CREDIT
        self._paid_at = time.monotonic()

    def pause_after(self, spent: Seconds) -> Seconds:
        """Pay for a reading; return the seconds until the next can be paid for."""
        now = time.monotonic()
        earned = self._share * (now - self._paid_at)
        self._left = min(_CREDIT, self._left + earned) - spent
        self._paid_at = now
        return max(0.0, -self._left / self._share)


class GpuSampler:
    """Samples the visible GPUs, from :meth:`start` to :meth:`stop`.

    *pids* returns the job's current processes; without it, a GPU's memory above its
    baseline counts. *joined*: the job was already running. *listener* is called in the
    sampler's thread with all devices and what was read of some.
    """

    def __init__(
        self,
        probe_factory: Callable[[], GpuProbe],
        interval: Seconds,
        *,
        pids: Callable[[], Collection[int]] = tuple,
        joined: bool = False,
        listener: GpuListener | None = None,
    ) -> None:
        self.interval = interval
        self.looks = 0
        self._factory = probe_factory
        self._pids = pids
        self._joined = joined
        self._listener = listener
        self._devices: tuple[GpuDevice, ...] = ()
        self._accounts: dict[str, GpuAccount] = {}
        self._warnings: list[str] = []
        self._lock = threading.Lock()  # for the accounts; never held in a driver's call
        self._stopping = threading.Event()
        self._ready = threading.Event()  # the baseline is known or failed
        self._thread = threading.Thread(target=self._run, name="weigh-gpu", daemon=True)
        self._call_began: Seconds | None = None  # start of the current driver call
        self._started: Seconds = 0.0
        self._turns: Iterator[GpuAccount] = iter(())  # whose bus comes next
        self._bus_at = self._activity_at = 0.0  # due times
        self._memory_budget = _ReadingBudget(_MEMORY_SHARE)
        self._activity_budget = _ReadingBudget(_ACTIVITY_SHARE)

    def start(self, wait: Seconds = 1.0) -> None:
        """Start, and wait up to *wait* seconds for the baseline."""
        self._started = time.monotonic()
        self._thread.start()
        self._ready.wait(wait)

    def usages(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU so far."""
        with self._lock:
            return tuple(account.usage() for account in self._accounts.values())

    def rows(self) -> tuple[tuple[tuple[Seconds, Bytes], ...], ...]:
        """Return the job's memory on each GPU over time: (seconds, bytes)."""
        with self._lock:
            return tuple(
                tuple(account.job_moments()) for account in self._accounts.values()
            )

    def idle(self) -> Seconds | None:
        """Return the seconds since any GPU was busy; None if unknown."""
        with self._lock:
            return idle_for(tuple(self._accounts.values()), time.monotonic())

    def warnings(self) -> tuple[str, ...]:
        """Return the problems and doubts, each once."""
        with self._lock:
            lost = [
                f"GPU {account.device.index} fell off the bus after "
                f"{account.lost_at:.0f} s: its figures end there"
                for account in self._accounts.values()
                if account.lost_at is not None
            ]
        hung = self._hung_for()
        silent = [] if hung is None else [f"the GPU driver has not answered {hung}"]
        return (*self._warnings, *lost, *silent)

    def stop(self, timeout: Seconds = 1.0) -> tuple[GpuUsage, ...]:
        """Wait up to *timeout* for the last figures, and return the usage.

        A second call does not wait again.
        """
        if self._thread.is_alive() and not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(timeout)
        return self.usages()

    def _hung_for(self) -> str | None:
        call_began = self._call_began
        if call_began is None or not self._thread.is_alive():
            return None
        since = time.monotonic() - call_began
        if since < _HUNG_AFTER and not self._stopping.is_set():
            return None
        return f"for {since:.0f} s: GPU figures may be incomplete"

    def _run(self) -> None:
        """Run the thread; no exception leaves it."""
        if hasattr(signal, "pthread_sigmask"):  # the main thread handles signals
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._watch()
        except NoGpuError:
            return  # normal on most machines
        except Exception as error:  # noqa: BLE001 - a driver's trouble is not the job's
            self._warnings.append(f"GPUs not measured: {error}")
        finally:
            self._call_began = None
            self._ready.set()

    def _watch(self) -> None:
        with self._driver_call():
            probe = self._factory()
        try:
            self._open(probe)
            if self._accounts:
                self._sample(probe)
                self._look(probe, activity=False)  # no activity: the job has ended
                self._count(probe, GpuAccount.end_counters)
        finally:
            self._call_began = time.monotonic()
            probe.close()

    @contextmanager
    def _driver_call(self) -> Iterator[None]:
        """Note for the other threads that the driver has to answer now."""
        self._call_began = time.monotonic()
        yield
        self._call_began = None

    def _open(self, probe: GpuProbe) -> None:
        """Read the baseline, then the counters."""
        with self._driver_call():
            self._devices = probe.devices()
        with self._lock:
            for device in self._devices:
                account = GpuAccount(device, self._started, joined=self._joined)
                self._accounts[device.uuid] = account
        self._warnings += probe.notes
        if not self._accounts:
            return
        self._look(probe, activity=True)
        self._count(probe, GpuAccount.begin_counters)
        self._ready.set()
        self._turns = cycle(self._accounts.values())
        self._bus_at = time.monotonic() + _FIRST_BUS

    def _sample(self, probe: GpuProbe) -> None:
        """Read memory at intervals, and the bus in between."""
        rest = self.interval
        while not self._stopping.wait(rest):
            pause = self._timed_look(probe)
            rest = pause - min(pause, self._read_next_bus(probe))

    def _timed_look(self, probe: GpuProbe) -> Seconds:
        """Take a reading; return the seconds until the next.

        If readings are expensive, all other figures are read less often before memory.
        """
        before = time.thread_time()
        is_due = time.monotonic() >= self._activity_at
        self._look(probe, activity=is_due)
        # per GPU, as the share is an upper bound per GPU
        spent = (time.thread_time() - before) / len(self._accounts)
        self.looks += 1
        if is_due:
            rest = max(_ACTIVITY_INTERVAL, self._activity_budget.pause_after(spent))
            self._activity_at = time.monotonic() + rest
            return self.interval
        pause = self._memory_budget.pause_after(spent)
        return max(self.interval, min(pause, _LONGEST_PAUSE))

    def _look(self, probe: GpuProbe, *, activity: bool) -> None:
        with self._driver_call():
            readings = probe.read(activity=activity)
        if not readings:
            return
        if self._listener is not None:
            self._listener(self._devices, readings)
        now, tree = time.monotonic(), self._pids()
        with self._lock:
            for reading in readings:
                self._accounts[reading.uuid].take(now, reading, tree)

    def _count(
        self, probe: GpuProbe, take: Callable[[GpuAccount, GpuCounters], None]
    ) -> None:
        for uuid, account in self._accounts.items():
            with self._driver_call():
                counters = probe.counters(uuid)
            with self._lock:
                take(account, counters)

    def _read_next_bus(self, probe: GpuProbe) -> Seconds:
        """Read the bus of one GPU, if it is due; return the seconds that it took.

        A slow driver is asked seldom: meanwhile memory is not read.
        """
        before = time.monotonic()
        if before < self._bus_at:
            return 0.0
        account = next(self._turns)
        with self._driver_call():
            traffic = probe.bus_traffic(account.device.uuid)
        with self._lock:
            account.take_bus(traffic)
        took = time.monotonic() - before
        turn = _BUS_INTERVAL / len(self._accounts)
        self._bus_at = before + max(turn, took / _BUS_SHARE)
        return took
