"""``weigh mcp``: serve weigh's verbs to agents, by the Model Context Protocol."""

import os

import click

from weigh.cli.options import DURATION


@click.command()
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    metavar="FOLDER",
    help="Work here.  [default: the current folder]",
)
@click.option(
    "--allow-submit", is_flag=True, help="Let agents submit plans, not only try."
)
@click.option(
    "--cpu-hours",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Most CPU hours that all submissions may request.",
)
@click.option(
    "--gpu-hours",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Most GPU hours that all submissions may request.",
)
@click.option(
    "--run-time",
    type=DURATION,
    default="10m",
    metavar="TIME",
    help="Stop a command of the tool run after TIME.  [default: 10m]",
)
def mcp(
    *,
    folder: str,
    allow_submit: bool,
    cpu_hours: float | None,
    gpu_hours: float | None,
    run_time: float,
) -> int:
    """Serve run, request, plan, submit, status and report as tools for agents.

    A server of the Model Context Protocol on stdin and stdout, for the settings
    of an agent; it needs the Python package mcp. Nothing is submitted without
    --allow-submit, which takes --cpu-hours too.

    \b
    weigh mcp
    weigh mcp --allow-submit --cpu-hours 100 --gpu-hours 10
    """  # noqa: D301 - click reads \b
    from weigh.flow.mcp_server import AgentLimits, serve  # noqa: PLC0415 - start-up time

    if allow_submit and cpu_hours is None:
        raise click.UsageError("--allow-submit needs a budget: --cpu-hours N")
    limits = AgentLimits(
        submit=allow_submit,
        cpu_hours=cpu_hours,
        # without a figure no GPU hours: an agent's submissions cost what nobody
        # permitted
        gpu_hours=0.0 if allow_submit and gpu_hours is None else gpu_hours,
        run_time=run_time,
    )
    serve(os.path.abspath(folder), limits)
    return 0
