"""``weigh exec``: parse the command line; print results and progress."""

import os
import sys
import time
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from weigh import config
from weigh.cli import options
from weigh.cli.options import DURATION, SECONDS, SECONDS_ABOVE_0, SIZE
from weigh.cli.output import draw_on_stderr, print_patiently
from weigh.errors import (
    FAILED,
    NO_TIME_LEFT,
    SIGNAL_BASE,
    WEIGH_FAILED,
)
from weigh.flow.exec.exec import execute, options_for_then, tasks_to_run
from weigh.flow.here import here_of
from weigh.flow.run.record_sink import current_folder
from weigh.model.progress import ExecReport
from weigh.progress.eta import TaskTally
from weigh.render import exec_lines
from weigh.render.printable import unguarded_stream, weigh_line
from weigh.runner.build import FinishedRun
from weigh.runner.retry import HaltRule, parse_halt
from weigh.runner.run_context import ExecOptions, RunConsole
from weigh.units import Seconds


class ExecCommand(options.SettingsCommand):
    """Reads ``[exec]`` too; a variable overrides it, and a flag overrides both."""

    def defaults(
        self, settings: config.ConfigValues
    ) -> dict[str, config.ConfigSetting]:
        """Return ``[exec]`` and the settings of several verbs, by parameter name."""
        return {**super().defaults(settings), **settings.exec}

    def key(self, name: str, settings: config.ConfigValues) -> str:
        """Return how the setting of a parameter's *name* is written in a file."""
        return f"exec.{name}" if name in settings.exec else name


_REDRAW = 0.5  # seconds between two drawings of the line
_HEARTBEAT = 60.0  # seconds between two lines where nothing can be redrawn


