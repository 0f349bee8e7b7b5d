"""``weigh cluster``: its options, and printing the cluster on a page or a line."""

import os

import click

from weigh.cli.options import LIMIT
from weigh.errors import UsageError
from weigh.flow.site.cluster import Shape
from weigh.flow.site.cluster import cluster as cluster_flow
from weigh.render.cluster_lines import render_free, render_json, render_text
from weigh.render.columns import fill
from weigh.render.printable import printable

_SCHEDULERS = ("slurm", "gridengine")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--free", is_flag=True, help="One line: what is free now.")
@click.option(
    "--start",
    is_flag=True,
    help="Also ask each queue when a job of --gpu, --cpus and --time would start.",
)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Only these, for --start."
)
@click.option(
    "--gpu",
    metavar="TYPE[:N]",
    help="For --start: v100, a100:2; on Grid Engine the resource: ngpus:1.",
)
@click.option("--cpus", type=click.IntRange(min=1), default=1, help="For --start.")
@click.option(
    "--time", "time_limit", type=LIMIT, metavar="TIME", help="For --start: 90m, 4h."
)
@click.option(
    "--for",
    "scheduler",
    type=click.Choice(_SCHEDULERS),
    help="Which scheduler to ask.  [default: the one whose commands are on PATH]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def cluster(  # noqa: PLR0913 - one parameter an option
    *,
    free: bool,
    start: bool,
    queues: tuple[str, ...],
    gpu: str | None,
    cpus: int,
    time_limit: int | None,
    scheduler: str | None,
    as_json: bool,
) -> int:
    """Show the cluster: queues, GPUs, nodes that are down, users and your jobs.

    A GPU is free when it is idle and its node has a CPU and memory left for a job.
    The scheduler is only queried: nothing is submitted.
    """
    shape = None
    if start:
        wanted = gpu if gpu is None or ":" in gpu or gpu.isdecimal() else f"{gpu}:1"
        shape = Shape(queues=queues, cpus=cpus, gpu=wanted, time_limit=time_limit)
    elif queues or gpu or time_limit:
        raise UsageError("--queue, --gpu and --time go with --start")
    seen = cluster_flow(os.environ, scheduler=scheduler, shape=shape)
    if as_json:
        click.echo(render_json(seen).decode())
    elif free:
        click.echo(render_free(seen))
    else:
        click.echo("\n".join(render_text(seen)))
    for note in seen.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0
