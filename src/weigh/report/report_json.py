"""A report as one JSON document, or a line of JSON for each task."""

import msgspec

from weigh.model.report import Report


def render_json(report: Report) -> str:
    """Write all there is, the schema first."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_jsonl(report: Report) -> str:
    """Write a line for each task; every line says which job it is of."""
    of = {"schema": report.schema, "title": report.title}
    lines = (
        msgspec.json.encode(
            of | msgspec.to_builtins(row) | {"job": row.job or report.job}
        ).decode()
        for row in report.rows
    )
    return "\n".join(lines)
