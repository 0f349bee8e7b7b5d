"""``weigh doctor``: options; a checklist or JSON, and exit code 1 on a problem."""

import os

import click

from weigh.cli import options
from weigh.flow.doctor import diagnose_machine
from weigh.flow.here import here_of
from weigh.flow.run.record_sink import current_folder
from weigh.render.doctor_lines import doctor_document, doctor_page


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument(
    "job", required=False, metavar="[PLAN|SCRIPT]", shell_complete=options.files
)
@options.as_json()
def doctor(*, job: str | None, as_json: bool) -> int:
    """Find problems of this machine or of a job, and show how to fix them.

    Checks the scheduler, Python and torch, the GPU, disks, and where records go.
    Of a PLAN or SCRIPT also what a job needs before it is submitted: code, data,
    environment, memory and GPU request, script. Nothing is changed.

    The exit code is 1 if something is broken, and 0 if there are only warnings.
    """
    # a current folder that was deleted is a finding, so the check starts elsewhere
    found = diagnose_machine(here_of(current_folder() or os.sep, os.environ), job=job)
    if as_json:
        click.echo(doctor_document(found).decode())
    else:
        click.echo("\n".join(doctor_page(found)))
    return 1 if found.is_broken else 0
