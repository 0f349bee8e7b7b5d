"""``weigh change``: its options, and printing what a waiting job requests now."""

import click

from weigh.cli import options
from weigh.cli.options import LIMIT, SIZE
from weigh.cli.submit import notify
from weigh.flow.follow.cancel import change_request
from weigh.flow.here import here_now
from weigh.render.printable import printable_text
from weigh.render.submit_lines import request_words
from weigh.schedulers.protocol import WaitingJobChange


@click.command(context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", shell_complete=options.jobs)
@click.option("--time", type=LIMIT, metavar="TIME", help="Time limit: 90m, 4h.")
@click.option("--memory", type=SIZE, metavar="SIZE", help="Memory per element.")
@click.option(
    "--throttle", type=options.BoundedCount(), metavar="N", help="Elements at once."
)
def change(
    name: str, *, time: float | None, memory: float | None, throttle: int | None
) -> int:
    """Change what a waiting job requests, where its scheduler permits it.

    JOB is a job's id, also of one that weigh did not submit, a plan's name or `last`;
    123_4 is one element of an array. Of a running job users can only lower the time
    limit, at some sites.

    \b
    weigh change 481516 --time 4h
    weigh change last --throttle 5
    """  # noqa: D301 - click reads \b as: keep these lines
    wanted = WaitingJobChange(
        time=None if time is None else int(time),
        memory=None if memory is None else int(memory),
        throttle=throttle,
    )
    job, request = change_request(here_now(notify), name, wanted)
    title = printable_text(f"{job.id} ({job.name})")
    click.echo(f"  changed {title}: {request_words(request)}")
    return 0
