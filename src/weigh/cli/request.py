"""``weigh request``: the words of the command line; lines out, notes beside them."""

import os
import sys

import click

from weigh.flow.request import request as request_flow
from weigh.report.request_lines import FORMS


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--for",
    "form",
    type=click.Choice(FORMS),
    help="What to write.  [default: slurm; gridengine where only qsub is on PATH]",
)
@click.option(
    "--headroom",
    metavar="SHARE",
    help="What to ask for beyond the biggest use: 20% or 0.2.  [default: 20%]",
)
@click.argument("records", nargs=-1, metavar="[ID]...")
def request(records: tuple[str, ...], form: str | None, headroom: str | None) -> int:
    """Write the lines to ask a scheduler for, from one or several records.

    ID is a record's id, the beginning of one, its label, `last` or a file that
    `weigh run -o` wrote; without one it is the last record. Of several runs the
    biggest use counts. The lines go to stdout, how sure they are to stderr.

    \b
    weigh request
    weigh request --for gridengine --headroom 30% tag-50 tag-100 tag-300
    sbatch $(weigh request --for flags) job.sh
    """  # noqa: D301 - click reads \b as: keep these lines
    answer = request_flow(
        records, form=form, headroom=headroom, cwd=os.getcwd(), env=os.environ
    )
    for line in answer.lines:
        click.echo(line)
    sys.stdout.flush()  # the lines before the notes, where both reach one terminal
    for warning in answer.warnings:
        click.echo(f"weigh: {warning}", err=True)
    if form != "json":  # the document holds them
        for note in answer.notes:
            click.echo(note, err=True)
    return 0
