"""``weigh top --gpus``: my GPUs, their memory and load, and the processes on them."""

import os
import sys
import threading
from collections.abc import Callable, Mapping

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.model.gpu import GpuOccupant, GpuState
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.gpu_libraries import TorchDevice, read_torch, torch_number
from weigh.probe.proc import usable_proc
from weigh.probe.visible import VARIABLE, names_none
from weigh.regular_file import file_head
from weigh.render.gpu_lines import GpuListing
from weigh.schedulers import KINDS
from weigh.units import Seconds

GpuFactory = Callable[[], GpuProbe | None]

_PATIENCE = 0.3  # seconds for an answer: GPUs without persistence are slow to wake
_SILENT = "the GPU driver does not answer"


class GpuLook(msgspec.Struct, frozen=True):
    """The GPUs at one moment; ``error`` is what keeps them from being read."""

    devices: tuple[GpuDevice, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    notes: tuple[str, ...] = ()
    error: GpuError | None = None

    @property
    def note(self) -> str | None:
        """Return what is in doubt; no GPU at all is no reason for a note."""
        if self.error is None:
            return "; ".join(self.notes) or None
        return None if isinstance(self.error, NoGpuError) else str(self.error)


class GpuWatch:
    """Asks a probe whenever it is looked at; the last answer stands in for a late one.

    The thread is never waited for at the end: it may hang in the driver for good.
    """

    def __init__(self, factory: GpuFactory, patience: Seconds = _PATIENCE) -> None:
        self._factory = factory
        self._patience = patience
        self._asked = threading.Event()
        self._answered = threading.Event()
        # written by the thread only; replaced as a whole, so that no lock is needed
        self._latest = GpuLook()
        self._over = False
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread go, as soon as the driver does."""
        self._over = True
        self._asked.set()

    def look(self) -> GpuLook:
        """Return the GPUs now, or as they were last where the driver is slow."""
        # the thread ended by an error, which is part of the latest look
        if not self._thread.is_alive():
            return self._latest
        self._answered.clear()
        self._asked.set()
        if self._answered.wait(self._patience):
            return self._latest
        return msgspec.structs.replace(self._latest, error=GpuError(_SILENT))

    def _answer(self) -> None:
        # opened and closed in the thread as well: the driver may hang even then, and
        # must not be closed during another call
        probe: GpuProbe | None = None
        try:
            probe = self._factory()
            while probe and self._wait():
                notes = (*probe.notes, *filter(None, [probe.absence]))
                self._latest = GpuLook(probe.devices(), probe.read(), notes)
                self._answered.set()
        except GpuError as error:
            self._latest = GpuLook(error=error)
        except Exception as error:  # noqa: BLE001 - handed on to who looks
            trouble = GpuError(f"GPUs cannot be read: {error!r}")
            self._latest = msgspec.structs.replace(self._latest, error=trouble)
        finally:
            # whoever waits gets the error at once
            self._answered.set()
            if probe is not None:
                probe.close()

    def _wait(self) -> bool:
        self._asked.wait()
        self._asked.clear()
        return not self._over


_GRANTED = (
    VARIABLE,
    *(name for kind in KINDS.values() for name in kind.variables.gpus),
)
_GPU_PATIENCE = 10.0  # seconds: GPUs that sleep without persistence mode wake slowly

Factory = Callable[[Mapping[str, str]], GpuProbe]


def gpus() -> tuple[GpuState, ...]:
    """Return each GPU that is mine as it is now; nothing where there is none.

    CUDA_VISIBLE_DEVICES and what the scheduler allocated are honoured. Where this
    process has used torch on a GPU, torch's own figures are added to the driver's.

    Raises:
        GpuError: a driver is here and does not answer.
    """
    return list_gpus(os.environ).gpus


def list_gpus(
    environment: Mapping[str, str],
    *,
    factory: Factory | None = None,
    patience: Seconds = _GPU_PATIENCE,
) -> GpuListing:
    """Look at the GPUs that are mine; where there are none, the notes say why.

    Raises:
        GpuError: a driver is here, and does not start or has not answered within
            *patience* seconds.
    """
    # asked first, because loading NVML takes time
    if factory is None and not gpu_may_be_present(environment):
        return GpuListing((), (_absence(environment),))
    # in a thread, so that a driver that hangs is left behind after *patience*
    watch = GpuWatch(lambda: (factory or open_probe)(environment), patience)
    look = watch.look()
    watch.close()
    if isinstance(look.error, NoGpuError):
        return GpuListing((), (str(look.error),))
    if look.error is not None:
        raise look.error
    return GpuListing(gpus_of(look, environment), look.notes)


def gpus_of(look: GpuLook, environment: Mapping[str, str]) -> tuple[GpuState, ...]:
    """Return the GPUs that a probe showed, with the processes on them."""
    # torch is not imported for this: only a program that uses it has loaded it
    torch = read_torch(sys.modules.get("torch"))
    allocated = any(name in environment for name in _GRANTED)
    readings = {reading.uuid: reading for reading in look.readings}
    return tuple(
        _gpu_now(device, readings.get(device.uuid), number, torch, allocated=allocated)
        for number, device in enumerate(look.devices)
    )


def _absence(environment: Mapping[str, str]) -> str:
    if names_none(environment):
        value = environment[VARIABLE].strip()[:40]
        return f"no GPU is yours: {VARIABLE}{f'={value}' if value else ' is empty'}"
    return "no NVIDIA driver here"


def _gpu_now(
    device: GpuDevice,
    reading: GpuReading | None,
    number: int,
    torch: tuple[TorchDevice, ...],
    *,
    allocated: bool,
) -> GpuState:
    now = reading or GpuReading(device.uuid)
    in_torch = torch_number(device, number, [one.uuid for one in torch])
    gpu = GpuState(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        cuda_index=number,
        memory_used=now.memory_used,
        memory_total=device.memory_total,
        memory_percent=_memory_percent(now.memory_used, device.memory_total),
        utilization=now.utilization,
        occupants=_occupants(now),
        allocated=allocated,
    )
    return gpu if in_torch is None else _with_torch(gpu, torch[in_torch], now)


def _with_torch(gpu: GpuState, torch: TorchDevice, now: GpuReading) -> GpuState:
    """Add torch's figures to NVML's, and their difference."""
    held = (now.process_memory or {}).get(os.getpid())
    return msgspec.structs.replace(
        gpu,
        cuda_index=torch.index,
        torch_current=torch.is_current,
        torch_allocated=torch.max_allocated,
        torch_reserved=torch.max_reserved,
        # what the driver counts for this process and torch does not: CUDA's context,
        # libraries
        outside_torch=None if held is None else max(0, held - torch.reserved),
    )


def _memory_percent(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


def _occupants(reading: GpuReading) -> tuple[GpuOccupant, ...] | None:
    # None: the driver hides processes; an empty list: there are none
    if reading.processes is None:
        return None
    memory = reading.process_memory or {}
    return tuple(_occupant(pid, memory.get(pid)) for pid in reading.processes)


def _occupant(pid: int, memory: int | None) -> GpuOccupant:
    """Name a process, as far as /proc shows it."""
    name = file_head(f"{usable_proc()}/{pid}/comm").decode("utf-8", "replace")
    try:
        owner = os.stat(f"{usable_proc()}/{pid}").st_uid
    except OSError:  # gone, another user's and hidden, or a container's host's
        return GpuOccupant(pid, memory=memory)
    return GpuOccupant(
        pid,
        user=_name_of_uid(owner),
        command=name.rstrip("\n") or None,
        memory=memory,
        mine=owner == os.getuid(),
    )


def _name_of_uid(uid: int) -> str:
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container knows few names
        return str(uid)
