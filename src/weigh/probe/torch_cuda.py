"""Read torch's own GPU memory figures, if this process has imported torch."""

from collections.abc import Sequence
from typing import Any

import msgspec

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
            uuid=torch_uuid(cuda, index),
            max_allocated=int(cuda.max_memory_allocated(index)),
            max_reserved=int(cuda.max_memory_reserved(index)),
            reserved=int(cuda.memory_reserved(index)),
        )
        for index in range(int(cuda.device_count()))
    )


def torch_uuid(cuda: Any, index: int) -> str | None:  # noqa: ANN401 - as above
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
