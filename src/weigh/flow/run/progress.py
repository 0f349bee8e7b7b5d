"""``weigh run --progress``: read the output of the job, forecast its end, warn."""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from weigh import waits
from weigh.errors import WeighError
from weigh.lazy_modules import lazy_module
from weigh.measure.output import own_output_files
from weigh.model.record import Allocation, RunMeasurement
from weigh.schedulers import (
    KINDS,
    end_from_environment,
    installed_scheduler,
    kind_of_job,
)
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow.run.run import RunOptions
    from weigh.measure import (
        async_command,
        checkpoint_signal,
        progress_follower,
        pty_tee,
    )
    from weigh.measure.async_command import AsyncCommand
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.measure.progress_follower import ProgressFollower
    from weigh.measure.pty_tee import PtyTee
    from weigh.measure.watcher import TreeWatcher
    from weigh.progress import notices
    from weigh.render import progress_lines
    from weigh.schedulers import command
else:  # each is imported when it is first used
    async_command = lazy_module("weigh.measure.async_command")
    checkpoint_signal = lazy_module("weigh.measure.checkpoint_signal")
    progress_follower = lazy_module("weigh.measure.progress_follower")
    pty_tee = lazy_module("weigh.measure.pty_tee")
    notices = lazy_module("weigh.progress.notices")
    progress_lines = lazy_module("weigh.render.progress_lines")
    command = lazy_module("weigh.schedulers.command")

PATIENCE = 5.0  # seconds for the scheduler's answer, a second into the job
Ask = Callable[[tuple[str, ...]], str]


def time_until_limit(limit: Seconds | None, env: Mapping[str, str]) -> Seconds | None:
    """Return the seconds until the time limit; None if none is known.

    *limit* is the user's, counted from now; without it the job's environment counts.
    """
    if limit is not None:
        return limit
    end = end_from_environment(env)
    left = 0.0 if end is None else end - time.time()
    return left if left > 0 else None  # the limit of a job that is over


def queried_time_left(env: Mapping[str, str], ask: Ask | None = None) -> Seconds | None:
    """Query the scheduler for a limit that the environment lacks; None: no limit.

    *ask* returns the output of the scheduler's command.
    """
    kind, argv = kind_of_job(env), limit_query(env)
    if kind is None or argv is None:
        return None
    file = kind.text.start_file(env)
    try:
        # the scheduler lists the limit only: the job began when it wrote that file
        elapsed = 0.0 if file is None else time.time() - os.stat(file).st_mtime
        out = ask(argv) if ask is not None else _answer_on_time_left(argv, env)
        return kind.text.parse_left(out, elapsed)
    except (OSError, WeighError):
        return None


