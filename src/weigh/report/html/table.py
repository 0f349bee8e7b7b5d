"""A small table of a page, as text."""

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Titles and rows; the first cell of a row is its head.

    ``left_out`` rows are not shown; ``depths`` indent the heads.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    depths: tuple[int, ...] = ()
