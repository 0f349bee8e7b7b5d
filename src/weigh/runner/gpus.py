"""Choose the GPUs of a run: those the environment names, or idle ones found by NVML.

Some schedulers (mostly Grid Engine) grant a number of GPUs without naming them, so jobs
have to find idle ones. A claim, a name that one process of the machine can bind, keeps
two runs from taking the same GPU. The kernel frees it when the run ends.
"""

import errno
import socket
from collections.abc import Callable, Mapping

from weigh.errors import GpuError, UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.visible import order_is_a_guess
from weigh.runner.slots import gpus_named

_IDLE = 0.02  # of a GPU's memory, which the driver itself may use
_CLAIM = "\0weigh-gpu-"  # an abstract socket: it has no file that could be left


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
        if named is not None:
            if gpu_count is not None and len(named) < gpu_count:
                raise UsageError(
                    f"--gpus {gpu_count}: the environment names only {len(named)} "
                    "(ask for fewer, or name more in CUDA_VISIBLE_DEVICES)"
                )
            return named[:gpu_count]
        try:
            source = probe()
            devices, readings = source.devices(), source.read()
        except GpuError as error:
            option = "--per-gpu" if gpu_count is None else f"--gpus {gpu_count}"
            raise UsageError(f"{option}: {error}") from error
        # in a job, GPUs that are not named may be those of another job
        if allocation is not None and gpu_count is None:
            raise UsageError(
                f"--per-gpu: {allocation.scheduler} does not name this job's GPUs: "
                "add --gpus N to take N idle ones"
            )
        names = _visible_gpu_names(devices, env)
        if gpu_count is None:
            return tuple(names.values())
        taken = self._claim(devices, {one.uuid: one for one in readings}, gpu_count)
        return tuple(names[uuid] for uuid in taken)

    def release(self) -> None:
        """Let other runs take the GPUs."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()

    def _claim(
        self,
        devices: tuple[GpuDevice, ...],
        readings: Mapping[str, GpuReading],
        gpu_count: int,
    ) -> tuple[str, ...]:
        taken: list[str] = []
        for device in devices:
            is_idle = device.uuid in readings and _is_gpu_idle(
                device, readings[device.uuid]
            )
            # the claim last: one that is not used would keep others from the GPU
            if len(taken) < gpu_count and is_idle and self._take(device.uuid):
                taken.append(device.uuid)
        if len(taken) < gpu_count:
            self.release()
            raise UsageError(
                f"--gpus {gpu_count}: only {len(taken)} of this node's {len(devices)} "
                "GPUs "
                "are idle and not claimed (ask the scheduler for them, or name yours "
                "in CUDA_VISIBLE_DEVICES)"
            )
        return tuple(taken)

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
