"""A report as text in 80 columns: what was asked for, what was used, what to change."""

from collections.abc import Iterator, Sequence

from weigh.model.report import Figure, Measure, Note, Report
from weigh.report.columns import columns_of, shortened
from weigh.report.printable import count, printable
from weigh.report.report_bins import histograms
from weigh.report.report_words import (
    NAMES,
    amount,
    asked_words,
    held_words,
    percent,
    state_words,
)
from weigh.report.request_lines import folded

WIDTH = 80
BAR = 20
_INDENT = " " * 12
_MOST_NOTES = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def render_text(report: Report, *, is_ascii: bool = False) -> str:
    """Write a report as lines of at most 80 columns."""
    return "\n".join(_lines(report, is_ascii=is_ascii))


def bar(share: float, *, is_ascii: bool, width: int = BAR) -> str:
    """Draw a share of 1; what is above it fills the bar."""
    filled = min(max(share, 0.0), 1.0) * width
    if is_ascii:
        return ("|" * round(filled)).ljust(width)
    eighths = round(filled * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(width)


def note_lines(note: Note) -> Iterator[str]:
    """Write one note, and the flag that changes it."""
    about = shortened(printable(note.about), 9)
    room = WIDTH - len(_INDENT)
    for number, line in enumerate(flagged(note.words, note.flag, room)):
        yield f"  {'' if number else about:<10}{line}"


def flagged(words: str, flag: str | None, room: int) -> list[str]:
    """Fold *words* to a width, the flag behind them, whole where it fits a line."""
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
    what = "task" if report.job else "run"
    counted = f"{count(rows)} {what}{'' if rows == 1 else 's'}"
    counted += f", {state_words(report)}" if report.states else ""
    right = held_words(report)
    title = printable(report.title)
    line = f"  {title}   {counted}"
    if columns_of(line) + 2 + len(right) > WIDTH:
        yield shortened(f"  {title}", WIDTH)
        line = f"  {shortened(counted, WIDTH - 4 - len(right))}"
    yield f"{line}{right:>{WIDTH - columns_of(line)}}".rstrip()


def _measures(
    measures: Sequence[Measure], *, many: bool, is_ascii: bool
) -> Iterator[str]:
    used = "used (median, most)" if many else "used"
    judged = any(one.efficiency is not None for one in measures)
    head = f"{_INDENT}{'asked':<13}{used:<23}"
    yield (head + ("of what was asked" if judged else "")).rstrip()
    for one in measures:
        figures = f"{amount(one, one.median):<11}"
        if many:
            figures += amount(one, one.most)
        line = f"  {NAMES[one.name]:<10}{asked_words(one):<13}{figures:<23}"
        if one.efficiency is not None:
            drawn = bar(one.efficiency, is_ascii=is_ascii)
            line += f"[{drawn}] {percent(one.efficiency)}"
        yield line.rstrip()
        for figure in one.others:
            yield from _other(one, figure)


def _other(measure: Measure, figure: Figure) -> Iterator[str]:
    """Write what somebody else measured, and which of the two to believe."""
    text = f"{figure.source}: {amount(measure, figure.value)}"
    if figure.word:
        text += f"; {figure.word}"
    for line in folded(printable(text), WIDTH - len(_INDENT)):
        yield f"{_INDENT}{shortened(line, WIDTH - len(_INDENT))}"
