"""The interface of a GPU probe, independent of the manufacturer.

One reading has what changes all the time; the counters have what adds up, and are read
at the start and at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from weigh.units import Bytes

_WHOLE = 100  # per cent
MOST_GPUS = 256  # a larger number is a driver's mistake


class GpuReading(msgspec.Struct, frozen=True, gc=False):
    """One GPU at one moment; figures that are not available are None.

    ``memory_used`` is the whole device's; ``process_memory`` maps process ids to their
    memory, and is None where the driver hides them (containers). ``processes`` are the
    ids only, which some drivers have without the memory. Utilisations are per cent of
    time, powers watts, clocks MHz. ``lost``: it fell off the bus. ``slowed``: what
    keeps its clocks low at this moment.
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
    slowed: frozenset[str] | None = None


def memory_reading(
    gpu_uuid: str, used: Bytes | None, holders: Mapping[int, Bytes | None] | None
) -> GpuReading:
    """Return a reading of memory only; *holders* are the processes, each with its own.

    One process without a figure makes their sum unknown.
    """
    pids = None if holders is None else tuple(holders)
    known = {pid: size for pid, size in (holders or {}).items() if size is not None}
    of_processes = known if holders is not None and len(known) == len(holders) else None
    return GpuReading(gpu_uuid, used, of_processes, processes=pids)


class GpuDevice(msgspec.Struct, frozen=True):
    """One GPU as the driver names it; ``index`` is NVML's, not CUDA's.

    ``memory_reserved`` of ``memory_total`` is the driver's own and never the job's.
    ``bus`` is its PCI address. Programs use a GPU in MIG mode (``is_split``) through
    its instances, which have its UUID as ``mig_parent`` and its ``index``.
    """

    index: int
    uuid: str
    name: str
    memory_total: Bytes | None = None
    mig_parent: str | None = None  # None: no instance
    memory_reserved: Bytes | None = None
    bus: str | None = None  # PCI address; None for instances
    is_split: bool = False


class GpuCounters(msgspec.Struct, frozen=True):
    """What a driver has counted of a GPU; None where it does not.

    Of the first four only differences are meaningful: ``energy`` is in joules,
    ``ecc_errors`` are the uncorrected ones. ``xids`` are the driver's errors since the
    last call. The others are memory that the GPU has taken out of use over its life;
    ``pending``: it takes more out at its next reset. ``failed``: it has no spare rows.
    """

    energy: float | None = None
    ecc_errors: int | None = None
    corrected_ecc_errors: int | None = None
    pcie_replays: int | None = None  # packets that the bus had to send again
    xids: tuple[int, ...] | None = None
    retired_pages: int | None = None  # before A100
    remapped_rows: int | None = None  # from A100 on
    pending: bool | None = None
    failed: bool | None = None


def valid_share_of_time(value: float | None) -> float | None:
    """Return a share in per cent; None for what a driver without an answer fills in."""
    return None if value is None or not 0 <= value <= _WHOLE else float(value)


class GpuProbe(ABC):
    """A source of readings of the GPUs that this process can see; for one thread.

    ``notes`` are doubts about which GPUs are visible, ``absence`` is why none is. What
    a maker's library does not have keeps the answers of this class.
    """

    notes: tuple[str, ...] = ()
    absence: str | None = None

    @abstractmethod
    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the visible GPUs, in CUDA's order."""

    @abstractmethod
    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Read each once; without *activity*, only memory, of those that changed."""

    def counters(self, gpu_uuid: str) -> GpuCounters:
        """Read what was counted."""
        del gpu_uuid
        return GpuCounters()

    def bus_traffic(self, gpu_uuid: str) -> tuple[Bytes | None, Bytes | None]:
        """Read the bytes per second to and from the GPU now, which takes 40 ms."""
        del gpu_uuid
        return None, None

    def close(self) -> None:  # noqa: B027 - nothing to release
        """Release the driver."""
