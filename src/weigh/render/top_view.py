"""One moment of ``weigh top``: the data that its screen shows."""

import msgspec

from weigh.model.gpu import GpuState
from weigh.model.record import Record
from weigh.units import Bytes, Seconds


class ProcessView(msgspec.Struct, frozen=True):
    """One process: ``resident`` is RSS, ``cores`` the CPU use since the last sample."""

    pid: int
    command: str
    resident: Bytes
    cores: float | None = None


class TopRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of one run.

    ``record`` is the last that was written. ``age``  is
    how old it is: 0 if the processes were sampled just now. ``memory`` and ``cores``
    are current values, None if only the written record is known.
    """

    record: Record
    elapsed: Seconds
    memory: Bytes | None = None
    peak: Bytes | None = None
    cores: float | None = None
    age: Seconds = 0.0
    stopped: bool = False
    stale: bool = False


class MachineView(msgspec.Struct, frozen=True):
    """This machine; ``memory_used`` by all users, without what the kernel can drop.

    ``load`` is the mean number of processes that ran or wanted to, in the last minute;
    ``all_cpus`` are those of the machine.
    """

    name: str
    cpus: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    load: float | None = None
    all_cpus: int | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of ``weigh top``.

    ``processes`` are the user's, the largest first, None if they cannot be listed;
    ``gpu_note`` is the reason why GPUs cannot be read.
    """

    clock: str
    machine: MachineView
    store: str
    runs: tuple[TopRun, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    gpu_note: str | None = None
    processes: tuple[ProcessView, ...] | None = None
