"""``weigh scan``: the words of the command line; runs told of, then the curves."""

import os
import shlex
from typing import Any

import click

from weigh.cli.axes_words import AxesThenCommand, command_of
from weigh.cli.estimate_words import estimate_options, show, wishes_of
from weigh.flow.fit.scan import ScanOptions
from weigh.flow.fit.scan import scan as scan_flow


@click.command(
    cls=AxesThenCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[OPTIONS]",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    help="Run each size N times: how far runs differ.",
)
@click.option("--label", metavar="NAME", help="The label of its records.")
@click.option(
    "--resume", is_flag=True, help="Go on with the last scan: run only what is new."
)
@click.option(
    "--confirm", is_flag=True, help="Run the recommended size too; say if it held."
)
@click.option("--dry-run", is_flag=True, help="Print the commands; run nothing.")
@estimate_options
@click.argument("axes", nargs=-1, metavar="NAME=VALUES... -- COMMAND")
@click.pass_context
def scan(context: click.Context, /, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Run COMMAND at a few sizes, and say what they foretell.

    {NAME} in COMMAND is where the size goes. Each run is measured as by `weigh
    run` and kept; its output goes to a file. It stops at a size that runs out of
    memory, and keeps what it has.

    \b
    VALUES   50,100,300     one by one
             50..300:log3   three, each by the same factor larger
    \b
    weigh scan batch_size=25,50,100 --target batch_size=300 -- \\
        python tag.py alice.txt out.tsv {batch_size}
    weigh scan --resume batch_size=200
    """  # noqa: D301 - click reads \b
    as_json, wishes = words.pop("as_json"), wishes_of(words)
    options = ScanOptions(command=command_of(context), **words)
    done = scan_flow(
        options,
        wishes,
        say=lambda line: click.echo(f"weigh: {line}", err=True),
        cwd=os.getcwd(),
        env=os.environ,
    )
    for command in done.planned:
        click.echo(shlex.join(command))
    if done.fit is not None:
        more = {"label": done.label, "confirmed": done.confirmed}
        show(done.fit, as_json=as_json, **more)
    if done.confirmed is not None:
        click.echo(f"weigh: {done.confirmed}", err=True)
    return done.exit_code
