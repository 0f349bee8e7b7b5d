"""Ask the GPU libraries that this program has imported: torch's figures, and to wait.

They are never imported here, and one that has not used a GPU is not asked, because
that would create a CUDA context. A kernel's launch returns before the kernel has run:
without waiting, a clock counts launches.
"""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from weigh.errors import is_raised_by_program
from weigh.probe.gpu import GpuDevice
from weigh.units import Bytes


class TorchDevice(msgspec.Struct, frozen=True):
    """One of torch's GPUs: its peaks and its current memory.

    ``uuid`` as NVML writes it, but without ``GPU-``; None in older versions of torch.
    """

    index: int
    is_current: bool
    uuid: str | None
    max_allocated: Bytes
    max_reserved: Bytes
    reserved: Bytes

    def peaks(self) -> tuple[Bytes, Bytes]:
        """Return the peaks of what was allocated and reserved."""
        return self.max_allocated, self.max_reserved


def read_torch(torch: Any) -> tuple[TorchDevice, ...]:  # noqa: ANN401 - not imported here
    """Read each of torch's GPUs; none where torch has not used CUDA yet.

    *torch* is what ``sys.modules`` has: importing it here would take seconds, and
    asking CUDA first would make a context that holds hundreds of MiB.
    """
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ()
    current = int(cuda.current_device())
    return tuple(
        TorchDevice(
            index=index,
            is_current=index == current,
            uuid=_torch_uuid(cuda, index),
            max_allocated=int(cuda.max_memory_allocated(index)),
            max_reserved=int(cuda.max_memory_reserved(index)),
            reserved=int(cuda.memory_reserved(index)),
        )
        for index in range(int(cuda.device_count()))
    )


def _torch_uuid(cuda: Any, index: int) -> str | None:  # noqa: ANN401 - as above
    """Read a GPU's UUID, without ``GPU-``; None in older versions of torch."""
    properties = getattr(cuda, "get_device_properties", None)
    uuid = getattr(properties and properties(index), "uuid", None)
    return None if uuid is None else str(uuid).removeprefix("GPU-")


def torch_number(
    device: GpuDevice, number: int, uuids: Sequence[str | None]
) -> int | None:
    """Find *device*, the *number*-th that is mine, among torch's *uuids*.

    By UUID, because CUDA may count GPUs of different kinds otherwise; by number where
    torch has none, and for a MIG instance, which CUDA gives its GPU's UUID.
    """
    if device.mig_parent is None and None not in uuids:
        own = device.uuid.removeprefix("GPU-")
        return uuids.index(own) if own in uuids else None
    return number if number < len(uuids) else None


def wait_for_gpus(result: object = None) -> None:
    """Return when all work sent so far is done, that of *result* for jax.

    Raises:
        Exception: the error of that work.
    """
    _wait_for_torch(sys.modules.get("torch"))
    _wait_for_cupy(sys.modules.get("cupy"))
    _wait_for_jax(sys.modules.get("jax"), result)


def wait_quietly() -> None:
    """Return when all work is done; its errors are the program's to meet."""
    try:
        wait_for_gpus()
    except Exception as error:
        if is_raised_by_program(error):
            raise


def _wait_for_torch(torch: Any) -> None:  # noqa: ANN401 - not imported here
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    # older versions of torch do not have it
    is_capturing = getattr(cuda, "is_current_stream_capturing", None)
    if is_capturing is not None and is_capturing():  # waiting would break the graph
        return
    current = cuda.current_device()
    for index in range(cuda.device_count()):
        # a device on which it holds no memory has no work of it, and no context yet
        if index == current or cuda.memory_reserved(index):
            cuda.synchronize(index)


def _wait_for_cupy(cupy: Any) -> None:  # noqa: ANN401 - as above
    # a pool without memory: cupy has not used the GPU
    if cupy is not None and cupy.get_default_memory_pool().total_bytes():
        cupy.cuda.runtime.deviceSynchronize()


def _wait_for_jax(jax: Any, result: object) -> None:  # noqa: ANN401 - as above
    """Wait for *result*, or else for all arrays; one device works in order."""
    if jax is None:
        return
    if result is not None:
        jax.block_until_ready(result)
        return
    # a backend that has not started has no arrays, and asking would start it
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        jax.block_until_ready(
            [one for one in jax.live_arrays() if not one.is_deleted()]
        )
