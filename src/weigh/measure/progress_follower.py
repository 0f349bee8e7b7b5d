"""Follow the progress of a run: of ``weigh run``, and of each task of ``weigh exec``.

It is read from the run's output and from its event file.
"""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from weigh import waits
from weigh.lazy_modules import lazy_module
from weigh.measure.checkpoint_signal import CheckpointSignal
from weigh.measure.output import Feed, WatchedOutput
from weigh.model.record import ReportedProgress
from weigh.progress.notices import LimitWatch, StallWatch
from weigh.progress.reader import RunProgressReader
from weigh.store.lines import UNREADABLE
from weigh.units import Seconds, format_duration

if TYPE_CHECKING:
    from weigh.measure.region import channel
    from weigh.measure.watcher import TreeWatcher
else:  # each is imported when it is first used
    channel = lazy_module("weigh.measure.region.channel")

# of the time so far: long runs are looked at less often, as their end is less urgent
_OF_ELAPSED = 0.02
_COUNTED = "(step|iteration|iter|epoch|batch|timestep)"
_STEP_NAME = re.compile(f"(?:global_|train_|n_)?{_COUNTED}")
_TOTAL_NAME = re.compile(f"(?:total|max|num)_{_COUNTED}e?s")


class OutputStream(Protocol):
    """What is read of a job's output: a file, or what its copier passes on."""

    def look(self, feed: Feed) -> bool:
        """Pass new output to *feed*; return whether there was any."""

    def close(self) -> None:
        """Close it."""


class ProgressReader:
    """Reads streams and an event file, and predicts the end from the run's own counts.

    Times are seconds since the run's start. ``wrote_at`` is the time of the last
    output; None if no output can be read.
    """

    def __init__(
        self,
        streams: Sequence[OutputStream],
        channel: str | None = None,
        *,
        patterns: Sequence[str] = (),
    ) -> None:
        """Prepare to read. Raises FormatError for an invalid pattern."""
        self._streams = tuple(streams)
        self._printed = RunProgressReader(patterns)
        # reported steps may be parts of epochs that are printed
        self._channel = channel and _EventChannel(channel, self._printed)
        self._last = b""
        self.wrote_at: Seconds | None = 0.0 if self._streams else None

    def look(self, current_time: Seconds) -> bool:
        """Read new output; return whether there was any."""
        has_changed = False
        for number, stream in enumerate(self._streams):

            def feed(chunk: bytes, number: int = number) -> None:
                self._last = chunk[-1:]
                self._printed.feed(chunk, current_time, stream=number)

            has_changed |= stream.look(feed)
        if has_changed:
            self.wrote_at = current_time
        if self._channel:
            self._channel.look(current_time)
        return has_changed

    @property
    def is_in_a_line(self) -> bool:
        """Whether the output read last ended within a line."""
        # nothing yet, or the end of a line
        return self._last not in b"\n"

    def forecast(
        self, current_time: Seconds, *, is_through: bool = False
    ) -> ReportedProgress | None:
        """Predict the end of the run; of nested loops the outermost counts.

        *is_through*: the run has completed.
        """
        return self._printed.forecast(current_time, is_through=is_through)

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams:
            stream.close()
        if self._channel:
            self._channel.close()


class _EventChannel:
    """The event file that programs with ``import weigh`` write to."""

    def __init__(self, path: str, reader: RunProgressReader) -> None:
        self._reader = reader
        self._file: WatchedOutput | None = None
        with suppress(OSError):
            self._file = WatchedOutput(path)
        self._rest = b""  # the beginning of a line that is not complete yet
        self._totals: dict[str, float] = {}  # by what they count
        self._first: str | None = None  # of several processes, the one that counts
        self._has_loop = False

    def look(self, current_time: Seconds) -> None:
        """Read the new events."""
        if self._file is None:
            return
        chunks = [self._rest]
        self._file.look(chunks.append)
        if len(chunks) == 1:
            return
        # the last piece is not a whole line yet
        *lines, self._rest = b"".join(chunks).split(b"\n")
        decoder = msgspec.json.Decoder(channel.RegionLine)
        for text in lines:
            with suppress(*UNREADABLE):
                self._take(decoder.decode(text), current_time)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _take(self, line: "channel.RegionLine", current_time: Seconds) -> None:
        if line.loops:
            self._first = self._first or line.process
        for loop in line.loops.values() if line.process == self._first else ():
            self._has_loop = True
            self._reader.report(loop.count, loop.total, current_time, "weigh.batches")
        # a loop that weigh times counts itself, and better than events
        for event in line.events if not self._has_loop else ():
            self._take_event(event.name.lower(), event.value, current_time)

    def _take_event(self, name: str, value: object, current_time: Seconds) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if found := _TOTAL_NAME.fullmatch(name):
            self._totals[found[1]] = value
        elif found := _STEP_NAME.fullmatch(name):
            total = self._totals.get(found[1])
            self._reader.report(value, total, current_time, f"weigh.event {name!r}")


