"""``weigh check``: a trial of tasks, or what is off in a script; as lines or JSON."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from weigh.cli import options
from weigh.errors import FAILED, SIGNAL_BASE, UsageError
from weigh.flow.check.check import CheckOptions, choose, is_job_script
from weigh.flow.check.check import check as check_flow
from weigh.model.lint import Checked
from weigh.render.check_lines import planned_line, render_json, render_text


@click.command(context_settings=options.SETTINGS)
@click.argument("path", metavar="TASKS|SCRIPT|PLAN", shell_complete=options.files)
@click.option(
    "--tasks",
    type=click.IntRange(1, 1000),
    default=5,
    metavar="N",
    help="Try N tasks, as different as can be.  [default: 5]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 86400, min_open=True),
    default=30.0,
    metavar="S",
    help="Stop each after S seconds.  [default: 30]",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Tasks side by side.  [default: one a CPU or GPU that is ours]",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    default=5.0,
    metavar="S",
    help="From telling a task to end to killing it.  [default: 5]",
)
@click.option(
    "--allow-nan", is_flag=True, help="NaN and inf in their output are no fault."
)
@click.option(
    "--for",
    "form",
    type=click.Choice(["slurm", "gridengine"]),
    help="Read a SCRIPT so.  [default: as its directives are]",
)
@click.option("--dry-run", is_flag=True, help="Print the tasks; run nothing.")
@options.as_json()
def check(path: str, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Try a few tasks of the file TASKS for a short while, before all of them run.

    A job SCRIPT, with a #! line or a scheduler's directives, is read and never
    run: what would go wrong with it is said. Of a PLAN both are done: its tasks
    are tried, and the script of its job is read.

    Chosen are the extremes and a spread of each parameter. They run side by side,
    each measured as by `weigh run`, and are watched for crashes, NaN and inf in
    what they print, memory that runs out or still rises, and silence. One that
    still runs when its time is up is stopped, and is fine.

    Exit codes: 0 all fine, 1 something is wrong, 2 the file or the command line
    is off, 125 weigh failed, 128+n told to end by signal n.

    \b
    weigh check tasks.txt
    weigh check tasks.txt --tasks 8 --seconds 60
    weigh check run.sh
    weigh check plan/tasks
    """  # noqa: D301 - click reads \b
    as_json, is_dry = words.pop("as_json"), words.pop("dry_run")
    form = words.pop("form")
    options = CheckOptions(**words)
    if is_job_script(path):
        return _check_script(path, form, as_json=as_json)
    if is_dry and as_json:
        raise UsageError("--dry-run prints tasks: leave --json out")
    if is_dry:
        for task in choose(path, options).tasks:
            click.echo(planned_line(task.seq, os.fsdecode(task.line)))
        return 0
    done = check_flow(
        path,
        options,
        say=lambda line: click.echo(f"weigh: {line}", err=True),
        cwd=os.getcwd(),
        env=os.environ,
    )
    scripts = _scripts_of_plan(path, form) if done.is_plan else None
    if as_json:
        click.echo(render_json(done, scripts))
    else:
        for line in (*render_text(done), *_script_lines(scripts or ())):
            click.echo(line)
    if done.signal is not None:
        return SIGNAL_BASE + done.signal
    is_wrong = done.wrong or any(script.problems for script in scripts or ())
    return FAILED if is_wrong else 0


def _scripts_of_plan(path: str, form: str | None) -> Sequence[Checked]:
    from weigh.flow.check.check import check_scripts  # noqa: PLC0415 - only for a plan

    return check_scripts(path, form=form, cwd=os.getcwd(), env=os.environ)


def _script_lines(scripts: Sequence[Checked]) -> Iterator[str]:
    from weigh.render import script_lines  # noqa: PLC0415 - start-up time

    for script in scripts:
        if not script.findings:
            yield script.script
        yield from script_lines.render(script)


def _check_script(path: str, form: str | None, *, as_json: bool) -> int:
    """Say what is off in a job script."""
    from weigh.flow.check.script import check_here  # noqa: PLC0415 - tasks do without
    from weigh.render import script_lines  # noqa: PLC0415 - start-up time

    checked = check_here(path, form=form, cwd=os.getcwd(), env=os.environ)
    if as_json:
        click.echo(script_lines.render_json(checked))
    else:
        for line in script_lines.render(checked):
            click.echo(line)
    return FAILED if checked.problems else 0
