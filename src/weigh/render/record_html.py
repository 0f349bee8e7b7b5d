"""One record as HTML for a notebook: no script, no network, no style sheet.

It uses the notebook's own colours, so it is readable on dark and light themes.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from weigh.model.record import (
    Batches,
    Phase,
    Record,
)
from weigh.render.printable import command_line, printable
from weigh.render.words import usage_words
from weigh.units import (
    Bytes,
    Seconds,
    format_brief,
    format_duration,
    format_size,
    size_or_dash,
)

if TYPE_CHECKING:
    from weigh.model.gpu import GpuMemory

_WIDTH, _HEIGHT = 480, 60
_MOST_PHASES = 40
_CELL = "text-align:left;padding:0 1.2em 0 0;vertical-align:top"
_NUMBER = "text-align:right;padding:0 0 0 1.2em"
_PHASE_TITLES = ("phase", "calls", "time", "cpu", "before", "peak", "after")


def render_html(record: Record) -> str:
    """Write a record as a ``<div>``: what it used, its phases, memory over time."""
    rows = [_row(name, text) for name, text in _facts(record)]
    parts = [f"<b>{_text(_title(record))}</b>", _table(rows)]
    if record.phases:
        parts.append(_phases(record.phases))
    series = record.series
    if series is not None and 1 < len(series.memory) == len(series.t):
        parts.append(_curve(series.t, series.memory))
    return f'<div style="font-family:monospace">{"".join(parts)}</div>'


def _title(record: Record) -> str:
    words = [f"run {record.id}", record.state]
    if record.signal is not None:
        words.append(f"signal {record.signal}")
    elif record.exit_code:
        words.append(f"exit code {record.exit_code}")
    if record.usage is not None:
        words.append(format_duration(record.usage.wall_time))
    return ", ".join(words)


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line of the upper table."""
    if record.label is not None:
        yield "label", record.label
    yield "command", command_line(record.command)
    if record.parameters:
        pairs = (f"{name}={value}" for name, value in record.parameters.items())
        yield "parameters", ", ".join(pairs)
    if record.outcome is not None:
        yield "ended", "; ".join((record.outcome.reason, *record.outcome.evidence))
    if record.usage is not None:
        yield from usage_words(record.usage)
    if record.batches is not None:
        yield "batches", _batches(record.batches)


def _batches(batches: Batches) -> str:
    of = "" if batches.total is None else f" of {batches.total}"
    words = [f"{batches.count}{of}"]
    words += [] if batches.size is None else [f"of {batches.size} each"]
    times = (
        ("mean", batches.time_mean),
        ("quickest", batches.time_min),
        ("median", batches.time_median),
        ("slowest", batches.time_max),
        ("per sample", batches.time_per_sample),
    )
    words += [f"{name} {format_brief(t)}" for name, t in times if t is not None]
    return ", ".join(words)


def _phases(phases: Sequence[Phase]) -> str:
    """Write one row per phase, nested ones indented, with the peak of each GPU."""
    number_of_gpus = max(len(phase.gpus) for phase in phases)
    titles = (*_PHASE_TITLES, *(f"gpu {number}" for number in range(number_of_gpus)))
    head = "".join(_cell(title, "th", first=not n) for n, title in enumerate(titles))
    rows = [f"<tr>{head}</tr>"]
    for phase in phases[:_MOST_PHASES]:
        cells = _phase(phase, number_of_gpus)
        row = "".join(_cell(text, "td", first=not n) for n, text in enumerate(cells))
        rows.append(f"<tr>{row}</tr>")
    if len(phases) > _MOST_PHASES:
        rows.append(_row(f"and {len(phases) - _MOST_PHASES} more phases", ""))
    return _table(rows)


def _phase(phase: Phase, number_of_gpus: int) -> tuple[str, ...]:
    gpus: list[GpuMemory | None] = [*phase.gpus]
    gpus += [None] * (number_of_gpus - len(gpus))
    return (
        "\N{NO-BREAK SPACE}" * 2 * phase.depth + printable(phase.name),
        str(phase.calls),
        format_brief(phase.wall_time),
        "-" if phase.cpu_time is None else format_brief(phase.cpu_time),
        size_or_dash(phase.memory_before),
        size_or_dash(phase.peak_memory),
        size_or_dash(phase.memory_after),
        *(size_or_dash(None if gpu is None else gpu.peak) for gpu in gpus),
    )


def _curve(times: Sequence[Seconds], memory: Sequence[Bytes]) -> str:
    """Draw memory over time as an SVG line, from 0 up to the highest."""
    end, top = times[-1] or 1.0, max(memory) or 1
    points = " ".join(
        f"{t / end * _WIDTH:.1f},{_HEIGHT - held / top * _HEIGHT:.1f}"
        for t, held in zip(times, memory, strict=True)
    )
    line = f'<polyline points="{points}" fill="none" stroke="currentColor"/>'
    words = f"memory, 0 to {format_duration(end)}, up to {format_size(top)}"
    return (
        f'<svg viewBox="0 -1 {_WIDTH} {_HEIGHT + 2}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{_text(words)}">{line}</svg>'
        f"<div>{_text(words)}</div>"
    )


def _table(rows: Sequence[str]) -> str:
    return f'<table style="border:0">{"".join(rows)}</table>'


def _row(name: str, text: str) -> str:
    return f"<tr>{_cell(name, 'th', first=True)}{_cell(text, 'td', first=True)}</tr>"


def _cell(text: str, tag: str, *, first: bool) -> str:
    return f'<{tag} style="{_CELL if first else _NUMBER}">{_text(text)}</{tag}>'


def _text(text: str) -> str:
    """Escape text of a job or a user; a notebook trusts the HTML it gets."""
    return escape(
        "".join(c if c == "\N{NO-BREAK SPACE}" else printable(c) for c in text)
    )
