"""One moment of ``weigh top``: the data that its screen shows."""

import msgspec

from weigh.model.gpu import GpuState
from weigh.model.record import Record
from weigh.units import Bytes, Seconds


class ProcessView(msgspec.Struct, frozen=True):
    """One process: ``resident`` is RSS, ``cores`` the CPU use since the last sample."""

    pid: int
    command: str
    resident: Bytes  # bytes
    # None: the first sample, from which no share follows yet
    cores: float | None = None


class TopRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of one run.

    ``record`` is the last that was written. ``age``  is
    how old it is: 0 if the processes were sampled just now. ``memory`` and ``cores``
    are current values, None if only the written record is known.
    """

    record: Record
    elapsed: Seconds  # seconds since its start
    memory: Bytes | None = None  # bytes
    peak: Bytes | None = None  # bytes; None: not measured
    cores: float | None = None  # CPUs
    age: Seconds = 0.0  # seconds
    stopped: bool = False  # its processes are stopped, as by Ctrl-Z
    stale: bool = False  # no update for long, so it may be gone


class MachineView(msgspec.Struct, frozen=True):
    """This machine; ``memory_used`` by all users, without what the kernel can drop.

    ``load`` is the mean number of processes that ran or wanted to, in the last minute;
    ``all_cpus`` are those of the machine.
    """

    name: str
    cpus: int | None = None  # that this process may use
    memory_used: Bytes | None = None  # bytes
    memory_total: Bytes | None = None  # bytes
    load: float | None = None
    all_cpus: int | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of ``weigh top``.

    ``processes`` are the user's, the largest first, None if they cannot be listed;
    ``gpu_note`` is the reason why GPUs cannot be read.
    """

    clock: str  # time of day, as shown
    machine: MachineView
    store: str  # path of the store
    runs: tuple[TopRun, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    gpu_note: str | None = None
    processes: tuple[ProcessView, ...] | None = None
