"""``weigh resume``: the words of the command line; what runs again, and what not."""

import os

import click

from weigh.cli import options
from weigh.cli.options import SIZE_TEXT, TIME_TEXT
from weigh.cli.submit import say
from weigh.flow.follow.resume import Wishes
from weigh.flow.follow.resume import resume as resume_flow
from weigh.render.resume_lines import render_json, resumed_lines


@click.command(context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", default="last", shell_complete=options.jobs)
@click.option(
    "--memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    help="For an element, whatever the reason.",
)
@click.option(
    "--time", type=TIME_TEXT, metavar="TIME", help="The limit, whatever the reason."
)
@click.option("--gpus", metavar="TYPE:N", help="Another GPU.")
@options.queue("Another partition or queue.")
@click.option("--bugs", is_flag=True, help="Run what failed of itself, too.")
@click.option("--unknown", is_flag=True, help="Also tasks whose end is unknown.")
@options.dry_run("Submit nothing.")
@options.as_json()
def resume(name: str, *, as_json: bool, **words: str | bool | None) -> int:
    """Submit once more what did not finish, with what it lacked.

    Twice the memory after running out of it, twice the time after the limit, another
    node after one that failed. A task that a bug ended is left: fix it, then --bugs.
    So is one that has left the queue while accounting does not answer: it may be done.
    JOB is a job's id, a plan's name or folder, or `last`.

    \b
    weigh resume 481516
    weigh resume ppo-sweep --dry-run
    weigh resume last --bugs --time 12h
    """  # noqa: D301 - click reads \b as: keep these lines
    wishes = Wishes(**words)  # type: ignore[arg-type]
    answer = resume_flow(name, wishes, cwd=os.getcwd(), env=os.environ, say=say)
    if as_json:
        click.echo(render_json(answer))
    else:
        click.echo("\n".join(resumed_lines(answer)))
    return 0
