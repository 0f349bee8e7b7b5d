"""Measurements of a GPU: over a run, over a region of code, and current.

Bytes are integers, energies joules; ``None`` means not measured and never zero.
"""

from typing import Protocol

import msgspec

from weigh.units import MIB, Bytes

# faults of the GPU rather than of the program, by NVIDIA's XID catalogue
GPU_FAULTS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120})
HEALTHY = "healthy"
UNTOUCHED: Bytes = 16 * MIB  # a CUDA context alone takes a hundred and more


class _GpuPeaks(Protocol):
    @property
    def peak_memory(self) -> Bytes | None: ...
    @property
    def process_peak_memory(self) -> Bytes | None: ...


def job_peak(gpu_peaks: _GpuPeaks) -> Bytes | None:
    """Return the job's peak memory on one GPU; None if not measured.

    The driver's figure for the job's processes comes first: in older records the other
    peak is that of the whole GPU.
    """
    own = gpu_peaks.process_peak_memory
    return gpu_peaks.peak_memory if own is None else own


class GpuProcess(msgspec.Struct, frozen=True):
    """The memory of one process of the job on one GPU."""

    pid: int  # on its node
    peak_memory: Bytes | None = None


class GpuUsage(msgspec.Struct, frozen=True):
    """The use of one GPU during the job. Powers are in watts, clocks in MHz.

    ``peak_memory`` is the job's peak according to ``source``; ``process_peak_memory``
    is the same according to the driver's figures per process, None if these are hidden;
    ``device_peak_memory`` is the peak of all users. Utilisations are per cent of time,
    ``pcie_rx`` and ``pcie_tx`` bytes per second, ``xids`` the driver's error numbers.
    ``index`` is that of NVML and nvidia-smi.
    ``preallocated`` of the peak was taken at once, as frameworks do whatever they need.
    ``other_memory`` is the most that other processes of the same user held on it.
    ``slowed`` is the per cent of readings with reduced clocks, by reason; ``health`` is
    ``healthy``, or what is wrong with the GPU.
    """

    uuid: str
    name: str
    memory_total: Bytes | None = None  # of the GPU
    memory_before: Bytes | None = None  # in use when the job began, by anybody
    peak_memory: Bytes | None = None
    process_peak_memory: Bytes | None = None
    source: str | None = None
    utilization_mean: float | None = None
    utilization_max: float | None = None
    memory_utilization_mean: float | None = None
    power_mean: float | None = None
    power_max: float | None = None
    energy: float | None = None  # by the GPU's own counter, for all users
    sm_clock_mean: float | None = None
    memory_clock_mean: float | None = None
    pcie_rx: Bytes | None = None
    pcie_tx: Bytes | None = None
    ecc_errors: int | None = None  # that could not be corrected
    xid_errors: int | None = None  # how many, of all numbers
    index: int | None = None
    memory_reserved: Bytes | None = None  # by the driver: no program can have it
    device_peak_memory: Bytes | None = None
    power_min: float | None = None
    xids: tuple[int, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    preallocated: Bytes | None = None
    utilization_min: float | None = None
    memory_utilization_max: float | None = None
    memory_utilization_min: float | None = None
    sm_clock_max: float | None = None
    sm_clock_min: float | None = None
    memory_clock_max: float | None = None
    memory_clock_min: float | None = None
    pcie_rx_max: Bytes | None = None
    pcie_rx_min: Bytes | None = None
    pcie_tx_max: Bytes | None = None
    pcie_tx_min: Bytes | None = None
    corrected_ecc_errors: int | None = None
    pcie_replays: int | None = None  # packets that were sent again
    slowed: dict[str, float] | None = None
    health: str | None = None
    other_memory: Bytes | None = None

    @property
    def job_peak(self) -> Bytes | None:
        """Return the job's peak memory on this GPU, in bytes."""
        return job_peak(self)

    @property
    def was_used(self) -> bool | None:
        """Return whether the job held memory on this GPU; None if unknown.

        It is unknown where other processes of the same user were at work on it: a
        service may have done what the job sent to it.
        """
        peak = self.job_peak
        if peak is None or (not peak and self.other_memory and self.utilization_max):
            return None
        # the peak of a whole GPU moves a little without the job
        return peak > (UNTOUCHED if self.process_peak_memory is None else 0)

    @property
    def may_be_needed(self) -> bool:
        """Return whether the job held memory on it, or may be whom it was busy for."""
        is_unknown = self.was_used is None
        # in doubt it is needed
        return bool(self.job_peak) or (is_unknown and bool(self.utilization_max))


class GpuOccupant(msgspec.Struct, frozen=True):
    """A process that uses a GPU now; ``mine`` if it is this user's."""

    pid: int
    user: str | None = None
    command: str | None = None
    memory: Bytes | None = None
    mine: bool | None = None  # None: the owner is not known


class GpuState(msgspec.Struct, frozen=True):
    """The current state of one GPU. Memory in bytes, utilisation in per cent.

    ``index`` is that of NVML and nvidia-smi; ``cuda_index`` is that of CUDA and torch
    (``cuda:0``). ``occupants`` is None if the driver hides processes. ``allocated`` is
    set if a scheduler or CUDA_VISIBLE_DEVICES assigned the GPU to this process.

    If torch has a CUDA context in this process, ``torch_current`` is set on torch's
    current device, ``torch_allocated`` and ``torch_reserved`` are its peaks, and
    ``outside_torch`` is the memory that this process holds in addition to what torch
    reserved: the CUDA context, libraries and others.
    """

    index: int
    uuid: str
    name: str
    cuda_index: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    memory_percent: float | None = None  # used, of the total
    utilization: float | None = None
    occupants: tuple[GpuOccupant, ...] | None = None
    allocated: bool = False
    torch_current: bool | None = None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None

    outside_torch: Bytes | None = None


class GpuMemory(msgspec.Struct, frozen=True):
    """The memory of one GPU over a phase or a loop; None if it was not read.

    ``torch_allocated`` and ``torch_reserved`` are torch's own peaks, if torch was
    imported; the figure of NVML is larger by the CUDA context.
    """

    uuid: str
    before: Bytes | None = None
    after: Bytes | None = None
    peak: Bytes | None = None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None

    @property
    def of_program(self) -> Bytes:
        """Return the program's own peak if torch knows it, else that of the GPU."""
        return self.torch_allocated or self.peak or 0
