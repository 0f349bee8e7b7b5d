"""Read AMD GPUs through rocm-smi's library, without starting another process.

It is called through its C interface, which has kept these functions since ROCm 5. Units
are from its header: bytes, microwatts, microjoules per count, per cent.
"""

import ctypes
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from ctypes import byref, c_char, c_float, c_uint32, c_uint64
from functools import partial
from itertools import product

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.probe.gpu import (
    MOST_GPUS,
    GpuCounters,
    GpuDevice,
    GpuProbe,
    GpuReading,
    memory_reading,
    valid_share_of_time,
)
from weigh.units import Bytes

LIBRARY = "librocm_smi64.so"
_VERSIONS = ("", ".7", ".6", ".5", ".1")  # of the library's name, the newest first
_FOLDERS = ("", "/opt/rocm/lib/")
_VRAM = 0  # RSMI_MEM_TYPE_VRAM
_MOST_PROCESSES = 4096  # of one list: room for more than a node runs
_NOT_HERE = 8  # RSMI_STATUS_INIT_ERROR: no driver, or no GPU
_ALL = "ROCR_VISIBLE_DEVICES"  # applied first, to all GPUs
# the first of these that is set counts, among what the variables above leave
_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class _RocmProcess(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint32),
        ("pasid", c_uint32),
        ("vram", c_uint64),
        ("sdma", c_uint64),
        ("occupancy", c_uint32),
    )


