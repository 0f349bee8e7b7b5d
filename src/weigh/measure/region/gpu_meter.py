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
_READING = 2.0  # seconds; a driver that hangs must not stop the program
_EDGES = "read as regions begin and end: what was in use before, and the program's own"
_DEEPEST = 64  # generations of processes; a circle of damaged figures must end


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
    reading ends early. The driver has *reading* seconds to answer.
    """

    def __init__(
        self,
        factory: ProbeFactory | None,
        clock: Callable[[], Seconds],
        warn: Callable[[str], None],
        reading: Seconds = _READING,
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._warn = warn
        self._reading = reading
        self._probe: GpuProbe | None = None
        self._moment: tuple[GpuMemory, ...] = ()
        self._read_at = float("-inf")  # when the driver was read last
        self._accounts: dict[str, GpuAccount] = {}
        self.devices: tuple[GpuDevice, ...] = ()
        self.readings: dict[str, GpuReading] = {}  # the last of each GPU, by UUID
        self.whole: tuple[GpuMemory, ...] = ()  # of the whole program

    def read(self, at_most_old: Seconds = 0.0) -> tuple[GpuMemory, ...]:
        """Return all GPUs' figures, which may be *at_most_old* seconds old.

        Of one moment: memory is what the program has on top of what was in use before
        it, or all that is in use where the driver hides processes. Torch's figures are
        peaks so far.
        """
        self._open()
        if self._probe is None or self._clock() - self._read_at < at_most_old:
            return self._moment
        try:
            self._moment = self._look(self._probe)
        except Exception as error:  # noqa: BLE001 - a driver's trouble is not the job's
            self._give_up(error)
            return self._moment
        self.whole = joined_gpu_memory(self.whole, self._moment)
        self._read_at = self._clock()
        return self._moment

    def close(self) -> None:
        """Stop calling the driver."""
        self._factory = self._probe = None

    def usage(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU."""
        peaks = {gpu.uuid: gpu.peak for gpu in self.whole}
        return tuple(
            GpuUsage(
                uuid=device.uuid,
                name=device.name,
                memory_total=device.memory_total,
                memory_before=self._accounts[device.uuid].before,
                peak_memory=peaks[device.uuid],
                source=_EDGES,
                index=device.index,
                device_peak_memory=self._accounts[device.uuid].device_peak,
            )
            for device in self.devices
            if device.uuid in peaks
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
        self._probe = None
        self._warn(f"GPUs are not read: {kind}{error}")

    def _look(self, probe: GpuProbe) -> tuple[GpuMemory, ...]:
        # only memory, which is cheap; a GPU whose memory has not changed, as under a
        # caching allocator, is not read and keeps its last reading
        changed = call_within_seconds(self._reading, lambda: probe.read(activity=False))
        self.readings |= {reading.uuid: reading for reading in changed}
        torch_devices = read_torch(sys.modules.get("torch"))
        torch_uuids = [torch_device.uuid for torch_device in torch_devices]
        moment = []
        for number, device in enumerate(self.devices):
            used = self._in_use(device, self.readings.get(device.uuid))
            index = torch_number(device, number, torch_uuids)
            peaks = (None, None) if index is None else torch_devices[index].peaks()
            moment.append(GpuMemory(device.uuid, used, used, used, *peaks))
        return tuple(moment)

    def _in_use(self, device: GpuDevice, reading: GpuReading | None) -> Bytes | None:
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
    for _ in range(_DEEPEST):
        if pid == own or pid <= 1:
            break
        times = parse_stat(file_head(f"/proc/{pid}/stat", 1024))
        if times is None:  # gone, or no such system
            return False
        pid = times.parent
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