def limit_query(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the command that queries the limit; None if none is needed."""
    kind = kind_of_job(env)
    return None if kind is None else kind.text.limit_argv(env)


def _answer_on_time_left(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    return command.run_scheduler_command(argv, env, timeout=PATIENCE).out


def asking(env: Mapping[str, str]) -> Callable[[Seconds], str]:
    """Return the function that formats a time limit as this scheduler's option."""
    text = (kind_of_job(env) or KINDS[installed_scheduler(env)]).text
    return lambda seconds: text.OPTIONS.time.format(text.format_time(round(seconds)))


_DRAIN = 0.1  # seconds between reads of a copier's pipe, which holds 64 KiB
_WIDTH = 80  # of a terminal that does not know its own
_SPEAK_FIRST = 60.0  # seconds until the first line in a log
_SPEAK_LATER = 3600.0  # seconds between two lines at most


class RunObserver:
    """Observes one run: its progress, in a line of the terminal, and its time limit."""

    def __init__(
        self,
        options: "RunOptions",
        *,
        channel: str | None,
        env: Mapping[str, str],
        allocation: Allocation | None,
        notify: Callable[[str], None],
    ) -> None:
        """Prepare; if a terminal or pipe is read, start its copier.

        Raises:
            FormatError: the checkpoint signal is invalid.
        """
        self._options = options
        self._channel = channel
        self._env = env
        granted = allocation.gpus if allocation else None
        devices = env.get("CUDA_VISIBLE_DEVICES", "")
        # the scheduler's number, or else the devices that are visible
        self._gpus = granted or len([one for one in devices.split(",") if one.strip()])
        self._notify = notify
        self._files = own_output_files()
        self._limit = time_until_limit(options.time_limit, env)
        self._signal = _parsed_checkpoint_signal(options.checkpoint_signal)
        self._leader: Callable[[], int | None] = lambda: None
        self._has_begun = self._has_limit = False
        self._query: AsyncCommand | None = None
        self.tee: PtyTee | None = None
        self._follower: ProgressFollower | None = None
        self._speak_at = _SPEAK_FIRST
        if options.progress:
            self.tee = _tee(notify, draws=options.draws)

    def joined(self, measurement: RunMeasurement) -> RunMeasurement:
        """Return the measurement with the progress so far."""
        forecast = None if self._follower is None else self._follower.forecast
        return msgspec.structs.replace(measurement, progress=forecast)

    def finish(self, measurement: RunMeasurement | None) -> RunMeasurement | None:
        """Read the rest of the output; return the measurement with the progress."""
        now = 0.0 if measurement is None else measurement.usage.wall_time
        if self._query is not None:
            self._query.end()
        if self.tee is not None:
            reader = self._followed().reader
            self.tee.finish(lambda: reader.look(now))
        if self._follower is not None:
            is_through = measurement is not None and measurement.exit_code == 0
            self._follower.finish(now, is_through=is_through)
        return None if measurement is None else self.joined(measurement)

    def look(self, run: "TreeWatcher") -> Seconds:
        """Look at the run and its output; return the seconds until the next call."""
        if not self._has_begun:
            self._has_begun = True
            self._leader = run.leader
            if self.tee is not None:
                self.tee.launched()
                run.call_at(partial(self._drain, run), _DRAIN)
            return waits.times.first_look
        follower = self._followed()
        if not self._has_limit:
            self._find_limit(run, follower)
        wait, now = follower.look(run), run.elapsed()
        if self.tee is not None and self.tee.terminal is not None:
            self._draw(self.tee, self.tee.terminal, now)
            return min(wait, waits.times.between_looks)
        if self._options.progress and follower.forecast and now >= self._speak_at:
            line = progress_lines.end_forecast_text(follower.forecast, now)
            if line is not None:
                # each line at twice the time of the one before
                self._speak_at = now + min(now, _SPEAK_LATER)
                self._speak(line)
        return wait

    def _drain(self, run: "TreeWatcher") -> Seconds:
        """Read what the copier passes on; its pipe must not overflow."""
        self._followed().reader.look(run.elapsed())
        return _DRAIN

    def _followed(self) -> "ProgressFollower":
        """Return what follows the run; begin at the first call."""
        if self._follower is None:
            passing = [] if self.tee is None else self.tee.passages
            self._follower = progress_follower.ProgressFollower(
                progress_follower.ProgressReader(
                    [*self._files, *passing],
                    self._channel,
                    patterns=self._options.progress_patterns,
                ),
                notices.StallWatch(self._options.stalled_after, gpus=self._gpus),
                notify=self._speak,
                warn=self._speak,
                send=self._send_signal,
            )
        return self._follower

    def _draw(self, tee: "PtyTee", terminal: int, current_time: Seconds) -> None:
        """Show one line on the terminal: how far the run is, and when it ends."""
        try:
            width = os.get_terminal_size(terminal).columns
        except OSError:
            width = 0
        forecast = self._followed().forecast
        tee.show(progress_lines.live_line(forecast, current_time, width or _WIDTH))

    def _find_limit(self, run: "TreeWatcher", follower: "ProgressFollower") -> None:
        """Find out the time limit, without waiting for a slow scheduler."""
        if self._limit is None:
            if self._query is None:
                self._query = _start_query(self._env, run)
            answer = "" if self._query is None else self._query.answer()
            # no answer yet: ask again at the next look
            if answer is None:
                return
            self._query = None
            left = queried_time_left(self._env, lambda _job: answer)
            # the answer counts from now, the limit from the start
            self._limit = None if left is None else run.elapsed() + left
        self._has_limit = True
        if self._limit is not None:
            limits = notices.LimitWatch(self._limit, asking(self._env))
            follower.set_limit(limits, self._signal)
        elif self._signal is not None:
            self._notify(checkpoint_signal.NO_TIME_LIMIT)

    def _send_signal(self, number: int) -> int:
        leader = self._leader()
        if leader is None:
            return 0
        return checkpoint_signal.send_checkpoint_signal(leader, number)

    def _speak(self, text: str) -> None:
        # the program's line is still open: begin a new one
        in_a_line = self._follower is not None and self._follower.reader.is_in_a_line
        first, *others = text.split("\n")
        if self.tee is not None and not in_a_line:
            self.tee.erase()
        self._notify(f"\n{first}" if in_a_line else first)
        for other in others:
            self._notify(other)


def _parsed_checkpoint_signal(text: str | None) -> "CheckpointSignal | None":
    if text is None:
        return None
    return checkpoint_signal.parse_checkpoint_signal(text)


def _start_query(env: Mapping[str, str], run: "TreeWatcher") -> "AsyncCommand | None":
    """Start the query of the time limit, if the environment has none."""
    argv = limit_query(env)
    if argv is None:
        return None
    kind = kind_of_job(env)
    off = () if kind is None else kind.variables.unset
    try:
        query = async_command.AsyncCommand(argv, env, patience=PATIENCE, unset=off)
    except OSError:  # no such command here
        return None
    # the query runs among the job's processes, and is none of them
    run.set_aside(query.pid)
    return query


def _tee(notify: Callable[[str], None], *, draws: bool) -> "PtyTee | None":
    """Start the copier if there is a terminal or pipe; the job runs in any case."""
    try:
        found = pty_tee.PtyTee(draws=draws)
    except OSError as error:
        notify(f"cannot read the output: {error.strerror}")
        return None
    return found if found.pid is not None else None
