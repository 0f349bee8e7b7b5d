"""``weigh report --html`` and ``--plot``: pages and pictures, written or drawn here."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from weigh.errors import UsageError
from weigh.model.report import Report

HERE = ""


def draw(name: str, words: Mapping[str, Any], *, is_ascii: bool) -> int:
    """Write the page and the picture asked for, or draw in the terminal.

    Returns 1 on a finding where that is asked for, else 0.

    Raises:
        WeighError: what ``flow.report_page`` and ``flow.report`` raise.
    """
    html, plot, logs = words["html"], words["plot"], words["logs"]
    found = _build(name, logs) if html is None else _page(name, html, logs)
    if plot == HERE:
        _here(found, is_ascii=is_ascii)
    elif plot is not None:
        from weigh.flow.report.page import write_picture  # noqa: PLC0415 - one form

        write_picture(found, plot)
        click.echo(f"weigh: wrote {plot}", err=True)
    return int(words["strict"] and any(note.is_finding for note in found.notes))


def _build(name: str, logs: Sequence[str]) -> Report:
    from weigh.flow.report.report import build  # noqa: PLC0415 - one form of many

    return build(name, logs=logs, cwd=os.getcwd(), env=os.environ)


def _page(name: str, path: str, logs: Sequence[str]) -> Report:
    from weigh.flow.report.page import STDOUT, page_of, write_page  # noqa: PLC0415

    page = page_of(name, logs=logs, cwd=os.getcwd(), env=os.environ)
    write_page(page.html, path)
    if path != STDOUT:
        click.echo(f"weigh: wrote {path}", err=True)
    return page.report


def _here(found: Report, *, is_ascii: bool) -> None:
    from weigh.report.report_plot import has_curves, plot_lines  # noqa: PLC0415

    if not has_curves(found):
        raise UsageError("nothing to draw: no run of this has a series")
    click.echo("\n".join(plot_lines(found, is_ascii=is_ascii)))
