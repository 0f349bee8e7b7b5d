"""Find the visible GPUs in CUDA's order, by CUDA's rules for CUDA_VISIBLE_DEVICES.

Sources: the CUDA programming guide on environment variables; NVIDIA's MIG user guide
on device enumeration; PyTorch's findings on repeated and ambiguous names.
"""

from collections.abc import Mapping, Sequence

import msgspec

from weigh.probe.gpu import GpuDevice

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"
_SHOWN = 40  # characters of a foreign value in a note


class VisibleGpus(msgspec.Struct, frozen=True):
    """The visible GPUs, and doubts about them."""

    devices: tuple[GpuDevice, ...]
    notes: tuple[str, ...] = ()


def visible_devices(
    devices: Sequence[GpuDevice], environment: Mapping[str, str]
) -> VisibleGpus:
    """Return those of *devices* (GPUs and MIG instances) that CUDA shows.

    A GPU in MIG mode is replaced by its instances. All instances are kept, although a
    process can use only the first: a job may have several processes.
    """
    gpus = [device for device in devices if device.mig_parent is None]
    # CUDA's order by bus; without addresses NVML's order stands
    if all(gpu.bus for gpu in gpus):
        gpus.sort(key=lambda gpu: gpu.bus or "")
    machine = _MachineGpus(gpus, devices)
    value = environment.get(VARIABLE)
    notes: list[str] = []
    if value is None:
        chosen = [one for gpu in gpus for one in machine.parts(gpu)]
    else:
        chosen = _listed_gpus(value, machine, notes)
    # named by UUID, they are known whatever CUDA's order
    by_number = value is None or _kind_of_name(value) is None
    if by_number and order_is_a_guess(gpus, environment):
        notes.append(_order_note(is_subset=value is not None))
    if sum(one.mig_parent is not None for one in chosen) > 1:
        notes.append("a process can use one MIG instance only; CUDA takes the first")
    return VisibleGpus(tuple(chosen), tuple(notes))


def names_none(environment: Mapping[str, str]) -> bool:
    """Return whether the environment hides every GPU, whatever is there."""
    value = environment.get(VARIABLE)
    if value is None:
        return False
    # only the first name counts: CUDA stops at one that is not valid
    first = value.split(",")[0].strip()
    return not first.startswith(("GPU-", "MIG-")) and _leading_number(first) is None


class _MachineGpus:
    """The GPUs in CUDA's order, and their parts."""

    def __init__(self, gpus: Sequence[GpuDevice], devices: Sequence[GpuDevice]) -> None:
        self._gpus = gpus
        self._instances = [one for one in devices if one.mig_parent is not None]

    def parts(self, gpu: GpuDevice) -> list[GpuDevice]:
        """Return the devices to compute on: the GPU itself, or its instances."""
        if not gpu.is_split:
            return [gpu]
        return [one for one in self._instances if one.mig_parent == gpu.uuid]

    def named(self, name: str, kind: str | None) -> list[GpuDevice] | None:
        """Return what a name means in a list of one *kind*; None ends the list."""
        if kind is None:
            number = _leading_number(name)
            is_there = number is not None and number < len(self._gpus)
            return self.parts(self._gpus[number or 0]) if is_there else None
        if not name.startswith(kind):
            return None
        # a UUID may be shortened, as long as it is unambiguous
        if kind == "GPU-":
            gpus = [gpu for gpu in self._gpus if gpu.uuid.startswith(name)]
            return self.parts(gpus[0]) if len(gpus) == 1 else None
        found = [one for one in self._instances if one.uuid.startswith(name)]
        return found if len(found) == 1 else None


def _kind_of_name(name: str) -> str | None:
    """Return how the UUIDs of a list begin, by its first name; None: it has numbers."""
    return next(
        (kind for kind in ("GPU-", "MIG-") if name.strip().startswith(kind)), None
    )


def _listed_gpus(
    value: str, machine: _MachineGpus, notes: list[str]
) -> list[GpuDevice]:
    """Look names up until the first that CUDA does not accept."""
    chosen: list[GpuDevice] = []
    # an empty list hides all GPUs
    for name in [] if not value.strip() else value.split(","):
        found = machine.named(name.strip(), _kind_of_name(value))
        if found is None:
            notes.append(
                f"{VARIABLE}={_printable_text(value)}: no GPU, or more than one, is "
                f"{_printable_text(name.strip())!r}, and CUDA reads no further"
            )
            break
        number = _leading_number(name.strip())
        if number is not None and not name.strip().isdecimal():
            notes.append(
                f"CUDA reads {_printable_text(name.strip())!r} as {number}: "
                "commas go between GPUs"
            )
        if any(one in chosen for one in found):
            notes.append(
                f"{VARIABLE}={_printable_text(value)}: a GPU twice, so CUDA sees none"
            )
            return []
        chosen.extend(found)
    return chosen


def _leading_number(name: str) -> int | None:
    """Read the digits a name begins with, as CUDA does: ``1`` from ``1gpu``."""
    digits = ""
    for character in name.removeprefix("+"):
        if not ("0" <= character <= "9"):
            break
        digits += character
    return int(digits) if 0 < len(digits) <= 9 else None  # noqa: PLR2004 - an int's


def order_is_a_guess(gpus: Sequence[GpuDevice], environment: Mapping[str, str]) -> bool:
    """Return whether CUDA may use another order: fastest first, if the GPUs differ."""
    alike = len({gpu.name for gpu in gpus}) <= 1
    return not alike and environment.get(ORDER, "").strip() != _BY_BUS


def _order_note(*, is_subset: bool) -> str:
    doubt = "other GPUs may be yours" if is_subset else "CUDA may number them otherwise"
    return f"the GPUs differ: {doubt}, unless {ORDER}={_BY_BUS} is set"


def _printable_text(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
