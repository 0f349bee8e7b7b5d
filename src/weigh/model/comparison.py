"""Runs side by side: what each used, and how the others differ from the first."""

from typing import Literal

import msgspec

SCHEMA = "weigh.comparison/1"

Unit = Literal["seconds", "bytes", "per cent"]
Order = Literal["time", "memory"]


class Figure(msgspec.Struct, frozen=True):
    """One quantity of one side: its median over *runs*, and how far they spread.

    ``least`` and ``most`` are the range of the runs; of a single one whose memory is
    known between bounds, those bounds. ``values`` are the runs', in their order.
    """

    median: float
    least: float
    most: float
    runs: int
    values: tuple[float, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """How one side differs from the first in one quantity.

    ``ratio`` is this side's median over the first's (None over zero), ``difference``
    the one less the other. ``low`` and ``high`` hold the true ratio at 95 %, and None
    where no spread is known. ``distinguishable`` is False for what may be noise, and
    None where nothing can be said of that: one run each.
    """

    ratio: float | None
    difference: float
    low: float | None = None
    high: float | None = None
    distinguishable: bool | None = None


class Row(msgspec.Struct, frozen=True):
    """One quantity: a figure a side, None where not measured, and changes likewise.

    The first side has no change.
    """

    name: str
    unit: Unit
    figures: tuple[Figure | None, ...]
    changes: tuple[Change | None, ...]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared: the runs behind one name, all of one command.

    ``failed`` counts the runs left out because others completed.
    """

    name: str
    records: tuple[str, ...]
    command: tuple[str, ...]
    runs: int
    state: str
    failed: int = 0
    growing: bool = False


class Difference(msgspec.Struct, frozen=True):
    """A parameter, or a word of the command, that is not the same on all sides."""

    name: str
    values: tuple[int | float | str | None, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two or more sides, the first of which the others are held against."""

    schema: str = SCHEMA
    sides: tuple[Side, ...]
    differences: tuple[Difference, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row | None:
        """Return the row of that name; None where nothing of it was measured."""
        return next((row for row in self.rows if row.name == name), None)