@click.command(
    "exec",
    cls=ExecCommand,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "WEIGH_EXEC",
    },
)
@options.jobs_at_once(100_000)
@click.option(
    "--per-gpu",
    type=options.BoundedCount(1, 1000),
    metavar="K",
    help="Number of parallel tasks per GPU.  [default: 1]",
)
@click.option(
    "--gpus",
    type=options.BoundedCount(1, 1000),
    metavar="N",
    help="Use N GPUs; idle ones if the scheduler names none.",
)
@click.option(
    "--joblog",
    metavar="FILE",
    help="File that logs each task that ended.  [default: TASKFILE.joblog]",
)
@click.option(
    "--output",  # without -o, which names a file everywhere else
    metavar="FOLDER",
    help="Directory for one output file per task.  [default: TASKFILE.out]",
)
@click.option(
    "-u", "--ungroup", is_flag=True, help="Print the output of tasks here, as it comes."
)
@click.option(
    "--resume/--no-resume",
    cls=options.FlagPair,
    default=True,
    help="Start over: run also what the joblog has.",
)
@click.option("--resume-failed", is_flag=True, help="Run failed tasks again, too.")
@click.option(
    "--retries",
    type=options.BoundedCount(1, 1000),
    default=1,
    metavar="N",
    help="Attempts per task, including the first.  [default: 1]",
)
@click.option(
    "--halt",
    default="never",
    metavar="WHEN,WHY",
    help="When to stop early: now,fail=1 or soon,fail=10%.  [default: never]",
)
@click.option(
    "--timeout",
    metavar="TIME",
    type=SECONDS_ABOVE_0,
    help="Stop a task after TIME; a bare number is seconds.  [default: never]",
)
@click.option(
    "--end-stuck",
    metavar="TIME",
    type=SECONDS_ABOVE_0,
    help="End a task without a sign of life for TIME; a bare number is seconds.  "
    "[default: never]",
)
# time from TERM to KILL; a bare number is seconds
@options.of_settings("--grace", type=SECONDS, default="30")
# stop the tasks before TIME is over: job scripts give it
@options.of_settings("--time", "time_limit", type=DURATION)
@click.option(
    "--memory",
    metavar="SIZE",
    type=SIZE,
    help="Keep the memory of all tasks below SIZE.  [default: the job's]",
)
# --no-guard: stop no task before host or GPU memory runs out
@options.of_settings("--guard/--no-guard", default=True)
@click.option(
    "--stop",
    type=click.Choice(("nan",)),
    metavar="nan",
    help="Stop a task that prints NaN or a loss that explodes.",
)
@options.dry_run("Print the tasks that would run.")
# --no-pin: do not bind tasks to cores of their own
@options.of_settings("--pin/--no-pin", default=True)
# --no-wait-orphans: stop processes a task leaves behind, instead of waiting
@options.of_settings("--wait-orphans/--no-wait-orphans", default=True)
# job scripts give these four, and messages name them where a person needs one
# kill processes that a killed run left
@options.of_settings("--kill-survivors", is_flag=True)
# ignore processes that a killed run left
@options.of_settings("--forget-survivors", is_flag=True)
# TASKFILE is the directory of a plan with a shared queue: pull its tasks
@options.of_settings("--pull", is_flag=True)
# with --pull: HOST has failed: run the tasks that it had taken
@options.of_settings("--gone", multiple=True)
@options.of_settings("--interval", type=SECONDS_ABOVE_0, default=0.05)
@options.of_settings("--stalled-after", type=SECONDS_ABOVE_0, default=600.0)
@click.option(
    "--progress",
    "progress_patterns",
    metavar="RE",
    multiple=True,
    help="Find progress in the output by (?P<done>..) and (?P<total>..).",
)
@click.option(
    "--checkpoint-signal",
    metavar="SIGNAL@TIME",
    help="Send SIGNAL to tasks TIME before the limit, such as USR1@10m.",
)
@options.as_json()
@options.quiet("Print nothing while tasks run.")
@click.argument("task_file", metavar="TASKFILE", shell_complete=options.files)
def exec_(**words: Any) -> int:  # noqa: ANN401 - click's own
    """Run the lines of TASKFILE in parallel, and measure each of them.

    Each line is a shell command; blank lines and # comments are skipped. Run the
    same command again to continue after an interruption. Each task gets a
    record, a line in a joblog as GNU parallel writes it, and an output file.

    Exit codes: 0 all done, 1 some failed or not run, 2 invalid command line
    or file, 124 with --pull: no time for the tasks that are left, 125 weigh
    failed, 128+n ended by signal n; after --halt the exit code of the task
    that caused it.

    \b
    weigh exec tasks.txt
    weigh exec --per-gpu 2 --retries 2 --timeout 6h tasks.txt
    weigh exec --resume-failed tasks.txt
    """  # noqa: D301 - click reads \b
    task_file = words.pop("task_file")
    as_json, quiet = words.pop("as_json"), words.pop("quiet")
    is_dry = words.pop("dry_run")
    words["halt"] = parse_halt(words["halt"])
    words["stop_nan"] = words.pop("stop") == "nan"
    context = click.get_current_context()
    # a typed -j wins over per_gpu of a settings file
    if options.is_typed(context, "jobs") and options.is_from_file(context, "per_gpu"):
        words["per_gpu"] = None
    # a site's setting keeps nobody from seeing the output here
    if words["ungroup"] and options.is_from_file(context, "end_stuck"):
        words["end_stuck"] = None
    _refuse_exec_contradictions(words)
    words["pull"] = task_file if words["pull"] else None
    settings = options.settings_of(context)
    exec_options = ExecOptions(**words, mask=settings.mask)
    if is_dry and exec_options.pull:
        raise click.UsageError("--pull: the runs decide as they go (weigh status)")
    if is_dry:
        for line in exec_lines.plan_lines(*tasks_to_run(task_file, exec_options)):
            click.echo(line)
        return 0
    # tasks that print here themselves would break a line that is redrawn
    console = _StderrConsole(quiet=quiet, alone=not exec_options.ungroup)
    for line in settings.warnings:
        _write_exec_text(weigh_line(line))
    finished, report = _executed_and_then(
        task_file, exec_options, console, as_json=as_json
    )
    if as_json:
        _print_exec_line(msgspec.json.encode(report).decode() + "\n")
    return _exec_exit_code(finished)


exec = exec_  # noqa: A001 - the verb's name


def _executed_and_then(
    task_file: str,
    exec_options: ExecOptions,
    console: "_StderrConsole",
    *,
    as_json: bool,
) -> tuple[FinishedRun, ExecReport]:
    """Run a task file and what follows ``# weigh: then``; print the summaries.

    The report is that of the tasks, and has the other in it.
    """
    resumes = exec_options.resume
    finished = _executed(task_file, exec_options, console)
    report = finished.report
    if not as_json:
        _print_summary(exec_lines.summary_lines(report, resumes=resumes), exec_options)
    if finished.then is None or _exec_exit_code(finished):
        return finished, report
    then = os.fsdecode(finished.then)
    if report.queue is not None:  # other runs may have tasks
        _write_exec_text(weigh_line(f"when all runs of this queue end, run: {then}"))
        return finished, report
    console.notify(f"all tasks are done; then: {then}")
    task_file, exec_options = options_for_then(finished, exec_options)
    finished = _executed(task_file, exec_options, console)
    if not as_json:
        lines = exec_lines.summary_lines(finished.report, resumes=resumes, is_then=True)
        _print_summary(lines, exec_options)
    return finished, replace(report, then=finished.report)


