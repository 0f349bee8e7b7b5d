"""``weigh run --progress``: read the output of the job, forecast its end, warn."""

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from weigh import waits
from weigh.errors import WeighError
from weigh.lazy_modules import lazy_module
from weigh.measure.output import own_output_files
from weigh.model.record import Allocation, ReportedProgress, RunMeasurement
from weigh.schedulers import end_from_environment, kind_of_job, kind_or_first
from weigh.units import Seconds, format_duration

if TYPE_CHECKING:
    from weigh.flow.run.run import RunOptions
    from weigh.measure import async_command, checkpoint_signal, progress_reader, pty_tee
    from weigh.measure.async_command import AsyncCommand
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.measure.progress_reader import ProgressReader
    from weigh.measure.pty_tee import PtyTee
    from weigh.measure.watcher import TreeWatcher
    from weigh.progress import notices
    from weigh.progress.notices import LimitWatch, StallWatch
    from weigh.render import progress_lines
    from weigh.schedulers import command
else:  # each is imported when it is first used
    async_command = lazy_module("weigh.measure.async_command")
    checkpoint_signal = lazy_module("weigh.measure.checkpoint_signal")
    progress_reader = lazy_module("weigh.measure.progress_reader")
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
    text = (kind_of_job(env) or kind_or_first(None)).text
    return lambda seconds: text.OPTIONS.time.format(text.format_time(round(seconds)))


_FIRST_PASSING = 0.05  # seconds, if the output passes through a copier
_SHORTEST, _LONGEST = 0.1, 1.0  # seconds between two reads
_OF_ELAPSED = 0.05  # of the time so far: long runs are read less often
_WIDTH = 80  # of a terminal that does not know its own
_SPEAK_FIRST = 60.0  # seconds until the first line in a log
_SPEAK_LATER = 3600.0  # seconds between two lines at most
_LATEST_SIGNAL = 0.5  # of a run's time; no checkpoint signal before that


