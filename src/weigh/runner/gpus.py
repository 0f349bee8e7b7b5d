"""Which GPUs to share out: those the environment names, or else found through NVML.

A scheduler that grants GPUs without saying which (Grid Engine, mostly) leaves it to its
jobs to find idle ones. A lock a card, held for the run, keeps two from taking the same.
"""

import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from weigh.errors import GpuError, UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.runner.resources import gpus_named

_IDLE = 0.02  # of a card's memory, which the driver itself may use
_LOCKS = "weigh-gpu-{}.lock"
_FOR_ALL = 0o444


class GpuClaims:
    """The GPUs of this run, and the locks on those that nobody granted by name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._locks: list[int] = []

    def choose(
        self,
        env: Mapping[str, str],
        allocation: Allocation | None,
        probe: Callable[[], GpuProbe],
        *,
        count: int | None = None,
    ) -> tuple[str, ...]:
        """Give the names of our GPUs for CUDA_VISIBLE_DEVICES, *count* of them.

        Raises:
            UsageError: there is none, or nobody says which are ours.
        """
        named = gpus_named(env)
        if named is not None:
            return named[:count]
        try:
            source = probe()
            devices, readings = source.devices(), source.read()
        except GpuError as error:
            raise UsageError(f"--per-gpu: {error}") from error
        if allocation is not None and count is None:
            raise UsageError(
                f"--per-gpu: {allocation.scheduler} does not say which GPUs are this "
                "job's: say how many it has with --gpus N, and idle ones are taken"
            )
        if count is None:
            return tuple(device.uuid for device in devices)
        return self._claim(devices, {one.uuid: one for one in readings}, count)

    def release(self) -> None:
        """Let go of the locks."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _claim(
        self,
        devices: tuple[GpuDevice, ...],
        readings: Mapping[str, GpuReading],
        count: int,
    ) -> tuple[str, ...]:
        taken: list[str] = []
        for device in devices:
            reading = readings.get(device.uuid)
            if len(taken) < count and reading is not None and _is_idle(device, reading):
                lock = self._lock(device.uuid)
                if lock is not None:
                    self._locks.append(lock)
                    taken.append(device.uuid)
        if len(taken) < count:
            self.release()
            raise UsageError(
                f"--gpus {count}: only {len(taken)} of this node's {len(devices)} GPUs "
                "are idle and not claimed (ask the scheduler for them, or name yours "
                "in CUDA_VISIBLE_DEVICES)"
            )
        return tuple(taken)

    def _lock(self, uuid: str) -> int | None:
        try:
            fd = _opened(os.path.join(self._folder, _LOCKS.format(uuid)))
        except OSError:
            return None  # nobody else may lock it, so whoever made it has the card
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd


def _opened(path: str) -> int:
    """Open a lock that anybody on this machine may have made, and make it if need be.

    The kernel refuses O_CREAT on another's file in a folder like /tmp, even to root.

    Raises:
        OSError: it is there, and neither readable nor a file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FOR_ALL)
    except FileExistsError:
        return os.open(path, flags)  # made this very moment
    os.fchmod(fd, _FOR_ALL)  # whatever the umask is: it stays when we are gone
    return fd


def _is_idle(device: GpuDevice, reading: GpuReading) -> bool:
    if reading.lost or reading.processes or reading.process_memory:
        return False
    reserved = device.memory_reserved or 0
    allowed = reserved + _IDLE * (device.memory_total or 0)
    return (reading.memory_used or 0) <= allowed