class ProgressFollower:
    """Follows one run: forecasts its end, warns, and sends the checkpoint signal.

    Times are seconds since the run's start. ``forecast`` is the latest one, None while
    nothing is counted. ``work`` is the CPU time used, also by processes that are gone.
    """

    def __init__(
        self,
        reader: ProgressReader,
        stalls: StallWatch,
        *,
        notify: Callable[[str], None],
        warn: Callable[[str], None],
        send: Callable[[int], int],
    ) -> None:
        """*send* sends a signal, and returns how many processes have got it.

        A warning may be of two lines.
        """
        self.reader = reader
        self.forecast: ReportedProgress | None = None
        self.work: Seconds = 0.0
        self._stalls = stalls
        self._notify = notify
        self._warn = warn
        self._send = send
        self._limits: LimitWatch | None = None
        self._checkpoint: CheckpointSignal | None = None  # None: none, or it was sent
        self._cpu_time: Seconds = 0.0

    def set_limit(
        self, limits: LimitWatch, checkpoint: CheckpointSignal | None
    ) -> None:
        """Note the time limit once it is known, and the signal to send before it."""
        self._limits = limits
        self._checkpoint = checkpoint

    def look(self, run: "TreeWatcher") -> Seconds:
        """Read new output, and say what is due; return the seconds until the next look.

        The first look comes when a program has had the time to install its handlers.
        """
        now = run.elapsed()
        # first: whatever fails below, it is sent
        until_signal = self._time_until_signal(now)
        self.reader.look(now)
        self.forecast = self.reader.forecast(now)
        warnings = [
            self._stalls.look(
                now,
                cpu_time=self._work_of(run),
                wrote_at=self.reader.wrote_at,
                gpu_idle=run.gpu_idle(),
            )
        ]
        if self._limits is not None:
            warnings.append(self._limits.look(now, self.forecast))
        for warning in filter(None, warnings):
            self._warn(warning)
        pause = max(waits.times.between_looks, now * _OF_ELAPSED)
        # the signal is never late
        return min(pause, waits.times.longest_between_looks, until_signal)

    def finish(self, current_time: Seconds, *, is_through: bool) -> None:
        """Read the rest of the output, and close it.

        *is_through*: the run has completed. One that failed did not do all its steps.
        """
        try:
            self.reader.look(current_time)
            found = self.reader.forecast(current_time, is_through=is_through)
            self.forecast = found or self.forecast
        finally:
            self.reader.close()

    def _time_until_signal(self, current_time: Seconds) -> Seconds:
        """Return the seconds until the checkpoint signal; send it if it is due."""
        wanted = self._checkpoint
        if wanted is None or self._limits is None:
            return math.inf
        left = self._limits.limit - current_time
        if left > wanted.before:
            return left - wanted.before
        # only once, whether it can be sent or not
        self._checkpoint = None
        if self._send(wanted.number):
            words = f"sent {wanted.name}, {format_duration(max(0.0, left))}"
            self._notify(f"{words} before the time limit")
        else:
            self._notify(f"{wanted.name} not sent: no process has a handler for it")
        return math.inf

    def _work_of(self, run: "TreeWatcher") -> Seconds:
        """Return the CPU time used so far, the sum of its changes."""
        times = (one.cpu_time for one in reversed(run.samples))
        latest = next((one for one in times if one is not None), 0.0)
        # abs: without a clock it is that of live processes, and falls when one ends
        self.work += abs(latest - self._cpu_time)
        self._cpu_time = latest
        return self.work
