"""The options that ``scan`` and ``fit`` share, and how both print."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from weigh.cli.quantities import SIZE_TEXT
from weigh.flow.fit.fit import Answer
from weigh.flow.fit.wishes import Wishes
from weigh.report.estimate_lines import render, render_json

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
