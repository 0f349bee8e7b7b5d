"""Read NVIDIA GPUs through NVML, without starting another process.

A figure that the GPU, the driver or the permissions do not provide is None, and is not
queried again. Units and meanings are from NVML's documentation.
"""

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.probe.driver import kernel_module_version, nvml_binding
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading, GpuShare, GpuWear
from weigh.probe.visible import VARIABLE, visible_devices
from weigh.units import Bytes, Seconds

_NO_PERMISSION, _LOST = 4, 15
_LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED, _MISMATCH, _UNKNOWN = 12, 9, 18, 999
_WHOLE = 100
_FOR_GOOD = frozenset({3, 4, 13, 25, 26})  # not supported or permitted, no function...
_MOST_EVENTS = 16  # per reading
_MOST_GPUS = 256
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


class _Gpu:
    """A visible device, its handle, and the figures that it does not provide."""

    def __init__(self, device: GpuDevice, handle: object) -> None:
        self.device = device
        self.handle = handle
        self.lost = False
        self.lacks: set[tuple[object, ...]] = set()
        self.used: Bytes | None = None  # at the last reading
        # the driver's own, which older figures include
        self.reserved: Bytes = device.memory_reserved or 0
        self.also: set[str] = set()  # other lists that had processes at the last query
        self.accounts: bool | None = None  # whether an administrator turned it on
        self.events: Any = None
        self.shares_seen = 0  # NVML's time stamp, in microseconds


