"""Text of ``weigh compare``: one row per figure and side, the change in words."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from weigh.estimate.compare import letter
from weigh.model.comparison import (
    Change,
    Comparison,
    Difference,
    Figure,
    Row,
    Side,
    Unit,
)
from weigh.render.printable import (
    padded,
    printable,
    short_command,
    shortened,
    width_of,
)
from weigh.render.request_lines import folded
from weigh.units import format_brief, format_size

WIDTH = 80
_NAMES = {
    "wall_time": "time",
    "cpu_time": "CPU time",
    "cpu_wait": "CPU wait",
    "alone_time": "without wait",
    "peak_memory": "memory",
    "max_process_memory": "largest proc.",
    "gpu_memory": "GPU memory",
    "batch_gpu_memory": "GPU, batches",
    "gpu_utilization": "GPU busy",
    "time_per_batch": "per batch",
    "time_per_sample": "per sample",
}
_WORDS = {
    "wall_time": ("quicker", "slower"),
    "alone_time": ("quicker", "slower"),
    "time_per_batch": ("quicker", "slower"),
    "time_per_sample": ("quicker", "slower"),
}
_NONE = "not recorded"  # a parameter may stand in the command all the same
_LESS_OR_MORE = ("less", "more")
_SAME = 0.0005  # of the first, which rounds to 0.0 %
_EXACT = 0.1  # from here on whole per cents
_TIMES = 3.0  # from here on people think in times
_CHANGES = 56  # columns before a change
_MANY_TIMES = 100.0  # and from here on in nothing else


def comparison_text(comparison: Comparison) -> str:
    """Write a comparison in at most 80 columns."""
    lines = [*_sides(comparison.sides), *_differences(comparison.differences)]
    lines.append(f"  {'':<17}{'median':>9}   spread")
    for row in comparison.rows:
        lines += _row(row)
    for note in comparison.notes:
        lines += [f"  {line}" for line in folded(printable(note), WIDTH - 2)]
    return "\n".join(lines)


def comparison_json(comparison: Comparison) -> str:
    """Write a comparison as one document."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode()


def change_words(name: str, unit: Unit, change: Change) -> str:
    """Write how a figure differs: ``31 % quicker``, ``256 % more (3.6 x)``.

    ``31 ± 2 %`` where a spread is known: the 95 % interval of the test.
    """
    if change.difference == 0:
        return "the same"
    if change.distinguishable is False:
        return "not distinguishable"
    if unit == "per cent":
        points = round(change.difference)
        return f"{points:+d} points" if points else "the same"
    return _ratio_words(_WORDS.get(name, _LESS_OR_MORE), change)


def _ratio_words(words: tuple[str, str], change: Change) -> str:
    if change.ratio is None:
        return ""
    if change.ratio >= _MANY_TIMES:
        return f"{change.ratio:.3g} x as much"
    off = change.ratio - 1
    if abs(off) < _SAME:
        return "the same"
    digits = 0 if abs(off) >= _EXACT else 1
    percent = f"{100 * abs(off):.{digits}f}{_reach(change, digits)} %"
    text = f"{percent} {words[0] if off < 0 else words[1]}"
    return f"{text} ({change.ratio:.1f} x)" if change.ratio >= _TIMES else text


def _sides(sides: Sequence[Side]) -> Iterator[str]:
    width = min(24, max(len(printable(side.name)) for side in sides))
    for turn, side in enumerate(sides):
        name = shortened(printable(side.name), width)
        runs = _runs(side.runs)
        room = WIDTH - 2 - 3 - width - 2 - 2 - len(runs)
        command = shortened(short_command(side.command), room)
        row = f"{padded(name, width)}  {padded(command, room)}  {runs}"
        yield f"  {letter(turn):<3}{row}"


def _differences(found: Sequence[Difference]) -> Iterator[str]:
    """Write the differences on one line each, or one line per side if too long."""
    for one in found:
        values = [
            f"{letter(turn):<3}{_NONE if value is None else printable(str(value))}"
            for turn, value in enumerate(one.values)
        ]
        start = f"  {padded(shortened(printable(one.name), 13), 14)}"
        line = start + "   ".join(values)
        if width_of(line) <= WIDTH:
            yield line
            continue
        for value in values:
            yield start + shortened(value, WIDTH - len(start))
            start = " " * len(start)


def _row(row: Row) -> Iterator[str]:
    name = _NAMES.get(row.name, row.name)
    write = _FORMATS[row.unit]
    for turn, (figure, change) in enumerate(zip(row.figures, row.changes, strict=True)):
        start = f"  {'' if turn else name:<14}{letter(turn):<3}"
        if figure is None:
            yield f"{start}{'not measured':>12}"
            continue
        spread = _spread(figure, write)
        words = "" if change is None else change_words(row.name, row.unit, change)
        line = f"{start}{write(figure.median):>9}   {spread:<25}"
        if len(line) + len(words) + 1 > WIDTH:
            yield line.rstrip()
            line = " " * _CHANGES
        yield f"{line} {words}".rstrip()


def _spread(figure: Figure, write: Callable[[float], str]) -> str:
    """Write the range of several runs, or the bounds of a single one."""
    first, last = write(figure.least), write(figure.most)
    runs = f", {_runs(figure.runs)}" if figure.runs > 1 else ""
    if first == last:
        return f"all the same{runs}" if runs else ""
    number, _, unit = first.partition(" ")
    if unit and unit == last.partition(" ")[2]:
        first = number
    return f"{first} to {last}{runs}"


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _reach(change: Change, digits: int) -> str:
    """Write the half-width of the interval of the change."""
    if change.low is None or change.high is None or change.ratio is None:
        return ""
    reach = max(change.high - change.ratio, change.ratio - change.low)
    return f" \u00b1 {100 * reach:.{digits}f}" if reach > 0 else ""


def _per_cent(value: float) -> str:
    return f"{value:.0f} %"


def _bytes(value: float) -> str:
    return format_size(round(value))


_FORMATS: dict[Unit, Callable[[float], str]] = {
    "seconds": format_brief,
    "bytes": _bytes,
    "per cent": _per_cent,
}