class RocmProbe(GpuProbe):
    """The visible AMD GPUs of this machine; for use by one thread.

    Raises:
        NoGpuError: the driver or its library is missing.
        GpuError: the library does not start.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._library = _loaded()
        code = self._library.rsmi_init(c_uint64(0))
        if code == _NOT_HERE:
            raise NoGpuError("AMD's library is here, but no AMD GPU")
        if code:
            raise GpuError(f"rocm-smi's library does not start: error {code}")
        # bytes in use at the last reading, by UUID
        self._used: dict[str, Bytes | None] = {}
        found = self._find()
        self._gpus = {gpu.uuid: gpu for gpu in visible_amd(found, environment)}
        self.absence = None if self._gpus else "no AMD GPU is visible to you"

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the visible GPUs, in HIP's order."""
        return tuple(self._gpus.values())

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Read each once; without *activity*, only those whose memory changed."""
        used = {
            uuid: self._number(gpu.index, "rsmi_dev_memory_usage_get", _VRAM)
            for uuid, gpu in self._gpus.items()
        }
        # listing processes costs more than memory, and theirs changes with the GPU's
        changed = [
            gpu
            for uuid, gpu in self._gpus.items()
            if activity or used[uuid] is None or used[uuid] != self._used.get(uuid)
        ]
        self._used = used
        holders = self._holders() if changed else {}
        readings = (
            memory_reading(
                gpu.uuid,
                used[gpu.uuid],
                None if holders is None else holders.get(gpu.index, {}),
            )
            for gpu in changed
        )
        return tuple(map(self._with_activity, readings) if activity else readings)

    def _with_activity(self, reading: GpuReading) -> GpuReading:
        """Add what changes all the time but memory."""
        index = self._gpus[reading.uuid].index
        busy = partial(self._number, index, kind=c_uint32)
        return msgspec.structs.replace(
            reading,
            utilization=valid_share_of_time(busy("rsmi_dev_busy_percent_get")),
            memory_utilization=valid_share_of_time(
                busy("rsmi_dev_memory_busy_percent_get")
            ),
            power=self._power(index),
        )

    def counters(self, gpu_uuid: str) -> GpuCounters:
        """Read the energy counter, of those that NVML has, too.

        The driver keeps no peaks of processes and reports errors in the kernel's log
        only; the library counts the bus for a second, which is too long.
        """
        counter, unit, stamp = c_uint64(), c_float(), c_uint64()
        answer = (byref(counter), byref(unit), byref(stamp))
        index = c_uint32(self._gpus[gpu_uuid].index)
        if not self._ask("rsmi_dev_energy_count_get", index, *answer):
            return GpuCounters()
        return GpuCounters(energy=counter.value * unit.value * 1e-6)

    def close(self) -> None:
        """Release the driver."""
        self._library.rsmi_shut_down()

    def _find(self) -> list[GpuDevice]:
        count = c_uint32()
        if self._library.rsmi_num_monitor_devices(byref(count)):
            return []
        found = [self._describe(n) for n in range(min(count.value, MOST_GPUS))]
        # by bus, as HIP numbers them
        return sorted(found, key=lambda gpu: gpu.bus or "")

    def _describe(self, index: int) -> GpuDevice:
        name = (c_char * 128)()
        self._ask("rsmi_dev_name_get", c_uint32(index), name, ctypes.c_size_t(128))
        unique = self._number(index, "rsmi_dev_unique_id_get")
        bus = self._number(index, "rsmi_dev_pci_id_get")
        return GpuDevice(
            index=index,
            uuid=f"GPU-{index if unique is None else unique:016x}",
            name=name.value.decode("utf-8", "replace") or "AMD GPU",
            memory_total=self._number(index, "rsmi_dev_memory_total_get", _VRAM),
            bus=None if bus is None else f"{bus:016x}",
        )

    def _power(self, index: int) -> float | None:
        microwatts = self._number(index, "rsmi_dev_power_ave_get", 0)
        if microwatts is None:  # newer GPUs only have the power of this moment
            power, kind = c_uint64(), c_uint32()
            answer = (byref(power), byref(kind))
            if self._ask("rsmi_dev_power_get", c_uint32(index), *answer):
                microwatts = power.value
        return None if microwatts is None else microwatts * 1e-6

    def _holders(self) -> dict[int, dict[int, Bytes | None]] | None:
        """Return the memory of each process on each GPU, by the GPU's index."""
        count = c_uint32(_MOST_PROCESSES)
        listed = (_RocmProcess * _MOST_PROCESSES)()
        if not self._ask("rsmi_compute_process_info_get", listed, byref(count)):
            return None
        holders: dict[int, dict[int, Bytes | None]] = {}
        for one in listed[: count.value]:
            for index, memory in self._places(one).items():
                holders.setdefault(index, {})[one.pid] = memory
        return holders

    def _places(self, rocm_process: _RocmProcess) -> dict[int, Bytes | None]:
        count = c_uint32(MOST_GPUS)
        indices = (c_uint32 * MOST_GPUS)()
        pid = c_uint32(rocm_process.pid)
        name = "rsmi_compute_process_gpus_get"
        known = self._ask(name, pid, indices, byref(count))
        places = list(indices[: count.value]) if known else []
        # on one GPU, the figure over all of them is that of this one
        if len(places) == 1:
            return {places[0]: rocm_process.vram}
        return {index: self._on(rocm_process.pid, index) for index in places}

    def _on(self, pid: int, index: int) -> Bytes | None:
        """Return a process's memory on one of several GPUs; not before ROCm 6."""
        one = _RocmProcess()
        name = "rsmi_compute_process_info_by_device_get"
        there = self._ask(name, c_uint32(pid), c_uint32(index), byref(one))
        return int(one.vram) if there else None

    def _number(
        self,
        index: int,
        name: str,
        *words: int,
        kind: type[c_uint32] | type[c_uint64] = c_uint64,
    ) -> int | None:
        value = kind()
        more = (c_uint32(word) for word in words)
        known = self._ask(name, c_uint32(index), *more, byref(value))
        # the library fills in all ones where a GPU has no such figure
        return int(value.value) if known and value.value != kind(-1).value else None

    def _ask(self, name: str, *words: object) -> bool:
        """Call a function; return False if it fails or the library lacks it."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return function is not None and function(*words) == 0


def visible_amd(
    devices: Collection[GpuDevice], environment: Mapping[str, str]
) -> list[GpuDevice]:
    """Return those of *devices* that HIP shows, by AMD's documented rules.

    ROCR_VISIBLE_DEVICES comes first; HIP's variable, or CUDA's in its place, numbers
    what that leaves. A list ends at the first name that is not valid.
    """
    found = list(devices)
    for name in (_ALL, *[name for name in _HIP if name in environment][:1]):
        if name not in environment:
            continue
        chosen: list[GpuDevice] = []
        for word in environment[name].split(","):
            one = _rocm_device_named(word.strip(), found)
            if one is None:
                break
            chosen.append(one)
        found = chosen
    return found


def _rocm_device_named(word: str, devices: list[GpuDevice]) -> GpuDevice | None:
    if word.isdecimal():
        return devices[int(word)] if int(word) < len(devices) else None
    known = word.lower().replace("gpu-0x", "gpu-")
    found = [one for one in devices if one.uuid.lower() == known]
    return found[0] if len(found) == 1 else None


def _loaded() -> ctypes.CDLL:
    for folder, version in product(_FOLDERS, _VERSIONS):
        with suppress(OSError):
            return ctypes.CDLL(f"{folder}{LIBRARY}{version}")
    raise NoGpuError(f"AMD's driver is here, but not its library {LIBRARY}")
