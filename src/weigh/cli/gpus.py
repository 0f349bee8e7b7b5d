"""``weigh gpus``: the words of the command line, and a line a GPU."""

import os

import click

from weigh.flow.watch.gpus import list_gpus
from weigh.render.columns import fill
from weigh.render.gpu_lines import render_json, render_text
from weigh.render.printable import printable


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def gpus(*, as_json: bool) -> int:
    """List the GPUs that are mine: how full, how busy, who is on them.

    CUDA_VISIBLE_DEVICES and the scheduler's allocation are honoured. The number is
    the driver's own, as nvidia-smi shows it. Without a GPU nothing is printed, and
    stderr says why; the exit code is 0, and 125 only for a driver that is broken.
    """
    listing = list_gpus(os.environ)
    if as_json:
        click.echo(render_json(listing).decode())
    for line in () if as_json else render_text(listing.gpus):
        click.echo(line)
    for note in listing.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0
