"""What ``weigh top`` shows at one moment, as data."""

import msgspec

from weigh.model.record import Record, Request
from weigh.units import Bytes, Seconds


class ProcessView(msgspec.Struct, frozen=True):
    """One process: ``resident`` is RSS, ``cores`` busy since the look before."""

    pid: int
    command: str
    resident: Bytes
    cores: float | None = None


class GpuHolder(msgspec.Struct, frozen=True):
    """One of my processes that holds memory on a GPU."""

    pid: int
    name: str
    memory: Bytes | None = None


class GpuView(msgspec.Struct, frozen=True):
    """One GPU that is mine; None where the driver does not tell.

    ``holders`` are my processes on it; ``others`` how many are somebody else's, None
    where the driver hides processes. Utilisation in per cent.
    """

    index: int
    name: str
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    utilization: float | None = None
    holders: tuple[GpuHolder, ...] = ()
    others: int | None = None
    lost: bool = False


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it is known now.

    ``record`` is what weigh last wrote down of it, with what was seen since. ``age``
    is how old that is: 0 where the processes were looked at just now. ``memory`` and
    ``cores`` are of now, None where only the written record is known. ``t`` and
    ``memories`` are its memory over time.
    """

    record: Record
    elapsed: Seconds
    memory: Bytes | None = None
    peak: Bytes | None = None
    cores: float | None = None
    processes: int | None = None
    t: tuple[Seconds, ...] = ()
    memories: tuple[Bytes, ...] = ()
    age: Seconds = 0.0
    stopped: bool = False
    stale: bool = False


class MachineView(msgspec.Struct, frozen=True):
    """This machine; ``memory_used`` by everybody, without what the kernel can drop."""

    name: str
    cpus: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of ``weigh top``.

    With ``followed`` it is about this one run, and the processes are the run's;
    without, they are all of this user's. ``processes`` are the biggest first, None
    where they cannot be listed; ``gpu_note`` says what keeps GPUs from being read.
    """

    clock: str
    machine: MachineView
    store: str
    runs: tuple[RunView, ...] = ()
    followed: RunView | None = None
    request: Request | None = None
    gpus: tuple[GpuView, ...] = ()
    gpu_note: str | None = None
    processes: tuple[ProcessView, ...] | None = None
