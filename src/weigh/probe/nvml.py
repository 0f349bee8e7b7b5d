"""Read NVIDIA GPUs through NVML, without starting another process.

A figure that the GPU, the driver or the permissions do not provide is None, and is not
queried again. Units and meanings are from NVML's documentation.
"""

from collections.abc import Callable, Collection, Mapping
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from functools import partial
from typing import TypeVar

import msgspec

from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading, GpuShare, GpuWear
from weigh.probe.nvml_library import (
    FOR_GOOD,
    LOST,
    NO_PERMISSION,
    NvmlAccounted,
    NvmlError,
    NvmlEvent,
    NvmlHolder,
    NvmlLibrary,
    NvmlMemoryV1,
    NvmlMemoryV2,
    NvmlPci,
    NvmlRates,
    NvmlViolation,
    memory_v2,
)
from weigh.probe.visible import VARIABLE, visible_devices
from weigh.units import Bytes, Seconds

_WHOLE = 100  # per cent
_NOTHING = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})  # what a driver may fill in
_XID_ERRORS = 8  # nvmlEventTypeXidCriticalError
_T = TypeVar("_T")
_MOST_EVENTS = 16  # per reading
_MOST_GPUS = 256  # a larger number is a driver's mistake
_ALSO = ("Graphics", "MPSCompute")  # clients of MPS may only be on their own list
_POLICIES = {
    0: "power",
    1: "thermal",
    2: "sync boost",
    3: "board limit",
    4: "low utilization",
    5: "reliability",
}
# of those a GPU reports at a moment: idle and chosen clocks are no trouble
_REASONS = {
    0x04: "power",
    0x08: "hardware",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "thermal",
    0x80: "power brake",
}


class _NvmlGpu:
    """A visible device, its handle, and the figures that it does not provide."""

    def __init__(self, device: GpuDevice, handle: c_void_p) -> None:
        self.device = device
        self.handle = handle
        self.lost = False
        self.lacks: set[tuple[object, ...]] = set()
        self.used: Bytes | None = None  # at the last reading
        # the driver's own, which older figures include
        self.reserved: Bytes = device.memory_reserved or 0
        self.also: set[str] = set()  # other lists that had processes at the last query
        self.accounts: bool | None = None  # whether an administrator turned it on
        self.events: c_void_p | None = None
        self.shares_seen = 0  # NVML's time stamp, in microseconds


class _GpuMemory(msgspec.Struct, frozen=True):
    """The memory of a GPU; None if the driver's own is not separate."""

    total: Bytes
    used: Bytes
    reserved: Bytes | None


