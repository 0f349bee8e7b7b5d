"""Read NVIDIA GPUs through their management library, without another process.

NVML's C interface is stable. No package is needed for it, so none that lies over
another's module, as nvidia-ml-py3 does over nvidia-ml-py, can come between. A figure
that the GPU, the driver or the permissions do not provide is None. Structures, numbers,
units and meanings are from ``nvml.h``.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ctypes import byref, c_char, c_uint, c_ulonglong, c_void_p, sizeof
from functools import partial
from typing import Any

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.probe.driver import kernel_module_version
from weigh.probe.gpu import (
    MOST_GPUS,
    GpuCounters,
    GpuDevice,
    GpuProbe,
    GpuReading,
    memory_reading,
    valid_share_of_time,
)
from weigh.probe.visible import VARIABLE, visible_devices
from weigh.units import Bytes

# of nvmlReturn_t
_NO_PERMISSION, _LOST, _LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED = 4, 15, 12, 9
_TOO_SMALL, _NO_FUNCTION, _MISMATCH, _UNKNOWN = 7, 13, 18, 999
_NOTHING = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})  # what a driver may fill in
_XID_ERRORS = 8  # nvmlEventTypeXidCriticalError
_LONGEST_TEXT = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE, the longest of its texts
_MOST_EVENTS = 16  # per reading: a broken driver may have them without end
# what keeps clocks low at a moment: idle and chosen clocks are no trouble
_REASONS = {
    0x04: "power",
    0x08: "hardware",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power brake",
}
_C_TYPES = {"I": c_uint, "Q": c_ulonglong, "P": c_void_p, "C": c_char}


def _structure(fields: str) -> type[ctypes.Structure]:
    """Return a structure: of each field the letter of its type, as in C5, and name."""
    known = []
    for field in fields.split(", "):
        letters, name = field.split()
        kind: Any = _C_TYPES[letters[0]]
        known.append((name, kind * int(letters[1:]) if letters[1:] else kind))
    return type("NvmlStructure", (ctypes.Structure,), {"_fields_": known})


# without the driver's own memory, and with it in what is used
_MemoryV2 = _structure("I version, Q total, Q reserved, Q free, Q used")
_MemoryV1 = _structure("Q total, Q free, Q used")
# per cent of time in which kernels ran, and memory was read or written
_Rates = _structure("I gpu, I memory")
# a process on a GPU
_Holder = _structure("I pid, Q memory, I gpu_instance, I compute_instance")
# ``data`` of an error is its XID number
_Event = _structure("P device, Q type, Q data, I gpu_instance, I compute_instance")
_Pci = _structure("C16 legacy, I5 numbers, C32 bus")


class NvmlError(GpuError):
    """A function failed, with NVML's number in ``value``."""

    def __init__(self, value: int, words: str) -> None:
        super().__init__(words)
        self.value = value


class NvmlLibrary:
    """The library, started.

    Raises:
        NoGpuError: the driver or its library is missing.
        GpuError: the driver does not start.
    """

    def __init__(self) -> None:
        self._library = _load_library()
        code = self._function("nvmlInitWithFlags")(0)
        if code:
            raise _start_error(code, self._words(code))

    def call(self, name: str, *words: object, accepted: int = 0) -> None:
        """Call a function; *accepted* is a number that is no failure.

        Without room for its answer (`_TOO_SMALL`) one returns how many there are.

        Raises:
            NvmlError: it failed, or this driver is older than it.
        """
        code = self._function(name)(*words)
        if code not in {0, accepted}:
            raise NvmlError(code, self._words(code))

    def _function(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] | None = getattr(self._library, name, None)
        # an older driver lacks newer functions: the same as not supported
        return function or (lambda *_: _NO_FUNCTION)

    def _words(self, code: int) -> str:
        try:
            describe = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        # without it, the pointer would be cut to 32 bits
        describe.restype = ctypes.c_char_p
        return (describe(code) or b"").decode("utf-8", "replace")


