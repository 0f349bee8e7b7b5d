"""``weigh profile``: its command line; the process becomes Scalene."""

import os
import subprocess
import sys

import click

from weigh.cli import options
from weigh.flow.run.profile import scalene_command


@click.command(
    cls=options.PlainHelp,
    context_settings={**options.SETTINGS, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option("-o", "--output", metavar="FILE", help="Write the profile to FILE.")
@click.option("--force", is_flag=True, help="Allow it inside a batch job.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def profile(command: tuple[str, ...], *, output: str | None, force: bool) -> int:
    """Show which lines of a Python program take the time and the memory.

    Runs COMMAND through Scalene (pip install scalene), which keeps the profile with
    the records. A profiler slows the program, so profile a short run; inside a batch
    job this needs --force.

    \b
    weigh profile -- python3 train.py --epochs 1
    weigh profile -- python3 -m mypackage.train
    """  # noqa: D301 - click reads \b
    argv, path = scalene_command(
        command, environ=os.environ, output=output, force=force
    )
    view = f"{os.path.basename(argv[0])} -m scalene view FILE"
    options.warn_on_stderr(f"profile: {path}   ({view})")
    if os.name == "nt":  # where exec returns to the shell at once
        sys.exit(subprocess.call(argv))
    os.execv(argv[0], argv)  # noqa: S606 - signals and the exit code are Scalene's
