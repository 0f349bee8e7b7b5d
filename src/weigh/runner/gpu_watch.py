"""What each task does to the GPU of its slot: one sampler, an account a task.

The sampler reads in its own thread. Whatever it reads is handed to the accounts of the
tasks that run as well, so that the driver is asked once for all of them.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping

from weigh.measure.gpu.account import GpuAccount
from weigh.measure.gpu.sampler import GpuSampler
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import (
    DetailedGpuProbe,
    GpuCounters,
    GpuDevice,
    GpuReading,
    GpuShare,
)
from weigh.runner.attempt import Attempt
from weigh.units import Bytes, Seconds

_INTERVAL = 0.05


class TaskGpus:
    """The accounts of one task, a GPU each; *pids* gives its processes now."""

    def __init__(
        self, accounts: tuple[GpuAccount, ...], pids: Callable[[], Collection[int]]
    ) -> None:
        self._accounts = {account.device.uuid: account for account in accounts}
        self._pids = pids

    def take(self, now: Seconds, readings: Collection[GpuReading]) -> None:
        """Take in one look."""
        tree = self._pids()
        for reading in readings:
            account = self._accounts.get(reading.uuid)
            if account is not None:
                account.take(now, reading, tree)

    def usages(self) -> tuple[GpuUsage, ...]:
        """Sum up."""
        return tuple(account.usage() for account in self._accounts.values())

    def moments(self) -> list[list[tuple[Seconds, Bytes]]]:
        """Give the task's memory on each GPU over time."""
        return [account.job_moments() for account in self._accounts.values()]


class GpuWatch:
    """Watches the GPUs of all slots; *names* are what CUDA_VISIBLE_DEVICES had."""

    def __init__(
        self,
        factory: Callable[[], DetailedGpuProbe],
        pids: Callable[[], Collection[int]],
        *,
        names: Collection[str],
        env: Mapping[str, str],
        interval: Seconds,
    ) -> None:
        self._names = tuple(names)
        self._hides = "CUDA_VISIBLE_DEVICES" in env
        self._devices: tuple[GpuDevice, ...] = ()
        self._last: dict[str, GpuReading] = {}
        self._tasks: list[TaskGpus] = []
        self._lock = threading.Lock()  # around the three above and all accounts
        self._sampler = GpuSampler(
            lambda: _Tee(factory(), self._met, self._read),
            max(interval, _INTERVAL),
            pids=pids,
        )
        self._sampler.start(wait=0.0)

    def begin(self, attempt: Attempt, pids: Callable[[], Collection[int]]) -> TaskGpus:
        """Open the accounts of a task; what was read last is its baseline."""
        with self._lock:
            devices = self._devices_of(attempt.slot.gpu)
            accounts = tuple(GpuAccount(device, attempt.began) for device in devices)
            task = TaskGpus(accounts, pids)
            task.take(time.monotonic(), self._last.values())
            self._tasks.append(task)
        return task

    def end(
        self, task: TaskGpus
    ) -> tuple[tuple[GpuUsage, ...], list[list[tuple[Seconds, Bytes]]]]:
        """Close the accounts of a task; give what they say, and its memory in time."""
        with self._lock:
            self._tasks.remove(task)
            return task.usages(), task.moments()

    def stop(self) -> tuple[str, ...]:
        """End; give what was in doubt."""
        self._sampler.stop()
        return tuple(self._sampler.warnings())

    def _met(self, devices: tuple[GpuDevice, ...]) -> None:
        with self._lock:
            self._devices = devices

    def _read(self, readings: tuple[GpuReading, ...]) -> None:
        now = time.monotonic()
        with self._lock:
            self._last.update({reading.uuid: reading for reading in readings})
            for task in self._tasks:
                task.take(now, readings)

    def _devices_of(self, name: str | None) -> tuple[GpuDevice, ...]:
        devices = self._devices
        if name is None:
            return devices
        if self._hides and len(devices) == len(self._names):
            # weigh sees the very cards that it was given, in the same order
            pairs = zip(self._names, devices, strict=True)
            return tuple(device for known, device in pairs if known == name)
        return tuple(
            device
            for device in devices
            if device.uuid.startswith(name) or str(device.index) == name
        )


class _Tee:
    """A probe that shows everything it reads to somebody else, too."""

    def __init__(
        self,
        probe: DetailedGpuProbe,
        met: Callable[[tuple[GpuDevice, ...]], None],
        read: Callable[[tuple[GpuReading, ...]], None],
    ) -> None:
        self._probe = probe
        self._show = read
        met(probe.devices())

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what is in doubt about which GPUs are mine."""
        return self._probe.notes

    @property
    def absence(self) -> str | None:
        """Say why none is mine."""
        return self._probe.absence

    def devices(self) -> tuple[GpuDevice, ...]:
        """Give the GPUs that are mine."""
        return self._probe.devices()

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Look at each once, and show it."""
        readings = self._probe.read(activity=activity)
        self._show(readings)
        return readings

    def counters(self, uuid: str) -> GpuCounters:
        """Read the counters."""
        return self._probe.counters(uuid)

    def pcie_rx(self, uuid: str) -> Bytes | None:
        """Watch what comes in."""
        return self._probe.pcie_rx(uuid)

    def pcie_tx(self, uuid: str) -> Bytes | None:
        """Watch what goes out."""
        return self._probe.pcie_tx(uuid)

    def new_xids(self, uuid: str) -> tuple[int, ...] | None:
        """Give the driver's errors since the last call."""
        return self._probe.new_xids(uuid)

    def shares(self, uuid: str) -> tuple[GpuShare, ...] | None:
        """Give each process's utilisation since the last call."""
        return self._probe.shares(uuid)

    def close(self) -> None:
        """Let the driver go."""
        self._probe.close()
