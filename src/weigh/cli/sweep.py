"""``weigh sweep``: options; the task file, and how many tasks it has."""

import sys
from typing import Any

import click

from weigh.cli import options
from weigh.cli.axes import AxesThenCommand, command_of_context
from weigh.errors import UsageError
from weigh.flow.sweep.sweep import STDOUT, SweepOptions, write_sweep
from weigh.render.sweep_lines import (
    head_line,
    sweep_json,
    sweep_screen_lines,
    sweep_warnings,
)


@click.command(
    cls=AxesThenCommand,
    context_settings=options.SETTINGS,
    options_metavar="[OPTIONS]",
)
@options.output(
    "FILE", "Task file to write; - prints it.  [default: tasks.txt]", "tasks.txt"
)
@click.option(
    "--zip",
    "zips",
    metavar="A,B",
    multiple=True,
    help="Pair the values of A and B instead of combining them; repeatable.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    multiple=True,
    help='Keep only matching tasks: "lr < 1e-2 or seed == 1"; repeatable.',
)
@click.option(
    "--random",
    metavar="N[:SEED]",
    help="Choose N combinations at random, with SEED the same ones again.",
)
@options.dry_run("Print a few tasks; write nothing.")
@click.option("--replace", "force", is_flag=True, help="Replace files that differ.")
@options.as_json()
@click.argument("axes", nargs=-1, metavar="NAME=VALUES... -- COMMAND")
@click.pass_context
def sweep(context: click.Context, /, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Write a task file: COMMAND once for every combination of values.

    {name} in COMMAND is replaced by a value of NAME. Each task is one line for a
    shell, quoted; a table of the parameters is written next to the file.

    \b
    VALUES   a,b,c       one by one; 'a,b' in quotes keeps its comma
             1..5        integers
             0..1:0.25   in steps of 0.25
             1e-5..1:log6  six values, evenly spaced on a logarithmic scale
             'data/*.txt'  the files that match

    \b
    weigh sweep lr=1e-2,1e-3 seed=1..5 -- python3 run.py --lr {lr} --seed {seed}
    """  # noqa: D301 - click reads \b
    as_json = words.pop("as_json")
    number, seed = _drawn_number_and_seed(words.pop("random"))
    sweep_options = SweepOptions(
        command=command_of_context(context), random=number, seed=seed, **words
    )
    to_stdout = sweep_options.output == STDOUT and not sweep_options.dry_run
    if to_stdout and as_json:
        raise click.UsageError("-o - and --json both use standard output")

    done = write_sweep(sweep_options, stdout=sys.stdout.buffer)
    if as_json:
        click.echo(sweep_json(done))
        return 0
    if to_stdout:
        click.echo(head_line(done), err=True)
    else:
        click.echo("\n".join(sweep_screen_lines(done)))
    sys.stdout.flush()  # the count before the notes, where both reach one terminal
    for note in sweep_warnings(done):
        options.warn_on_stderr(note)
    return 0


def _drawn_number_and_seed(text: str | None) -> tuple[int | None, int | None]:
    """Read ``20`` or ``20:7``; None where nothing is drawn, or the seed is, too."""
    number, colon, seed = (text or "").partition(":")
    try:
        return int(number) if text else None, int(seed) if colon else None
    except ValueError as error:
        message = f"--random {text}: not a number (write it like 20, or 20:7)"
        raise UsageError(message) from error
