"""``weigh sweep``: the words of the command line; the count and the files out."""

import sys
from typing import Any

import click

from weigh.cli import options
from weigh.cli.axes import AxesThenCommand, command_of
from weigh.errors import UsageError
from weigh.flow.sweep.sweep import STDOUT, SweepOptions
from weigh.flow.sweep.sweep import sweep as sweep_flow
from weigh.render.sweep_lines import head_line, notes, render_json, render_text


@click.command(
    cls=AxesThenCommand,
    context_settings=options.SETTINGS,
    options_metavar="[OPTIONS]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="tasks.txt",
    help="The task file; - prints it.  [default: tasks.txt]",
)
@click.option(
    "--zip",
    "zips",
    metavar="A,B",
    multiple=True,
    help="Parameters that go value by value, no product; repeatable.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    multiple=True,
    help='Keep what meets it: "lr < 1e-2 or seed == 1"; repeatable.',
)
@click.option(
    "--exclude",
    metavar="CONDITION",
    multiple=True,
    help="Leave out what meets it; repeatable.",
)
@click.option(
    "--random", type=int, metavar="N", help="Draw N of the combinations, evenly."
)
@click.option(
    "--seed", type=int, metavar="S", help="Draw the same ones as the last time."
)
@click.option(
    "--from",
    "spec_file",
    metavar="FILE",
    help="Read a sweep from a TOML file; what is typed wins.",
)
@click.option("--dry-run", is_flag=True, help="Show a few tasks; write nothing.")
@click.option("--force", is_flag=True, help="Replace files that differ.")
@click.option("--yes", is_flag=True, help="Write more than 100,000 tasks unasked.")
@click.option("--json", "as_json", is_flag=True, help="Say what was done as JSON.")
@click.argument("axes", nargs=-1, metavar="NAME=VALUES... -- COMMAND")
@click.pass_context
def sweep(context: click.Context, /, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Write a task file: COMMAND once for every combination of values.

    {name} in COMMAND is where a value of NAME goes. Each task is one line for a
    shell, quoted; a table of its parameters is written beside the file.

    \b
    VALUES   a,b,c       one by one; 'a,b' in quotes keeps its comma
             1..5        integers
             0..1:0.25   by step
             1e-5..1:log6  six values, each by the same factor larger
    \b
    weigh sweep lr=1e-2,1e-3 seed=1..5 -- python run.py --lr {lr} --seed {seed}
    """  # noqa: D301 - click reads \b
    as_json, yes = words.pop("as_json"), words.pop("yes")
    options = SweepOptions(command=command_of(context), **words)
    to_stdout = options.output == STDOUT and not options.dry_run
    if to_stdout and as_json:
        raise click.UsageError("-o - and --json both want standard output")

    def confirm(tasks: int) -> None:
        if not yes:
            _ask(tasks)

    done = sweep_flow(options, confirm=confirm, stdout=sys.stdout.buffer)
    if as_json:
        click.echo(render_json(done))
        return 0
    if to_stdout:
        click.echo(head_line(done), err=True)
    else:
        click.echo("\n".join(render_text(done)))
    sys.stdout.flush()  # the count before the notes, where both reach one terminal
    for note in notes(done):
        click.echo(f"weigh: {note}", err=True)
    return 0


def _ask(tasks: int) -> None:
    """Ask a person; refuse where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{tasks:,} tasks are many (--yes writes them, --random N draws some)"
        )
    click.confirm(f"{tasks:,} tasks: write them all?", abort=True, err=True)