def _executed(
    task_file: str, exec_options: ExecOptions, console: "_StderrConsole"
) -> FinishedRun:
    """Run a task file, and print the warnings."""
    finished = execute(
        here_of(current_folder() or os.sep, os.environ),
        task_file,
        exec_options,
        RunConsole(console.notify, console.show),
    )
    # a drawn line is removed before anything is printed for good
    console.clear()
    for line in finished.warnings:
        _write_exec_text(weigh_line(line))
    return finished


def _print_summary(summary: list[str], exec_options: ExecOptions) -> None:
    # with -u the output of tasks is on stdout, so the summary goes to stderr
    write = _write_exec_text if exec_options.ungroup else _print_exec_line
    write("".join(f"{line}\n" for line in summary))


def _refuse_exec_contradictions(words: dict[str, Any]) -> None:
    if words["resume_failed"] and not words["resume"]:
        raise click.UsageError("--resume-failed and --no-resume: choose one")
    for name, option in (
        ("resume_failed", "--resume-failed"),
        ("halt", "--halt"),
    ):
        # one run cannot choose an order or an end for tasks that others take, too
        if words["pull"] and words[name] not in (False, HaltRule()):
            raise click.UsageError(f"--pull: other runs have a say, so omit {option}")
    if words["pull"] and not words["resume"]:
        raise click.UsageError("--pull continues by its claims: omit --no-resume")
    if words["gone"] and not words["pull"]:
        raise click.UsageError("--gone is about the runs of a queue: add --pull")
    if words["end_stuck"] is not None and words["ungroup"]:
        raise click.UsageError(
            "--end-stuck reads what tasks print, and with -u cannot: omit one"
        )


class _StderrConsole:
    """Shows progress on stderr: one line that is redrawn, or a line per minute."""

    def __init__(self, *, quiet: bool, alone: bool) -> None:
        """*alone*: no task writes to the terminal, so a line can be redrawn."""
        self._quiet = quiet
        terminal = sys.stderr is not None and sys.stderr.isatty()
        # TERM is missing or "dumb" where control sequences are shown as characters
        self._draws = alone and terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._is_drawn = False
        self._first = True

    def notify(self, line: str) -> None:
        """Print one line, after clearing the drawn one."""
        if self._quiet:
            return
        self.clear()
        _write_exec_text(weigh_line(line))

    def show(self, tally: TaskTally) -> Seconds:
        """Show the progress; return the seconds until the next call."""
        if self._quiet:
            return _HEARTBEAT
        if self._draws:
            line = f"\r\x1b[K{exec_lines.progress_line(tally)}"
            # is_drawn stays true if this drawing was dropped: an older line is on the
            # screen
            self._is_drawn = draw_on_stderr(line, is_ours=True) or self._is_drawn
            return _REDRAW
        # the first call comes at once, when there is nothing to report
        if self._first:
            self._first = False
            return _HEARTBEAT
        clock = time.strftime("%H:%M:%S")
        draw_on_stderr(f"weigh  {exec_lines.heartbeat_line(tally, clock)}\n")
        return _HEARTBEAT

    def clear(self) -> None:
        """Erase the drawn line."""
        if self._is_drawn:
            self._is_drawn = False
            _write_exec_text("\r\x1b[K", is_drawn=True)


def _exec_exit_code(finished: FinishedRun) -> int:
    result = finished.result
    # in this order: what weigh itself could not do outranks what tasks did
    if result.trouble is not None:
        return WEIGH_FAILED
    if result.signal is not None:
        return SIGNAL_BASE + result.signal
    if result.halt_code is not None:
        return result.halt_code
    # "later": another run of the queue will take them, so nothing is wrong here
    if finished.untaken and not finished.untaken.later:
        return NO_TIME_LEFT
    if finished.report.unsure:
        return FAILED  # tasks of a host that may be dead are left
    # tasks done in earlier runs count as done
    tally = result.tally
    return 0 if tally.done >= tally.tasks else FAILED


def _write_exec_text(text: str, *, is_drawn: bool = False) -> None:
    """Write to stderr, which :mod:`weigh.cli.main` keeps from blocking."""
    if sys.stderr is not None:
        (unguarded_stream(sys.stderr) if is_drawn else sys.stderr).write(text)


def _print_exec_line(text: str) -> None:
    """Write to stdout; a failure here does not change the exit code."""
    if sys.stderr is not None:
        # stderr first, so that both appear in order on one terminal
        sys.stderr.flush()
    trouble = print_patiently(text)
    if trouble is not None and not isinstance(trouble, BrokenPipeError):
        _write_exec_text(weigh_line(f"standard output: {trouble.strerror}"))
