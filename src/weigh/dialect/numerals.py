"""Whole numbers as the schedulers write them, and the size syntax they share."""

from weigh.units import MIB, Bytes

_MOST_DIGITS = 18


def whole_number(text: str | None) -> int | None:
    """Read plain digits, or return None where *text* is anything else."""
    if text is None or not text.isascii() or not text.isdecimal():
        return None
    return int(text) if len(text) <= _MOST_DIGITS else None


def positive_number(text: str | None) -> int | None:
    """Read plain digits that make more than zero, or return None."""
    return whole_number(text) or None


def binary_size(size: Bytes) -> str:
    """Write *size* in whole GiB or else MiB, rounded up and never zero.

    Zero has a meaning of its own: ``--mem=0`` is all the memory of a node.
    """
    mebibytes = max(1, -(-size // MIB))
    if mebibytes % 1024:
        return f"{mebibytes}M"
    return f"{mebibytes // 1024}G"
