"""``weigh report``: options, and the choice of the output format."""

import os
import sys
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import click

from weigh.cli import options
from weigh.cli.options import TIME_TEXT
from weigh.errors import StoreError, UsageError
from weigh.flow.here import here_now
from weigh.lazy_modules import lazy_module
from weigh.model.report import JobReport
from weigh.render.printable import indented_json
from weigh.store.find import LAST
from weigh.store.location import replace_whole_file

if TYPE_CHECKING:
    from weigh.flow.report import forms
    from weigh.flow.report import report as report_report
    from weigh.render import report_lines
else:  # each is imported when it is first used
    forms = lazy_module("weigh.flow.report.forms")
    report_report = lazy_module("weigh.flow.report.report")
    report_lines = lazy_module("weigh.render.report_lines")

_STDOUT = "-"
# what is not here would be ignored
_GO_TOGETHER = {
    ("--since", "--json"),
    ("--since", "--paper"),
    ("--json", "--log"),
    ("--json", "--strict"),
    ("--html", "--log"),
    ("--html", "--strict"),
    ("--ticket", "--strict"),
    ("--log", "--strict"),
}


def print_report(name: str, words: Mapping[str, Any]) -> int:
    """Print a report as text or JSON, or write its page.

    Return 1 on a finding with ``--strict``, else 0.
    """
    if words["html"] is not None:
        report = _write_page(name, words)
    else:
        report = report_report.build_job_report(here_now(), name, logs=words["logs"])
        if words["is_json"]:
            click.echo(report_lines.report_json(report))
        else:
            click.echo(report_lines.report_screen_text(report))
    # a note can be a remark without anything to change, which --strict accepts
    return int(words["strict"] and any(note.is_finding for note in report.notes))


def _write_page(name: str, words: Mapping[str, Any]) -> JobReport:
    path = words["html"]
    page = report_report.page_of(here_now(), name, logs=words["logs"])
    _write_html(page.html, path)
    # on stdout the page itself is the output
    if path != _STDOUT:
        click.echo(f"weigh: wrote {path}", err=True)
    return page.report


def _write_html(html: str, path: str) -> None:
    """Write a page to *path*; ``-`` is standard output.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        if path == _STDOUT:
            sys.stdout.write(html)
            return
        # as private as the records that it shows
        replace_whole_file(path, html.encode())
    except OSError as error:
        folder = os.path.dirname(path)
        hint = f" (create it first: mkdir -p {folder})" if folder else ""
        missing = hint if isinstance(error, FileNotFoundError) else ""
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}{missing}"
        ) from error


@click.command(context_settings=options.SETTINGS)
@click.argument(
    "name", required=False, default=LAST, metavar="[ID|JOB|PLAN|TASKS|last]"
)
@click.option("--json", "is_json", is_flag=True, help="One JSON document.")
@click.option(
    "--html",
    metavar="FILE",
    help="Write one self-contained page with curves and tasks; - for stdout.",
)
@click.option("--ticket", is_flag=True, help="Text for a support ticket.")
@click.option(
    "--paper", is_flag=True, help="The compute statement of a publication, in Markdown."
)
@click.option(
    "--since",
    type=TIME_TEXT,
    metavar="TIME",
    help="Unused resources of all runs of the last 30d, 12h, ..., the most first.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="Log of a job with the scheduler's GPU table; repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on a finding.")
def report(name: str, **words: Any) -> int:  # noqa: ANN401 - click's
    """Show requested vs. used resources, and what to change.

    ID is a record's id or label, JOB a job's id, PLAN a plan's name or folder, TASKS a
    task file that `weigh exec` ran; `last` is the newest job, exec run, scan or run.
    Where sacct or qacct differ from weigh, the report shows both figures and which one
    to trust.

    Exit codes: 0; with --strict 1 if something should be changed.

    \b
    weigh report
    weigh report 481516 --html job.html
    weigh report ppo-sweep --paper
    weigh report --since 30d
    weigh report last --strict && sbatch next.sh
    """  # noqa: D301 - click reads \b as: keep these lines
    _refuse_report_contradictions(name, words)
    here, since = here_now(), words["since"]
    if words["paper"]:
        click.echo(forms.compute_statement(here, name, since=since))
    elif since is not None:
        found = forms.unused_since(here, since)
        as_json = words["is_json"]
        click.echo(indented_json(found) if as_json else forms.unused_text(found))
    elif words["ticket"]:
        ticket = forms.support_ticket(here, name)
        click.echo(ticket.text)
        return int(words["strict"] and ticket.is_failure)
    else:
        return print_report(name, words)
    return 0


def _refuse_report_contradictions(name: str, words: Mapping[str, Any]) -> None:
    given = {
        "--since": words["since"] is not None,
        "--json": words["is_json"],
        "--html": words["html"] is not None,
        "--ticket": words["ticket"],
        "--paper": words["paper"],
        "--log": bool(words["logs"]),
        "--strict": words["strict"],
    }
    used = [option for option, is_given in given.items() if is_given]
    for first, second in combinations(used, 2):
        if (first, second) not in _GO_TOGETHER:
            raise UsageError(f"{first} and {second}: leave out one of them")
    if words["since"] is not None and name != LAST:
        raise UsageError(f"--since covers all runs: leave out {name}")
