"""What a source of GPU readings gives, whoever makes the GPU."""

from typing import Protocol

import msgspec

from weigh.units import Bytes, Seconds


class GpuReading(msgspec.Struct, frozen=True, gc=False):
    """One GPU at one moment. None where the driver or the card does not tell.

    ``memory_used`` is the whole device's; ``process_memory`` maps process ids to what
    each holds, and is None where the driver hides them (containers). ``processes``
    are the ids alone, which some drivers tell without the memory. Utilisations are
    per cent of time, powers watts, clocks MHz. ``lost``: it fell off the bus.
    """

    uuid: str
    memory_used: Bytes | None = None
    process_memory: dict[int, Bytes] | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    power: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    processes: tuple[int, ...] | None = None
    lost: bool = False


class GpuDevice(msgspec.Struct, frozen=True):
    """One GPU as the driver names it; ``index`` is NVML's, not CUDA's.

    ``memory_reserved`` of ``memory_total`` is the driver's own and never the job's.
    ``bus`` is its PCI address. A card in MIG mode (``is_split``) is computed on
    through its instances, whose ``mig_parent`` is the card's UUID and whose ``index``
    is the card's.
    """

    index: int
    uuid: str
    name: str
    memory_total: Bytes | None = None
    mig_parent: str | None = None
    memory_reserved: Bytes | None = None
    bus: str | None = None
    is_split: bool = False
    gpu_instance: int | None = None
    compute_instance: int | None = None


class GpuCounters(msgspec.Struct, frozen=True):
    """What a GPU has counted since its driver was loaded: only differences say much.

    ``energy`` in joules; ``ecc_errors`` that could not be corrected; ``throttle`` the
    seconds its clocks were held down, by reason.
    """

    energy: float | None = None
    ecc_errors: int | None = None
    throttle: dict[str, Seconds] | None = None


class GpuShare(msgspec.Struct, frozen=True, gc=False):
    """One process's part of a GPU's time, in per cent, as the driver sampled it."""

    pid: int
    sm_utilization: float
    memory_utilization: float


class GpuProbe(Protocol):
    """A source of readings of the GPUs that are visible to this process."""

    def devices(self) -> tuple[GpuDevice, ...]:
        """Give the GPUs that are mine, in CUDA's order."""

    def read(self) -> tuple[GpuReading, ...]:
        """Look at each of them once; never raises, never blocks for long."""


class OutspokenGpuProbe(GpuProbe, Protocol):
    """A probe that knows why it has the GPUs it has."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what is in doubt about which GPUs are mine."""

    @property
    def absence(self) -> str | None:
        """Say why none is mine; None where one is."""


class DetailedGpuProbe(OutspokenGpuProbe, Protocol):
    """A probe that also knows counters and other figures that are slow to get.

    Each takes the UUID of one of its devices and gives None for what is not told.
    """

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Look at each once; without *activity* give those whose memory changed."""

    def counters(self, uuid: str) -> GpuCounters:
        """Read the counters that run since the driver was loaded."""

    def pcie_rx(self, uuid: str) -> Bytes | None:
        """Watch what comes in over PCIe for 20 ms; give bytes a second."""

    def pcie_tx(self, uuid: str) -> Bytes | None:
        """Watch what goes out over PCIe for 20 ms; give bytes a second."""

    def new_xids(self, uuid: str) -> tuple[int, ...] | None:
        """Give the driver's errors (XID numbers) since the last call; never waits."""

    def shares(self, uuid: str) -> tuple[GpuShare, ...] | None:
        """Give each process's utilisation since the last call."""

    def close(self) -> None:
        """Let the driver go."""
