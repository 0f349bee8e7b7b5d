"""The options that ``scan`` and ``fit`` share, and how both print."""

import os
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from weigh.cli.axes import AxesThenCommand, command_of
from weigh.cli.options import SIZE_TEXT
from weigh.flow.fit.fit import Answer
from weigh.flow.fit.scan import ScanOptions
from weigh.flow.fit.scan import scan as scan_flow
from weigh.flow.fit.wishes import Wishes
from weigh.render.estimate_lines import render, render_json

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--target",
        metavar="NAME=VALUE",
        help="The size of the full job: what it needs, and whether it fits.",
    ),
    click.option(
        "--gpu",
        "gpus",
        metavar="MODEL",
        multiple=True,
        help="A card to fit, such as V100-32GB or p100=11.9GiB; A,B; all.",
    ),
    click.option(
        "--gpu-memory",
        type=SIZE_TEXT,
        metavar="SIZE",
        multiple=True,
        help="GPU memory to fit, such as 30GiB; repeatable.",
    ),
    click.option(
        "--memory",
        type=SIZE_TEXT,
        metavar="SIZE",
        multiple=True,
        help="Host memory to fit, such as 8GiB; repeatable.",
    ),
    click.option(
        "--near",
        default="95%",
        metavar="SHARE",
        help="How near the best speed is near enough.  [default: 95%]",
    ),
    click.option(
        "--level",
        default="95%",
        metavar="SHARE",
        help="How sure the bounds are to be.  [default: 95%]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def estimate_options(command: Command) -> Command:
    """Add the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wishes_of(words: dict[str, Any]) -> Wishes:
    """Take the shared options out of *words*."""
    return Wishes(**{name: words.pop(name) for name in Wishes.__struct_fields__})


def show(answer: Answer, *, as_json: bool, **more: object) -> None:
    """Print what was found on stdout, what to know of it on stderr.

    *more* goes into the JSON document.
    """
    advice, request, narrow = answer.advice, answer.request, answer.narrow
    if as_json:
        said = {**more, "narrow": narrow, "warnings": answer.warnings}
        click.echo(render_json(advice, request=request, **said))
    else:
        for line in render(advice, request=request, narrow=narrow):
            click.echo(line)
    for warning in answer.warnings:
        click.echo(f"weigh: {warning}", err=True)


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
