"""``weigh cluster``: its options, and printing the cluster on a page or a line."""

import os

import click

from weigh.cli import options
from weigh.flow.site.cluster import query_cluster
from weigh.render.cluster_lines import (
    cluster_document,
    cluster_screen,
)
from weigh.schedulers import KINDS


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.option(
    "--on",
    "scheduler",
    type=click.Choice(tuple(KINDS)),
    help="Scheduler to query.  [default: the one whose commands are on PATH]",
)
@options.as_json()
def cluster(*, scheduler: str | None, as_json: bool) -> int:
    """Show the cluster: queues, GPUs, and nodes that are down.

    A GPU is free when it is idle and its node has a CPU and memory left for a job.
    The scheduler is only queried: nothing is submitted.
    """
    seen = query_cluster(os.environ, scheduler=scheduler)
    if as_json:
        click.echo(cluster_document(seen).decode())
    else:
        click.echo("\n".join(cluster_screen(seen)))
    for note in seen.notes:
        options.notify(note)
    return 0
