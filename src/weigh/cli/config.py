"""``weigh config``: the words of the command line."""

import os

import click

from weigh.flow.site.site_file import site_file, write_new
from weigh.render.columns import fill
from weigh.render.printable import printable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Write configuration files for you to correct."""


@config.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", "path", metavar="FILE", help="To FILE, which must be new.")
@click.option(
    "--for",
    "scheduler",
    type=click.Choice(("slurm", "gridengine")),
    help="Which scheduler to ask.  [default: the one whose commands are on PATH]",
)
def cluster(*, path: str | None, scheduler: str | None) -> int:
    """Write a site's file from what its scheduler tells.

    Queues with their limits, GPU types with their memory, and scratch.
    """
    text, notes = site_file(os.environ, scheduler=scheduler)
    if path is None:
        click.echo(text, nl=False)
    else:
        write_new(path, text)
        click.echo(f"weigh: wrote {printable(path)}: correct it", err=True)
    for note in notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0
