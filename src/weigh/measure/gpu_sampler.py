"""Sample the GPUs in a separate thread, so that nothing waits for their driver.

All calls of a driver, its start included, are made in one daemon thread. Other threads
only read its results; if a call never returns, the earlier results count, and the
process can still end.
"""

import signal
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from itertools import cycle
from typing import TypeVar

from weigh.errors import NoGpuError
from weigh.measure.gpu_account import GpuAccount, idle_for
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.units import Bytes, Seconds

_ACTIVITY_INTERVAL = 0.2  # the driver updates these figures about as often
# seconds between two readings of a GPU's bus, and until the first: one takes 40 ms, in
# which memory is not read
_BUS_INTERVAL, _FIRST_BUS = 10.0, 1.0
# upper bounds of the sampler's cost (docs/gpu.md): per GPU, of one core, for memory
# readings and for full ones; and of its time, for the bus
_MEMORY_SHARE, _ACTIVITY_SHARE, _BUS_SHARE = 0.0075, 0.0025, 0.02
# CPU seconds that readings may take beyond their share. A driver that is creating a
# context spins for a tenth of a second (seen on an H100): just then memory rises
_CREDIT: Seconds = 0.5
_LONGEST_PAUSE: Seconds = 1.0  # between two readings of memory, however dear they are
_HUNG_AFTER = 5.0  # seconds without an answer until it is reported as hung

_T = TypeVar("_T")
GpuListener = Callable[[tuple[GpuDevice, ...], tuple[GpuReading, ...]], None]


class ReadingBudget:
    """Readings at intervals, or less often where they are dear.

    They may take a share of all time, and a credit; ``due_at`` is when the next one is.
    """

    def __init__(
        self, interval: Seconds, share: float, *, credit: Seconds = _CREDIT
    ) -> None:
        self.due_at: Seconds = 0.0
        self._interval = interval
        self._share = share
        self._left = self._credit = credit
        self._paid_at: Seconds = 0.0

    def pay(self, spent: Seconds, current_time: Seconds) -> Seconds:
        """Pay for a reading; return the seconds until the next can be paid for."""
        earned = self._share * (current_time - self._paid_at)
        self._left = min(self._credit, self._left + earned) - spent
        self._paid_at = current_time
        pause = max(self._interval, -self._left / self._share)
        self.due_at = current_time + pause
        return pause


class ReadingSchedule:
    """When to read GPUs: memory every *interval*, all other figures less often.

    If readings are expensive, the other figures are read less often before memory.
    """

    def __init__(self, interval: Seconds) -> None:
        self._longest = max(interval, _LONGEST_PAUSE)
        self._memory = ReadingBudget(interval, _MEMORY_SHARE)
        self._activity = ReadingBudget(_ACTIVITY_INTERVAL, _ACTIVITY_SHARE)

    def is_activity_due(self, current_time: Seconds) -> bool:
        """Return whether the next reading is of all figures."""
        return current_time >= self._activity.due_at

    def rest_after(
        self, spent: Seconds, current_time: Seconds, *, activity: bool
    ) -> Seconds:
        """Return the seconds until the next reading, after one that took *spent*."""
        if activity:
            self._activity.pay(spent, current_time)
            spent = 0.0  # on memory alone
        return min(self._memory.pay(spent, current_time), self._longest)


class TreeGpuAccounts:
    """The accounts of one process tree, by the UUID of the GPU, for its watcher.

    *lock* guards them: a sampler's thread adds readings. It is never held in a driver's
    call.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.accounts: dict[str, GpuAccount] = {}
        self._lock = lock

    def usages(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU so far."""
        with self._lock:
            return tuple(account.usage() for account in self.accounts.values())

    def rows(self) -> list[list[tuple[Seconds, Bytes]]]:
        """Return the job's memory on each GPU over time: (seconds, bytes)."""
        with self._lock:
            return [account.job_moments() for account in self.accounts.values()]

    def idle(self) -> Seconds | None:
        """Return the seconds since any GPU was busy; None if unknown."""
        with self._lock:
            return idle_for(tuple(self.accounts.values()), time.monotonic())

    def warnings(self) -> tuple[str, ...]:
        """Return the problems and doubts, each once."""
        return ()

    def stop(self) -> tuple[GpuUsage, ...]:
        """Take no more readings, and return the usage."""
        return self.usages()


