"""``weigh change``: its options, and printing what a waiting job requests now."""

import os

import click

from weigh.cli import options
from weigh.cli.options import LIMIT, SIZE
from weigh.cli.submit import notify
from weigh.flow.follow.change import change as change_flow
from weigh.render.printable import printable
from weigh.render.submit_lines import request_words
from weigh.schedulers.protocol import Change


@click.command(context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", shell_complete=options.jobs)
@click.option("--time", type=LIMIT, metavar="TIME", help="Time limit: 90m, 4h.")
@click.option("--memory", type=SIZE, metavar="SIZE", help="Memory per element.")
@click.option("--throttle", type=options.Count(), metavar="N", help="Elements at once.")
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="Below 0 is later than your other jobs; users cannot raise it.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="JOB",
    help="Start after JOB has succeeded; repeatable; 'none' for no job.",
)
@options.queue("Another partition or queue.")
def change(  # noqa: PLR0913 - one parameter per option
    name: str,
    *,
    time: float | None,
    memory: float | None,
    throttle: int | None,
    priority: int | None,
    after: tuple[str, ...],
    queue: str | None,
) -> int:
    """Change what a waiting job requests, where its scheduler permits it.

    JOB is a job's id, also of one that weigh did not submit, a plan's name or `last`;
    123_4 is one element of an array. Of a running job users can only lower the time
    limit, at some sites.

    \b
    weigh change 481516 --time 4h
    weigh change last --throttle 5 --after 481515
    """  # noqa: D301 - click reads \b as: keep these lines
    wanted = Change(
        time=None if time is None else int(time),
        memory=None if memory is None else int(memory),
        throttle=throttle,
        priority=priority,
        after=tuple(job for job in after if job != "none") if after else None,
        queue=queue,
    )
    done = change_flow(name, wanted, cwd=os.getcwd(), env=os.environ, notify=notify)
    title = printable(f"{done.job.id} ({done.job.name})")
    click.echo(f"  changed {title}: {request_words(done.request)}")
    return 0
