"""The forms of ``weigh report`` that are text: each printed on stdout."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from weigh.flow.report.report import build
from weigh.model.report import Report
from weigh.report.openmetrics import render_openmetrics
from weigh.report.report_csv import render_csv
from weigh.report.report_json import render_json, render_jsonl
from weigh.report.report_lines import render_text
from weigh.report.report_markdown import render_markdown
from weigh.report.report_seff import render_seff

_RENDERERS: dict[str, Callable[[Report], str]] = {
    "json": render_json,
    "jsonl": render_jsonl,
    "csv": render_csv,
    "markdown": render_markdown,
    "openmetrics": render_openmetrics,
    "seff": render_seff,
}


def print_report(name: str, words: Mapping[str, Any], *, is_ascii: bool) -> int:
    """Print a report in the form asked for; 1 on a finding where that is asked for."""
    form = words["form"]
    if form == "ticket":
        return _print_ticket(name, words)
    found = build(name, logs=words["logs"], cwd=os.getcwd(), env=os.environ)
    if form:
        click.echo(_RENDERERS[form](found))
    else:
        click.echo(render_text(found, is_ascii=is_ascii))
    return int(words["strict"] and any(note.is_finding for note in found.notes))


def _print_ticket(name: str, words: Mapping[str, Any]) -> int:
    from weigh.flow.report.ticket import ticket  # noqa: PLC0415 - one form of many
    from weigh.report.report_ticket import render_ticket  # noqa: PLC0415 - as above

    told = ticket(name, cwd=os.getcwd(), env=os.environ)
    click.echo(render_ticket(told))
    return int(words["strict"] and told.is_failure)


def print_paper(name: str, words: Mapping[str, Any]) -> int:
    """Print the compute statement."""
    from weigh.flow.report.paper import paper  # noqa: PLC0415 - one form of many
    from weigh.report.report_paper import render_paper  # noqa: PLC0415 - as above

    told = paper(
        name,
        since=words["since"],
        grid_intensity=words["grid_intensity"],
        cwd=os.getcwd(),
        env=os.environ,
    )
    click.echo(render_paper(told, words["paper"]))
    return 0


def print_since(words: Mapping[str, Any]) -> int:
    """Print what was wasted; with --strict 1 where a change would save something."""
    from weigh.flow.report.since import since  # noqa: PLC0415 - one form of many
    from weigh.report import report_waste  # noqa: PLC0415 - as above

    found = since(words["since"], cwd=os.getcwd(), env=os.environ)
    is_json = words["form"] == "json"
    render = report_waste.render_waste_json if is_json else report_waste.render_waste
    click.echo(render(found))
    failing = any(group.failing for group in found.groups)
    return int(words["strict"] and (bool(found.changes) or failing))
