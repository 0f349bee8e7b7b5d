"""What ``weigh exec`` needs to read along with its tasks."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weigh.flow.exec.options import ExecOptions, end_at
from weigh.flow.run.progress_limit import asked_time_left, asking, time_left
from weigh.runner.progress_file import SUFFIX
from weigh.runner.progress_rules import ProgressRules
from weigh.runner.progress_watch import ProgressWatch
from weigh.runner.slots import Layout

if TYPE_CHECKING:
    from weigh.measure.checkpoint_signal import CheckpointSignal


def watch_progress(
    options: ExecOptions,
    files: tuple[str, str, Mapping[int, Mapping[str, str]]],
    layout: Layout,
    *,
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> ProgressWatch:
    """Make what reads along with the tasks.

    *files* are the run's id, its joblog and what names the event file of each slot.
    """
    run, joblog, channels = files
    ends_at = end_at(options.time_limit, env)
    signal = check_progress(options)
    if signal is not None and ends_at is None and options.timeout is None:
        say("no time limit is known, so no checkpoint signal: add --time-limit")
    rules = ProgressRules(
        path=joblog + SUFFIX,
        run=run,
        slots=len(layout.slots),
        say=say,
        ask=asking(env),
        channels={slot: next(iter(words.values())) for slot, words in channels.items()},
        patterns=options.progress_patterns,
        ends_at=ends_at,
        timeout=options.timeout,
        checkpoint_signal=signal,
        stalled_after=options.stalled_after,
        gpus=len(layout.gpus),
    )
    return ProgressWatch(rules)


def with_limit(options: ExecOptions, env: Mapping[str, str]) -> ExecOptions:
    """Fill in the job's time limit, where the scheduler has to be asked for it."""
    if options.time_limit is not None or time_left(None, env) is not None:
        return options
    left = asked_time_left(env)
    return options if left is None else replace(options, time_limit=left)


def check_progress(options: ExecOptions) -> "CheckpointSignal | None":
    """Read the checkpoint signal, and check the patterns as well.

    Raises:
        FormatError: one of them is none.
    """
    if options.progress_patterns:
        from weigh.progress.reader import Reader  # noqa: PLC0415 - where given

        Reader(options.progress_patterns)
    if options.checkpoint_signal is None:
        return None
    from weigh.measure.checkpoint_signal import parse_checkpoint_signal  # noqa: PLC0415 - rarely

    return parse_checkpoint_signal(options.checkpoint_signal)
