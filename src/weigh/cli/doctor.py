"""``weigh doctor``: the words of the command line; a page, and whether all is well."""

import os

import click

from weigh.cli import options
from weigh.flow.doctor.doctor import doctor as doctor_flow
from weigh.flow.run.record_sink import current_folder
from weigh.render.doctor_lines import render_json, render_text


@click.command(context_settings=options.SETTINGS)
@click.option(
    "--job",
    is_flag=False,
    flag_value="",
    metavar="[PLAN|SCRIPT]",
    help="Also tick what a job needs before it is shipped: code, data, "
    "environment, RAM and GPUs known, script.  [default: the one that is here]",
)
@options.as_json()
def doctor(*, job: str | None, as_json: bool) -> int:
    """Say what is wrong here, and what to do about it.

    Looks at the scheduler, Python and torch, the GPU's driver, disks and quotas,
    limits, the clock, and at what weigh can measure here. Nothing is changed. The
    exit code is 1 where something is broken; warnings leave it 0.
    """
    found = doctor_flow(current_folder() or os.sep, os.environ, job=job)
    if as_json:
        click.echo(render_json(found).decode())
    else:
        click.echo("\n".join(render_text(found)))
    return 1 if found.is_broken else 0
