"""``weigh report``: options, and the choice of the output format."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from weigh.cli import options
from weigh.cli.options import TIME_TEXT
from weigh.errors import UsageError
from weigh.flow.report.report import build
from weigh.model.report import Report
from weigh.render.report_files import (
    render_csv,
    render_json,
    render_jsonl,
    render_markdown,
)
from weigh.render.report_lines import render_text
from weigh.render.report_paper import FORMS as PAPERS
from weigh.render.report_seff import render_seff
from weigh.store.find import LAST

HERE = ""


def draw(name: str, words: Mapping[str, Any], *, is_ascii: bool) -> int:
    """Write the requested page and picture, or draw in the terminal.

    Return 1 on a finding with ``--strict``, else 0.

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
    from weigh.render.report_plot import has_curves, plot_lines  # noqa: PLC0415

    if not has_curves(found):
        raise UsageError("nothing to draw: these runs have no series of samples")
    click.echo("\n".join(plot_lines(found, is_ascii=is_ascii)))


_RENDERERS: dict[str, Callable[[Report], str]] = {
    "json": render_json,
    "jsonl": render_jsonl,
    "csv": render_csv,
    "markdown": render_markdown,
    "seff": render_seff,
}


def print_report(name: str, words: Mapping[str, Any], *, is_ascii: bool) -> int:
    """Print a report in the requested form; return 1 on a finding with --strict."""
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
    from weigh.render.report_ticket import (  # noqa: PLC0415 - as above
        Ticket,
        render_ticket,
    )

    found = ticket(name, cwd=os.getcwd(), env=os.environ)
    click.echo(render_ticket(found))
    is_failure = isinstance(found, Ticket) and found.is_failure
    return int(words["strict"] and is_failure)


def print_paper(name: str, words: Mapping[str, Any]) -> int:
    """Print the compute statement."""
    from weigh.flow.report.paper import paper  # noqa: PLC0415 - one form of many
    from weigh.render.report_paper import render_paper  # noqa: PLC0415 - as above

    statement = paper(
        name,
        since=words["since"],
        grid_intensity=words["grid_intensity"],
        cwd=os.getcwd(),
        env=os.environ,
    )
    click.echo(render_paper(statement, words["paper"]))
    return 0


def print_since(words: Mapping[str, Any]) -> int:
    """Print unused resources; return 1 with --strict if a change would save any."""
    from weigh.flow.report.since import since  # noqa: PLC0415 - one form of many
    from weigh.render import report_waste  # noqa: PLC0415 - start-up time

    found = since(words["since"], cwd=os.getcwd(), env=os.environ)
    is_json = words["form"] == "json"
    render = report_waste.render_waste_json if is_json else report_waste.render_waste
    click.echo(render(found))
    failing = any(group.failing for group in found.groups)
    return int(words["strict"] and (bool(found.changes) or failing))


@click.command(context_settings=options.SETTINGS)
@click.argument("name", required=False, default=LAST, metavar="[ID|JOB|PLAN|last]")
@click.option("--json", "form", flag_value="json", help="One JSON document.")
@click.option("--jsonl", "form", flag_value="jsonl", help="One line of JSON per task.")
@click.option("--csv", "form", flag_value="csv", help="One row per task.")
@click.option(
    "--markdown", "form", flag_value="markdown", help="Markdown, for an issue."
)
@click.option("--seff", "form", flag_value="seff", help="The format of seff.")
@click.option(
    "--ticket", "form", flag_value="ticket", help="Text for a support ticket."
)
@click.option(
    "--paper",
    type=click.Choice(PAPERS),
    help="The compute statement for a publication.",
)
@click.option(
    "--grid-intensity",
    type=float,
    metavar="gCO2/kWh",
    help="With --paper: also state CO2.",
)
@click.option(
    "--since",
    type=TIME_TEXT,
    metavar="TIME",
    help="Unused resources of all runs of the last 30d, 12h, ..., the most first.",
)
@click.option(
    "--html",
    metavar="FILE",
    help="Write one self-contained page with curves and tasks; - for stdout.",
)
@click.option(
    "--plot",
    is_flag=False,
    flag_value=HERE,
    metavar="[FILE]",
    help="Draw curves: in the terminal, or as *.png, *.pdf or *.svg.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="Log of a job with the scheduler's GPU table; repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on a finding.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw bars in ASCII.")
def report(name: str, **words: Any) -> int:  # noqa: ANN401 - click's
    """Show requested vs. used resources, and what to change.

    ID is a record's id or label, JOB a job's id, PLAN a plan's name or folder; `last`
    for the newest. Where sacct or qacct differ from weigh, the report shows both
    figures and which one to trust.

    Exit codes: 0; with --strict 1 if something should be changed.

    \b
    weigh report
    weigh report 481516 --markdown
    weigh report ppo-sweep --paper latex --grid-intensity 230
    weigh report --since 30d
    weigh report last --strict && sbatch next.sh
    """  # noqa: D301 - click reads \b as: keep these lines
    _check(name, words)
    is_ascii = words["is_ascii"] or not _can_draw()
    if words["html"] is not None or words["plot"] is not None:
        return draw(name, words, is_ascii=is_ascii)
    if words["paper"]:
        return print_paper(name, words)
    if words["since"] is not None:
        return print_since(words)
    return print_report(name, words, is_ascii=is_ascii)


def _check(name: str, words: dict[str, Any]) -> None:
    """Refuse options that have no effect or contradict each other."""
    chosen = [f"--{one}" for one in ("paper", "html", "plot") if words[one] is not None]
    if chosen == ["--html", "--plot"]:
        chosen.pop()  # both are written
    if words["form"]:
        chosen.append(f"--{words['form']}")
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]}: choose one of them")
    if words["grid_intensity"] is not None and not words["paper"]:
        raise UsageError("--grid-intensity requires --paper")
    if words["since"] is None:
        return
    if name != LAST:
        raise UsageError(f"--since covers all runs: leave out {name}")
    if chosen and chosen[0] not in {"--json", "--paper"}:
        raise UsageError(
            f"--since cannot be combined with {chosen[0]} (only --json or --paper)"
        )


def _can_draw() -> bool:
    """Return whether the output's encoding has block characters."""
    try:
        "█▏".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
