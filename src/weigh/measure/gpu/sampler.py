"""Sample the GPUs in a separate thread, so that nothing waits for their driver.

All calls of NVML, its start included, are made in one daemon thread. Other threads only
read its results; if a call never returns, the earlier results count, and the process
can still end.
"""

import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from weigh.errors import NoGpuError
from weigh.measure.gpu.account import GpuAccount, idle_for
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import DetailedGpuProbe
from weigh.units import Bytes, Seconds

_ACTIVITY_INTERVAL = 0.2  # the driver updates these figures about as often
_SLOW_INTERVAL = 10.0  # seconds between two rounds of slow queries
_FIRST_SLOW = 1.0  # seconds after the start
# upper bounds per GPU, of one core: for memory readings, and for full ones
_MEMORY_SHARE, _ACTIVITY_SHARE = 0.0075, 0.0025
_STRIKES = 3  # one slow query may be due to a busy machine
_HUNG_AFTER = 5.0  # seconds without an answer until it is reported as hung
_Slow = tuple[str, Callable[[], None]]  # its name, and the call


class GpuSampler:
    """Samples the visible GPUs, from :meth:`start` to :meth:`stop`.

    *pids* returns the job's current processes; without it, a GPU's memory above its
    baseline counts. Times are of *clock*. *joined*: the job was already running.
    """

    def __init__(
        self,
        probe_factory: Callable[[], DetailedGpuProbe],
        interval: Seconds,
        clock: Callable[[], Seconds] = time.monotonic,
        *,
        pids: Callable[[], Collection[int]] = tuple,
        joined: bool = False,
    ) -> None:
        self.interval = interval
        self.looks = 0
        self._factory = probe_factory
        self._clock = clock
        self._pids = pids
        self._joined = joined
        self._accounts: dict[str, GpuAccount] = {}
        self._warnings: list[str] = []
        self._lock = threading.Lock()  # for the accounts; not held during driver calls
        self._stopping = threading.Event()
        self._ready = threading.Event()  # the baseline is known or failed
        self._thread = threading.Thread(target=self._run, name="weigh-gpu", daemon=True)
        self._call_began: Seconds | None = None  # start of the current driver call
        self._started: Seconds = 0.0
        self._slow: deque[_Slow] = deque()
        self._strikes: Counter[str] = Counter()  # of slow queries
        self._slow_at = self._activity_at = 0.0  # due times
        self._cost: Seconds = 0.0  # recent cost of a memory reading

    def start(self, wait: Seconds = 1.0) -> None:
        """Start, and wait up to *wait* seconds for the baseline."""
        self._started = self._clock()
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
            return idle_for(tuple(self._accounts.values()), self._clock())

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
        since = self._clock() - call_began
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
        self._call_began = self._clock()
        probe = self._factory()
        try:
            self._open(probe)
            if self._accounts:
                self._sample(probe)
                self._look(probe, activity=False)  # no activity: the job has ended
                self._count(probe)
                self._take_wear(probe)
            self._call_began = self._clock()
        finally:
            probe.close()

    def _open(self, probe: DetailedGpuProbe) -> None:
        """Read the baseline, then the counters."""
        with self._lock:
            for device in probe.devices():
                account = GpuAccount(device, self._started, joined=self._joined)
                self._accounts[device.uuid] = account
        self._warnings += probe.notes
        if not self._accounts:
            return
        self._look(probe, activity=True)
        self._count(probe)
        self._ready.set()
        self._slow_at = self._clock() + _FIRST_SLOW

    def _sample(self, probe: DetailedGpuProbe) -> None:
        """Read memory at intervals, and the slow figures in between."""
        rest = self.interval
        while not self._stopping.wait(rest):
            pause = self._timed_look(probe)
            rest = pause - self._run_slow_query(probe, pause)

    def _timed_look(self, probe: DetailedGpuProbe) -> Seconds:
        """Take a reading; return the seconds until the next, by the recent cost.

        If readings are expensive, all other figures are read less often before memory.
        """
        now, before = self._clock(), time.thread_time()
        is_due = now >= self._activity_at
        self._look(probe, activity=is_due)
        # per GPU, as the share is an upper bound per GPU
        spent = (time.thread_time() - before) / len(self._accounts)
        if is_due:
            rest = max(_ACTIVITY_INTERVAL, spent / _ACTIVITY_SHARE)
            self._activity_at = now + rest
        else:
            # a moving average: one slow call must not change the pace
            self._cost = 0.8 * self._cost + 0.2 * spent
        self.looks += 1
        return max(self.interval, self._cost / _MEMORY_SHARE)

    def _look(self, probe: DetailedGpuProbe, *, activity: bool) -> None:
        self._call_began = self._clock()
        # without the lock: a driver that hangs must not hold up the main thread
        readings = probe.read(activity=activity)
        self._call_began = None
        if not readings:
            return
        now, tree = self._clock(), self._pids()
        with self._lock:
            for reading in readings:
                self._accounts[reading.uuid].take(now, reading, tree)

    def _count(self, probe: DetailedGpuProbe) -> None:
        for uuid in self._accounts:
            for _, query in self._quick_queries(probe, uuid):
                self._call_began = self._clock()
                query()
                self._call_began = None

    def _take_wear(self, probe: DetailedGpuProbe) -> None:
        for uuid, account in self._accounts.items():
            self._call_began = self._clock()
            account.take_wear(probe.wear(uuid))
            self._call_began = None

    def _run_slow_query(self, probe: DetailedGpuProbe, pause: Seconds) -> Seconds:
        """Run one slow query, if one is due; return the seconds that it took.

        A query that repeatedly takes longer than the pause between two readings is not
        made again before the end.
        """
        before = self._clock()
        # a new round begins when all queries of the last one were made
        if not self._slow and before >= self._slow_at:
            self._slow_at = before + _SLOW_INTERVAL
            for uuid in self._accounts:
                self._slow.extend(self._quick_queries(probe, uuid))
                self._slow.extend(self._bus_queries(probe, uuid))
        if not self._slow:
            return 0.0
        name, query = self._slow.popleft()
        if self._strikes[name] >= _STRIKES:
            return 0.0
        self._call_began = before
        query()
        self._call_began = None
        took = self._clock() - before
        if took > max(pause, self.interval):
            self._strikes[name] += 1
        return min(took, pause)

    def _quick_queries(self, probe: DetailedGpuProbe, gpu_uuid: str) -> Iterator[_Slow]:
        """Yield the queries that are also made at the start and the end."""
        account = self._accounts[gpu_uuid]
        yield "counters", lambda: account.take_counters(probe.counters(gpu_uuid))
        yield "xids", lambda: account.take_xids(probe.new_xids(gpu_uuid))
        yield "shares", lambda: self._take_shares(account, probe)
        yield "accounted", lambda: self._take_accounted(account, probe)

    def _take_shares(self, account: GpuAccount, probe: DetailedGpuProbe) -> None:
        shares = probe.shares(account.device.uuid)
        if shares is not None:
            account.take_shares(shares, self._pids())

    def _take_accounted(self, account: GpuAccount, probe: DetailedGpuProbe) -> None:
        peaks = probe.accounted(account.device.uuid, account.own_pids())
        with self._lock:
            account.take_accounted(peaks)

    @staticmethod
    def _bus(probe: DetailedGpuProbe, account: GpuAccount, *, inwards: bool) -> None:
        uuid = account.device.uuid
        if inwards:
            account.take_pcie(rx=probe.pcie_rx(uuid))
        else:
            account.take_pcie(tx=probe.pcie_tx(uuid))

    def _bus_queries(self, probe: DetailedGpuProbe, gpu_uuid: str) -> Iterator[_Slow]:
        account = self._accounts[gpu_uuid]
        yield "pcie", lambda: self._bus(probe, account, inwards=True)
        yield "pcie", lambda: self._bus(probe, account, inwards=False)
