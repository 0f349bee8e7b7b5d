"""GPUs in words: short names, lists of numbers, what an error number means."""

from collections.abc import Sequence

from weigh.units import GIB, Bytes

_MAKERS = ("NVIDIA ", "Tesla ")
# NVIDIA's XID catalogue: those that speak of the card, not of the program on it
_CARD_FAULTS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120})
_BAD_ADDRESS = 31
_SHOWN = 3


def short_name(name: str) -> str:
    """Leave out what every card's name begins with: ``V100-SXM2-32GB``."""
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return name


def memory_words(used: Bytes | None, total: Bytes | None) -> str:
    """Say how full a card is: ``7.1 of 32.0 GiB``."""
    if total is None:
        return "memory not told" if used is None else f"{used / GIB:.1f} GiB used"
    known = "?" if used is None else f"{used / GIB:.1f}"
    return f"{known} of {total / GIB:.1f} GiB"


def listed(numbers: Sequence[int | None]) -> str:
    """Write numbers as a person does: ``1, 2 and 3``."""
    words = ["?" if number is None else str(number) for number in numbers]
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def xid_words(xids: Sequence[int]) -> str:
    """Say what the driver's errors were, and whom they concern."""
    different = sorted(set(xids))
    words = f"driver XID {listed(different[:_SHOWN])}"
    words += ", ..." if len(different) > _SHOWN else ""
    if any(xid in _CARD_FAULTS for xid in different):
        return f"{words}: the card's fault, tell the admins"
    if different == [_BAD_ADDRESS]:
        return f"{words}: the program used an address that is not its own"
    return f"{words}: most likely the program's own"
