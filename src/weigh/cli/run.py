"""``weigh run``: its command line. Short ones never come here: see plain_run."""

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from weigh import config
from weigh.cli import options
from weigh.cli.options import DURATION, HEADROOM, SIZE
from weigh.cli.run_job import (
    label_trouble,
    report_on,
    run_notifier,
    typed_parameters,
)
from weigh.errors import FormatError
from weigh.flow.run.run import RunOptions, WatchedCommand, run_command_measured
from weigh.lazy_modules import lazy_module
from weigh.measure.launcher import JobLauncher

if TYPE_CHECKING:
    from weigh.measure import checkpoint_signal
    from weigh.progress import reader
else:  # each is imported when it is first used
    checkpoint_signal = lazy_module("weigh.measure.checkpoint_signal")
    reader = lazy_module("weigh.progress.reader")

_MOST_RUNS = 10000  # of --repeat
_WITHOUT_OPTION = ("login_node", "stalled_after")  # settings only
# with these no command has to follow
_WITHOUT_DASHES = {"-h", "--help", "--help-all", "--attach"}
_STAGE_FILE = re.compile(r"\.toml(:[^/]*)?")
_STAGES = "weigh.stages"  # key of click's meta: the words are a file of steps
# options that are passed on to a file of steps; any other typed one is refused
_OF_STAGES = frozenset(("command", "output", "label", "quiet"))


class AfterDashes(options.SettingsCommand):
    """A command whose argv must follow ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a command line without ``--``, unless it runs a file of steps."""
        words = {arg.partition("=")[0] for arg in args}
        if args and "--" not in args and not _WITHOUT_DASHES & words:
            at = _first_of_command(ctx, args)
            if at == len(args) or not _STAGE_FILE.search(args[at]):
                raise click.UsageError(_put_dashes(args, at), ctx)
            ctx.meta[_STAGES] = True
        own = args[: args.index("--")] if "--" in args else args
        if [arg.partition("=")[0] for arg in own].count("--label") > 1:
            raise click.UsageError("--label: a run has one, not 2", ctx)
        return super().parse_args(ctx, args)


def _first_of_command(context: click.Context, arguments: list[str]) -> int:
    """Return where the words begin that are no options of weigh."""
    has_value = {
        name: isinstance(option, click.Option)
        and not option.is_flag
        and option.flag_value != ""  # --progress may have one
        for option in context.command.params
        for name in (*option.opts, *option.secondary_opts)
    }
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        name = arguments[at].partition("=")[0]
        if name not in has_value:
            raise click.NoSuchOption(name, ctx=context)
        # an option with a value takes the next word, too
        at += 2 if has_value[name] and "=" not in arguments[at] else 1
    return min(at, len(arguments))


def _put_dashes(arguments: list[str], at: int) -> str:
    if at == len(arguments):
        return "no command to run: weigh run -- COMMAND"
    with_dashes = " ".join(["weigh run", *arguments[:at], "--", *arguments[at:]])
    return f"put -- before the command: {with_dashes}"


def _checked_signal(text: str) -> str:
    checkpoint_signal.parse_checkpoint_signal(text)
    return text


def _checked_progress_patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    if texts:
        reader.RunProgressReader(tuple(filter(None, texts)))
    return texts


def _checked_label(text: str) -> str:
    trouble = label_trouble(text)
    if trouble is not None:
        raise FormatError(trouble)
    return text


def _repeats(
    context: click.Context, option: click.Parameter, text: str
) -> tuple[int, int]:
    """Read ``10`` or ``10,2``: runs, and those before them that do not count."""
    count, _, warmup = text.partition(",")
    return (
        options.BoundedCount(1, _MOST_RUNS).convert(count, option, context),
        options.BoundedCount(0, _MOST_RUNS).convert(warmup or 0, option, context),
    )


