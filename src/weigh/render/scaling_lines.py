"""Text and JSON of ``weigh scan cpus=...`` and ``weigh scan memory=auto``."""

from collections.abc import Iterator

from weigh.estimate.scaling import CpuRow, CpuScan
from weigh.estimate.squeeze import Squeeze
from weigh.model.record import Request
from weigh.render.columns import Column, table
from weigh.render.printable import indented_json
from weigh.render.request_lines import folded, note_lines, packed_lines
from weigh.units import format_duration, format_size

WIDTH = 80
_INDENT = " " * 13


def scaling_lines(scan: CpuScan, *, scheduler: str | None = None) -> Iterator[str]:
    """Write the times, and the request for the CPUs that pay."""
    if scan.rows:
        yield from table(_columns(scan.rows), WIDTH)
    if any(row.is_beyond for row in scan.rows):
        yield "  * more than the CPUs here: the time it would take at best"
    if scan.cpus is None or scan.request is None:
        return
    cpus = "1 CPU" if scan.cpus == 1 else f"{scan.cpus} CPUs"
    words = f"{cpus}: the most with {100 * scan.efficiency:.0f} % efficiency"
    if scan.cpus == max(row.cpus for row in scan.rows):
        words += f"; beyond {scan.cpus}: not measured"
    for turn, line in enumerate(folded(words, WIDTH - len(_INDENT))):
        yield f"  {'' if turn else 'pays':<11}{line}"
    lines = packed_lines(scan.request, scheduler, WIDTH - len(_INDENT))
    for turn, line in enumerate(lines):
        yield f"  {'' if turn else 'request':<11}{line}"
    yield from note_lines(scan.request, indent=_INDENT)


def _columns(rows: tuple[CpuRow, ...]) -> list[Column]:
    marks = ["*" if row.is_beyond else "" for row in rows]
    return [
        Column("cpus", tuple(str(row.cpus) for row in rows)),
        Column("time", tuple(format_duration(row.wall_time) for row in rows)),
        Column("without wait", tuple(format_duration(row.alone) for row in rows)),
        Column(
            "efficiency",
            tuple(
                f"{100 * row.efficiency:.0f} %{mark}"
                for row, mark in zip(rows, marks, strict=True)
            ),
        ),
    ]


def scaling_json(scan: CpuScan) -> str:
    """Write a scan as one document."""
    return indented_json(scan)


def squeeze_lines(
    kind: str, found: Squeeze | None, request: Request | None, *, runs: int
) -> Iterator[str]:
    """Write the kind of a program, its least memory, and the request with its knob."""
    yield f"  kind       {kind}"
    if found is not None:
        slower = found.least.time / min(found.knee.time, found.plain.time)
        least, knee = (format_size(one.memory) for one in (found.least, found.knee))
        yield f"  least      {least}, {slower:.1f} x the best time; knee {knee}"
    if request is not None:
        for turn, line in enumerate(packed_lines(request, None, WIDTH - len(_INDENT))):
            yield f"  {'' if turn else 'request':<11}{line}"
        if request.knob is not None:
            yield f"{_INDENT}with {request.knob}"
    if runs:
        yield f"  from       1 plain run + {runs}; time without the wait for CPUs"


def squeeze_json(scan: object) -> str:
    """Write a scan of memory as one document."""
    return indented_json(scan)
