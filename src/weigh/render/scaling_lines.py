"""Text and JSON of ``weigh scan cpus=...`` and ``weigh scan memory=auto``."""

from collections.abc import Iterator

from weigh.estimate.scaling import CpuRow, CpuScan
from weigh.estimate.squeeze import SqueezeResult
from weigh.model.record import Request
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import indented_json
from weigh.render.request_lines import folded_lines, packed_lines, request_note_lines
from weigh.units import format_duration, format_size

WIDTH = 80
_INDENT = " " * 13


def scaling_lines(cpu_scan: CpuScan, *, scheduler: str | None = None) -> Iterator[str]:
    """Write the times, and the request for the CPUs that pay."""
    if cpu_scan.rows:
        yield from table_lines(_scaling_columns(cpu_scan.rows), WIDTH)
    if any(row.is_beyond for row in cpu_scan.rows):
        yield "  * more than the CPUs here: the time it would take at best"
    if cpu_scan.cpus is None or cpu_scan.request is None:
        return
    cpus = "1 CPU" if cpu_scan.cpus == 1 else f"{cpu_scan.cpus} CPUs"
    words = f"{cpus}: the most with {100 * cpu_scan.efficiency:.0f} % efficiency"
    # the largest number that was tried: more might pay as well
    if cpu_scan.cpus == max(row.cpus for row in cpu_scan.rows):
        words += f"; beyond {cpu_scan.cpus}: not measured"
    for turn, line in enumerate(folded_lines(words, WIDTH - len(_INDENT))):
        yield f"  {'' if turn else 'pays':<11}{line}"
    lines = packed_lines(cpu_scan.request, scheduler, WIDTH - len(_INDENT))
    for turn, line in enumerate(lines):
        yield f"  {'' if turn else 'request':<11}{line}"
    yield from request_note_lines(cpu_scan.request, indent=_INDENT)


def _scaling_columns(cpu_rows: tuple[CpuRow, ...]) -> list[TableColumn]:
    marks = ["*" if row.is_beyond else "" for row in cpu_rows]
    return [
        TableColumn("cpus", tuple(str(row.cpus) for row in cpu_rows)),
        TableColumn("time", tuple(format_duration(row.wall_time) for row in cpu_rows)),
        TableColumn(
            "without wait", tuple(format_duration(row.alone) for row in cpu_rows)
        ),
        TableColumn(
            "efficiency",
            tuple(
                f"{100 * row.efficiency:.0f} %{mark}"
                for row, mark in zip(cpu_rows, marks, strict=True)
            ),
        ),
    ]


def scaling_json(cpu_scan: CpuScan) -> str:
    """Write a scan as one document."""
    return indented_json(cpu_scan)


def squeeze_lines(
    program_kind: str,
    squeeze_result: SqueezeResult | None,
    request: Request | None,
    *,
    run_count: int,
) -> Iterator[str]:
    """Write the kind of a program, its least memory, and the request with its knob."""
    yield f"  kind       {program_kind}"
    if squeeze_result is not None:
        # compared with the better of the two, so that noise makes no knee look slow
        slower = squeeze_result.least.time / min(
            squeeze_result.knee.time, squeeze_result.plain.time
        )
        least, knee = (
            format_size(one.memory)
            for one in (squeeze_result.least, squeeze_result.knee)
        )
        yield f"  least      {least}, {slower:.1f} x the best time; knee {knee}"
    if request is not None:
        for turn, line in enumerate(packed_lines(request, None, WIDTH - len(_INDENT))):
            yield f"  {'' if turn else 'request':<11}{line}"
        if request.knob is not None:
            yield f"{_INDENT}with {request.knob}"
    if run_count:
        yield f"  from       1 plain run + {run_count}; time without the wait for CPUs"


def squeeze_json(scan: object) -> str:
    """Write a scan of memory as one document."""
    return indented_json(scan)
