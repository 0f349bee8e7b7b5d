"""A report as text in 80 columns: requested, used, what to change."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from weigh.model.report import Figure, Measure, Note, Report
from weigh.render.columns import columns_of, shortened
from weigh.render.printable import count, indented_json, printable
from weigh.render.request_lines import folded
from weigh.render.words import (
    NAMES,
    amount,
    held_words,
    percent,
    requested_words,
    state_words,
)
from weigh.units import counted

LEAST = 8  # elements needed for a histogram
_BINS = 6
_HALF = 39
_BAR = 14


def bins(
    values: Sequence[float], written: Callable[[float], object] = float
) -> list[tuple[float, int]]:
    """Count values in a few equal spans: the upper end of each, and how many.

    Every value is in exactly one span; the last span ends at the largest. Ends that
    are *written* the same are one.
    """
    low, high = min(values), max(values)
    width = (high - low) / _BINS
    ends = [low + width * number for number in range(1, _BINS)]
    ends = [end for end in dict.fromkeys(ends) if low < end < high] + [high]
    ends = list({written(end): end for end in ends}.values())
    counts = [0] * len(ends)
    for value in values:
        counts[next(n for n, end in enumerate(ends) if value <= end)] += 1
    return list(zip(ends, counts, strict=True))


def histograms(
    measures: Sequence[Measure], *, noun: str, is_ascii: bool
) -> Iterator[str]:
    """Draw memory and time of many elements or runs, 80 columns wide."""
    shown = [
        one
        for one in measures
        if one.name in {"memory", "time"} and len(one.values) >= LEAST
    ]
    columns = [list(_column(one, noun, is_ascii=is_ascii)) for one in shown]
    for cells in zip_longest(*columns, fillvalue=""):
        yield "".join(f"{cell:<{_HALF}}" for cell in cells).rstrip()


def _column(measure: Measure, noun: str, *, is_ascii: bool) -> Iterator[str]:
    found = bins(measure.values, lambda end: amount(measure, end))
    most = max(number for _, number in found)
    yield f"  {noun} by {measure.name}"
    mark = "|" if is_ascii else "▪"
    for end, number in found:
        drawn = mark * (-(-number * _BAR // most))
        label = f"to {amount(measure, end)}"
        yield f"    {label:<14}{drawn:<{_BAR}} {count(number)}"


WIDTH = 80
BAR = 20
_INDENT = " " * 12
_MOST_NOTES = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def render_text(report: Report, *, is_ascii: bool = False) -> str:
    """Write a report as lines of at most 80 columns."""
    return "\n".join(_lines(report, is_ascii=is_ascii))


def render_json(report: Report) -> str:
    """Write the whole report as one JSON document, the schema first."""
    return indented_json(report)


def bar(share: float, *, is_ascii: bool, width: int = BAR) -> str:
    """Draw a share as a bar; 1 and above fill it."""
    filled = min(max(share, 0.0), 1.0) * width
    if is_ascii:
        return ("|" * round(filled)).ljust(width)
    eighths = round(filled * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(width)


def note_lines(note: Note) -> Iterator[str]:
    """Write one note and the flag to use."""
    about = shortened(printable(note.about), 9)
    about += " " * (10 - columns_of(about))
    room = WIDTH - len(_INDENT)
    for number, line in enumerate(flagged(note.words, note.flag, room)):
        yield f"  {_INDENT[2:] if number else about}{line}"


def flagged(words: str, flag: str | None, room: int) -> list[str]:
    """Fold *words* to a width, with the flag after them, unbroken if it fits."""
    lines = list(folded(printable(words), room))
    text = printable(flag or "")
    if text and columns_of(lines[-1]) + 3 + columns_of(text) <= room:
        lines[-1] += f"   {text}"
    elif text:
        lines += (f"  {part}" for part in folded(text, room - 2))
    return [shortened(line, room) for line in lines]


def _lines(report: Report, *, is_ascii: bool) -> Iterator[str]:
    yield from _title(report)
    many = any(len(one.values) > 1 for one in report.measures)
    if report.measures:
        yield from _measures(report.measures, many=many, is_ascii=is_ascii)
    else:
        yield "    nothing was measured"
    noun = "elements" if report.job else "runs"
    yield from histograms(report.measures, noun=noun, is_ascii=is_ascii)
    for note in report.notes[:_MOST_NOTES]:
        yield from note_lines(note)
    more = len(report.notes) - _MOST_NOTES
    if more > 0:
        yield f"  {'':<10}and {count(more)} more (--json has them all)"


def _title(report: Report) -> Iterator[str]:
    rows = len(report.rows)
    total = counted(rows, report.unit)
    total += f", {state_words(report)}" if report.states else ""
    right = held_words(report)
    title = printable(report.title)
    line = f"  {title}   {total}"
    if columns_of(line) + 2 + len(right) > WIDTH:
        yield shortened(f"  {title}", WIDTH)
        line = f"  {shortened(total, WIDTH - 4 - len(right))}"
    yield f"{line}{right:>{WIDTH - columns_of(line)}}".rstrip()


def _measures(
    measures: Sequence[Measure], *, many: bool, is_ascii: bool
) -> Iterator[str]:
    used = "used (median, peak)" if many else "used"
    judged = any(one.efficiency is not None for one in measures)
    asked = any(one.requested is not None for one in measures)
    head = f"{_INDENT}{'requested' if asked else '':<{13 if asked else 0}}{used:<23}"
    yield (head + ("used of request" if judged else "")).rstrip()
    for one in measures:
        figures = f"{amount(one, one.median):<11}"
        if many:
            figures += amount(one, one.most)
        request = f"{requested_words(one):<13}" if asked else ""
        line = f"  {NAMES[one.name]:<10}{request}{figures:<23}"
        if one.efficiency is not None:
            drawn = bar(one.efficiency, is_ascii=is_ascii)
            line += f"[{drawn}] {percent(one.efficiency)}"
        yield line.rstrip()
        for figure in one.others:
            yield from _other(one, figure)


def _other(measure: Measure, figure: Figure) -> Iterator[str]:
    """Write another source's figure, and which of the two to trust."""
    text = f"{figure.source}: {amount(measure, figure.value)}"
    if figure.word:
        text += f"; {figure.word}"
    for line in folded(printable(text), WIDTH - len(_INDENT)):
        yield f"{_INDENT}{shortened(line, WIDTH - len(_INDENT))}"
