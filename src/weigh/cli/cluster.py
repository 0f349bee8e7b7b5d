"""``weigh cluster``: its options, and printing the cluster on a page or a line."""

import os

import click

from weigh.cli import options
from weigh.errors import UsageError
from weigh.flow.site.cluster import query_cluster as cluster_flow
from weigh.render.cluster_lines import (
    cluster_document,
    cluster_free_line,
    cluster_screen,
)
from weigh.render.columns import fill
from weigh.render.printable import printable

_STDOUT = "-"


@click.command(context_settings=options.SETTINGS)
@click.option("--free", is_flag=True, help="One line: what is free now.")
@options.scheduler("Scheduler to query.  [default: the one whose commands are on PATH]")
@click.option(
    "--write-config",
    "config",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write the site's settings for you to correct: queues with their limits, "
    "GPU types, scratch; to FILE, which must not exist, or to stdout.",
)
@options.as_json()
def cluster(
    *, free: bool, scheduler: str | None, config: str | None, as_json: bool
) -> int:
    """Show the cluster: queues, GPUs, nodes that are down, and users.

    A GPU is free when it is idle and its node has a CPU and memory left for a job.
    The scheduler is only queried: nothing is submitted.
    """
    if config is not None:
        if free or as_json:
            raise UsageError("--write-config writes settings only: no other form")
        return _write_config(config, scheduler)
    seen = cluster_flow(os.environ, scheduler=scheduler)
    if as_json:
        click.echo(cluster_document(seen).decode())
    elif free:
        click.echo(cluster_free_line(seen))
    else:
        click.echo("\n".join(cluster_screen(seen)))
    for note in seen.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0


def _write_config(path: str, scheduler: str | None) -> int:
    """Write the site's settings file as its scheduler describes the cluster."""
    from weigh.flow.site.site_file import site_file, write_new  # noqa: PLC0415 - rarely

    text, notes = site_file(os.environ, scheduler=scheduler)
    if path == _STDOUT:
        click.echo(text, nl=False)
    else:
        write_new(path, text)
        click.echo(f"weigh: wrote {printable(path)}: correct it", err=True)
    for note in notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0
