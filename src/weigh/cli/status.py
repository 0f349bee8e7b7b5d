"""``weigh status``: its options, and printing the state of jobs."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from weigh.cli import options
from weigh.cli.options import notify
from weigh.errors import UsageError
from weigh.flow.follow.status import standings_of_jobs
from weigh.flow.here import here_now
from weigh.lazy_modules import lazy_module
from weigh.model.job import NOT_STARTED
from weigh.render.printable import indented_json, weigh_line
from weigh.render.status_lines import detail_lines, list_lines, status_json
from weigh.store.find import LAST

if TYPE_CHECKING:
    from weigh import task_metric
    from weigh.flow.report import metric as metric_report
    from weigh.render import metric_lines
else:  # each is imported when it is first used
    task_metric = lazy_module("weigh.task_metric")
    metric_report = lazy_module("weigh.flow.report.metric")
    metric_lines = lazy_module("weigh.render.metric_lines")

_PAUSE = 10.0  # seconds; the scheduler itself is queried less often
_LAST_PAUSE = 0.5  # seconds, until the elements of tasks that are done have ended


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=options.jobs)
@click.option("--wait", is_flag=True, help="Wait until no task runs or waits.")
@options.metric()
@click.option("--succeeded", is_flag=True, hidden=True)  # for a job that needs others
@options.as_json()
def status(
    names: tuple[str, ...],
    *,
    wait: bool,
    metric: str | None,
    succeeded: bool,
    as_json: bool,
) -> int:
    """Show the state of jobs: which tasks are done, failed, running, waiting, and why.

    JOB is a job's id, a plan's name or directory, or `last`. Without JOB the latest
    jobs of this folder are listed. The scheduler is queried at most every 30 seconds.

    Exit codes: 0; with --wait 1 if a task did not succeed.

    \b
    weigh status
    weigh status plan/ppo-sweep
    weigh status last --wait && weigh report last
    weigh status last --metric val_loss
    """  # noqa: D301 - click reads \b as: keep these lines
    if succeeded:
        from weigh.flow.follow.dependency import why_not_yet  # noqa: PLC0415 - rarely

        why_not = why_not_yet(here_now(), names)
        for why in why_not:
            click.echo(weigh_line(f"{NOT_STARTED}{why}"), nl=False)
        return int(bool(why_not))
    if metric is not None:
        print_metric(names or (LAST,), metric, wait=wait, as_json=as_json)
        return 0
    standings = standings_of_jobs(here_now(notify), names)
    # a stuck job never starts by itself: waiting for it would never end
    while wait and not all(one.is_over or one.is_stuck for one in standings):
        time.sleep(_PAUSE)
        standings = standings_of_jobs(here_now(notify), names)
    # an element records its last tasks a moment after they count as done
    patience = time.monotonic() + _PAUSE
    while (
        wait
        and any(one.elements.get("RUNNING") for one in standings)
        and time.monotonic() < patience
    ):
        time.sleep(_LAST_PAUSE)
        standings = standings_of_jobs(here_now(notify), names)
    now = time.time()
    if as_json:
        click.echo(status_json(standings))
    elif names:
        for one in standings:
            click.echo("\n".join(detail_lines(one, now)))
    else:
        click.echo("\n".join(list_lines(standings, now)))
    return int(wait and not all(one.is_done for one in standings))


def print_metric(
    names: Sequence[str], metric: str, *, wait: bool, as_json: bool
) -> None:
    """Print how the tasks of jobs learn.

    Raises:
        UsageError: there is no such job, its tasks do not print it, or with *wait*.
        FormatError: it is no metric.
    """
    if wait:
        raise UsageError("--metric shows one moment: leave out --wait")
    wanted = task_metric.task_metric(metric)
    for name in names:
        found = metric_report.build_metric_report(here_now(notify), name, wanted)
        if as_json:
            click.echo(indented_json(found))
        else:
            click.echo("\n".join(metric_lines.metric_status_lines(found)))