class RunObserver:
    """Observes one run: progress, time limit, stalls and the checkpoint signal."""

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
        self._signal_at: Seconds | None = None
        self._has_limit = False
        self._query: AsyncCommand | None = None
        self.tee: PtyTee | None = None
        self._reader: ProgressReader | None = None
        self._limits: LimitWatch | None = None
        self._stalls: StallWatch | None = None
        self._latest: ReportedProgress | None = None
        self._looked_at: Seconds = 0.0
        self._forecast_at: Seconds = 0.0
        self._speak_at = _SPEAK_FIRST
        if options.progress:
            self.tee = _tee(notify, draws=options.draws)

    def joined(self, measurement: RunMeasurement) -> RunMeasurement:
        """Return the measurement with the progress so far."""
        return msgspec.structs.replace(measurement, progress=self.progress())

    def finish(self, measurement: RunMeasurement | None) -> RunMeasurement | None:
        """Read the rest of the output; return the measurement with the progress."""
        self._read_the_rest(measurement)
        return None if measurement is None else self.joined(measurement)

    def look(self, run: "TreeWatcher") -> Seconds:
        """Read new output; return the seconds until the next call."""
        if not self._looked_at:
            # not 0 any more: the first call came
            self._looked_at = 1e-9
            if self.tee is not None:
                self.tee.launched()
                return _FIRST_PASSING
            return waits.times.first_read_of_run
        now = run.elapsed()
        self._start_reader()
        if not self._has_limit:
            self._find_limit(run, now)
        has_changed = self._read(now)
        self._send_signal(run, now)
        if now >= self._forecast_at:
            self._forecast_at = now + waits.times.forecast_of_run
            self._consider(run, now)
        return self._pause(now, has_changed=has_changed)

    def progress(self) -> ReportedProgress | None:
        """Return the progress so far."""
        return self._latest

    def _read_the_rest(self, measured: RunMeasurement | None) -> None:
        """Wait for all output of the job, and read it."""
        now = self._looked_at if measured is None else measured.usage.wall_time
        if self._query is not None:
            self._query.close()
        if self.tee is not None:
            reader = self._start_reader()
            self.tee.finish(lambda: reader.look(now))
        if self._reader is not None:
            self._read(now)
            # a run that failed did not do all of its steps
            is_through = measured is not None and measured.exit_code == 0
            found = self._reader.forecast(now, is_through=is_through)
            self._latest = found or self._latest
            self._reader.close()

    def _start_reader(self) -> "ProgressReader":
        """Return the reader; start it at the first call."""
        if self._reader is not None:
            return self._reader
        passing = [] if self.tee is None else self.tee.passages
        self._reader = progress_reader.ProgressReader(
            [*self._files, *passing],
            self._channel,
            patterns=self._options.progress_patterns,
        )
        self._stalls = notices.StallWatch(self._options.stalled_after, gpus=self._gpus)
        return self._reader

    def _read(self, current_time: Seconds) -> bool:
        if self._reader is None:
            return False
        self._looked_at = current_time
        return self._reader.look(current_time)

    def _pause(self, current_time: Seconds, *, has_changed: bool) -> Seconds:
        if self.tee is not None:
            pause = _SHORTEST if has_changed else 2 * _SHORTEST
        else:
            # short runs are looked at often: there is little time to see them
            pause = min(_LONGEST, max(_SHORTEST, current_time * _OF_ELAPSED))
        if self._signal_at is None:
            return pause
        return max(0.0, min(pause, self._signal_at - current_time))  # never late

    def _consider(self, run: "TreeWatcher", current_time: Seconds) -> None:
        """Update the forecast, and print the notices that are due."""
        if self._reader is None:
            return
        self._latest = self._reader.forecast(current_time)
        if self._limits is not None:
            self._speak(self._limits.look(current_time, self._latest))
        if self._stalls is not None:
            stalled = self._stalls.look(
                current_time,
                cpu_time=run.cpu_time(),
                wrote_at=self._reader.wrote_at,
                gpu_idle=run.gpu_idle() if self._gpus else None,
            )
            self._speak(stalled)
        latest = self._latest
        if self.tee is not None and self.tee.terminal is not None:
            self._draw(self.tee, current_time)
        elif (
            self._options.progress
            and latest is not None
            and current_time >= self._speak_at
        ):
            line = progress_lines.end_forecast_text(latest, current_time)
            if line is not None:
                # each line at twice the time of the one before
                self._speak_at = current_time + min(current_time, _SPEAK_LATER)
                self._speak(line)

    def _draw(self, tee: "PtyTee", current_time: Seconds) -> None:
        """Show one line on the terminal: how far the run is, and when it ends."""
        if current_time < waits.times.first_drawing or tee.terminal is None:
            return
        try:
            width = os.get_terminal_size(tee.terminal).columns
        except OSError:
            width = 0
        tee.show(progress_lines.live_line(self._latest, current_time, width or _WIDTH))

    def _find_limit(self, run: "TreeWatcher", current_time: Seconds) -> None:
        """Find out the time limit, without waiting for a slow scheduler."""
        if self._limit is None:
            if self._query is None:
                self._query = _start_query(self._env, run)
            answer = "" if self._query is None else self._query.answer()
            # no answer yet: ask again at the next look
            if answer is None:
                return
            left = queried_time_left(self._env, lambda _job: answer)
            # the answer counts from now, the limit from the start
            self._limit = None if left is None else current_time + left
        self._has_limit = True
        if self._limit is not None:
            self._limits = notices.LimitWatch(self._limit, asking(self._env))
        self._signal_at = self._signal_time()

    def _signal_time(self) -> Seconds | None:
        """Return when to send the signal; print a notice if that is not possible."""
        wanted = self._signal
        if wanted is None:
            return None
        if self._limit is None:
            self._notify("no time limit is known, so no checkpoint signal: add --time")
            return None
        at = self._limit - wanted.before
        if at < self._limit * (1 - _LATEST_SIGNAL):
            self._notify("the checkpoint signal comes early: the limit is near already")
        # not before the program can have installed its handler
        return max(at, min(waits.times.first_read_of_run, self._limit * _LATEST_SIGNAL))

    def _send_signal(self, run: "TreeWatcher", current_time: Seconds) -> None:
        wanted = self._signal
        if wanted is None or self._signal_at is None or current_time < self._signal_at:
            return
        # only once, whether it can be sent or not
        self._signal_at = None
        leader = run.leader()
        if leader is None:
            return
        left = format_duration(max(0.0, (self._limit or 0.0) - current_time))
        if checkpoint_signal.send_checkpoint_signal(leader, wanted.number):
            self._speak(f"sent {wanted.name}: {left} to the time limit")
        else:
            self._speak(f"{wanted.name} not sent: no process has a handler for it")

    def _speak(self, line: str | None) -> None:
        if line is None:
            return
        # the program's line is still open: begin a new one
        in_a_line = self._reader is not None and self._reader.is_in_a_line
        first, *others = line.split("\n")
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
