"""The tasks of a report as a flat table: bytes and seconds as plain numbers."""

import csv
import io

from weigh.model.report import Report
from weigh.report.printable import cell

COLUMNS = (
    "task",
    "element",
    "attempt",
    "attempts",
    "record",
    "label",
    "state",
    "exit_code",
    "signal",
    "reason",
    "error",
    "node",
    "started",
    "wall_time",
    "cpu_time",
    "cpus",
    "memory",
    "gpu_memory",
    "gpu_utilization",
    "gpus",
    "energy",
    "growing",
    "output",
    "command",
)


def render_csv(report: Report) -> str:
    """Write a header and a row a task; parameters come last, as ``param:NAME``.

    What was not measured is empty; control characters stand as backslash escapes.
    """
    names = {name: None for row in report.rows for name in row.parameters}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["job", *COLUMNS, *(f"param:{name}" for name in names)])
    for row in report.rows:
        values = [getattr(row, column) for column in COLUMNS]
        given = [row.parameters.get(name) for name in names]
        writer.writerow(
            [cell(value) for value in (row.job or report.job, *values, *given)]
        )
    return out.getvalue().removesuffix("\n")
