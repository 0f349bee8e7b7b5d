"""Thousands of tasks as a few columns, compact enough for a page."""

from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Literal, TypeAlias

import msgspec

from weigh.model.report import Row
from weigh.render.html.masthead import state_words
from weigh.render.printable import printable

Cell: TypeAlias = int | float | str | None
Kind: TypeAlias = Literal[
    "int", "size", "time", "cpus", "share", "clock", "text", "state", "number"
]
_FEWEST = 2  # a single row is shown as a run
_MOST_PARAMETERS = 12
_LONGEST = 300  # characters of a cell
_DIGITS, _DIGITS_OF_LARGE = 6, 3  # microseconds, and a millisecond in 16 minutes
_LARGE = 1000.0
_EXACT = 2**53
_WORTH_A_DICTIONARY = 0.5
_USUAL: dict[str, Cell] = {
    "attempts": 1,
    "label": "",
    "command": "",
}  # not worth a column

_COLUMNS: tuple[tuple[str, str, Kind], ...] = (
    ("task", "task", "int"),
    ("state", "state", "state"),
    ("wall_time", "time", "time"),
    ("memory", "memory", "size"),
    ("gpu_memory", "GPU memory", "size"),
    ("gpu_utilization", "GPU busy", "share"),
    ("cpus", "CPUs", "cpus"),
    ("cpu_time", "CPU time", "time"),
    ("exit_code", "exit", "int"),
    ("signal", "signal", "int"),
    ("reason", "why", "text"),
    ("error", "last line", "text"),
    ("element", "element", "int"),
    ("attempts", "attempts", "int"),
    ("node", "node", "text"),
    ("started", "started (UTC)", "clock"),
    ("label", "label", "text"),
    ("command", "command", "text"),
    ("output", "output", "text"),
    ("record", "record", "text"),
)


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column; ``key`` is its name in filters.

    ``values`` are the cells; or indexes into ``words``; or, for texts, the number of
    characters shared with the cell before, with the remainder in ``rest``.
    """

    key: str
    title: str
    kind: Kind
    values: tuple[Cell, ...]
    words: tuple[str, ...] | None = None
    rest: tuple[str, ...] | None = None


class TaskColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks, column by column; one that is empty throughout is left out."""

    noun: Literal["tasks", "runs"]
    count: int
    columns: tuple[Column, ...]


def task_columns(rows: Sequence[Row]) -> TaskColumns | None:
    """Turn *rows* into columns; None if there is nothing to compare."""
    if len(rows) < _FEWEST:
        return None
    columns = list(_columns(rows))
    are_tasks = any(row.task is not None for row in rows)
    if not are_tasks:  # runs are known by their records
        columns.sort(key=lambda column: column.key != "record")
    named = 1 + (columns[0].key != "state")
    columns[named:named] = _parameters(rows)
    noun: Literal["tasks", "runs"] = "tasks" if are_tasks else "runs"
    return TaskColumns(noun=noun, count=len(rows), columns=tuple(columns))


def _columns(rows: Sequence[Row]) -> Iterator[Column]:
    for key, title, kind in _COLUMNS:
        cells = [getattr(row, key) for row in rows]
        if key == "state":
            yield _texts(key, title, kind, [state_words(str(c)) for c in cells])
        elif any(c is not None and c != _USUAL.get(key) for c in cells):
            if kind == "text":
                yield _texts(key, title, kind, [_short(c or "") for c in cells])
            else:
                yield _numbers(key, title, kind, cells)


def _parameters(rows: Sequence[Row]) -> Iterator[Column]:
    """Yield one column per parameter that any task has."""
    names = list(dict.fromkeys(name for row in rows for name in row.parameters))
    for name in names[:_MOST_PARAMETERS]:
        cells = [row.parameters.get(name) for row in rows]
        shown = _short(name)
        if all(c is None or _is_number(c) for c in cells):
            yield Column(key=shown, title=shown, kind="number", values=tuple(cells))
        else:
            texts = [_short("" if c is None else str(c)) for c in cells]
            yield _texts(shown, shown, "text", texts)


def _is_number(cell: Cell) -> bool:
    """Return whether JavaScript can hold *cell* as an exact number."""
    return isinstance(cell, int | float) and abs(cell) <= _EXACT


def _numbers(key: str, title: str, kind: Kind, cells: Sequence[Cell]) -> Column:
    rounded = (_rounded(c) if isinstance(c, float) else c for c in cells)
    return Column(key=key, title=title, kind=kind, values=tuple(rounded))


def _rounded(value: float) -> float:
    return round(value, _DIGITS if abs(value) < _LARGE else _DIGITS_OF_LARGE)


def _texts(key: str, title: str, kind: Kind, texts: Sequence[str]) -> Column:
    """Encode texts: few different ones by index, else without the shared prefix."""
    places = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    if len(places) <= _WORTH_A_DICTIONARY * len(texts):
        values = tuple(places[text] for text in texts)
        return Column(
            key=key, title=title, kind=kind, values=values, words=tuple(places)
        )
    pairs = zip(("", *texts), texts, strict=False)
    shared = tuple(len(commonprefix(pair)) for pair in pairs)  # noqa: RUF071 - letters
    rest = tuple(text[n:] for text, n in zip(texts, shared, strict=True))
    return Column(key=key, title=title, kind=kind, values=shared, rest=rest)


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
