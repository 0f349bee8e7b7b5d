"""Read NVIDIA GPUs through NVML, in this process and without starting any other.

A figure that a card, a driver or a permission does not give is None, and is not asked
for again. NVML's own documentation is the source of units and meanings.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.probe.driver import kernel_module_version
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading, GpuShare
from weigh.probe.visible import VARIABLE, visible_devices
from weigh.units import Bytes, Seconds

_NO_PERMISSION, _LOST = 4, 15
_LIBRARY_NOT_FOUND, _DRIVER_NOT_LOADED, _MISMATCH = 12, 9, 18
_FOR_GOOD = frozenset({3, 4, 13, 25, 26})  # not supported or permitted, no function...
_MOST_EVENTS = 16  # a look
_MOST_CARDS = 256
_POLICIES = {
    0: "power",
    1: "thermal",
    2: "sync boost",
    3: "board limit",
    4: "low utilization",
    5: "reliability",
}


class _Card:
    """A device that is mine, its handle, and what it turned out not to tell."""

    def __init__(self, device: GpuDevice, handle: object) -> None:
        self.device = device
        self.handle = handle
        self.lost = False
        self.lacks: set[tuple[object, ...]] = set()
        self.used: Bytes | None = None  # when last looked
        self.draws = False  # it ran graphics when last asked
        self.events: Any = None
        self.shares_seen = 0  # NVML's time stamp, in microseconds


class NvmlProbe:
    """The GPUs of this machine that are mine. To be used by one thread.

    Raises:
        NoGpuError: no driver or no library of it is here.
        GpuError: it is here and does not start.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._nvml = _started_nvml()
        self._hidden = 0
        self._notes: list[str] = []
        self._absence: str | None = None
        self._cards = self._find(environment)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what is in doubt about which GPUs are mine."""
        return tuple(self._notes)

    @property
    def absence(self) -> str | None:
        """Say why none is mine; None where one is."""
        return self._absence

    def devices(self) -> tuple[GpuDevice, ...]:
        """Give the GPUs that are mine, in CUDA's order."""
        return tuple(card.device for card in self._cards.values())

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        """Look at each once; without *activity* give those whose memory changed."""
        looks = [self._look(card, activity=activity) for card in self._cards.values()]
        return tuple(look for look in looks if look is not None)

    def counters(self, uuid: str) -> GpuCounters:
        """Read the counters that run since the driver was loaded."""
        card = self._cards[uuid]
        millijoules = self._ask(card, "nvmlDeviceGetTotalEnergyConsumption")
        uncorrected, since_loaded = 1, 0
        return GpuCounters(
            energy=_scaled(millijoules, 0.001),
            ecc_errors=self._ask(
                card, "nvmlDeviceGetTotalEccErrors", uncorrected, since_loaded
            ),
            throttle=self._throttle(card),
        )

    def pcie_rx(self, uuid: str) -> Bytes | None:
        """Watch what comes in over PCIe for 20 ms; give bytes a second."""
        return self._pcie(uuid, 1)

    def pcie_tx(self, uuid: str) -> Bytes | None:
        """Watch what goes out over PCIe for 20 ms; give bytes a second."""
        return self._pcie(uuid, 0)

    def new_xids(self, uuid: str) -> tuple[int, ...] | None:
        """Give the driver's errors (XID numbers) since the last call; never waits."""
        card = self._cards[uuid]
        if card.events is None and not self._register(card):
            return None
        found: list[int] = []
        while len(found) < _MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(card.events, 0)
            except self._nvml.NVMLError:  # a timeout: nothing has happened
                break
            found.append(int(event.eventData))
        return tuple(found)

    def shares(self, uuid: str) -> tuple[GpuShare, ...] | None:
        """Give each process's utilisation since the last call."""
        card = self._cards[uuid]
        name = "nvmlDeviceGetProcessUtilization"
        samples = self._ask(card, name, card.shares_seen)
        if samples is None:
            return None
        newest = max((one.timeStamp for one in samples), default=0)
        fresh = [one for one in samples if one.timeStamp > card.shares_seen]
        card.shares_seen = max(card.shares_seen, newest)
        return tuple(
            GpuShare(one.pid, float(one.smUtil), float(one.memUtil)) for one in fresh
        )

    def close(self) -> None:
        """Let the driver go."""
        try:
            for card in self._cards.values():
                if card.events is not None:
                    self._nvml.nvmlEventSetFree(card.events)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # a lost card cannot be given back either

    def _find(self, environment: Mapping[str, str]) -> dict[str, _Card]:
        """Find the cards, in CUDA's order, that are mine."""
        handles: dict[str, object] = {}
        found: list[GpuDevice] = []
        for index in range(min(self._count(), _MOST_CARDS)):
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
        return {one.uuid: _Card(one, handles[one.uuid]) for one in visible.devices}

    def _why_none(self, found: int, environment: Mapping[str, str]) -> str:
        if found and VARIABLE in environment:
            return f"there are GPUs here, hidden from you by {VARIABLE}"
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
        """Open a card; None for one that a cgroup keeps from me, or that is broken."""
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
        """Describe a card and, in MIG mode, its instances."""
        card = self._describe(index, handle)
        if card is None:
            return []
        mode = self._try("nvmlDeviceGetMigMode", handle)
        if not mode or not mode[0]:
            return [(card, handle)]
        split = msgspec.structs.replace(card, is_split=True)
        described: list[tuple[GpuDevice, object]] = [(split, handle)]
        for place in range(self._try("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            part = self._try("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            instance = None if part is None else self._describe(index, part, card.uuid)
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
        memory = self._memory(_Card(GpuDevice(index, uuid, ""), handle))
        pci = self._try("nvmlDeviceGetPciInfo", handle) if parent is None else None
        gpu, compute = "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"
        return GpuDevice(
            index=index,
            uuid=uuid,
            name=self._try("nvmlDeviceGetName", handle) or "GPU",
            memory_total=None if memory is None else int(memory.total),
            mig_parent=parent,
            memory_reserved=getattr(memory, "reserved", None),
            bus=None if pci is None else str(pci.busId).lower(),
            gpu_instance=self._try(gpu, handle) if parent else None,
            compute_instance=self._try(compute, handle) if parent else None,
        )

    def _look(self, card: _Card, *, activity: bool) -> GpuReading | None:
        """Look at a card; None where only its memory was asked for, and stayed.

        To list processes costs as much again, and what they hold changes with the
        card's memory: memory is read first, so that no later change can be missed.
        """
        memory = self._memory(card)
        used = None if memory is None else int(memory.used)
        stayed = used is not None and used == card.used
        card.used = used
        if stayed and not activity:
            return None
        holders = self._holders(card, activity=activity)
        told = holders is not None and None not in holders.values()
        process_memory = holders if told else None
        processes = None if holders is None else tuple(holders)
        rates = self._ask(card, "nvmlDeviceGetUtilizationRates") if activity else None
        power = self._ask(card, "nvmlDeviceGetPowerUsage") if activity else None
        return GpuReading(
            card.device.uuid,
            memory_used=used,
            process_memory=process_memory,  # type: ignore[arg-type] # None is not in it
            utilization=None if rates is None else float(rates.gpu),
            memory_utilization=None if rates is None else float(rates.memory),
            power=_scaled(power, 0.001),
            sm_clock=self._clock(card, 1) if activity else None,
            memory_clock=self._clock(card, 2) if activity else None,
            processes=processes,
            lost=card.lost,
        )

    def _memory(self, card: _Card) -> Any:  # noqa: ANN401 - a structure of NVML's
        """Read memory without what the driver keeps for itself, if it can tell."""
        name = "nvmlDeviceGetMemoryInfo"
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        second = None if version is None else self._ask(card, name, version)
        return self._ask(card, name) if second is None else second

    def _holders(
        self, card: _Card, *, activity: bool
    ) -> dict[int, Bytes | None] | None:
        """Give the processes on a card and what each holds, where that is told."""
        listed = self._listed(card, "Compute")
        if listed is None:
            return None
        if activity or card.draws:
            drawing = self._listed(card, "Graphics") or []
            card.draws = bool(drawing)
            listed = [*listed, *drawing]  # a process may be on both lists
        holders: dict[int, Bytes | None] = {}
        for one in listed:
            held = one.usedGpuMemory
            known = holders.get(one.pid)
            holders[one.pid] = known if held is None else max(known or 0, held)
        return holders

    def _listed(self, card: _Card, kind: str) -> list[Any] | None:
        for version in ("v3", "v2"):
            name = f"nvmlDeviceGet{kind}RunningProcesses_{version}"
            listed: list[Any] | None = self._ask(card, name)
            if listed is not None:
                return listed
        return None

    def _clock(self, card: _Card, which: int) -> float | None:
        return _scaled(self._ask(card, "nvmlDeviceGetClockInfo", which), 1.0)

    def _pcie(self, uuid: str, direction: int) -> Bytes | None:
        name = "nvmlDeviceGetPcieThroughput"
        kilobytes = self._ask(self._cards[uuid], name, direction)
        return None if kilobytes is None else int(kilobytes) * 1000

    def _throttle(self, card: _Card) -> dict[str, Seconds] | None:
        name = "nvmlDeviceGetViolationStatus"
        told = {
            reason: self._ask(card, name, policy)
            for policy, reason in _POLICIES.items()
        }
        seconds = {
            reason: float(status.violationTime) * 1e-9
            for reason, status in told.items()
            if status is not None
        }
        return seconds or None

    def _register(self, card: _Card) -> bool:
        """Ask to be told of driver errors on *card* from now on."""
        if ("events",) in card.lacks:
            return False
        events = None
        try:
            events = self._nvml.nvmlEventSetCreate()
            critical = self._nvml.nvmlEventTypeXidCriticalError
            self._nvml.nvmlDeviceRegisterEvents(card.handle, critical, events)
        except self._nvml.NVMLError:
            card.lacks.add(("events",))
            if events is not None:
                self._nvml.nvmlEventSetFree(events)
            return False
        card.events = events
        return True

    def _ask(self, card: _Card, name: str, *words: object) -> Any:  # noqa: ANN401
        """Ask for one figure; None if it is not told, now or for good."""
        if card.lost or (name, *words[:1]) in card.lacks:
            return None
        function = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(card.handle, *words)
        except self._nvml.NVMLError as error:
            if error.value == _LOST:
                card.lost = True
            elif error.value in _FOR_GOOD:
                card.lacks.add((name, *words[:1]))
            return None

    def _try(self, name: str, *words: object) -> Any:  # noqa: ANN401 - the same
        """Ask while finding out what is there."""
        function = getattr(self._nvml, name, None)
        try:
            return None if function is None else function(*words)
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return None


def _started_nvml() -> ModuleType:
    """Import nvidia-ml-py and start NVML."""
    try:
        nvml = import_module("pynvml")
    except ImportError as error:
        message = "GPUs are read through nvidia-ml-py: pip install nvidia-ml-py"
        raise GpuError(message) from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _start_error(error.value, str(error)) from error
    return nvml


def _start_error(code: int, words: str) -> GpuError:
    """Say in words why NVML did not start."""
    if code == _LIBRARY_NOT_FOUND:
        return NoGpuError("no NVIDIA driver here")
    if code == _DRIVER_NOT_LOADED:
        return NoGpuError("an NVIDIA driver is installed here, but not loaded: no GPU")
    if code == _MISMATCH:
        version = kernel_module_version()
        module = f" ({version})" if version else ""
        return GpuError(
            f"NVIDIA's kernel driver{module} and its library differ: "
            "tell the node's admins"
        )
    if code == _NO_PERMISSION:
        return GpuError("the NVIDIA driver is closed to you: /dev/nvidiactl")
    return GpuError(f"the NVIDIA driver does not start: {words}")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor
