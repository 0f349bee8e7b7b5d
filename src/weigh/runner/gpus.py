"""The GPUs of a run and its tasks: which are ours, and how each task uses its slot's.

Some schedulers (mostly Grid Engine) grant a number of GPUs without naming them, so jobs
have to find idle ones. A claim, a name that one process of the machine can bind, keeps
two runs from taking the same GPU. The kernel frees it when the run ends.

One sampler reads for all tasks, in its own thread. Each reading is passed on to the
accounts of all running tasks, so that the driver is queried once for all of them.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from weigh.errors import GpuError, UsageError
from weigh.measure.gpu_account import GpuAccount
from weigh.measure.gpu_sampler import GpuSampler, TreeGpuAccounts
from weigh.model.gpu import GpuUsage
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.visible import order_is_a_guess
from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import MemoryReading, MemoryRoom
from weigh.runner.slots import SHOWN, gpus_named
from weigh.units import Seconds

_IDLE = 0.02  # of a GPU's memory, which the driver itself may use
_CLAIM = "\0weigh-gpu-"  # an abstract socket: it has no file that could be left
_INTERVAL = 0.05  # seconds; the least between readings, as in weigh run


class GpuClaims:
    """The GPUs of this run, and the claims on those not granted by name.

    Runs of another *scope* are not seen: tests do not meet.
    """

    def __init__(self, scope: str = "") -> None:
        self._prefix = f"{_CLAIM}{scope}"
        self._claims: list[socket.socket] = []

    def choose(
        self,
        env: Mapping[str, str],
        allocation: Allocation | None,
        probe: Callable[[], GpuProbe],
        *,
        gpu_count: int | None = None,
    ) -> tuple[str, ...]:
        """Return the names of our GPUs for CUDA_VISIBLE_DEVICES, *gpu_count* of them.

        They are numbers where CUDA's numbers are certain, because programs convert
        them; otherwise UUIDs.

        Raises:
            UsageError: there is none, or it is unknown which are ours.
        """
        named = gpus_named(env)
        option = "--per-gpu" if gpu_count is None else f"--gpus {gpu_count}"
        if named is None:
            # in a job, GPUs that are not named may be those of another job
            if allocation is not None and gpu_count is None:
                raise UsageError(
                    f"--per-gpu: {allocation.scheduler} does not name this job's "
                    "GPUs: add --gpus N to take N idle ones"
                )
            try:
                found = self._found(probe(), env, gpu_count)
            except GpuError as error:
                raise UsageError(f"{option}: {error}") from error
        else:
            found = named[:gpu_count]
        if len(found) < (gpu_count or 0):
            self.release()
            how_many = f"only {len(found)} GPUs are" if found[1:] else "only 1 GPU is"
            which = "idle and not claimed" if named is None else "named for this job"
            raise UsageError(
                f"{option}: {how_many if found else 'no GPU is'} {which} (ask the "
                "scheduler for more, or name yours in CUDA_VISIBLE_DEVICES)"
            )
        return found

    def _found(
        self, source: GpuProbe, env: Mapping[str, str], gpu_count: int | None
    ) -> tuple[str, ...]:
        """Return the names of all GPUs here, or of *gpu_count* idle ones, now ours."""
        devices = source.devices()
        names = _visible_gpu_names(devices, env)
        if gpu_count is None:
            return tuple(names.values())
        by_uuid = {reading.uuid: reading for reading in source.read()}
        taken: list[str] = []
        for device in devices:
            reading = by_uuid.get(device.uuid)
            is_idle = reading is not None and _is_gpu_idle(device, reading)
            # the claim last: one that is not used would keep others from the GPU
            if len(taken) < gpu_count and is_idle and self._take(device.uuid):
                taken.append(names[device.uuid])
        return tuple(taken)

    def release(self) -> None:
        """Let other runs take the GPUs."""
        while self._claims:
            self._claims.pop().close()

    def _take(self, gpu_uuid: str) -> bool:
        """Claim a GPU; return False if another run has."""
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"{self._prefix}{gpu_uuid}")
        except OSError as error:  # any other: no claims here, and idle has to do
            claim.close()
            return error.errno != errno.EADDRINUSE
        self._claims.append(claim)
        return True


def _visible_gpu_names(
    devices: tuple[GpuDevice, ...], env: Mapping[str, str]
) -> dict[str, str]:
    """Return the name of each GPU by its UUID, for CUDA_VISIBLE_DEVICES."""
    # CUDA knows a part of a split GPU only by its UUID
    is_split = any(device.mig_parent is not None for device in devices)
    if is_split or order_is_a_guess(devices, env):
        return {device.uuid: device.uuid for device in devices}
    return {device.uuid: str(number) for number, device in enumerate(devices)}


def _is_gpu_idle(device: GpuDevice, reading: GpuReading) -> bool:
    if reading.lost or reading.processes or reading.process_memory:
        return False
    reserved = device.memory_reserved or 0
    allowed = reserved + _IDLE * (device.memory_total or 0)
    return (reading.memory_used or 0) <= allowed


class TaskGpus(TreeGpuAccounts):
    """The accounts of one task; *pids* returns its current processes."""

    def __init__(
        self,
        attempt: TaskAttempt,
        pids: Callable[[], Collection[int]],
        meter: "SlotGpuMeter",
    ) -> None:
        super().__init__(meter.lock)
        self.attempt = attempt
        self._pids = pids
        self._meter = meter

    def open(self, devices: Collection[GpuDevice]) -> None:
        """Open an account for each of these GPUs."""
        for device in devices:
            # kept if it is open: devices are listed again when the driver starts late
            account = GpuAccount(device, self.attempt.launch.began)
            self.accounts.setdefault(device.uuid, account)

    def take(self, current_time: Seconds, readings: Collection[GpuReading]) -> None:
        """Process the readings of one look."""
        tree = self._pids()
        for reading in readings:
            account = self.accounts.get(reading.uuid)
            if account is not None:
                account.take(current_time, reading, tree)
        # the guard compares with one GPU's limit, so the fullest one counts
        moments = [one.moments[-1] for one in self.accounts.values() if one.moments]
        level = self.attempt.gpu
        level.now = max((moment.job or 0 for moment in moments), default=0)
        level.peak = max(level.peak, level.now)

    def stop(self) -> tuple[GpuUsage, ...]:
        """Take no more readings, and return the usage."""
        self._meter.end(self)
        return self.usages()


class SlotGpuMeter:
    """Measures the GPUs of all slots; *names* are those in CUDA_VISIBLE_DEVICES."""

    def __init__(
        self,
        factory: Callable[[], GpuProbe],
        pids: Callable[[], Collection[int]],
        *,
        names: Collection[str],
        env: Mapping[str, str],
        interval: Seconds,
    ) -> None:
        self._names = tuple(names)
        self._hides = any(name in env for name in SHOWN)
        self._devices: tuple[GpuDevice, ...] = ()
        self._last: dict[str, GpuReading] = {}  # by UUID
        self._read_at: Seconds = 0.0  # on the monotonic clock
        self._tasks: list[TaskGpus] = []
        self.lock = threading.Lock()  # guards the four above and all accounts
        self._sampler = GpuSampler(
            factory, max(interval, _INTERVAL), pids=pids, listener=self._on_readings
        )
        # no wait: a driver may take seconds to answer, or hang
        self._sampler.start(wait=0.0)

    def begin(
        self, attempt: TaskAttempt, pids: Callable[[], Collection[int]]
    ) -> TaskGpus:
        """Open the accounts of a task; the last reading is its baseline."""
        with self.lock:
            task = TaskGpus(attempt, pids, self)
            task.open(self._devices_of(task.attempt.slot.gpu))
            task.take(time.monotonic(), self._last.values())
            self._tasks.append(task)
            self._mark_mixed()
        return task

    def room_of(self, gpu_name: str | None) -> MemoryReading | None:
        """Return the memory of a slot's GPU; None if it has several or no reading."""
        with self.lock:
            devices = self._devices_of(gpu_name)
            last = self._last.get(devices[0].uuid) if len(devices) == 1 else None
            if last is None or last.lost or last.memory_used is None:
                return None
            device = devices[0]
            if device.memory_total is None:
                return None
            # what the driver reserves, no program can have
            room = MemoryRoom(
                last.memory_used, device.memory_total - (device.memory_reserved or 0)
            )
            return MemoryReading(room, self._read_at, f"left on GPU {device.index}")

    def end(self, task_gpus: TaskGpus) -> None:
        """Pass no more readings on to a task, if it still gets them."""
        with self.lock, suppress(ValueError):
            self._tasks.remove(task_gpus)

    def stop(self) -> tuple[str, ...]:
        """Stop measuring; return the warnings."""
        self._sampler.stop()
        return tuple(self._sampler.warnings())

    def _mark_mixed(self) -> None:
        """Mark the accounts of GPUs that several tasks share."""
        for uuid in self._last.keys() | {device.uuid for device in self._devices}:
            tasks = [task for task in self._tasks if uuid in task.accounts]
            if len(tasks) > 1:
                for task in tasks:
                    task.accounts[uuid].mixed = True

    def _on_readings(
        self, devices: tuple[GpuDevice, ...], readings: tuple[GpuReading, ...]
    ) -> None:
        now = time.monotonic()
        with self.lock:
            if not self._devices:
                self._devices = devices
                for task in self._tasks:  # the driver may start late
                    task.open(self._devices_of(task.attempt.slot.gpu))
                self._mark_mixed()
            self._read_at = now
            for reading in readings:
                self._last[reading.uuid] = reading
            for task in self._tasks:
                task.take(now, readings)

    def _devices_of(self, gpu_name: str | None) -> tuple[GpuDevice, ...]:
        """Return the GPUs of a slot, which *gpu_name* lists with commas between."""
        devices = self._devices
        if gpu_name is None:
            return devices
        wanted = gpu_name.split(",")
        if self._hides and len(devices) == len(self._names):
            # weigh sees exactly the GPUs it was given, in the same order
            pairs = zip(self._names, devices, strict=True)
            return tuple(device for known, device in pairs if known in wanted)
        # CUDA's numbers are places; a scheduler may name the node's numbers instead
        numbers = [int(known) for known in self._names if known.isdecimal()]
        are_places = all(number < len(devices) for number in numbers)
        return tuple(
            device
            for place, device in enumerate(devices)
            if str(place if are_places else device.index) in wanted
            or device.uuid.startswith(tuple(wanted))
        )
