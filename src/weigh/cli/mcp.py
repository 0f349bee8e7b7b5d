"""``weigh mcp``: serve weigh's verbs to agents, by the Model Context Protocol."""

import math
import os
from typing import TYPE_CHECKING

import click

from weigh.cli.options import DURATION, PlainHelp

if TYPE_CHECKING:
    from weigh.flow.mcp_server import AgentLimits


@click.command(cls=PlainHelp)
@click.argument(
    "folder",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    metavar="[FOLDER]",
)
@click.option(
    "--allow-submit",
    metavar="HOURS[,GPU_HOURS]",
    help="Let agents submit plans that together request at most so many CPU hours, and "
    "GPU hours (0 by default).",
)
@click.option(
    "--time",
    "run_time",
    type=DURATION,
    default="10m",
    metavar="TIME",
    help="Stop a command of the tool run after TIME.  [default: 10m]",
)
def mcp(
    *,
    folder: str,
    allow_submit: str | None,
    run_time: float,
) -> int:
    """Serve run, request, plan, submit, wait, logs and others as tools for agents.

    A server of the Model Context Protocol on stdin and stdout, for the settings
    of an agent; it needs the Python package mcp. Nothing is submitted without
    --allow-submit. Commands run in FOLDER, by default the current one.

    \b
    weigh mcp
    weigh mcp --allow-submit 100,10
    """  # noqa: D301 - click reads \b
    from weigh.flow.mcp_server import AgentLimits, serve  # noqa: PLC0415 - start-up time

    limits = AgentLimits(run_time=run_time)
    if allow_submit is not None:
        limits = _limits_of_submissions(allow_submit, run_time)
    serve(os.path.abspath(folder), limits)
    return 0


def _limits_of_submissions(text: str, run_time: float) -> "AgentLimits":
    """Read ``100`` or ``100,10``: CPU hours, and GPU hours.

    Without a figure no GPU hours: an agent's submissions cost what nobody permitted.
    """
    from weigh.flow.mcp_server import AgentLimits  # noqa: PLC0415 - start-up time

    cpu_hours, _, gpu_hours = text.partition(",")
    try:
        hours = float(cpu_hours), float(gpu_hours or 0)
    except ValueError:
        hours = (-1.0, 0.0)
    # this rejects nan as well
    if not all(0 <= hour < math.inf for hour in hours):
        raise click.UsageError(
            f"--allow-submit {text}: not a budget (write it like 100, or 100,10)"
        )
    return AgentLimits(
        submit=True, cpu_hours=hours[0], gpu_hours=hours[1], run_time=run_time
    )