class _Memory(msgspec.Struct, frozen=True):
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
        self._nvml = _started_nvml()
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

    def counters(self, uuid: str) -> GpuCounters:
        """Read the counters since the driver was loaded."""
        gpu = self._gpus[uuid]
        millijoules = self._ask(gpu, "nvmlDeviceGetTotalEnergyConsumption")
        corrected, uncorrected, since_loaded = 0, 1, 0
        return GpuCounters(
            energy=_scaled(millijoules, 0.001),
            ecc_errors=self._ask(
                gpu, "nvmlDeviceGetTotalEccErrors", uncorrected, since_loaded
            ),
            throttle=self._throttle(gpu),
            corrected_ecc_errors=self._ask(
                gpu, "nvmlDeviceGetTotalEccErrors", corrected, since_loaded
            ),
            pcie_replays=self._ask(gpu, "nvmlDeviceGetPcieReplayCounter"),
        )

    def wear(self, uuid: str) -> GpuWear:
        """Read which memory the GPU has taken out of use.

        Pages are retired before A100, rows remapped from A100 on.
        """
        gpu = self._gpus[uuid]
        lists = [self._ask(gpu, "nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
        pages = [len(pages) for pages in lists if pages is not None]
        pending = self._ask(gpu, "nvmlDeviceGetRetiredPagesPendingStatus")
        rows = self._ask(gpu, "nvmlDeviceGetRemappedRows")
        if rows is None:
            known = None if pending is None else bool(pending)
            return GpuWear(sum(pages) if pages else None, pending=known)
        corrected, uncorrected, waiting, failed = rows
        return GpuWear(
            remapped_rows=corrected + uncorrected,
            pending=bool(waiting or pending),
            failed=bool(failed),
        )

    def pcie_rx(self, uuid: str) -> Bytes | None:
        """Return the inbound PCIe traffic in bytes per second, over 20 ms."""
        return self._pcie(uuid, 1)

    def pcie_tx(self, uuid: str) -> Bytes | None:
        """Return the outbound PCIe traffic in bytes per second, over 20 ms."""
        return self._pcie(uuid, 0)

    def accounted(self, uuid: str, pids: Collection[int]) -> dict[int, Bytes]:
        """Return the peaks of processes, also ended ones, if the driver keeps them."""
        gpu = self._gpus[uuid]
        if gpu.accounts is None:
            gpu.accounts = self._ask(gpu, "nvmlDeviceGetAccountingMode") == 1
        if not gpu.accounts:
            return {}
        found = {
            pid: self._ask(gpu, "nvmlDeviceGetAccountingStats", pid) for pid in pids
        }
        return {
            pid: int(stats.maxMemoryUsage)
            for pid, stats in found.items()
            if stats is not None and stats.maxMemoryUsage is not None
        }

    def new_xids(self, uuid: str) -> tuple[int, ...] | None:
        """Return the driver's errors (XID numbers) since the last call; never waits."""
        gpu = self._gpus[uuid]
        if gpu.events is None and not self._register(gpu):
            return None
        found: list[int] = []
        while len(found) < _MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(gpu.events, 0)
            except self._nvml.NVMLError:  # a timeout: there was no error
                break
            found.append(int(event.eventData))
        return tuple(found)

    def shares(self, uuid: str) -> tuple[GpuShare, ...] | None:
        """Return each process's utilisation since the last call."""
        gpu = self._gpus[uuid]
        name = "nvmlDeviceGetProcessUtilization"
        samples = self._ask(gpu, name, gpu.shares_seen)
        if samples is None:
            return None
        newest = max((one.timeStamp for one in samples), default=0)
        fresh = [one for one in samples if one.timeStamp > gpu.shares_seen]
        gpu.shares_seen = max(gpu.shares_seen, newest)
        return tuple(
            GpuShare(one.pid, float(one.smUtil), float(one.memUtil)) for one in fresh
        )

    def close(self) -> None:
        """Release the driver."""
        try:
            for gpu in self._gpus.values():
                if gpu.events is not None:
                    self._nvml.nvmlEventSetFree(gpu.events)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # a lost GPU cannot be released either

    def _find(self, environment: Mapping[str, str]) -> dict[str, _Gpu]:
        """Return the visible GPUs by UUID, in CUDA's order."""
        handles: dict[str, object] = {}
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
        return {one.uuid: _Gpu(one, handles[one.uuid]) for one in visible.devices}

    def _why_none(self, found: int, environment: Mapping[str, str]) -> str:
        if found and VARIABLE in environment:
            return f"this node has GPUs, but they are hidden by {VARIABLE}"
        if found:
            return "there are GPUs here, in MIG mode, with no instance for you"
        if self._hidden:
            return "there are GPUs here, but none was allocated to you"
        return "an NVIDIA driver is here, but no GPU"

    def _count(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError:
            return 0

    def _handle(self, index: int) -> object | None:
        """Open a GPU; None if a cgroup hides it, or it is broken."""
        try:
            handle: object = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            if error.value == _NO_PERMISSION:
                self._hidden += 1
            else:
                self._notes.append(f"GPU {index} cannot be read: {error}")
            return None
        return handle

    def _described(self, index: int, handle: object) -> list[tuple[GpuDevice, object]]:
        """Describe a GPU and, in MIG mode, its instances."""
        gpu = self._describe(index, handle)
        if gpu is None:
            return []
        mode = self._try("nvmlDeviceGetMigMode", handle)
        if not mode or not mode[0]:
            return [(gpu, handle)]
        split = msgspec.structs.replace(gpu, is_split=True)
        described: list[tuple[GpuDevice, object]] = [(split, handle)]
        for place in range(self._try("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            part = self._try("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            instance = None if part is None else self._describe(index, part, gpu.uuid)
            if instance is not None:
                described.append((instance, part))
        return described

    def _describe(
        self, index: int, handle: object, parent: str | None = None
    ) -> GpuDevice | None:
        uuid = self._try("nvmlDeviceGetUUID", handle)
        if not uuid:
            self._notes.append(f"GPU {index} cannot be read: it has no UUID")
            return None
        memory = self._memory(_Gpu(GpuDevice(index, uuid, ""), handle))
        pci = self._try("nvmlDeviceGetPciInfo", handle) if parent is None else None
        gpu, compute = "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"
        return GpuDevice(
            index=index,
            uuid=uuid,
            name=self._try("nvmlDeviceGetName", handle) or "GPU",
            memory_total=None if memory is None else memory.total,
            mig_parent=parent,
            memory_reserved=None if memory is None else memory.reserved,
            bus=None if pci is None else str(pci.busId).lower(),
            gpu_instance=self._try(gpu, handle) if parent else None,
            compute_instance=self._try(compute, handle) if parent else None,
        )

    def _look(self, gpu: _Gpu, *, activity: bool) -> GpuReading | None:
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
        holders = self._holders(gpu, activity=activity)
        complete = holders is not None and None not in holders.values()
        process_memory = holders if complete else None
        processes = None if holders is None else tuple(holders)
        rates = self._ask(gpu, "nvmlDeviceGetUtilizationRates") if activity else None
        power = self._ask(gpu, "nvmlDeviceGetPowerUsage") if activity else None
        return GpuReading(
            gpu.device.uuid,
            memory_used=used,
            process_memory=process_memory,  # type: ignore[arg-type] # None is not in it
            utilization=None if rates is None else _percent(rates.gpu),
            memory_utilization=None if rates is None else _percent(rates.memory),
            power=_scaled(power, 0.001),
            sm_clock=self._clock(gpu, 1) if activity else None,
            memory_clock=self._clock(gpu, 2) if activity else None,
            processes=processes,
            lost=gpu.lost,
            slowed=self._slowed(gpu) if activity else None,
        )

    def _slowed(self, gpu: _Gpu) -> frozenset[str] | None:
        reasons = self._ask(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons")
        if reasons is None:
            return None
        return frozenset(word for bit, word in _REASONS.items() if reasons & bit)

    def _memory(self, gpu: _Gpu) -> "_Memory | None":
        """Read the memory, without the driver's own if it was ever separate."""
        name = "nvmlDeviceGetMemoryInfo"
        found = self._ask(gpu, name, self._nvml.nvmlMemory_v2)
        if found is not None:
            gpu.reserved = int(found.reserved)
            return _Memory(int(found.total), int(found.used), gpu.reserved)
        found = self._ask(gpu, name)
        if found is None:
            return None
        used = max(0, int(found.used) - gpu.reserved)
        return _Memory(int(found.total), used, gpu.reserved or None)

    def _holders(self, gpu: _Gpu, *, activity: bool) -> dict[int, Bytes | None] | None:
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
            held = one.usedGpuMemory
            known = holders.get(one.pid)
            holders[one.pid] = known if held is None else max(known or 0, held)
        return holders

    def _listed(self, gpu: _Gpu, kind: str) -> list[Any] | None:
        for version in ("v3", "v2"):
            name = f"nvmlDeviceGet{kind}RunningProcesses_{version}"
            listed: list[Any] | None = self._ask(gpu, name)
            if listed is not None:
                return listed
        return None

    def _clock(self, gpu: _Gpu, which: int) -> float | None:
        return _scaled(self._ask(gpu, "nvmlDeviceGetClockInfo", which), 1.0)

    def _pcie(self, uuid: str, direction: int) -> Bytes | None:
        name = "nvmlDeviceGetPcieThroughput"
        kilobytes = self._ask(self._gpus[uuid], name, direction)
        return None if kilobytes is None else int(kilobytes) * 1000

    def _throttle(self, gpu: _Gpu) -> dict[str, Seconds] | None:
        name = "nvmlDeviceGetViolationStatus"
        statuses = {
            reason: self._ask(gpu, name, policy) for policy, reason in _POLICIES.items()
        }
        seconds = {
            reason: float(status.violationTime) * 1e-9
            for reason, status in statuses.items()
            if status is not None
        }
        return seconds or None

    def _register(self, gpu: _Gpu) -> bool:
        """Register for the driver's error events of *gpu*."""
        if ("events",) in gpu.lacks:
            return False
        events = None
        try:
            events = self._nvml.nvmlEventSetCreate()
            critical = self._nvml.nvmlEventTypeXidCriticalError
            self._nvml.nvmlDeviceRegisterEvents(gpu.handle, critical, events)
        except self._nvml.NVMLError:
            gpu.lacks.add(("events",))
            if events is not None:
                self._nvml.nvmlEventSetFree(events)
            return False
        gpu.events = events
        return True

    def _ask(self, gpu: _Gpu, name: str, *words: object) -> Any:  # noqa: ANN401
        """Query one figure; None if it is not available."""
        if gpu.lost or (name, *words[:1]) in gpu.lacks:
            return None
        function = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(gpu.handle, *words)
        except self._nvml.NVMLError as error:
            if error.value == _LOST:
                gpu.lost = True
            elif error.value in _FOR_GOOD:
                gpu.lacks.add((name, *words[:1]))
            return None

    def _try(self, name: str, *words: object) -> Any:  # noqa: ANN401 - the same
        """Call a function of NVML; None if it fails."""
        function = getattr(self._nvml, name, None)
        try:
            return None if function is None else function(*words)
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return None


def _started_nvml() -> ModuleType:
    """Import nvidia-ml-py and start NVML."""
    nvml = nvml_binding()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _start_error(error.value, str(error)) from error
    return nvml


def _start_error(code: int, words: str) -> GpuError:
    """Return the error for NVML's code at its start."""
    if code == _LIBRARY_NOT_FOUND:
        return NoGpuError("no NVIDIA driver here")
    if code == _DRIVER_NOT_LOADED:
        return NoGpuError("an NVIDIA driver is installed here, but not loaded: no GPU")
    if code == _MISMATCH:
        version = kernel_module_version()
        module = f" ({version})" if version else ""
        return GpuError(
            f"NVIDIA's kernel driver{module} and its library differ: "
            "report it to the admins"
        )
    if code == _NO_PERMISSION:
        return GpuError("the NVIDIA driver is closed to you: /dev/nvidiactl")
    if code == _UNKNOWN:
        return GpuError(
            "the driver fails (NVML 999): use another node, report this to the admins"
        )
    return GpuError(f"the NVIDIA driver does not start: {words}")


def _percent(value: float) -> float | None:
    """Return a share of time; None for what a driver without an answer fills in."""
    return float(value) if 0 <= value <= _WHOLE else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor
