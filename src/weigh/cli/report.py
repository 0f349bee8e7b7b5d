"""``weigh report``: options, and the choice of the output format."""

import sys
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import click

from weigh._version import __version__
from weigh.cli import options
from weigh.cli.options import TIME_TEXT
from weigh.cli.output import shall_use_colour
from weigh.errors import UsageError, writing
from weigh.flow.here import here_now
from weigh.lazy_modules import lazy_module
from weigh.model.report import ListedJobs
from weigh.render.printable import indented_json, unguarded_stream
from weigh.store.find import LAST
from weigh.store.location import replace_whole_file

if TYPE_CHECKING:
    from weigh import task_metric
    from weigh.flow.report import forms
    from weigh.flow.report import metric as metric_report
    from weigh.flow.report import report as report_report
    from weigh.render import metric_lines, report_lines
    from weigh.render.html import page as html_page
else:  # each is imported when it is first used
    task_metric = lazy_module("weigh.task_metric")
    metric_report = lazy_module("weigh.flow.report.metric")
    metric_lines = lazy_module("weigh.render.metric_lines")
    forms = lazy_module("weigh.flow.report.forms")
    report_report = lazy_module("weigh.flow.report.report")
    report_lines = lazy_module("weigh.render.report_lines")
    html_page = lazy_module("weigh.render.html.page")

_STDOUT = "-"
_TICKET, _PAPER = "ticket", "paper"
_SINCE = "7d"  # jobs that are listed without --since
# what is not here would be ignored
_GO_TOGETHER = {
    ("--since", "--json"),
    ("--json", "--metric"),
    ("--output", "--metric"),
}


def print_report(name: str, words: Mapping[str, Any]) -> None:
    """Print a report as text or JSON, or write its page."""
    path = words["html"]
    if path not in (None, _STDOUT) and not path.endswith((".html", ".htm")):
        raise UsageError(f"--output {path}: a page is a file that ends in .html")
    here, metric = here_now(), words["metric"]
    if metric is None:
        report = report_report.build_job_report(here, name)
    else:
        wanted = task_metric.task_metric(metric)
        report = metric_report.build_metric_report(here, name, wanted)
    if path is not None:
        _write_html(html_page.render_page(report, version=__version__), path)
        # on stdout the page itself is the output
        if path != _STDOUT:
            options.warn_on_stderr(f"wrote {path}")
    elif words["as_json"]:
        click.echo(indented_json(report))
    elif metric is not None:
        click.echo("\n".join(metric_lines.metric_report_lines(report)))
    else:
        click.echo(report_lines.report_screen_text(report))


def _write_html(html: str, path: str) -> None:
    """Write a page to *path*; ``-`` is standard output.

    Raises:
        StoreError: it cannot be written.
    """
    with writing(path):
        if path == _STDOUT:
            sys.stdout.write(html)
            return
        # as private as the records that it shows
        replace_whole_file(path, html.encode())


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument(
    "name", required=False, default=None, metavar="[ID|JOB|PLAN|TASKS|last]"
)
@options.as_json()
@click.option(
    "-o",
    "--output",
    "html",
    metavar="FILE.html",
    help="Write one self-contained page with curves and tasks; - for stdout.",
)
@click.option(
    "--as",
    "reader",
    type=click.Choice((_TICKET, _PAPER)),
    help="Text for a support ticket, or the compute statement of a publication in "
    "Markdown.",
)
@click.option(
    "--since",
    type=TIME_TEXT,
    metavar="TIME",
    help="Without a name: jobs of the last 30d, 12h, ...  [default: 7d]",
)
@options.metric()
def report(name: str | None, **words: Any) -> int:  # noqa: ANN401 - click's
    """Show requested vs. used resources, and what to change.

    ID is a record's id or label, JOB a job's id, PLAN a plan's name or folder, TASKS a
    task file that `weigh exec` ran; `last` is the newest job, exec run, scan or run.
    Where sacct or qacct differ from weigh, the report shows both figures and which one
    to trust.

    Without a name your jobs are listed, a line each: state, elapsed time, and the share
    of the requested time, memory and CPUs that was used.

    \b
    weigh report --since 30d
    weigh report last
    weigh report 481516 -o job.html
    weigh report ppo-sweep --metric val_loss
    weigh report ppo-sweep --as paper
    """  # noqa: D301 - click reads \b as: keep these lines
    _refuse_report_contradictions(name, words)
    here, since = here_now(options.warn_on_stderr), words["since"]
    named = LAST if name is None else name  # an empty one is that of no job
    if words["reader"] == _PAPER:
        click.echo(forms.compute_statement(here, named))
    elif words["reader"] == _TICKET:
        click.echo(forms.support_ticket(here, named))
    elif name is None and words["html"] is None and words["metric"] is None:
        _print_job_list(forms.listed_jobs(here, since or _SINCE), words)
    else:
        print_report(named, words)
    return 0


def _print_job_list(found: ListedJobs, words: Mapping[str, Any]) -> None:
    if words["as_json"]:
        click.echo(indented_json(found))
    elif not found.jobs:
        raise UsageError(
            f"no job of yours in {words['since'] or _SINCE} (--since 30d; the last "
            "run: weigh report last)"
        )
    else:
        colour = shall_use_colour(sys.stdout)
        stream = unguarded_stream(sys.stdout) if colour else sys.stdout
        for line in report_lines.job_list_lines(found.jobs, colour=colour):
            stream.write(f"{line}\n")


def _refuse_report_contradictions(name: str | None, words: Mapping[str, Any]) -> None:
    given = {
        "--since": words["since"] is not None,
        "--json": words["as_json"],
        "--output": words["html"] is not None,
        "--metric": words["metric"] is not None,
        f"--as {words['reader']}": words["reader"] is not None,
    }
    used = [option for option, is_given in given.items() if is_given]
    for first, second in combinations(used, 2):
        if (first, second) not in _GO_TOGETHER:
            raise UsageError(f"{first} and {second}: leave out one of them")
    if words["since"] is not None and name is not None:
        raise UsageError(f"--since covers all jobs: leave out {name}")
