"""Which GPUs are mine, in CUDA's order: CUDA_VISIBLE_DEVICES read as CUDA reads it.

Sources: the CUDA programming guide on environment variables; NVIDIA's MIG user guide
on device enumeration; what PyTorch found out about repeated and ambiguous names.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.probe.gpu import GpuDevice

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"
_SHOWN = 40  # characters of a value from outside that a note repeats
_Find = Callable[[str], "list[GpuDevice] | None"]


class Visible(msgspec.Struct, frozen=True):
    """The GPUs that are mine, and what is in doubt about that."""

    devices: tuple[GpuDevice, ...]
    notes: tuple[str, ...] = ()


def visible_devices(
    devices: Sequence[GpuDevice], environment: Mapping[str, str]
) -> Visible:
    """Choose from *devices* (cards and MIG instances) what CUDA would show.

    A card in MIG mode stands for its instances. All instances are kept, although CUDA
    gives a process only the first: several processes of a job may share them out.
    """
    cards = [device for device in devices if device.mig_parent is None]
    if all(card.bus for card in cards):
        cards.sort(key=lambda card: card.bus or "")
    machine = _Machine(cards, devices)
    value = environment.get(VARIABLE)
    notes: list[str] = []
    if value is None:
        chosen = [one for card in cards for one in machine.parts(card)]
        by_number = True
    else:
        find, by_number = machine.finder(value)
        chosen = _listed(value, find, notes)
    if by_number and _order_is_a_guess(cards, environment):
        notes.append(_order_note(is_subset=value is not None))
    if sum(one.mig_parent is not None for one in chosen) > 1:
        notes.append("a process can use one MIG instance only; CUDA takes the first")
    return Visible(tuple(chosen), tuple(notes))


def names_none(environment: Mapping[str, str]) -> bool:
    """Tell whether the environment hides every GPU, whatever is there."""
    value = environment.get(VARIABLE)
    if value is None:
        return False
    first = value.split(",")[0].strip()
    return not first.startswith(("GPU-", "MIG-")) and _number(first) is None


class _Machine:
    """The cards in CUDA's order, and their parts."""

    def __init__(
        self, cards: Sequence[GpuDevice], devices: Sequence[GpuDevice]
    ) -> None:
        self._cards = cards
        self._instances = [one for one in devices if one.mig_parent is not None]

    def parts(self, card: GpuDevice) -> list[GpuDevice]:
        """Give what of a card can be computed on."""
        if not card.is_split:
            return [card]
        return [one for one in self._instances if one.mig_parent == card.uuid]

    def finder(self, value: str) -> tuple[_Find, bool]:
        """Choose by the first name how names are meant; and whether by number."""
        first = value.strip()
        if first.startswith("GPU-"):
            return self._by_card_uuid, False
        if first.startswith("MIG-"):
            return self._by_instance, False
        return self._by_number, True

    def _by_number(self, name: str) -> list[GpuDevice] | None:
        number = _number(name)
        if number is None or number >= len(self._cards):
            return None
        return self.parts(self._cards[number])

    def _by_card_uuid(self, name: str) -> list[GpuDevice] | None:
        found = [card for card in self._cards if card.uuid.startswith(name)]
        is_name = name.startswith("GPU-")
        return self.parts(found[0]) if is_name and len(found) == 1 else None

    def _by_instance(self, name: str) -> list[GpuDevice] | None:
        if name.startswith("MIG-GPU-"):
            found = [one for one in self._instances if _old_name(one) == name]
        else:
            is_name = name.startswith("MIG-")
            found = [
                one for one in self._instances if is_name and one.uuid.startswith(name)
            ]
        return found if len(found) == 1 else None


def _listed(value: str, find: _Find, notes: list[str]) -> list[GpuDevice]:
    """Take names until the first that CUDA would not accept."""
    chosen: list[GpuDevice] = []
    for name in [] if not value.strip() else value.split(","):
        found = find(name.strip())
        if found is None:
            notes.append(
                f"{VARIABLE}={_shown(value)}: no GPU, or more than one, is "
                f"{_shown(name.strip())!r}, and CUDA reads no further"
            )
            break
        number = _number(name.strip())
        if number is not None and not name.strip().isdecimal():
            notes.append(
                f"CUDA reads {_shown(name.strip())!r} as {number}: "
                "commas go between GPUs"
            )
        if any(one in chosen for one in found):
            notes.append(f"{VARIABLE}={_shown(value)}: a GPU twice, so CUDA sees none")
            return []
        chosen.extend(found)
    return chosen


def _number(name: str) -> int | None:
    """Read the digits a name begins with, as CUDA does: ``1`` from ``1gpu``."""
    digits = ""
    for character in name.removeprefix("+"):
        if not ("0" <= character <= "9"):
            break
        digits += character
    return int(digits) if 0 < len(digits) <= 9 else None  # noqa: PLR2004 - an int's


def _old_name(instance: GpuDevice) -> str:
    """Name a MIG instance as drivers before R470 did."""
    places = f"{instance.gpu_instance}/{instance.compute_instance}"
    return f"MIG-{instance.mig_parent}/{places}"


def _order_is_a_guess(
    cards: Sequence[GpuDevice], environment: Mapping[str, str]
) -> bool:
    """Tell whether CUDA may count otherwise: fastest first, if the cards differ."""
    alike = len({card.name for card in cards}) <= 1
    return not alike and environment.get(ORDER, "").strip() != _BY_BUS


def _order_note(*, is_subset: bool) -> str:
    doubt = "other GPUs may be yours" if is_subset else "CUDA may number them otherwise"
    return f"the GPUs differ: {doubt}, unless {ORDER}={_BY_BUS} is set"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
