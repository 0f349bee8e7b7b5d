"""``weigh cancel``: its options, and printing which jobs were cancelled."""

import click

from weigh.cli import options
from weigh.cli.options import notify
from weigh.flow.follow.cancel import cancel_jobs
from weigh.flow.here import here_now
from weigh.render.printable import printable_text


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("names", nargs=-1, metavar="JOB...", shell_complete=options.jobs)
@click.option("--keep", multiple=True, metavar="JOB", help="Keep JOB; repeatable.")
@click.option(
    "--state",
    type=click.Choice(("pending",)),
    metavar="pending",
    help="Cancel only elements in this state.",
)
@options.dry_run("Print what would be cancelled.")
def cancel(
    names: tuple[str, ...],
    *,
    keep: tuple[str, ...],
    state: str | None,
    dry_run: bool,
) -> int:
    """Cancel jobs, or only their waiting elements.

    JOB is a job's id, a plan's name or directory, `last`, or `all` for every job that
    was submitted from here and has not ended.

    \b
    weigh cancel 481516
    weigh cancel all --keep 481516
    weigh cancel ppo-sweep --state pending
    """  # noqa: D301 - click reads \b as: keep these lines
    done = cancel_jobs(
        here_now(notify),
        names,
        keep=keep,
        only_waiting=state is not None,
        dry_run=dry_run,
    )
    verb = "would cancel" if dry_run else "cancelled"
    for one in done:
        total = one.job.elements
        number = (
            f"{one.count:,}" if one.count == total else f"{one.count:,} of {total:,}"
        )
        noun = "element" if total == 1 else "elements"
        name = printable_text(one.job.name)
        click.echo(f"  {verb} {one.job.id} ({name}): {number} {noun}")
    if not done:
        why = "no element waits" if state else "all have ended"
        click.echo(f"  nothing to cancel: {why}")
    return 0
