"""GPU memory measured inside a program, with NVML's figures and torch's.

A driver may hang. It is therefore called in a separate thread, at most a few times per
second, and not again after it did not answer.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from weigh.errors import WeighError
from weigh.measure.gpu.account import GpuAccount
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.torch_cuda import torch_number, torch_uuid
from weigh.units import Bytes, Seconds

ProbeFactory = Callable[[], GpuProbe | None]
_T = TypeVar("_T")
_OPENING = 10.0  # seconds; a driver without persistence mode starts slowly
_READING = 2.0  # seconds; a driver that hangs must not stop the program
_EDGES = "read as regions begin and end: what was in use before, and the program's own"
_DEEPEST = 64  # generations of processes


class GpuMark(NamedTuple):
    """One GPU at one moment; torch's figures are peaks so far.

    ``used`` is the program's memory on top of what was in use before it; where the
    driver hides processes, all that is in use.
    """

    uuid: str
    used: Bytes | None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None
    device: Bytes | None = None  # in use now, by all users


class GpuSpan:
    """The memory of the GPUs over a period."""

    __slots__ = ("_gpus",)

    def __init__(self, marks: Iterable[GpuMark] = ()) -> None:
        self._gpus: dict[str, GpuMemory] = {}  # by UUID
        self.fold(marks)

    def fold(self, marks: Iterable[GpuMark]) -> None:
        """Add a moment of the same period."""
        self.merge(
            GpuMemory(
                uuid=mark.uuid,
                before=mark.used,
                after=mark.used,
                peak=mark.used,
                torch_allocated=mark.torch_allocated,
                torch_reserved=mark.torch_reserved,
            )
            for mark in marks
        )

    def merge(self, gpus: Iterable[GpuMemory]) -> None:
        """Add a later period."""
        for gpu in gpus:
            old = self._gpus.get(gpu.uuid)
            self._gpus[gpu.uuid] = gpu if old is None else join(old, gpu)

    def memory(self) -> tuple[GpuMemory, ...]:
        """Return the memory of each GPU."""
        return tuple(self._gpus.values())


class RegionGpuMeter:
    """Reads the visible GPUs; the probe is created when first needed.

    ``devices`` are in CUDA's and torch's order; ``trouble`` is the reason if reading
    has ended early. The driver has *reading* seconds to answer.
    """

    def __init__(
        self,
        factory: ProbeFactory | None,
        clock: Callable[[], Seconds],
        reading: Seconds = _READING,
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._reading = reading
        self._probe: GpuProbe | None = None
        self._marks: tuple[GpuMark, ...] = ()
        self._read_at = float("-inf")  # when the driver was read last
        self.devices: tuple[GpuDevice, ...] = ()
        self._accounts: dict[str, GpuAccount] = {}
        self.whole = GpuSpan()  # the whole program
        self.trouble: str | None = None

    def read(self, at_most_old: Seconds = 0.0) -> tuple[GpuMark, ...]:
        """Return all GPUs' figures, which may be *at_most_old* seconds old."""
        self._open()
        if self._probe is None or self._clock() - self._read_at < at_most_old:
            return self._marks
        try:
            marks = self._look(self._probe)
        except Exception as error:  # noqa: BLE001 - a driver's trouble is not the job's
            self._give_up(error)
            return self._marks
        self.whole.fold(marks)
        self._marks = marks
        self._read_at = self._clock()
        return marks

    def close(self) -> None:
        """Stop calling the driver."""
        self._factory = self._probe = None

    def usage(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU."""
        named = {device.uuid: device for device in self.devices}
        return tuple(
            GpuUsage(
                uuid=gpu.uuid,
                name=named[gpu.uuid].name,
                memory_total=named[gpu.uuid].memory_total,
                memory_before=self._accounts[gpu.uuid].before,
                peak_memory=gpu.peak,
                source=_EDGES,
                index=named[gpu.uuid].index,
                device_peak_memory=self._accounts[gpu.uuid].device_peak,
            )
            for gpu in self.whole.memory()
            if gpu.uuid in named
        )

    def _open(self) -> None:
        # once only: after a failure the driver is not called again
        factory, self._factory = self._factory, None
        if factory is None:
            return
        try:
            self._probe = call_within_seconds(_OPENING, factory)
            if self._probe is not None:
                self.devices = call_within_seconds(self._reading, self._probe.devices)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        kind = "" if isinstance(error, WeighError) else f"{type(error).__name__}: "
        self.trouble = f"GPUs are not read: {kind}{error}"
        self._probe = None

    def _look(self, probe: GpuProbe) -> tuple[GpuMark, ...]:
        readings = {
            one.uuid: one for one in call_within_seconds(self._reading, probe.read)
        }
        return tuple(
            GpuMark(
                device.uuid,
                self._take(device, readings.get(device.uuid)),
                *torch_peaks(device, number),
                device=readings[device.uuid].memory_used
                if device.uuid in readings
                else None,
            )
            for number, device in enumerate(self.devices)
        )

    def _take(self, device: GpuDevice, reading: GpuReading | None) -> Bytes | None:
        """Add a reading to the GPU's account; return what is in use by it."""
        now = self._clock()
        account = self._accounts.get(device.uuid)
        if account is None:
            # what was in use at the first reading is not the program's
            account = self._accounts[device.uuid] = GpuAccount(device, now)
        if reading is None:
            return None
        listed = reading.process_memory or {}
        account.take(now, reading, [pid for pid in listed if is_descendant(pid)])
        return None if reading.memory_used is None else account.in_use()


def is_descendant(pid: int) -> bool:
    """Return whether *pid* is this process, or one that it or its children started."""
    own = os.getpid()
    for _ in range(_DEEPEST):
        if pid == own or pid <= 1:
            break
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read(512).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # gone, or no such system
            return False
    return pid == own


def call_within_seconds(seconds: Seconds, call: Callable[[], _T]) -> _T:
    """Call a function in another thread; abandon it after *seconds*.

    Raises:
        TimeoutError: it did not answer in time.
        Exception: what *call* raised.
    """
    answers: list[_T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - handed over
            errors.append(error)

    # a daemon thread: if the driver hangs, the program can still end
    thread = threading.Thread(target=run, name="weigh-gpu-reading", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"the driver does not answer for {seconds:g} s")
    return answers[0]


def torch_peaks(device: GpuDevice, number: int) -> tuple[Bytes | None, Bytes | None]:
    """Return torch's own (allocated, reserved) peaks on *device*, the *number*-th.

    None if the program has not imported torch or not used CUDA: an early query would
    create a CUDA context.
    """
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None, None
    uuids = [torch_uuid(cuda, index) for index in range(cuda.device_count())]
    index = torch_number(device, number, uuids)
    if index is None:
        return None, None
    return int(cuda.max_memory_allocated(index)), int(cuda.max_memory_reserved(index))


def join(first: GpuMemory, later: GpuMemory) -> GpuMemory:
    """Join two periods: the first's start, the later's end, the higher peak."""
    return GpuMemory(
        uuid=first.uuid,
        before=first.before,
        after=later.after,
        peak=most(first.peak, later.peak),
        torch_allocated=most(first.torch_allocated, later.torch_allocated),
        torch_reserved=most(first.torch_reserved, later.torch_reserved),
    )


def most(one: Bytes | None, other: Bytes | None) -> Bytes | None:
    """Return the larger of two figures, ignoring one that is None."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
