"""Columns of text on a terminal: how wide letters are, and tables that fit a width."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from weigh.render.printable import (
    NARROWEST,
    WIDTH,
    shortened_from_start,
    shortened_text,
    width_of,
)

_FILLER = "\0"  # stands for the second column of a wide letter


_NOTHING = frozenset({"-", "0", ""})  # what an optional column needs more than


class TableColumn(msgspec.Struct, frozen=True):
    """A column; of a table that is too wide, the highest ``drop`` goes first."""

    title: str
    cell: Callable[[Any], str]  # what it has of a row
    right: bool = True  # False: aligned at the left, as text is
    drop: int = 0  # 0: never left out
    flexible: bool = False  # takes the room that is left, and is cut if there is less
    keeps_end: bool = False  # of a cell that is cut
    optional: bool = False  # left out where no cell has anything


class _FilledColumn(msgspec.Struct, frozen=True):
    column: TableColumn
    cells: tuple[str, ...]  # the title first
    width: int  # of its widest cell


def wrap_by_columns(screen_text: str, width: int, **options: Any) -> list[str]:  # noqa: ANN401 - textwrap's
    """Fold a text as :func:`textwrap.wrap` does, by columns instead of characters."""
    import textwrap  # noqa: PLC0415 - start-up time

    if screen_text.isascii():
        return textwrap.wrap(screen_text, width, **options)
    # textwrap counts characters, so a wide one gets a filler as its second column
    wide = "".join(f"{c}{_FILLER}" if width_of(c) > 1 else c for c in screen_text)
    # a line that ends between a letter and its filler is one column wider
    lines = textwrap.wrap(wide, width - 1, **options)
    return [line.replace(_FILLER, "") for line in lines]


def table_lines(
    rows: Sequence[Any], columns: Sequence[TableColumn], width: int = WIDTH
) -> Iterator[str]:
    """Lay out rows in *width*, titles first; a flexible column takes what is left."""
    kept = [*_filled_columns(rows, columns)]
    while len(kept) > 1 and _least_table_width(kept) > width:
        # of columns with the same number the first one goes
        worst = max(kept, key=lambda one: one.column.drop)
        if not worst.column.drop:
            break
        kept.remove(worst)
    spare = max(0, width - _least_table_width(kept))
    widths = [
        min(one.width, NARROWEST + spare) if one.column.flexible else one.width
        for one in kept
    ]
    for cells in zip(*(one.cells for one in kept), strict=True):
        # wider where no column is left that may be cut or dropped
        yield shortened_text(_aligned_row(cells, kept, widths), width)


def _filled_columns(
    rows: Sequence[Any], columns: Sequence[TableColumn]
) -> Iterator[_FilledColumn]:
    for column in columns:
        cells = tuple(map(column.cell, rows))
        if not column.optional or {*cells} - _NOTHING:
            cells = (column.title, *cells)
            yield _FilledColumn(column, cells, max(map(width_of, cells)))


def _least_table_width(filled_columns: Sequence[_FilledColumn]) -> int:
    """Return the least width of a table, gaps included."""
    # a flexible column can shrink to a few letters; the others cannot
    widths = (
        min(NARROWEST, one.width) if one.column.flexible else one.width
        for one in filled_columns
    )
    return sum(width + 2 for width in widths)


def _aligned_row(
    cells: Sequence[str], filled_columns: Sequence[_FilledColumn], widths: Sequence[int]
) -> str:
    padded = []
    for cell, filled, width in zip(cells, filled_columns, widths, strict=True):
        column = filled.column
        shortened = shortened_from_start if column.keeps_end else shortened_text
        text = shortened(cell, width)
        fill = " " * (width - width_of(text))
        padded.append(fill + text if column.right else text + fill)
    return "  " + "  ".join(padded).rstrip()