class _NvmlGpu:
    """A GPU or an instance of one, by its handle; figures that fail are None."""

    def __init__(self, library: NvmlLibrary, handle: c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._is_lost = False
        self._used: Bytes | None = None  # at the last reading
        self._reserved: Bytes = 0  # the driver's own, which older figures include
        self._events: c_void_p | None = None
        self.device = GpuDevice(0, "", "")

    def describe(self, index: int, parent: str | None = None) -> bool:
        """Fill in ``device``; return False if it has no UUID."""
        memory, pci = self._memory(), _Pci()
        has_bus = parent is None and self.fill_in("nvmlDeviceGetPciInfo_v3", byref(pci))
        self.device = GpuDevice(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID") or "",
            name=self._text("nvmlDeviceGetName") or "GPU",
            memory_total=None if memory is None else memory[0],
            mig_parent=parent,
            memory_reserved=None if memory is None else self._reserved or None,
            bus=pci.bus.decode("ascii", "replace").lower() if has_bus else None,
        )
        return bool(self.device.uuid)

    def instances(self) -> list["_NvmlGpu"]:
        """Return the instances of a GPU in MIG mode."""
        # the most that it can have: places without an instance are skipped
        most, found = c_uint(), list[_NvmlGpu]()
        self.fill_in("nvmlDeviceGetMaxMigDeviceCount", byref(most))
        for place in range(min(most.value, MOST_GPUS)):
            part, name = c_void_p(), "nvmlDeviceGetMigDeviceHandleByIndex"
            if not self.fill_in(name, place, byref(part)):
                continue
            instance = _NvmlGpu(self._library, part)
            if instance.describe(self.device.index, self.device.uuid):
                found.append(instance)
        return found

    def look(self, *, activity: bool) -> GpuReading | None:
        """Read a GPU; None if only memory is wanted and it has not changed.

        Listing processes doubles the cost, and their memory changes with the GPU's. The
        GPU's memory is read first, so that no later change is missed.
        """
        memory = self._memory()
        used = None if memory is None else memory[1]
        stayed = used is not None and used == self._used
        self._used = used
        if stayed and not activity:
            return None
        reading = memory_reading(self.device.uuid, used, self._holders())
        figures = self._activity() if activity else {}
        return msgspec.structs.replace(reading, **figures, lost=self._is_lost)

    def _activity(self) -> dict[str, Any]:
        """Read what changes all the time but memory."""
        rates, name = _Rates(), "nvmlDeviceGetUtilizationRates"
        has_rates = self.fill_in(name, byref(rates))
        return {
            "utilization": valid_share_of_time(rates.gpu) if has_rates else None,
            "memory_utilization": (
                valid_share_of_time(rates.memory) if has_rates else None
            ),
            "power": _thousandth(self._number("nvmlDeviceGetPowerUsage")),
            "sm_clock": self._number("nvmlDeviceGetClockInfo", 1),
            "memory_clock": self._number("nvmlDeviceGetClockInfo", 2),
            "slowed": self._slowed(),
        }

    def counters(self) -> GpuCounters:
        """Read what was counted.

        Pages are retired before A100, rows remapped from A100 on.
        """
        # NVML's numbers for the kind of error and the time that is counted
        corrected, uncorrected, since_loaded = 0, 1, 0
        energy = self._number("nvmlDeviceGetTotalEnergyConsumption", kind=c_ulonglong)
        ecc = partial(self._number, "nvmlDeviceGetTotalEccErrors", kind=c_ulonglong)
        # retired after several single-bit errors (0), or after one of two bits (1)
        pages = [self._retired_pages(cause) for cause in (0, 1)]
        retired = [count for count in pages if count is not None]
        pending = self._number("nvmlDeviceGetRetiredPagesPendingStatus")
        rows = [c_uint() for _ in range(4)]
        has_rows = self.fill_in("nvmlDeviceGetRemappedRows", *map(byref, rows))
        single, double, waiting, failed = (row.value for row in rows)
        is_known = has_rows or pending is not None
        return GpuCounters(
            energy=_thousandth(energy),
            ecc_errors=ecc(uncorrected, since_loaded),
            corrected_ecc_errors=ecc(corrected, since_loaded),
            pcie_replays=self._number("nvmlDeviceGetPcieReplayCounter"),
            xids=self._new_xids(),
            retired_pages=sum(retired) if retired and not has_rows else None,
            remapped_rows=single + double if has_rows else None,
            pending=bool(waiting or pending) if is_known else None,
            failed=bool(failed) if has_rows else None,
        )

    def bus_traffic(self, way: int) -> Bytes | None:
        """Read the bytes per second *way* now: from the GPU (0) or to it (1)."""
        kilobytes = self._number("nvmlDeviceGetPcieThroughput", way)
        return None if kilobytes is None else kilobytes * 1000

    def release(self) -> None:
        """Release what was registered. Raises NvmlError where the GPU is lost."""
        if self._events is not None:
            self._library.call("nvmlEventSetFree", self._events)

    def fill_in(self, name: str, *words: object, accepted: int = 0) -> bool:
        """Let a function fill in the structures in *words*; return whether it did."""
        if self._is_lost:
            return False
        try:
            self._library.call(name, self._handle, *words, accepted=accepted)
        except NvmlError as error:
            self._is_lost = error.value == _LOST
            return False
        return True

    def _slowed(self) -> frozenset[str] | None:
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = self._number(name, kind=c_ulonglong)
        if reasons is None:
            return None
        return frozenset(word for bit, word in _REASONS.items() if reasons & bit)

    def _memory(self) -> tuple[Bytes, Bytes] | None:
        """Read (total, used), without the driver's own if it was ever separate."""
        # NVML takes the size and the version of the structure from its first field
        found = _MemoryV2(version=sizeof(_MemoryV2) | 2 << 24)
        if self.fill_in("nvmlDeviceGetMemoryInfo_v2", byref(found)):
            self._reserved, used = int(found.reserved), int(found.used)
        else:
            found = _MemoryV1()
            if not self.fill_in("nvmlDeviceGetMemoryInfo", byref(found)):
                return None
            used = max(0, int(found.used) - self._reserved)
        if found.used > found.total or found.total in _NOTHING:
            return None
        return int(found.total), used

    def _holders(self) -> dict[int, Bytes | None] | None:
        """Return the processes on a GPU, each with its memory if known."""
        holders = self._listed("Compute")
        # clients of MPS may only be on a list of their own
        if holders is not None:
            holders |= self._listed("MPSCompute") or {}
        return holders

    def _listed(self, kind: str) -> dict[int, Bytes | None] | None:
        for version in ("v3", "v2"):
            name, count = f"nvmlDeviceGet{kind}RunningProcesses_{version}", c_uint(0)
            if not self.fill_in(name, byref(count), None, accepted=_TOO_SMALL):
                continue
            # more may have come meanwhile
            count = c_uint(2 * count.value)
            found = (_Holder * count.value)()
            if not count.value or self.fill_in(name, byref(count), found):
                return {
                    one.pid: None if one.memory in _NOTHING else int(one.memory)
                    for one in found[: count.value]
                }
        return None

    def _retired_pages(self, cause: int) -> int | None:
        name, count = "nvmlDeviceGetRetiredPages", c_uint(0)
        room = (cause, byref(count), None)
        is_known = self.fill_in(name, *room, accepted=_TOO_SMALL)
        return count.value if is_known else None

    def _new_xids(self) -> tuple[int, ...] | None:
        """Return the driver's errors (XID numbers) since the last call; never waits."""
        # registered at the first call: earlier errors are not reported
        if self._events is None and not self._register():
            return None
        found: list[int] = []
        while len(found) < _MOST_EVENTS:
            event = _Event()
            try:
                self._library.call("nvmlEventSetWait_v2", self._events, byref(event), 0)
            except NvmlError:  # a timeout: there was no error
                break
            found.append(int(event.data))
        return tuple(found)

    def _register(self) -> bool:
        """Register for the driver's error events."""
        events, kinds = c_void_p(), c_ulonglong(_XID_ERRORS)
        try:
            self._library.call("nvmlEventSetCreate", byref(events))
            self._library.call("nvmlDeviceRegisterEvents", self._handle, kinds, events)
        except NvmlError:
            if events.value:
                self._library.call("nvmlEventSetFree", events)
            return False
        self._events = events
        return True

    def _number(
        self, name: str, *words: int, kind: type[c_uint] | type[c_ulonglong] = c_uint
    ) -> int | None:
        """Read one number; None if it is not available."""
        out = kind()
        is_known = self.fill_in(name, *words, byref(out))
        return int(out.value) if is_known and out.value not in _NOTHING else None

    def _text(self, name: str) -> str | None:
        out = (c_char * _LONGEST_TEXT)()
        is_known = self.fill_in(name, out, c_uint(_LONGEST_TEXT))
        return out.value.decode("utf-8", "replace") if is_known else None


class NvmlProbe(GpuProbe):
    """The visible GPUs of this machine; for use by one thread.

    Raises:
        NoGpuError: the driver or its library is missing.
        GpuError: the driver does not start.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._library = NvmlLibrary()
        found = {gpu.device.uuid: gpu for gpu in self._find()}
        devices = [gpu.device for gpu in found.values()]
        visible = visible_devices(devices, environment)
        self.notes += visible.notes
        # by UUID, in CUDA's order
        self._gpus = {device.uuid: found[device.uuid] for device in visible.devices}
        if self._gpus:
            self.absence = None
        elif found:
            self.absence = (
                f"this node has GPUs, but they are hidden by {VARIABLE}"
                if VARIABLE in environment
                else "there are GPUs here, in MIG mode, with no instance for you"
            )

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the visible GPUs, in CUDA's order."""
        return tuple(gpu.device for gpu in self._gpus.values())

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Read each once; without *activity*, only those whose memory changed."""
        looks = [gpu.look(activity=activity) for gpu in self._gpus.values()]
        return tuple(look for look in looks if look is not None)

    def counters(self, gpu_uuid: str) -> GpuCounters:
        """Read what was counted."""
        return self._gpus[gpu_uuid].counters()

    def bus_traffic(self, gpu_uuid: str) -> tuple[Bytes | None, Bytes | None]:
        """Read the bytes per second to and from the GPU now, which takes 40 ms."""
        gpu = self._gpus[gpu_uuid]
        return gpu.bus_traffic(1), gpu.bus_traffic(0)

    def close(self) -> None:
        """Release the driver."""
        try:
            for gpu in self._gpus.values():
                gpu.release()
            self._library.call("nvmlShutdown")
        except NvmlError:
            return  # a lost GPU cannot be released either

    def _find(self) -> Iterator[_NvmlGpu]:
        """Yield the GPUs, each with its instances behind it."""
        self.absence = "an NVIDIA driver is here, but no GPU"
        count = c_uint()
        with suppress(NvmlError):
            self._library.call("nvmlDeviceGetCount_v2", byref(count))
        for index in range(min(count.value, MOST_GPUS)):
            handle, name = c_void_p(), "nvmlDeviceGetHandleByIndex_v2"
            try:
                self._library.call(name, index, byref(handle))
            except NvmlError as error:
                if error.value == _NO_PERMISSION:  # a cgroup hides it
                    self.absence = "there are GPUs here, but none was allocated to you"
                else:
                    self.notes += (f"GPU {index} cannot be read: {error}",)
                continue
            gpu = _NvmlGpu(self._library, handle)
            if not gpu.describe(index):
                self.notes += (f"GPU {index} cannot be read: it has no UUID",)
                continue
            # NVML's answer has the current mode and the one after a reboot
            mode, later = c_uint(), c_uint()
            gpu.fill_in("nvmlDeviceGetMigMode", byref(mode), byref(later))
            if mode.value:
                gpu.device = msgspec.structs.replace(gpu.device, is_split=True)
            yield gpu
            yield from gpu.instances() if mode.value else ()


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def read_driver_version() -> tuple[str | None, str | None]:
    """Return (driver, newest CUDA), such as ``("550.54.15", "12.4")``, or Nones.

    A broken driver is not an error here: the GPU probe reports it.
    """
    try:
        library = NvmlLibrary()
    except GpuError:
        return None, None
    number, text = ctypes.c_int(), (c_char * _LONGEST_TEXT)()
    try:
        library.call("nvmlSystemGetDriverVersion", text, c_uint(_LONGEST_TEXT))
        library.call("nvmlSystemGetCudaDriverVersion_v2", byref(number))
        library.call("nvmlShutdown")
    except NvmlError:
        return None, None
    # 12040 stands for 12.4
    cuda = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return text.value.decode("utf-8", "replace"), cuda


def _load_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        folder = os.environ.get("WINDIR", "C:/Windows")
        name = os.path.join(folder, "System32", "nvml.dll")
    else:
        # the name without a number comes with the developers' files only
        name = "libnvidia-ml.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise NoGpuError("no NVIDIA driver here") from error


def _start_error(code: int, words: str) -> GpuError:
    """Return the error for NVML's code at its start."""
    version = kernel_module_version()
    known = {
        _LIBRARY_NOT_FOUND: "no NVIDIA driver here",
        _DRIVER_NOT_LOADED: (
            "an NVIDIA driver is installed here, but not loaded: no GPU"
        ),
        _MISMATCH: (
            f"NVIDIA's kernel driver{f' ({version})' if version else ''} and its "
            "library differ: report it to the admins"
        ),
        _NO_PERMISSION: "the NVIDIA driver is closed to you: /dev/nvidiactl",
        _UNKNOWN: (
            "the driver fails (NVML 999): use another node, report this to the admins"
        ),
    }
    kind = NoGpuError if code in {_LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED} else GpuError
    return kind(known.get(code, f"the NVIDIA driver does not start: {words}"))
