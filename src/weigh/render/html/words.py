"""Figures of a page: units as text, and the names of resources."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from weigh.model.report import Name, Unit
from weigh.units import format_duration, format_size

ABSENT = "-"


class HtmlTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table; the first cell of a row is its heading.

    ``left_out`` rows are not shown; ``depths`` indent the headings.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0  # rows
    depths: tuple[int, ...] = ()  # empty: no row is indented


def table_of(
    titles: Sequence[str],
    table_rows: Sequence[tuple[str, ...]],
    *,
    left_out: int = 0,
    depths: tuple[int, ...] = (),
) -> HtmlTable:
    """Return a table without the columns in which nothing was measured."""
    kept = [
        at
        # the first column names the rows, so it always stays
        for at in range(len(titles))
        if at == 0 or any(row[at] != ABSENT for row in table_rows)
    ]
    return HtmlTable(
        titles=tuple(titles[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in table_rows),
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


def figure_text(figure_value: float | None, figure_kind: Kind) -> str:
    """Write *figure_value*; a hyphen if it was not measured."""
    # a ratio of figures can be nan or infinite
    if figure_value is None or not math.isfinite(figure_value):
        return ABSENT
    match figure_kind:
        case "size":
            return format_size(round(figure_value))
        case "time":
            return format_duration(figure_value)
        case "cpus":
            return cpu_count_text(figure_value)
        case "share":
            return share_percent_text(figure_value)


def cpu_count_text(cpu_count: float) -> str:
    """Write a number of CPUs with up to two decimals."""
    return f"{cpu_count:.2f}".rstrip("0").rstrip(".")


def share_percent_text(measured_share: float | None) -> str:
    """Write a share from 0 to 1 in per cent."""
    return ABSENT if measured_share is None else f"{measured_share * 100:.0f} %"


def size_or_hyphen(measured_size: int | None) -> str:
    """Write bytes; a hyphen if they were not measured."""
    return ABSENT if measured_size is None else format_size(measured_size)


def state_as_words(state: str) -> str:
    """Write a state as words: ``out of memory``."""
    return state.replace("_", " ").lower()
