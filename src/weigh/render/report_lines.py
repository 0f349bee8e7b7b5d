"""A report as text in 80 columns: requested, used, what to change."""

import re
from collections.abc import Iterator, Sequence

from weigh.model.report import (
    JobReport,
    ListedJob,
    OtherFigure,
    ReportMeasure,
    ReportNote,
)
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import WIDTH, printable_text, shortened_text, width_of
from weigh.render.request_lines import folded_lines
from weigh.render.words import (
    AS_USUAL,
    NAMES,
    STATE_WORDS,
    held_hours,
    measure_value_text,
    requested_words,
    share_of_request_text,
    state_counts_text,
    unit_value_text,
    used_words,
)
from weigh.units import count_with_noun, duration_or_dash

_RED, _GREEN, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_LOW_SHARE = 25  # per cent of a request: below it is worth a colour
_INDENT = " " * 12
_MOST_NOTES = 8  # notes on the screen; --json has all


def report_screen_text(report: JobReport) -> str:
    """Write a report as lines of at most 80 columns."""
    return "\n".join(_report_screen_lines(report))


def job_list_lines(jobs: Sequence[ListedJob], *, colour: bool) -> Iterator[str]:
    """Write the user's jobs, a line each; with *colour* what stands out is tinted."""
    titles, *rows = table_lines(jobs, _JOB_COLUMNS)
    yield titles
    for row, one in zip(rows, jobs, strict=True):
        yield _tinted_job_row(row, one) if colour else row


def _job_state_text(job: ListedJob) -> str:
    """Write the state of all, or how many are in the most common other than done."""
    total = sum(job.states.values())
    others = [(n, state) for state, n in job.states.items() if state != "COMPLETED"]
    if not others:
        return STATE_WORDS["COMPLETED"]
    number, state = max(others)
    word = STATE_WORDS[state]
    return f"{number} of {total} {word}" if number < total else word


def _share_or_dash(share: float | None) -> str:
    return "-" if share is None else share_of_request_text(share)


_JOB_COLUMNS = (
    TableColumn("job", lambda job: job.id, right=False),
    TableColumn(
        "name", lambda job: printable_text(job.name) or "-", right=False, flexible=True
    ),
    TableColumn("state", _job_state_text, right=False),
    TableColumn("elapsed", lambda job: duration_or_dash(job.elapsed)),
    TableColumn("time", lambda job: _share_or_dash(job.time_share)),
    TableColumn("memory", lambda job: _share_or_dash(job.memory_share)),
    TableColumn("CPUs", lambda job: _share_or_dash(job.cpu_share)),
)


def _tinted_job_row(row: str, job: ListedJob) -> str:
    """Colour the state, and shares of the request that are low."""
    word = _job_state_text(job)
    tint = _PLAIN if set(job.states) <= AS_USUAL else _RED
    if word == "completed":
        tint = _GREEN
    head, state, figures = row.rpartition(word)
    cells = re.split(r"(\S+ %)", figures)
    is_low = [cell.endswith("%") and int(cell[:-2]) < _LOW_SHARE for cell in cells]
    tinted = (
        f"{_YELLOW}{cell}{_PLAIN}" if low else cell
        for cell, low in zip(cells, is_low, strict=True)
    )
    return f"{head}{tint}{state}{_PLAIN}{''.join(tinted)}"


def report_note_lines(report_note: ReportNote) -> Iterator[str]:
    """Write one note and the flag to use."""
    about = shortened_text(printable_text(report_note.about), 9)
    about += " " * (10 - width_of(about))
    room = WIDTH - len(_INDENT)
    for number, line in enumerate(
        words_with_flag(report_note.words, report_note.flag, room)
    ):
        yield f"  {_INDENT[2:] if number else about}{line}"


def words_with_flag(note_text: str, flag: str | None, room: int) -> list[str]:
    """Fold *note_text* to a width, with the flag after them, unbroken if it fits."""
    lines = list(folded_lines(printable_text(note_text), room))
    text = printable_text(flag or "")
    if text and width_of(lines[-1]) + 3 + width_of(text) <= room:
        lines[-1] += f"   {text}"
    elif text:
        lines += (f"  {part}" for part in folded_lines(text, room - 2))
    return [shortened_text(line, room) for line in lines]


def _report_screen_lines(report: JobReport) -> Iterator[str]:
    yield from _report_title_lines(report)
    if report.measures:
        yield from _measure_lines(report)
    else:
        yield "    nothing was measured"
    for note in report.notes[:_MOST_NOTES]:
        yield from report_note_lines(note)
    more = len(report.notes) - _MOST_NOTES
    if more > 0:
        yield f"  {'':<10}and {more:,} more (--json has them all)"


def _report_title_lines(report: JobReport) -> Iterator[str]:
    rows = len(report.rows)
    total = count_with_noun(rows, report.unit)
    total += f", {state_counts_text(report)}" if report.states else ""
    # of a job with GPUs their hours, else those of the CPUs
    right = " ".join(next(held_hours(report), ()))
    title = printable_text(report.title)
    line = f"  {title}   {total}"
    # the title gets a line of its own where both do not fit
    if width_of(line) + 2 + len(right) > WIDTH:
        yield shortened_text(f"  {title}", WIDTH)
        line = f"  {shortened_text(total, WIDTH - 4 - len(right))}"
    yield f"{line}{right:>{WIDTH - width_of(line)}}".rstrip()


def _measure_lines(report: JobReport) -> Iterator[str]:
    measures = report.measures
    many = any(len(one.values) > 1 for one in measures)
    used = used_words(report) + (" (median, peak)" if many else "")
    judged = any(one.efficiency is not None for one in measures)
    # the column is left out where nothing was requested
    asked = 13 if any(one.requested is not None for one in measures) else 0
    medians = [measure_value_text(one, one.median) for one in measures]
    middle = max(11, *(len(text) + 2 for text in medians))
    figures = [
        f"{text:<{middle}}{measure_value_text(one, one.most) if many else ''}"
        for one, text in zip(measures, medians, strict=True)
    ]
    width = max(23, *(len(text.rstrip()) + 3 for text in (used, *figures)))
    head = f"{_INDENT}{'requested' if asked else '':<{asked}}{used:<{width}}"
    yield (head + ("used of request" if judged else "")).rstrip()
    for one, text in zip(measures, figures, strict=True):
        request = f"{requested_words(one) if asked else '':<{asked}}"
        line = f"  {NAMES[one.name]:<10}{request}{text:<{width}}"
        if one.efficiency is not None:
            line += share_of_request_text(one.efficiency)
        yield line.rstrip()
        for figure in one.others:
            yield from _other_source_lines(one, figure)


def _other_source_lines(measure: ReportMeasure, figure: OtherFigure) -> Iterator[str]:
    """Write another source's figure, and which of the two to trust."""
    text = f"{figure.source}: {unit_value_text(figure.value, measure.unit)}"
    if figure.word:
        text += f"; {figure.word}"
    for line in folded_lines(printable_text(text), WIDTH - len(_INDENT)):
        yield f"{_INDENT}{shortened_text(line, WIDTH - len(_INDENT))}"