class GpuSampler(TreeGpuAccounts):
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
        super().__init__(threading.Lock())
        self.interval = interval
        self.looks = 0
        self._factory = probe_factory
        self._pids = pids
        self._joined = joined
        self._listener = listener
        self._warnings: list[str] = []
        self._stopping = threading.Event()
        self._ready = threading.Event()  # the baseline is known or failed
        self._thread = threading.Thread(target=self._run, name="weigh-gpu", daemon=True)
        self._call_began: Seconds | None = None  # start of the current driver call
        self._started: Seconds = 0.0

    def start(self, wait: Seconds = 1.0) -> None:
        """Start, and wait up to *wait* seconds for the baseline."""
        self._started = time.monotonic()
        self._thread.start()
        self._ready.wait(wait)

    def warnings(self) -> tuple[str, ...]:
        """Return the problems and doubts, each once."""
        with self._lock:
            found = self._warnings + [
                f"GPU {account.device.index} fell off the bus after "
                f"{account.lost_at:.0f} s: its figures end there"
                for account in self.accounts.values()
                if account.lost_at is not None
            ]
        began = self._call_began
        if began is not None and self._thread.is_alive():
            since = time.monotonic() - began
            if since >= _HUNG_AFTER or self._stopping.is_set():
                found.append(
                    f"the GPU driver has not answered for {since:.0f} s: "
                    "GPU figures may be incomplete"
                )
        return tuple(found)

    def stop(self, timeout: Seconds = 1.0) -> tuple[GpuUsage, ...]:
        """Wait up to *timeout* for the last figures, and return the usage.

        A second call does not wait again.
        """
        if self._thread.is_alive() and not self._stopping.is_set():
            self._stopping.set()
            self._thread.join(timeout)
        return self.usages()

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
        probe = self._answer(self._factory)
        try:
            devices = self._answer(probe.devices)
            with self._lock:
                self.accounts = {
                    device.uuid: GpuAccount(device, self._started, joined=self._joined)
                    for device in devices
                }
            self._warnings += probe.notes
            if self.accounts:
                self._look(probe, activity=True)
                self._count(probe)
                self._ready.set()
                self._sample(probe)
                self._look(probe, activity=False)  # no activity: the job has ended
                self._count(probe)
        finally:
            self._call_began = time.monotonic()
            probe.close()

    def _answer(self, call: Callable[[], _T]) -> _T:
        """Call the driver, and note for the other threads that it has to answer."""
        self._call_began = time.monotonic()
        answer = call()
        self._call_began = None
        return answer

    def _sample(self, probe: GpuProbe) -> None:
        """Read memory at intervals, and the bus of one GPU after the other in between.

        A slow driver is rarely queried for the bus: meanwhile memory is not read.
        """
        schedule, turns = ReadingSchedule(self.interval), cycle(self.accounts.values())
        # without a credit: a dear reading is paid for before the next
        bus = ReadingBudget(_BUS_INTERVAL / len(self.accounts), _BUS_SHARE, credit=0.0)
        bus.due_at = time.monotonic() + _FIRST_BUS
        rest = self.interval
        while not self._stopping.wait(rest):
            before = time.thread_time()
            is_due = schedule.is_activity_due(time.monotonic())
            self._look(probe, activity=is_due)
            self.looks += 1
            # per GPU, as the share is an upper bound per GPU
            spent = (time.thread_time() - before) / len(self.accounts)
            began = time.monotonic()
            rest = schedule.rest_after(spent, began, activity=is_due)
            if began < bus.due_at:
                continue
            account = next(turns)
            traffic = self._answer(partial(probe.bus_traffic, account.device.uuid))
            with self._lock:
                account.take_bus(traffic)
            bus.pay(time.monotonic() - began, began)

    def _look(self, probe: GpuProbe, *, activity: bool) -> None:
        readings = self._answer(partial(probe.read, activity=activity))
        if not readings:
            return
        if self._listener is not None:
            self._listener(probe.devices(), readings)
        now, tree = time.monotonic(), self._pids()
        with self._lock:
            for reading in readings:
                self.accounts[reading.uuid].take(now, reading, tree)

    def _count(self, probe: GpuProbe) -> None:
        for uuid, account in self.accounts.items():
            counters = self._answer(partial(probe.counters, uuid))
            with self._lock:
                account.take_counters(counters)
