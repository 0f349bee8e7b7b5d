"""Text and JSON of ``weigh scan cpus=...``."""

from collections.abc import Iterator

from weigh.estimate.scaling import CpuRow, CpuScan
from weigh.render.columns import Column, table
from weigh.render.printable import indented_json
from weigh.render.request_lines import folded, note_lines, packed_lines
from weigh.units import format_duration

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