@click.command(
    cls=AfterDashes,
    context_settings=options.SETTINGS,
    options_metavar="[OPTIONS]",
)
@options.output("FILE", "Write the record as JSON.")
@click.option(
    "--label",
    metavar="NAME",
    callback=options.read_by(_checked_label),
    help="Name of the record, to find it again.",
)
@click.option(
    "--param",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=options.read_by(typed_parameters),
    help="A parameter of this run, for `weigh scan`; repeatable.",
)
# shortest time between samples
@options.of_settings("--interval", type=options.SECONDS_ABOVE_0, default=0.05)
@click.option(
    "--repeat",
    default="1",
    callback=_repeats,
    metavar="N[,WARMUP]",
    help="Run it N times, after WARMUP more that do not count; report minimum, median "
    "and maximum.  [default: 1,0]",
)
# what to request beyond the usage
@options.of_settings("--headroom", type=HEADROOM)
@click.option(
    "--memory",
    "fail_above",
    type=SIZE,
    metavar="SIZE",
    help="Memory that has to be enough: exit with 123 if the peak was larger.",
)
@options.quiet("Print nothing but what went wrong.")
# --no-wait-orphans: stop processes that outlive it, instead of waiting for them
@options.of_settings("--wait-orphans/--no-wait-orphans", default=True)
@click.option(
    "--progress",
    "progress_patterns",
    metavar="[=RE]",
    is_flag=False,
    flag_value="",  # without a pattern the known ones are tried
    multiple=True,
    callback=options.read_by(_checked_progress_patterns),
    help="Estimate the remaining time from the output; RE finds (?P<done>..) and "
    "(?P<total>..), or (?P<percent>..).",
)
@click.option(
    "--time",
    "time_limit",
    type=DURATION,
    metavar="TIME",
    help="Warn if it will not end in time.  [default: the job's limit]",
)
@click.option(
    "--checkpoint-signal",
    metavar="SIGNAL@TIME",
    callback=options.read_by(_checked_signal),
    help="Send a signal before the time limit, such as USR1@10m.",
)
@click.option(
    "--worst-batch",
    is_flag=True,
    help="Run only the longest and some other batches of each weigh.batches loop, for "
    "the memory and time of all.",
)
@click.option(
    "--attach",
    type=options.BoundedCount(),
    metavar="PID",
    help="Measure a running process instead of a COMMAND.",
)
@click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="-- COMMAND... | FILE.toml[:STEP] [NAME=VALUE]...",
)
@click.pass_context
def run(context: click.Context, /, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Measure one run of COMMAND, which needs no change.

    COMMAND runs without a shell, with this terminal, these pipes and its own
    exit code. At its end, its usage and the lines to request that from a
    scheduler are printed on stderr.

    Without -- the words are FILE.toml[:STEP] and NAME=VALUE. The steps of the file,
    [[stage]] tables with a name and a line to run, are executed in order until one
    fails; its exit code is returned, and FILE.toml:STEP continues there. The values
    are environment variables of the steps and parameters of the record. Within `weigh
    run` or a task of `weigh exec` the steps are added to that record.

    Exit codes: the command's own, 128+n when signal n ended it; 123 more memory
    than --memory, 125 weigh failed, 126 not executable, 127 not found.

    \b
    weigh run -- python3 train.py --epochs 1
    weigh run --label tag --param batch_size=50 -o tag.json -- python3 tag.py 50
    weigh run experiment.toml:train lr=0.1
    """  # noqa: D301 - click reads \b
    if _STAGES in context.meta:
        return _run_stages(context, words)
    settings = options.settings_of(context)
    quiet = words["quiet"]
    run_options = _run_options_typed(words, settings)
    # forked before click was imported, so that the job is not charged for weigh's size
    launchers = context.obj or []
    notify = run_notifier(quiet=quiet)
    command = list(words["command"])
    watched = _watch(words["attach"], command, run_options, launchers, notify)
    return report_on(
        watched,
        settings,
        quiet=quiet,
        headroom=words["headroom"],
        fail_above=words["fail_above"],
    )


def _run_stages(context: click.Context, words: dict[str, Any]) -> int:
    """Become the program that runs the steps."""
    from weigh.flow.sweep import stages  # noqa: PLC0415

    for name in words:
        if options.is_typed(context, name) and name not in _OF_STAGES:
            raise click.UsageError(
                f"a file of steps takes no {options.flag_of(context, name)}"
            )
    stage_file, *settings = words["command"]
    stages_options = stages.StagesOptions(
        settings=tuple(settings),
        output=words["output"],
        label=words["label"],
        quiet=bool(words["quiet"]),
    )
    stages.become_stages(stage_file, stages_options, os.environ)
    return 0  # never reached: this process has become another one


def _watch(
    pid: int | None,
    command: list[str],
    options: RunOptions,
    launchers: list[JobLauncher],
    notify: Callable[[str], None],
) -> WatchedCommand:
    """Run the command, or attach to a process: exactly one of the two."""
    if pid is not None and command:
        raise click.UsageError("--attach takes no command: it measures a process")
    if pid is not None and options.worst_batch:
        raise click.UsageError("--attach changes no loop: leave out --worst-batch")
    flags = _progress_flags(options)
    if flags and pid is not None:
        raise click.UsageError(f"--attach reads no output: leave out {flags[0]}")
    if flags and sys.platform != "linux":
        notify(f"{flags[0]} has no effect: output is read on Linux only")
    if pid is not None:
        from weigh.flow.run.run import attach  # noqa: PLC0415 - start-up time

        return attach(pid, options, notify=notify)
    if not command:
        raise click.UsageError("no command to run: weigh run -- COMMAND")
    return run_command_measured(command, options, launchers=launchers, notify=notify)


def _progress_flags(options: RunOptions) -> list[str]:
    """Return the given flags that need the command's output."""
    flags = {
        "--progress": options.progress,
        "--time": options.time_limit is not None,
        "--checkpoint-signal": options.checkpoint_signal is not None,
    }
    return [flag for flag, is_given in flags.items() if is_given]


def _run_options_typed(
    words: dict[str, Any], settings: config.ConfigValues
) -> RunOptions:
    """Return what was typed, and the settings that have no option."""
    words["repeat"], words["warmup"] = words["repeat"]
    patterns = words["progress_patterns"]
    words["progress"] = bool(patterns)
    words["progress_patterns"] = tuple(filter(None, patterns))
    own = {name: words[name] for name in RunOptions.__struct_fields__ if name in words}
    without_option: dict[str, Any] = {
        name: one.value
        for name, one in settings.settings.items()
        if name in _WITHOUT_OPTION
    }
    # a line that is drawn again needs a terminal that can erase it
    draws = not words["quiet"] and os.environ.get("TERM", "dumb") != "dumb"
    return RunOptions(**own, **without_option, draws=draws, mask=settings.mask)
