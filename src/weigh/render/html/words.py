"""Figures of a page: units as text, and the names of resources."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from weigh.model.report import Name, Unit
from weigh.units import format_brief, format_duration, format_size

ABSENT = "-"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; the first cell of a row is its heading.

    ``left_out`` rows are not shown; ``depths`` indent the headings.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    depths: tuple[int, ...] = ()


def table_of(
    titles: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    *,
    left_out: int = 0,
    depths: tuple[int, ...] = (),
) -> Table:
    """Return a table without the columns in which nothing was measured."""
    kept = [
        at
        for at in range(len(titles))
        if at == 0 or any(row[at] != ABSENT for row in rows)
    ]
    return Table(
        titles=tuple(titles[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in rows),
        left_out=left_out,
        depths=depths,
    )


Kind: TypeAlias = Literal["size", "time", "cpus", "share"]

NAMES: dict[Name, str] = {
    "memory": "Memory",
    "gpu_memory": "GPU memory",
    "cpus": "CPUs",
    "time": "Time",
    "gpu_utilization": "GPU busy",
}
KINDS: dict[Unit, Kind] = {
    "bytes": "size",
    "seconds": "time",
    "cpus": "cpus",
    "share": "share",
}


def figure(value: float | None, kind: Kind) -> str:
    """Write *value*; a hyphen if it was not measured."""
    if value is None or not math.isfinite(value):
        return ABSENT
    match kind:
        case "size":
            return format_size(round(value))
        case "time":
            return format_duration(value)
        case "cpus":
            return cpus(value)
        case "share":
            return share(value)


def short(words: str) -> str:
    """Write a round figure without trailing zeros: ``8 GiB``, ``5 m``."""
    number, space, unit = words.partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return (number + space + unit).removesuffix(" 00 s").removesuffix(" 00 m")


def cpus(value: float) -> str:
    """Write a number of CPUs with up to two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def share(value: float | None) -> str:
    """Write a share from 0 to 1 in per cent."""
    return ABSENT if value is None else f"{value * 100:.0f} %"


def size(value: int | None) -> str:
    """Write bytes; a hyphen if they were not measured."""
    return ABSENT if value is None else format_size(value)


def brief(value: float | None) -> str:
    """Write a time that may be very short; a hyphen if it was not measured."""
    return ABSENT if value is None else format_brief(value)
