"""Text of ``weigh compare``: one row per figure and side, the change in words."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Literal

import msgspec

from weigh.render.columns import TableColumn, table_lines, wrap_by_columns
from weigh.render.printable import (
    WIDTH,
    printable_text,
    range_text,
    short_command,
    shortened_text,
)
from weigh.render.request_lines import folded_note_lines
from weigh.units import (
    count_with_noun,
    format_brief,
    format_size,
    format_three_digits,
)

Unit = Literal["seconds", "bytes", "per cent"]
_TITLES = {
    "wall_time": "time",
    "cpu_time": "CPU time",
    "peak_memory": "memory",
    "gpu_memory": "GPU memory",
    "batch_gpu_memory": "GPU, batches",
    "gpu_utilization": "GPU busy",
    "time_per_batch": "per batch",
    "time_per_sample": "per sample",
}
# figures of time: less of them is quicker
_QUICKER = frozenset(("wall_time", "time_per_batch", "time_per_sample"))
_FORMATS: dict[Unit, Callable[[float], str]] = {
    "seconds": format_brief,
    "bytes": lambda value: format_size(round(value)),
    "per cent": lambda value: f"{value:.0f} %",
}
_SAME = 0.0005  # of the first, which rounds to 0.0 %
_EXACT = 0.1  # from here on whole per cents
_TIMES = 3.0  # from here on people think in times
_MANY_TIMES = 100.0  # and from here on in nothing else
_CHANGES = 56  # columns before a change


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

    schema: str = "weigh.comparison/1"
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


def comparison_text(comparison: RunComparison) -> str:
    """Write a comparison in at most 80 columns."""
    lines = list(_side_lines(comparison.sides))
    for text in map(_difference_text, comparison.differences):
        lines += [
            f"  {line}" for line in wrap_by_columns(printable_text(text), WIDTH - 2)
        ]
    lines.append(f"  {'':<17}{'median':>9}   spread")
    for row in comparison.rows:
        lines += _figure_lines(row)
    lines += folded_note_lines(comparison.notes, indent="  ")
    return "\n".join(lines)


def _difference_text(difference: ParameterDifference) -> str:
    # a parameter that was not recorded may stand in the command all the same
    values = ("not recorded" if v is None else v for v in difference.values)
    words = (f"{side_letter(turn)} {value}" for turn, value in enumerate(values))
    return f"{difference.name}: {', '.join(words)}"


def figure_change_text(figure_name: str, unit: Unit, change: FigureChange) -> str:
    """Write how a figure differs: ``31 % quicker``, ``256 % more (3.6 x)``.

    ``31 ± 2 %`` where a spread is known: the 95 % interval of the test.
    """
    if change.difference == 0:
        return "the same"
    if change.distinguishable is False:
        return "not distinguishable"
    # a difference of two shares is in points: 10 % more of 50 % could also be 55 %
    if unit == "per cent":
        points = round(change.difference)
        return f"{points:+d} points" if points else "the same"
    if change.ratio is None:
        return ""
    return _ratio_words(figure_name, change.ratio, change)


def _ratio_words(figure_name: str, ratio: float, change: FigureChange) -> str:
    if ratio >= _MANY_TIMES:
        return f"{format_three_digits(ratio)} x as much"
    off = ratio - 1
    if abs(off) < _SAME:
        return "the same"
    digits = 0 if abs(off) >= _EXACT else 1
    reach = ""
    if change.low is not None and change.high is not None and change.high > change.low:
        # the interval of a ratio is not symmetric: the wider side holds for both
        most = max(change.high - ratio, ratio - change.low)
        reach = f" \u00b1 {100 * most:.{digits}f}"
    less, more = ("quicker", "slower") if figure_name in _QUICKER else ("less", "more")
    text = f"{100 * abs(off):.{digits}f}{reach} % {less if off < 0 else more}"
    return f"{text} ({ratio:.1f} x)" if ratio >= _TIMES else text


_SIDE_COLUMNS = (
    TableColumn("", lambda side: side_letter(side[0]), right=False),
    TableColumn(
        "", lambda side: shortened_text(printable_text(side[1].name), 24), right=False
    ),
    TableColumn(
        "", lambda side: short_command(side[1].command), right=False, flexible=True
    ),
    TableColumn("", lambda side: count_with_noun(side[1].runs, "run")),
)


def _side_lines(sides: Sequence[ComparisonSide]) -> Iterator[str]:
    # without the row of titles, which are empty
    yield from islice(table_lines([*enumerate(sides)], _SIDE_COLUMNS), 1, None)


def _figure_lines(comparison_row: ComparisonRow) -> Iterator[str]:
    write = _FORMATS[comparison_row.unit]
    for turn, (figure, change) in enumerate(
        zip(comparison_row.figures, comparison_row.changes, strict=True)
    ):
        title = "" if turn else _TITLES.get(comparison_row.name, comparison_row.name)
        start = f"  {title:<14}{side_letter(turn):<3}"
        if figure is None:
            yield f"{start}{'not measured':>12}"
            continue
        words = ""
        if change is not None:
            words = figure_change_text(comparison_row.name, comparison_row.unit, change)
        line = (
            f"{start}{write(figure.median):>9}   "
            f"{_figure_range_text(figure, write):<25}"
        )
        if len(line) + len(words) + 1 > WIDTH:
            yield line.rstrip()
            line = " " * _CHANGES
        yield f"{line} {words}".rstrip()


def _figure_range_text(figure: ComparedFigure, write: Callable[[float], str]) -> str:
    """Write the range of several runs."""
    if figure.runs == 1:
        return ""
    spread = range_text(write(figure.least), write(figure.most))
    return f"{spread}, {figure.runs} runs"
