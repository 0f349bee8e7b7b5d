"""GPUs read in a thread of their own: a driver that hangs holds up nobody else."""

import os
import threading
from collections.abc import Callable

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.probe.driver import a_card_may_be_here
from weigh.probe.gpu import GpuDevice, GpuReading, OutspokenGpuProbe
from weigh.units import Seconds

GpuFactory = Callable[[], OutspokenGpuProbe | None]

_PATIENCE = 0.3  # seconds for an answer: cards without persistence are slow to wake
_SILENT = "the GPU driver does not answer"


class GpuLook(msgspec.Struct, frozen=True):
    """The GPUs at one moment; ``note`` says what keeps them from being read."""

    devices: tuple[GpuDevice, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    note: str | None = None


class GpuWatch:
    """Asks a probe whenever it is looked at; the last answer stands in for a late one.

    The thread is never waited for at the end: it may hang in the driver for good.
    """

    def __init__(self, factory: GpuFactory, patience: Seconds = _PATIENCE) -> None:
        self._factory = factory
        self._patience = patience
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._latest = GpuLook()
        self._over = False
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread go, as soon as the driver does."""
        self._over = True
        self._asked.set()

    def look(self) -> GpuLook:
        """Give the GPUs now, or as they were last where the driver is slow."""
        if not self._thread.is_alive():
            return self._latest
        self._answered.clear()
        self._asked.set()
        if self._answered.wait(self._patience):
            return self._latest
        return msgspec.structs.replace(self._latest, note=_SILENT)

    def _answer(self) -> None:
        try:
            probe = self._factory()
            while probe and self._wait():
                note = "; ".join([*probe.notes, *filter(None, [probe.absence])])
                look = GpuLook(probe.devices(), probe.read(), note or None)
                self._latest = look
                self._answered.set()
        except NoGpuError:
            self._latest = GpuLook()
        except GpuError as error:
            self._latest = GpuLook(note=str(error))
        except Exception as error:  # noqa: BLE001 - the screen is not its place
            note = f"GPUs cannot be read: {error!r}"
            self._latest = msgspec.structs.replace(self._latest, note=note)
        finally:
            self._answered.set()

    def _wait(self) -> bool:
        self._asked.wait()
        self._asked.clear()
        return not self._over


def nvml_gpus() -> OutspokenGpuProbe | None:
    """Open NVML; None where no NVIDIA driver can be here.

    Raises:
        NoGpuError: it is here and has no GPU.
        GpuError: it does not start.
    """
    if not a_card_may_be_here(os.environ):
        return None
    from weigh.probe.nvml import NvmlProbe  # noqa: PLC0415 - imports nvidia-ml-py

    return NvmlProbe(os.environ)
