"""Choose the GPUs of a run: those the environment names, or idle ones found by NVML.

Some schedulers (mostly Grid Engine) grant a number of GPUs without naming them, so jobs
have to find idle ones. A claim, a file that is locked during the run, prevents two runs
from taking the same GPU.
"""

import fcntl
import os
import random
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from weigh.errors import GpuError, UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.visible import order_is_a_guess
from weigh.runner.resources import gpus_named
from weigh.units import Seconds

_IDLE = 0.02  # of a GPU's memory, which the driver itself may use
_CLAIM = "weigh-gpu-"
_FOR_ALL = 0o444
_OTHERS_COUNT_FOR: Seconds = 600.0
_TRIES = 5
_PAUSE = (0.05, 0.3)  # seconds until the next try, at random


class GpuClaims:
    """The GPUs of this run, and the claims on those not granted by name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._claims: list[tuple[str, int]] = []

    def choose(
        self,
        env: Mapping[str, str],
        allocation: Allocation | None,
        probe: Callable[[], GpuProbe],
        *,
        count: int | None = None,
    ) -> tuple[str, ...]:
        """Return the names of our GPUs for CUDA_VISIBLE_DEVICES, *count* of them.

        They are numbers where CUDA's numbers are certain, because programs convert
        them; otherwise UUIDs.

        Raises:
            UsageError: there is none, or it is unknown which are ours.
        """
        named = gpus_named(env)
        if named is not None:
            return named[:count]
        try:
            source = probe()
            devices, readings = source.devices(), source.read()
        except GpuError as error:
            option = "--per-gpu" if count is None else f"--gpus {count}"
            raise UsageError(f"{option}: {error}") from error
        if allocation is not None and count is None:
            raise UsageError(
                f"--per-gpu: {allocation.scheduler} does not name this job's GPUs: "
                "add --gpus N to take N idle ones"
            )
        names = _names(devices, env)
        if count is None:
            return tuple(names.values())
        taken = self._claim(devices, {one.uuid: one for one in readings}, count)
        return tuple(names[uuid] for uuid in taken)

    def release(self) -> None:
        """Remove the claims."""
        for path, fd in self._claims:
            with suppress(OSError):
                os.unlink(path)
            os.close(fd)
        self._claims.clear()

    def _claim(
        self,
        devices: tuple[GpuDevice, ...],
        readings: Mapping[str, GpuReading],
        count: int,
    ) -> tuple[str, ...]:
        idle = [
            device.uuid
            for device in devices
            if device.uuid in readings and _is_idle(device, readings[device.uuid])
        ]
        taken = [uuid for uuid in idle if self._count < count and self._take(uuid)]
        for _ in range(_TRIES):
            if len(taken) >= count or len(idle) == len(taken):
                break
            time.sleep(random.uniform(*_PAUSE))  # noqa: S311 - no secret
            taken += [
                uuid
                for uuid in idle
                if uuid not in taken and self._count < count and self._take(uuid)
            ]
        if len(taken) < count:
            self.release()
            raise UsageError(
                f"--gpus {count}: only {len(taken)} of this node's {len(devices)} GPUs "
                "are idle and not claimed (ask the scheduler for them, or name yours "
                "in CUDA_VISIBLE_DEVICES)"
            )
        return tuple(taken)

    @property
    def _count(self) -> int:
        return len(self._claims)

    def _take(self, uuid: str) -> bool:
        """Claim a GPU, unless another process has a valid claim on it."""
        prefix = f"{_CLAIM}{uuid}."
        name = prefix + os.urandom(8).hex()
        path = os.path.join(self._folder, name)
        try:
            fd = _make_locked(os.path.join(self._folder, f".{name}"), path)
        except OSError:
            return False
        self._claims.append((path, fd))
        if not any(
            one.startswith(prefix) and one != name and _is_valid(self._folder, one)
            for one in os.listdir(self._folder)
        ):
            return True
        self._claims.pop()
        with suppress(OSError):
            os.unlink(path)
        os.close(fd)
        return False


def _names(devices: tuple[GpuDevice, ...], env: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each GPU by its UUID, for CUDA_VISIBLE_DEVICES."""
    is_split = any(device.mig_parent is not None for device in devices)
    if is_split or order_is_a_guess(devices, env):
        return {device.uuid: device.uuid for device in devices}
    return {device.uuid: str(number) for number, device in enumerate(devices)}


def _make_locked(new: str, path: str) -> int:
    """Make a file that appears under its name only once it is locked.

    Raises:
        OSError: it cannot be made or locked.
    """
    fd = os.open(new, os.O_RDONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, _FOR_ALL)
    try:
        os.fchmod(fd, _FOR_ALL)  # whatever the umask is
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, path)
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            os.unlink(new)
        raise
    return fd


def _is_valid(folder: str, name: str) -> bool:
    """Return whether a claim on an idle GPU is valid; remove it if ours and dead.

    A claim without a lock is dead. Another user's claim counts for ten minutes, by when
    its program should use the GPU: nobody can block an idle GPU permanently.
    """
    path = os.path.join(folder, name)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    found = os.fstat(fd)
    is_own = found.st_uid == os.geteuid()
    try:
        if not stat.S_ISREG(found.st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return is_own or time.time() - found.st_mtime < _OTHERS_COUNT_FOR
    except OSError:
        return False
    finally:
        os.close(fd)
    if is_own:
        with suppress(OSError):
            os.unlink(path)
    return False


def _is_idle(device: GpuDevice, reading: GpuReading) -> bool:
    if reading.lost or reading.processes or reading.process_memory:
        return False
    reserved = device.memory_reserved or 0
    allowed = reserved + _IDLE * (device.memory_total or 0)
    return (reading.memory_used or 0) <= allowed
