"""``weigh plan``: the words of the command line; how many go together, and where."""

import os
import sys

import click

from weigh.cli import options
from weigh.cli.options import SIZE_TEXT, TIME_TEXT
from weigh.errors import SIGNAL_BASE
from weigh.flow.plan.plan import plan as plan_flow
from weigh.flow.run.run_measured import Interrupted
from weigh.planning.options import ALL, Wishes
from weigh.render.columns import fill
from weigh.render.plan_lines import render_json, render_text
from weigh.render.printable import printable
from weigh.sweep.quoting import quoted

_COUNT = click.IntRange(min=1)


@click.command(context_settings=options.SETTINGS)
@click.argument("task_file", metavar="TASKS", shell_complete=options.files)
@click.option(
    "--gpu",
    "gpus",
    metavar="NAME[,NAME...]",
    help="The GPU to fill, such as V100-32GB, p100=11.9GiB, A100-80GB:1g.10gb. "
    "Several are compared.  [default: the one measured on]",
)
@click.option(
    "--gpu-memory", type=SIZE_TEXT, metavar="SIZE", help="What a task uses of a GPU."
)
@click.option(
    "--memory", type=SIZE_TEXT, metavar="SIZE", help="What a task uses of the node."
)
@click.option("--cpus", type=_COUNT, metavar="N", help="CPUs a task keeps busy.")
@click.option(
    "--time",
    type=TIME_TEXT,
    metavar="TIME",
    help="How long a task takes: 90m, 1-12:00:00.",
)
@click.option(
    "--from",
    "records",
    default=ALL,
    metavar="NAME[,NAME...]",
    help="Labels or ids to take what is not said from.  [default: all that match]",
)
@click.option("--headroom", metavar="SHARE", help="On top of what is used: 20% or 0.2.")
@click.option("--per-gpu", type=_COUNT, metavar="N", help="At most so many together.")
@click.option(
    "--gpus-per-task",
    type=_COUNT,
    metavar="N",
    help="GPUs that a task has for itself.  [default: as many as measured, if several]",
)
@click.option(
    "--nodes",
    type=_COUNT,
    metavar="N",
    help="Nodes that a task runs on; all else is for each of them.",
)
@click.option("--node-memory", type=SIZE_TEXT, metavar="SIZE", help="Memory of a node.")
@click.option("--node-cpus", type=_COUNT, metavar="N", help="CPUs of a node.")
@click.option(
    "--node-gpus",
    type=_COUNT,
    metavar="N",
    help="GPUs of a node: each element gets one, and its share of the rest.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Run 1, 2, 3... tasks together here, and keep the number that does the most "
    "work. Use short ones.",
)
@click.option("--name", help="Write to plan/NAME.  [default: the file's name]")
@click.option("--leave-out", is_flag=True, help="Leave out tasks that are too big.")
@click.option("--replace", is_flag=True, help="Replace the plan of that name.")
@click.option(
    "--ignore-directives",
    is_flag=True,
    help="Run job scripts although their #SBATCH and #$ lines have no effect.",
)
@options.dry_run("Write nothing.")
@options.as_json()
def plan(*, as_json: bool, **words: str | int | bool | None) -> int:
    """Plan how many tasks share a GPU or a node, and write a task file for each.

    TASKS holds one shell line a task; `-` is standard input. What a task needs is
    taken from the records of commands like it, where nothing is said. Figures are
    what is used: headroom is added to them.

    \b
    weigh plan tasks.txt --gpu V100-32GB --gpu-memory 2.3GiB --time 90m
    weigh plan tasks.txt --gpu V100-16GB,V100-32GB,A100-40GB
    weigh plan tasks.txt --from ppo,dqn --node-cpus 32 --node-memory 128GiB
    """  # noqa: D301 - click reads \b as: keep these lines
    wishes = Wishes(**words)  # type: ignore[arg-type]
    try:
        answer = plan_flow(wishes, cwd=os.getcwd(), env=os.environ, say=_say)
    except Interrupted as interrupted:  # click would take it for ^C
        return SIGNAL_BASE + interrupted.number
    for warning in answer.warnings:
        click.echo(f"weigh: {warning}", err=True)
    if as_json:
        click.echo(render_json(answer.plans))
        return 0
    for line in render_text(answer.plans):
        click.echo(line)
    sys.stdout.flush()  # the plan before the notes, where both reach one terminal
    for note in answer.notes:
        click.echo(fill(f"  {printable(note)}", 80, subsequent_indent="    "), err=True)
    for line in _next(answer.directory, wishes):
        click.echo(line)
    return 0


def _say(line: str) -> None:
    click.echo(f"weigh: {line}", err=True)


def _next(directory: str | None, wishes: Wishes) -> tuple[str, ...]:
    """Say where the plan is and what to do with it."""
    if directory is None:
        return (f"  next: weigh plan {quoted(wishes.task_file)} --gpu NAME",)
    if wishes.dry_run:
        return (f"  would be written to {printable(directory)}{os.sep}",)
    return (
        f"  -> {printable(directory)}{os.sep}",
        f"  next: weigh submit {quoted(directory)}",
    )
