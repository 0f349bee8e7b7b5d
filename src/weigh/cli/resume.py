"""``weigh resume``: its options, and printing which tasks run again."""

import os
from typing import Any

import click

from weigh.cli import options
from weigh.cli.options import SIZE_TEXT, TIME_TEXT, notify
from weigh.flow.follow.resume import resume_unfinished_tasks
from weigh.flow.here import here_of
from weigh.planning.resume_policy import ResumeOptions
from weigh.render.resume_lines import resume_json, resumed_lines


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", default="last", shell_complete=options.jobs)
@click.option(
    "--memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    help="Memory per element.  [default: twice as much after out-of-memory]",
)
@click.option(
    "--time",
    type=TIME_TEXT,
    metavar="TIME",
    help="Time limit.  [default: twice as long after a timeout]",
)
@click.option("--gpus", metavar="TYPE:N", help="Request another GPU.")
@options.queue("Another partition or queue; auto: all that take it.")
@click.option(
    "--also",
    multiple=True,
    type=click.Choice(("bugs", "unknown")),
    help="Also run tasks that failed by a bug, or whose outcome is unknown.",
)
@click.option(
    "--heal",
    is_flag=True,
    help="Resume as `submit --heal` does: within its limits, and again if needed.",
)
@click.option("--confirm", is_flag=True, hidden=True)  # 1 unless all tasks are done
@options.dry_run("Submit nothing.")
@options.as_json()
def resume(
    name: str,
    *,
    confirm: bool,
    as_json: bool,
    **words: Any,  # noqa: ANN401 - click's own
) -> int:
    """Submit the unfinished tasks again, with a larger request where it was too small.

    A task gets twice the memory after running out of memory, twice the time after a
    timeout, and another node after a node failure. A task that failed by a bug is not
    run again: fix it, then use --also bugs. Nor is a task whose outcome is unknown
    because accounting does not answer: it may be done. JOB is a job's id, a plan's
    name or directory, or `last`.

    \b
    weigh resume 481516
    weigh resume ppo-sweep --dry-run
    weigh resume last --also bugs --time 12h
    """  # noqa: D301 - click reads \b as: keep these lines
    cwd, env = os.getcwd(), os.environ
    also = words.pop("also")
    chosen = ResumeOptions(bugs="bugs" in also, unknown="unknown" in also, **words)
    answer = resume_unfinished_tasks(here_of(cwd, env, notify), name, chosen)
    if as_json:
        click.echo(resume_json(answer))
    else:
        click.echo("\n".join(resumed_lines(answer)))
    # the healer learns by the exit code whether it has to go on
    return int(confirm and not answer.is_done)
