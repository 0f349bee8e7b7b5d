"""A report as Markdown: a table that an issue, a README or a chat shows as one."""

from collections.abc import Iterator

from weigh.model.report import Measure, Report
from weigh.report.printable import printable
from weigh.report.report_words import (
    NAMES,
    amount,
    asked_words,
    held_words,
    percent,
    state_words,
)

_SPECIAL = frozenset("\\`*_{}[]<>()#+!|~&$")


def render_markdown(report: Report) -> str:
    """Write a heading, the table and the notes."""
    return "\n".join(_lines(report))


def escaped(text: str) -> str:
    """Write *text* so that Markdown shows it as it is."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in printable(text))


def _lines(report: Report) -> Iterator[str]:
    yield f"### {escaped(report.title)}"
    yield ""
    number = len(report.rows)
    what = ("task" if report.job else "run") + ("" if number == 1 else "s")
    held = held_words(report)
    yield f"{number:,} {what}, {state_words(report)}{'; ' + held if held else ''}"
    yield ""
    yield "| | asked | used (median) | used (most) | of what was asked |"
    yield "|---|---:|---:|---:|---:|"
    for one in report.measures:
        yield _row(one)
    others = [(one, figure) for one in report.measures for figure in one.others]
    if others or report.notes:
        yield ""
    for one, figure in others:
        word = f"; {figure.word}" if figure.word else ""
        text = f"{figure.source}: {amount(one, figure.value)}{word}"
        yield f"- {NAMES[one.name]}, {escaped(text)}"
    for note in report.notes:
        flag = f" `{printable(note.flag).replace('`', '')}`" if note.flag else ""
        yield f"- **{escaped(note.about)}** {escaped(note.words)}{flag}"


def _row(measure: Measure) -> str:
    share = "" if measure.efficiency is None else percent(measure.efficiency)
    cells = (
        NAMES[measure.name],
        asked_words(measure),
        amount(measure, measure.median),
        amount(measure, measure.most),
        share,
    )
    return f"| {' | '.join(cells)} |"
