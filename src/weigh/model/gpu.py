"""What is known of a GPU: over a run, over a region of code, and now.

Bytes are integers, energies joules; ``None`` means not measured and never zero.
"""

from typing import Protocol

import msgspec

from weigh.units import Bytes, Seconds


class _Peaks(Protocol):
    @property
    def peak_memory(self) -> Bytes | None: ...
    @property
    def process_peak_memory(self) -> Bytes | None: ...


def job_peak(gpu: _Peaks) -> Bytes | None:
    """Return the most memory that the job held on one GPU; None if not measured.

    The driver's account of its processes comes first: in older records the other peak
    is that of the whole GPU.
    """
    own = gpu.process_peak_memory
    return gpu.peak_memory if own is None else own


class GpuProcess(msgspec.Struct, frozen=True):
    """What one process of the job did on one GPU; utilisations are means."""

    pid: int
    peak_memory: Bytes | None = None
    sm_utilization: float | None = None
    memory_utilization: float | None = None


class GpuUsage(msgspec.Struct, frozen=True):
    """What one GPU did while the job ran. Powers in watts, clocks in MHz.

    ``peak_memory`` is the most that the job held, by ``source``;
    ``process_peak_memory`` the same by the driver's account of the job's processes,
    None where that is hidden; ``device_peak_memory`` the most in use by everybody.
    Utilisations are per cent of time, ``pcie_rx`` and ``pcie_tx`` bytes a second,
    ``throttle`` seconds by reason, ``xids`` the driver's error numbers. ``index`` is
    NVML's, as nvidia-smi shows it.
    """

    uuid: str
    name: str
    memory_total: Bytes | None = None
    memory_before: Bytes | None = None
    peak_memory: Bytes | None = None
    process_peak_memory: Bytes | None = None
    source: str | None = None
    utilization_mean: float | None = None
    utilization_max: float | None = None
    memory_utilization_mean: float | None = None
    power_mean: float | None = None
    power_max: float | None = None
    energy: float | None = None
    sm_clock_mean: float | None = None
    memory_clock_mean: float | None = None
    pcie_rx: Bytes | None = None
    pcie_tx: Bytes | None = None
    ecc_errors: int | None = None
    xid_errors: int | None = None
    throttle: dict[str, Seconds] | None = None
    index: int | None = None
    memory_reserved: Bytes | None = None
    device_peak_memory: Bytes | None = None
    power_min: float | None = None
    energy_source: str | None = None
    xids: tuple[int, ...] = ()
    processes: tuple[GpuProcess, ...] = ()

    @property
    def job_peak(self) -> Bytes | None:
        """The most memory that the job held on this GPU, in bytes."""
        return job_peak(self)


class GpuOccupant(msgspec.Struct, frozen=True):
    """A process that is on a GPU now; ``mine`` if it is this user's."""

    pid: int
    user: str | None = None
    command: str | None = None
    memory: Bytes | None = None
    mine: bool | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU that is mine, as it is now. Bytes; utilisation in per cent.

    ``index`` is NVML's, as nvidia-smi shows it; ``cuda_index`` CUDA's, as torch counts
    (``cuda:0``). ``occupants`` is None where the driver hides processes. ``allocated``:
    a scheduler or CUDA_VISIBLE_DEVICES gave it to this process.

    Of torch in this process, where it has a CUDA context: ``torch_current`` if it is
    torch's current device; its peaks ``torch_allocated`` and ``torch_reserved``; and
    ``outside_torch``, what this process holds now by NVML beyond what torch reserved:
    the CUDA context, libraries and others.
    """

    index: int
    uuid: str
    name: str
    cuda_index: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    memory_percent: float | None = None
    utilization: float | None = None
    occupants: tuple[GpuOccupant, ...] | None = None
    allocated: bool = False
    torch_current: bool | None = None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None
    outside_torch: Bytes | None = None


class GpuMemory(msgspec.Struct, frozen=True):
    """One GPU's memory over a phase or a loop; None where it was not read.

    ``torch_allocated`` and ``torch_reserved`` are torch's own peaks, where torch was
    imported; NVML's figure is larger by the CUDA context.
    """

    uuid: str
    before: Bytes | None = None
    after: Bytes | None = None
    peak: Bytes | None = None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None
