"""``weigh check``: try a few tasks or check a job script; print lines or JSON."""

from typing import TYPE_CHECKING, Any

import click

from weigh.cli import options
from weigh.errors import FAILED, SIGNAL_BASE, UsageError
from weigh.flow.check.check import CheckOptions, is_job_script, try_tasks
from weigh.flow.here import here_now
from weigh.lazy_modules import lazy_module
from weigh.render.check_lines import (
    check_document,
    check_screen,
    script_check_json,
    script_check_lines,
)

if TYPE_CHECKING:
    from weigh import task_metric
    from weigh.flow.check import script
else:  # each is imported when it is first used
    task_metric = lazy_module("weigh.task_metric")
    script = lazy_module("weigh.flow.check.script")


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("path", metavar="TASKS|SCRIPT", shell_complete=options.files)
@options.limit("Number of tasks to try, chosen to differ.  [default: 5]", most=1000)
@click.option(
    "--timeout",
    "seconds",
    type=options.SECONDS_ABOVE_0,
    default=30.0,
    metavar="TIME",
    help="Stop each after TIME; a bare number is seconds.  [default: 30s]",
)
@options.jobs_at_once(1000)
@click.option(
    "--expect",
    metavar="BOUND",
    help="Fail unless each task's best value meets BOUND in that time: 'loss<0.05'.",
)
@options.scheduler(
    "Scheduler to check SCRIPT for.  [default: detected from the directives]", "form"
)
@options.as_json()
def check(path: str, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Try a few tasks of the file TASKS briefly, before all of them run.

    A job SCRIPT (a file with a #! line or a scheduler's directives) is checked and
    never run.

    weigh chooses tasks with the extreme and some middle values of each parameter.
    They run concurrently, each is measured as by `weigh run`, and weigh looks for
    crashes, NaN and inf in the output or in saved files, running out of memory,
    memory that still rises, and missing output. A task that still runs after
    --timeout is stopped and counts as fine.

    Exit codes: 0 no problem, 1 problems found, 2 invalid command line or file,
    125 weigh failed, 128+n ended by signal n.

    \b
    weigh check tasks.txt
    weigh check tasks.txt -n 8 --timeout 60
    weigh check overfit.txt --expect 'loss<0.05'
    weigh check run.sh
    """  # noqa: D301 - click reads \b
    # CheckOptions has no fields of these names
    as_json, form = words.pop("as_json"), words.pop("form")
    words["tasks"] = words.pop("limit") or CheckOptions().tasks
    expect = words.pop("expect")
    here = here_now()
    check_options = CheckOptions(
        **words,
        expect=None if expect is None else task_metric.metric_expectation(expect),
        allow_nan=here.settings.allow_nan,
        mask=here.settings.mask,
    )
    if is_job_script(path):
        if expect is not None:
            raise UsageError(f"--expect is for tasks; {path} is a job script")
        return _check_script(path, form, as_json=as_json)
    done = try_tasks(
        here,
        path,
        check_options,
        say=options.warn_on_stderr,
    )
    if as_json:
        click.echo(check_document(done))
    else:
        for line in check_screen(done):
            click.echo(line)
    # first: an interrupted trial has judged only some of the tasks
    if done.signal is not None:
        return SIGNAL_BASE + done.signal
    return FAILED if done.wrong else 0


def _check_script(path: str, form: str | None, *, as_json: bool) -> int:
    """Print the problems of a job script."""
    checked = script.check_here(here_now(), path, form=form)
    if as_json:
        click.echo(script_check_json(checked))
    else:
        for line in script_check_lines(checked):
            click.echo(line)
    return FAILED if checked.problems else 0
