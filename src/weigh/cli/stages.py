"""``weigh stages``: the words of the command line; then another program goes on."""

import os
from typing import Any

import click

from weigh.cli import options
from weigh.flow.sweep.stages import (
    StagesOptions,
    become,
    plan_stages,
    planned,
    read_stages,
)
from weigh.render.printable import printable


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", metavar="FILE", shell_complete=options.files)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--from", "start", metavar="STEP", help="Leave out the steps before STEP."
)
@click.option("-o", "--output", metavar="FILE", help="Write the record as JSON.")
@click.option("--label", metavar="NAME", help="A name to find the record by.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing about the run.")
@click.option("--dry-run", is_flag=True, help="Print the steps; run nothing.")
def stages(path: str, **words: Any) -> None:  # noqa: ANN401 - click's own
    """Run the steps of FILE in their order, as phases of one record.

    The first that fails ends it, with that step's exit code; --from goes on there.
    A NAME=VALUE is in the environment of each step, and a parameter of the record.
    Under `weigh run` or in a task of `weigh exec` the record is theirs.

    \b
    [[stage]]
    name = "train"
    run = "python train.py --lr $lr"
    \b
    weigh stages experiment.toml lr=0.1
    weigh stages experiment.toml lr=0.1 --from train
    weigh sweep lr=0.1,0.2 -- weigh stages experiment.toml lr={lr}
    """  # noqa: D301 - click reads \b
    is_dry = words.pop("dry_run")
    options = StagesOptions(**words)
    if is_dry:
        for line in planned(read_stages(path, options.start)):
            click.echo(printable(line))
        return
    become(plan_stages(path, options, os.environ), os.environ)
