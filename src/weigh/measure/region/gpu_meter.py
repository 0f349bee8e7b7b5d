"""GPU memory measured inside a program, with NVML's figures and torch's.

A driver may hang. It is therefore called in a separate thread, at most a few times per
second, and not again after it did not answer.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from weigh.errors import NoGpuError, WeighError
from weigh.measure.gpu_account import GpuAccount
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.probe.gpu_libraries import read_torch, torch_number
from weigh.probe.proc import parse_stat
from weigh.regular_file import file_head
from weigh.units import Bytes, Seconds

ProbeFactory = Callable[[], GpuProbe | None]
_T = TypeVar("_T")
_OPENING = 10.0  # seconds; a driver without persistence mode starts slowly
_READING = 2.0  # seconds; a driver that hangs stops the program so long, once
_EDGES = "read as regions begin and end: what was in use before, and the program's own"


def joined_gpu_memory(
    first: Iterable[GpuMemory], later: Iterable[GpuMemory]
) -> tuple[GpuMemory, ...]:
    """Join the GPUs' memory over two periods: the later's end, the higher peak."""
    joined = {gpu.uuid: gpu for gpu in first}
    for gpu in later:
        known = joined.get(gpu.uuid, gpu)
        joined[gpu.uuid] = msgspec.structs.replace(
            gpu,
            before=known.before,
            peak=most(known.peak, gpu.peak),
            torch_allocated=most(known.torch_allocated, gpu.torch_allocated),
            torch_reserved=most(known.torch_reserved, gpu.torch_reserved),
        )
    return tuple(joined.values())


class RegionGpuMeter:
    """Reads the visible GPUs; the probe is created when first needed.

    ``devices`` are in CUDA's and torch's order. *warn* is called with the reason if
    reading ends early. The driver has *patience* seconds to answer.
    """

    def __init__(
        self,
        factory: ProbeFactory | None,
        clock: Callable[[], Seconds],
        warn: Callable[[str], None],
        patience: Seconds = _READING,
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._warn = warn
        self._patience = patience
        self._probe: GpuProbe | None = None
        self._moment: tuple[GpuMemory, ...] = ()
        self._read_at = float("-inf")  # when the driver was read last
        self._accounts: dict[str, GpuAccount] = {}
        self._whole: tuple[GpuMemory, ...] = ()  # of the whole program
        self.devices: tuple[GpuDevice, ...] = ()
        self._readings: dict[str, GpuReading] = {}  # the last of each GPU, by UUID

    def read(self, at_most_old: Seconds = 0.0) -> tuple[GpuMemory, ...]:
        """Return all GPUs' figures, which may be *at_most_old* seconds old.

        Of one moment: memory is what the program has on top of what was in use before
        it, or all that is in use where the driver hides processes. Torch's figures are
        peaks so far.
        """
        now = self._clock()
        if now - self._read_at < at_most_old:
            return self._moment
        try:
            self._open(now)
            if self._probe is not None:
                self._look(self._probe, now)
                self._read_at = now
        except Exception as error:  # noqa: BLE001 - a driver's trouble is not the job's
            kind = "" if isinstance(error, WeighError) else f"{type(error).__name__}: "
            self._probe = None
            self._warn(f"GPUs are not read: {kind}{error}")
        return self._moment

    def memory_used(self, gpu_uuid: str) -> Bytes | None:
        """Return what all users hold of a GPU, by the last reading."""
        reading = self._readings.get(gpu_uuid)
        return None if reading is None else reading.memory_used

    def close(self) -> None:
        """Stop calling the driver."""
        self._factory = self._probe = None

    def usage(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU."""
        return tuple(
            GpuUsage(
                uuid=device.uuid,
                name=device.name,
                memory_total=device.memory_total,
                memory_before=self._accounts[device.uuid].before,
                peak_memory=whole.peak,
                source=_EDGES,
                index=device.index,
                device_peak_memory=self._accounts[device.uuid].device_peak,
            )
            for device, whole in zip(self.devices, self._whole, strict=False)
        )

    def _open(self, now: Seconds) -> None:
        # once only: after a failure the driver is not called again
        factory, self._factory = self._factory, None
        if factory is None:
            return
        self._probe = call_within_seconds(_OPENING, factory)
        if self._probe is not None:
            self.devices = call_within_seconds(self._patience, self._probe.devices)
            # what is in use at the first reading is not the program's
            self._accounts = {
                device.uuid: GpuAccount(device, now) for device in self.devices
            }

    def _look(self, probe: GpuProbe, now: Seconds) -> None:
        # only memory, which is cheap; a GPU whose memory has not changed, as under a
        # caching allocator, is not read and keeps its last reading
        changed = call_within_seconds(
            self._patience, lambda: probe.read(activity=False)
        )
        self._readings |= {reading.uuid: reading for reading in changed}
        # a doubt about the driver's list grows with time, also while nothing changes
        for uuid, reading in self._readings.items():
            own = [pid for pid in reading.process_memory or () if is_descendant(pid)]
            self._accounts[uuid].take(now, reading, own)
        torch_devices = read_torch(sys.modules.get("torch"))
        torch_uuids = [torch_device.uuid for torch_device in torch_devices]
        moment = []
        for number, device in enumerate(self.devices):
            used = self._accounts[device.uuid].in_use()
            if self.memory_used(device.uuid) is None:  # it has stopped answering
                used = None
            index = torch_number(device, number, torch_uuids)
            peaks = (None, None) if index is None else torch_devices[index].peaks()
            moment.append(GpuMemory(device.uuid, used, used, used, *peaks))
        self._moment = tuple(moment)
        self._whole = joined_gpu_memory(self._whole, self._moment)


def visible_gpus() -> GpuProbe | None:
    """Return a probe of the visible GPUs; None if there is none.

    Raises:
        GpuError: the driver does not start.
    """
    if not gpu_may_be_present(os.environ):
        return None
    try:
        return open_probe(os.environ)
    except NoGpuError:
        return None


def is_descendant(pid: int) -> bool:
    """Return whether *pid* is this process, or one that it or its children started."""
    own = os.getpid()
    while pid > 1 and pid != own:
        times = parse_stat(file_head(f"/proc/{pid}/stat", 1024))
        # it is gone, or there is no such system
        pid = 0 if times is None else times.parent
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


def most(one: Bytes | None, other: Bytes | None) -> Bytes | None:
    """Return the larger of two figures, ignoring one that is None."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