class NvmlProbe:
    """The visible GPUs of this machine; for use by one thread.

    Raises:
        NoGpuError: the driver or its library is missing.
        GpuError: the driver does not start.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._library = NvmlLibrary()
        self._hidden = 0
        self._notes: list[str] = []
        self._absence: str | None = None
        self._gpus = self._find(environment)

    @property
    def notes(self) -> tuple[str, ...]:
        """Doubts about which GPUs are visible."""
        return tuple(self._notes)

    @property
    def absence(self) -> str | None:
        """Why no GPU is visible; None if one is."""
        return self._absence

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the visible GPUs, in CUDA's order."""
        return tuple(gpu.device for gpu in self._gpus.values())

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Read each once; without *activity*, only those whose memory changed."""
        looks = [self._look(gpu, activity=activity) for gpu in self._gpus.values()]
        return tuple(look for look in looks if look is not None)

    def counters(self, gpu_uuid: str) -> GpuCounters:
        """Read the counters since the driver was loaded."""
        gpu = self._gpus[gpu_uuid]
        # NVML's numbers for the kind of error and the time that is counted
        corrected, uncorrected, since_loaded = 0, 1, 0
        millijoules = self._number(
            gpu, "nvmlDeviceGetTotalEnergyConsumption", kind=c_ulonglong
        )
        ecc = "nvmlDeviceGetTotalEccErrors"
        return GpuCounters(
            energy=_scaled(millijoules, 0.001),
            ecc_errors=self._number(
                gpu, ecc, uncorrected, since_loaded, kind=c_ulonglong
            ),
            throttle=self._throttle(gpu),
            corrected_ecc_errors=self._number(
                gpu, ecc, corrected, since_loaded, kind=c_ulonglong
            ),
            pcie_replays=self._number(gpu, "nvmlDeviceGetPcieReplayCounter"),
        )

    def wear(self, gpu_uuid: str) -> GpuWear:
        """Read which memory the GPU has taken out of use.

        Pages are retired before A100, rows remapped from A100 on.
        """
        gpu = self._gpus[gpu_uuid]
        # retired after several single-bit errors (0), or after one of two bits (1)
        lists = [
            self._ask(
                gpu, ("pages", cause), partial(self._library.pages, gpu.handle, cause)
            )
            for cause in (0, 1)
        ]
        pages = [count for count in lists if count is not None]
        pending = self._number(gpu, "nvmlDeviceGetRetiredPagesPendingStatus")
        rows = [c_uint() for _ in range(4)]
        name = "nvmlDeviceGetRemappedRows"
        if self._read(gpu, name, *map(byref, rows)) is None:
            known = None if pending is None else bool(pending)
            return GpuWear(sum(pages) if pages else None, pending=known)
        corrected, uncorrected, waiting, failed = (row.value for row in rows)
        return GpuWear(
            remapped_rows=corrected + uncorrected,
            pending=bool(waiting or pending),
            failed=bool(failed),
        )

    def pcie_rx(self, gpu_uuid: str) -> Bytes | None:
        """Return the inbound PCIe traffic in bytes per second, over 20 ms."""
        return self._pcie(gpu_uuid, 1)

    def pcie_tx(self, gpu_uuid: str) -> Bytes | None:
        """Return the outbound PCIe traffic in bytes per second, over 20 ms."""
        return self._pcie(gpu_uuid, 0)

    def accounted(
        self, gpu_uuid: str, process_ids: Collection[int]
    ) -> dict[int, Bytes]:
        """Return the peaks of processes, also ended ones, if the driver keeps them."""
        gpu = self._gpus[gpu_uuid]
        if gpu.accounts is None:
            gpu.accounts = self._number(gpu, "nvmlDeviceGetAccountingMode") == 1
        found: dict[int, Bytes] = {}
        for pid in process_ids if gpu.accounts else ():
            stats, name = NvmlAccounted(), "nvmlDeviceGetAccountingStats"
            known = self._read(gpu, name, c_uint(pid), byref(stats))
            if known and stats.most not in _NOTHING:
                found[pid] = int(stats.most)
        return found

    def new_xids(self, gpu_uuid: str) -> tuple[int, ...] | None:
        """Return the driver's errors (XID numbers) since the last call; never waits."""
        gpu = self._gpus[gpu_uuid]
        # registered at the first call: earlier errors are not reported
        if gpu.events is None and not self._register(gpu):
            return None
        found: list[int] = []
        while len(found) < _MOST_EVENTS:
            event = NvmlEvent()
            try:
                self._library.call("nvmlEventSetWait_v2", gpu.events, byref(event), 0)
            except NvmlError:  # a timeout: there was no error
                break
            found.append(int(event.data))
        return tuple(found)

    def shares(self, gpu_uuid: str) -> tuple[GpuShare, ...] | None:
        """Return each process's utilisation since the last call."""
        gpu = self._gpus[gpu_uuid]
        samples = self._ask(
            gpu, ("shares",), lambda: self._library.shares(gpu.handle, gpu.shares_seen)
        )
        if samples is None:
            return None
        fresh = [one for one in samples if one.time > gpu.shares_seen]
        gpu.shares_seen = max((one.time for one in fresh), default=gpu.shares_seen)
        return tuple(
            GpuShare(one.pid, float(one.sm), float(one.memory))
            for one in fresh
            if one.sm <= _WHOLE and one.memory <= _WHOLE
        )

    def close(self) -> None:
        """Release the driver."""
        try:
            for gpu in self._gpus.values():
                if gpu.events is not None:
                    self._library.call("nvmlEventSetFree", gpu.events)
            self._library.call("nvmlShutdown")
        except NvmlError:
            return  # a lost GPU cannot be released either

    def _find(self, environment: Mapping[str, str]) -> dict[str, _NvmlGpu]:
        """Return the visible GPUs by UUID, in CUDA's order."""
        handles: dict[str, c_void_p] = {}
        found: list[GpuDevice] = []
        for index in range(min(self._count(), _MOST_GPUS)):
            handle = self._handle(index)
            if handle is None:
                continue
            for device, its_handle in self._described(index, handle):
                handles[device.uuid] = its_handle
                found.append(device)
        visible = visible_devices(found, environment)
        self._notes += visible.notes
        if not visible.devices:
            self._absence = self._why_none(len(found), environment)
        return {one.uuid: _NvmlGpu(one, handles[one.uuid]) for one in visible.devices}

    def _why_none(self, found: int, environment: Mapping[str, str]) -> str:
        if found and VARIABLE in environment:
            return f"this node has GPUs, but they are hidden by {VARIABLE}"
        if found:
            return "there are GPUs here, in MIG mode, with no instance for you"
        if self._hidden:
            return "there are GPUs here, but none was allocated to you"
        return "an NVIDIA driver is here, but no GPU"

    def _count(self) -> int:
        count = c_uint()
        try:
            self._library.call("nvmlDeviceGetCount_v2", byref(count))
        except NvmlError:
            return 0
        return count.value

    def _handle(self, index: int) -> c_void_p | None:
        """Open a GPU; None if a cgroup hides it, or it is broken."""
        handle = c_void_p()
        try:
            self._library.call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
        except NvmlError as error:
            if error.value == NO_PERMISSION:
                self._hidden += 1
            else:
                self._notes.append(f"GPU {index} cannot be read: {error}")
            return None
        return handle

    def _described(
        self, index: int, handle: c_void_p
    ) -> list[tuple[GpuDevice, c_void_p]]:
        """Describe a GPU and, in MIG mode, its instances."""
        gpu = self._describe(index, handle)
        if gpu is None:
            return []
        here = _NvmlGpu(gpu, handle)
        mode, later, most = c_uint(), c_uint(), c_uint()
        name = "nvmlDeviceGetMigMode"
        # NVML's answer has the current mode and the one after a reboot
        if not self._read(here, name, byref(mode), byref(later)) or not mode.value:
            return [(gpu, handle)]
        split = msgspec.structs.replace(gpu, is_split=True)
        described: list[tuple[GpuDevice, c_void_p]] = [(split, handle)]
        # the most that it can have: places without an instance are skipped
        self._read(here, "nvmlDeviceGetMaxMigDeviceCount", byref(most))
        for place in range(min(most.value, _MOST_GPUS)):
            part, name = c_void_p(), "nvmlDeviceGetMigDeviceHandleByIndex"
            here.lacks.clear()  # an instance that is closed to me hides no other
            if not self._read(here, name, place, byref(part)):
                continue
            instance = self._describe(index, part, gpu.uuid)
            if instance is not None:
                described.append((instance, part))
        return described

    def _describe(
        self, index: int, handle: c_void_p, parent: str | None = None
    ) -> GpuDevice | None:
        here = _NvmlGpu(GpuDevice(index, "", ""), handle)
        uuid = self._text(here, "nvmlDeviceGetUUID")
        if not uuid:
            self._notes.append(f"GPU {index} cannot be read: it has no UUID")
            return None
        memory, pci = self._memory(here), NvmlPci()
        gpu, compute = "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"
        has_bus = parent is None and self._read(
            here, "nvmlDeviceGetPciInfo_v3", byref(pci)
        )
        return GpuDevice(
            index=index,
            uuid=uuid,
            name=self._text(here, "nvmlDeviceGetName") or "GPU",
            memory_total=None if memory is None else memory.total,
            mig_parent=parent,
            memory_reserved=None if memory is None else memory.reserved,
            bus=pci.bus.decode("ascii", "replace").lower() if has_bus else None,
            gpu_instance=self._number(here, gpu) if parent else None,
            compute_instance=self._number(here, compute) if parent else None,
        )

    def _look(self, gpu: _NvmlGpu, *, activity: bool) -> GpuReading | None:
        """Read a GPU; None if only memory is wanted and it has not changed.

        Listing processes doubles the cost, and their memory changes with the GPU's. The
        GPU's memory is read first, so that no later change is missed.
        """
        memory = self._memory(gpu)
        used = None if memory is None else memory.used
        stayed = used is not None and used == gpu.used
        gpu.used = used
        if stayed and not activity:
            return None
        # one process without a figure makes their sum unknown
        holders = self._holders(gpu, activity=activity)
        complete = holders is not None and None not in holders.values()
        process_memory = holders if complete else None
        processes = None if holders is None else tuple(holders)
        rates, name = NvmlRates(), "nvmlDeviceGetUtilizationRates"
        has_rates = activity and self._read(gpu, name, byref(rates))
        power = self._number(gpu, "nvmlDeviceGetPowerUsage") if activity else None
        return GpuReading(
            gpu.device.uuid,
            memory_used=used,
            process_memory=process_memory,  # type: ignore[arg-type] # None is not in it
            utilization=_valid_per_cent(rates.gpu) if has_rates else None,
            memory_utilization=_valid_per_cent(rates.memory) if has_rates else None,
            power=_scaled(power, 0.001),
            sm_clock=self._clock(gpu, 1) if activity else None,
            memory_clock=self._clock(gpu, 2) if activity else None,
            processes=processes,
            lost=gpu.lost,
            slowed=self._slowed(gpu) if activity else None,
        )

    def _slowed(self, gpu: _NvmlGpu) -> frozenset[str] | None:
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = self._number(gpu, name, kind=c_ulonglong)
        if reasons is None:
            return None
        return frozenset(word for bit, word in _REASONS.items() if reasons & bit)

    def _memory(self, gpu: _NvmlGpu) -> _GpuMemory | None:
        """Read the memory, without the driver's own if it was ever separate."""
        found: NvmlMemoryV1 | NvmlMemoryV2 = memory_v2()
        if self._read(gpu, "nvmlDeviceGetMemoryInfo_v2", byref(found)):
            gpu.reserved, reserved = int(found.reserved), int(found.reserved)
            used = int(found.used)
        else:
            found = NvmlMemoryV1()
            if not self._read(gpu, "nvmlDeviceGetMemoryInfo", byref(found)):
                return None
            used, reserved = max(0, int(found.used) - gpu.reserved), gpu.reserved
        if found.used > found.total or found.total in _NOTHING:
            return None
        return _GpuMemory(int(found.total), used, reserved or None)

    def _holders(
        self, gpu: _NvmlGpu, *, activity: bool
    ) -> dict[int, Bytes | None] | None:
        """Return the processes on a GPU, each with its memory if known."""
        listed = self._listed(gpu, "Compute")
        if listed is None:
            return None
        for kind in _ALSO:
            if activity or kind in gpu.also:
                more = self._listed(gpu, kind) or []
                (gpu.also.add if more else gpu.also.discard)(kind)
                listed = [*listed, *more]  # a process may be on several lists
        holders: dict[int, Bytes | None] = {}
        for one in listed:
            held = None if one.memory in _NOTHING else int(one.memory)
            known = holders.get(one.pid)
            holders[one.pid] = known if held is None else max(known or 0, held)
        return holders

    def _listed(self, gpu: _NvmlGpu, kind: str) -> list[NvmlHolder] | None:
        for version in ("v3", "v2"):
            name = f"nvmlDeviceGet{kind}RunningProcesses_{version}"
            listed = self._ask(
                gpu, (name,), partial(self._library.holders, name, gpu.handle)
            )
            if listed is not None:
                return listed
        return None

    def _clock(self, gpu: _NvmlGpu, which: int) -> float | None:
        return _scaled(self._number(gpu, "nvmlDeviceGetClockInfo", which), 1.0)

    def _pcie(self, gpu_uuid: str, direction: int) -> Bytes | None:
        name = "nvmlDeviceGetPcieThroughput"
        kilobytes = self._number(self._gpus[gpu_uuid], name, direction)
        return None if kilobytes is None else kilobytes * 1000

    def _throttle(self, gpu: _NvmlGpu) -> dict[str, Seconds] | None:
        seconds: dict[str, Seconds] = {}
        for policy, reason in _POLICIES.items():
            status, name = NvmlViolation(), "nvmlDeviceGetViolationStatus"
            known = self._read(gpu, name, policy, byref(status))
            if known and status.time not in _NOTHING:
                seconds[reason] = status.time * 1e-9
        return seconds or None

    def _register(self, gpu: _NvmlGpu) -> bool:
        """Register for the driver's error events of *gpu*."""
        if ("events",) in gpu.lacks:
            return False
        events, kinds = c_void_p(), c_ulonglong(_XID_ERRORS)
        try:
            self._library.call("nvmlEventSetCreate", byref(events))
            self._library.call("nvmlDeviceRegisterEvents", gpu.handle, kinds, events)
        except NvmlError:
            gpu.lacks.add(("events",))
            if events.value:
                self._library.call("nvmlEventSetFree", events)
            return False
        gpu.events = events
        return True

    def _number(
        self,
        gpu: _NvmlGpu,
        name: str,
        *words: int,
        kind: type[c_uint] | type[c_ulonglong] = c_uint,
    ) -> int | None:
        """Read one number; None if it is not available."""
        out = kind()
        known = self._read(gpu, name, *words, byref(out))
        return int(out.value) if known and out.value not in _NOTHING else None

    def _text(self, gpu: _NvmlGpu, name: str) -> str | None:
        return self._ask(gpu, (name,), lambda: self._library.text(name, gpu.handle))

    def _read(self, gpu: _NvmlGpu, name: str, *words: object) -> bool | None:
        """Let a function fill in the structures in *words*; None if it fails."""

        def fill_in() -> bool:
            self._library.call(name, gpu.handle, *words)
            return True

        of = [word for word in words[:1] if isinstance(word, int)]
        return self._ask(gpu, (name, *of), fill_in)

    def _ask(
        self, gpu: _NvmlGpu, name: tuple[object, ...], call: Callable[[], _T]
    ) -> _T | None:
        """Query one figure; None if it is not available."""
        if gpu.lost or name in gpu.lacks:
            return None
        try:
            return call()
        except NvmlError as error:
            if error.value == LOST:
                gpu.lost = True
            elif error.value in FOR_GOOD:
                gpu.lacks.add(name)
            return None


def _valid_per_cent(value: float) -> float | None:
    """Return a share of time; None for what a driver without an answer fills in."""
    return float(value) if 0 <= value <= _WHOLE else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor
