"""A comparison of runs: what each used, and how the others differ from the first."""

from typing import Literal

import msgspec

SCHEMA = "weigh.comparison/1"

Unit = Literal["seconds", "bytes", "per cent"]


class ComparedFigure(msgspec.Struct, frozen=True):
    """One quantity of one side: its median over ``runs``, and their range.

    ``least`` and ``most`` are the range of the runs.
    """

    median: float  # in the unit of the row, as the range
    least: float
    most: float
    runs: int


class FigureChange(msgspec.Struct, frozen=True):
    """How one side differs from the first in one quantity.

    ``ratio`` is this side's median over the first's (None over zero), ``difference`` is
    this side's minus the first's. ``low`` and ``high`` are the 95 % interval of the
    ratio, None if no spread is known. ``distinguishable`` is False for possible noise,
    and None if that is unknown: one run each.
    """

    ratio: float | None
    difference: float
    low: float | None = None
    high: float | None = None
    distinguishable: bool | None = None


class ComparisonRow(msgspec.Struct, frozen=True):
    """One quantity: one figure and one change per side, None if not measured.

    The first side has no change.
    """

    name: str
    unit: Unit
    figures: tuple[ComparedFigure | None, ...]
    changes: tuple[FigureChange | None, ...]


class ComparisonSide(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison: the runs of one name, all of one command.

    ``failed`` is the number of runs left out because others completed.
    """

    name: str
    records: tuple[str, ...]
    command: tuple[str, ...]
    runs: int  # those that count
    state: str
    failed: int = 0


class ParameterDifference(msgspec.Struct, frozen=True):
    """A parameter that differs between sides."""

    name: str
    # one per side; None: that side has no such parameter
    values: tuple[int | float | str | None, ...]


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two or more sides; each is compared with the first."""

    schema: str = SCHEMA
    sides: tuple[ComparisonSide, ...]
    differences: tuple[ParameterDifference, ...]
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, figure_name: str) -> ComparisonRow | None:
        """Return the row of that name; None if it was not measured."""
        return next((row for row in self.rows if row.name == figure_name), None)


def side_letter(turn: int) -> str:
    """Return the name of a side: A, B, C."""
    return chr(ord("A") + turn)
